"""Triton programs behind :mod:`~edgeproof.certificates.sampling`. Importing this needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl

from edgeproof.kernels._triton_kernels import unrank


@triton.jit
def uniform(stream, draw):
    """A number in [0, 1) for each draw, as the function of that name in :mod:`~edgeproof.certificates.sampling`."""
    x = stream + draw.to(tl.uint64) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return (x >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def count_below(numbers, count, key, steps, OR_EQUAL: tl.constexpr):
    """How many of an ascending list of numbers lie below each key, or, if asked for, are equal to it."""
    low = tl.zeros_like(key)
    high = low + count
    for _ in range(steps):
        searching = low < high
        middle = (low + high) // 2
        found = tl.load(numbers + middle, mask=searching, other=0)
        below = (found < key) | (OR_EQUAL & (found == key))
        low = tl.where(searching & below, middle + 1, low)
        high = tl.where(searching & (below == 0), middle, high)
    return low


@triton.jit
def draw_pairs(
    streams,
    edges,
    edge_u,
    edge_v,
    num_edges,
    first_edge_draw,
    n,
    total,
    p_del,
    scale,
    gaps,
    edge_steps,
    gap_steps,
    numbers,
    u,
    v,
    upper,
    lower,
    last,
    PART: tl.constexpr,
):
    """The pairs of a sample, one sample per program, in ascending order; -1 in places of pairs that are not in it.

    ``upper[u]`` and ``lower[v]`` count them at their ends. ``last`` is the last number drawn.
    """
    sample = tl.program_id(0).to(tl.int64)
    stream = tl.load(streams + sample).to(tl.uint64, bitcast=True)
    numbers += sample * gaps
    u += sample * (gaps + num_edges)
    v += sample * (gaps + num_edges)
    upper += sample * n
    lower += sample * n
    passed = tl.full([], -1, tl.int64)
    for start in range(0, gaps, PART):
        draw = (start + tl.arange(0, PART)).to(tl.int64)
        inside = draw < gaps
        gap = (tl.log(1.0 - uniform(stream, draw)) * scale).to(tl.int64) + 1
        gap = tl.where(inside, gap, 0)
        number = passed + tl.cumsum(gap, axis=0)
        passed += tl.sum(gap)
        tl.store(numbers + draw, number, mask=inside)
        place = count_below(edges, num_edges, number, edge_steps, False)
        known = tl.load(edges + place, mask=place < num_edges, other=-1) == number
        new = inside & (number < total) & (known == 0)
        i, j = unrank(number, n)
        tl.store(u + draw + place, tl.where(new, i, -1).to(tl.int32), mask=inside)
        tl.store(v + draw + place, tl.where(new, j, -1).to(tl.int32), mask=inside)
        tl.atomic_add(upper + i, 1, mask=new)
        tl.atomic_add(lower + j, 1, mask=new)
    tl.store(last + sample, passed)
    tl.debug_barrier()
    for start in range(0, num_edges, PART):
        e = (start + tl.arange(0, PART)).to(tl.int64)
        inside = e < num_edges
        keep = inside & (uniform(stream, first_edge_draw + e) >= p_del)
        # Of a pair that is an edge already, the edge decides; it stands behind the draw of the same number.
        number = tl.load(edges + e, mask=inside, other=0)
        place = e + count_below(numbers, gaps, number, gap_steps, True)
        i, j = tl.load(edge_u + e, mask=inside, other=0), tl.load(edge_v + e, mask=inside, other=0)
        tl.store(u + place, tl.where(keep, i, -1).to(tl.int32), mask=inside)
        tl.store(v + place, tl.where(keep, j, -1).to(tl.int32), mask=inside)
        tl.atomic_add(upper + i, 1, mask=keep)
        tl.atomic_add(lower + j, 1, mask=keep)


@triton.jit
def fill_rows(u, v, ahead, shift, lower, col, n, slots, PART: tl.constexpr):
    """Columns row by row, one sample per program, from pairs in ascending order.

    The larger neighbours of a row follow each other in that order: ``ahead[i]`` pairs, over all samples, come before row i's
    first, and a pair with so many before it goes to their number plus ``shift[i]``. ``lower[i]`` is where row i's next smaller
    neighbour goes. Those come a few pairs at a time: pairs of the same row among them are told apart by their order, so the
    outcome does not depend on which thread is first.
    """
    sample = tl.program_id(0).to(tl.int64)
    first_node = sample * n
    u += sample * slots
    v += sample * slots
    shift += first_node
    lower += first_node
    seen = tl.load(ahead + first_node)
    here = tl.arange(0, PART)
    earlier = here[None, :] < here[:, None]
    for start in range(0, slots, PART):
        e = start + here
        i = tl.load(u + e, mask=e < slots, other=-1)
        j = tl.load(v + e, mask=e < slots, other=-1)
        present = i >= 0
        rank = tl.cumsum(present.to(tl.int32), axis=0)
        at_i = seen + rank - 1 + tl.load(shift + i, mask=present, other=0)
        seen += tl.sum(present.to(tl.int32))
        before_j = tl.sum((earlier & (j[None, :] == j[:, None])).to(tl.int32), axis=1)
        # Volatile: other threads have changed them since.
        at_j = tl.load(lower + j, mask=present, other=0, volatile=True) + before_j
        tl.store(col + at_i, first_node + j, mask=present)
        tl.store(col + at_j, first_node + i, mask=present)
        tl.debug_barrier()
        tl.atomic_add(lower + j, 1, mask=present)
        tl.debug_barrier()
