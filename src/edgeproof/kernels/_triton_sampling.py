"""Triton kernels that sample random graphs. Importing this module needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl

from edgeproof.kernels._triton_kernels import unrank


@triton.jit
def uniform(stream, draw):
    """Return a number in [0, 1) for each draw; see :func:`~edgeproof.kernels.reference_sampling.uniform`."""
    x = stream + draw.to(tl.uint64) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return (x >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def count_below(ascending, count, key, steps, OR_EQUAL: tl.constexpr):
    """Return the number of elements of an ascending list that are less than (or equal to) each key."""
    low = tl.zeros_like(key)
    high = low + count
    for _ in range(steps):
        searching = low < high
        middle = (low + high) // 2
        element = tl.load(ascending + middle, mask=searching, other=0)
        below = (element < key) | (OR_EQUAL & (element == key))
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
    drawn,
    u,
    v,
    upper,
    lower,
    last,
    PART: tl.constexpr,
):
    """Draw the pairs of a sample in ascending order, one sample per program; slots without a pair hold -1.

    ``upper[u]`` and ``lower[v]`` count the pairs at their nodes. ``last`` is the last pair index reached.
    """
    sample = tl.program_id(0).to(tl.int64)
    stream = tl.load(streams + sample).to(tl.uint64, bitcast=True)
    drawn += sample * gaps
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
        index = passed + tl.cumsum(gap, axis=0)
        passed += tl.sum(gap)
        tl.store(drawn + draw, index, mask=inside)
        before = count_below(edges, num_edges, index, edge_steps, False)
        is_edge = tl.load(edges + before, mask=before < num_edges, other=-1) == index
        new = inside & (index < total) & (is_edge == 0)
        i, j = unrank(index, n)
        tl.store(u + draw + before, tl.where(new, i, -1).to(tl.int32), mask=inside)
        tl.store(v + draw + before, tl.where(new, j, -1).to(tl.int32), mask=inside)
        tl.atomic_add(upper + i, 1, mask=new)
        tl.atomic_add(lower + j, 1, mask=new)
    tl.store(last + sample, passed)
    tl.debug_barrier()
    for start in range(0, num_edges, PART):
        e = (start + tl.arange(0, PART)).to(tl.int64)
        inside = e < num_edges
        keep = inside & (uniform(stream, first_edge_draw + e) >= p_del)
        # If an added pair is an edge, only the draw of the edge counts; its slot follows the one of the added pair.
        index = tl.load(edges + e, mask=inside, other=0)
        slot = e + count_below(drawn, gaps, index, gap_steps, True)
        i, j = tl.load(edge_u + e, mask=inside, other=0), tl.load(edge_v + e, mask=inside, other=0)
        tl.store(u + slot, tl.where(keep, i, -1).to(tl.int32), mask=inside)
        tl.store(v + slot, tl.where(keep, j, -1).to(tl.int32), mask=inside)
        tl.atomic_add(upper + i, 1, mask=keep)
        tl.atomic_add(lower + j, 1, mask=keep)


@triton.jit
def fill_rows(u, v, ahead, shift, lower, col, n, slots, PART: tl.constexpr):
    """Write the columns of every row from pairs in ascending order, one sample per program.

    The larger neighbours of row i are consecutive in that order: ``ahead[i]`` pairs, over all samples, precede its first one,
    and a pair preceded by ``k`` pairs is written to ``k + shift[i]``. ``lower[i]`` is the position of the next smaller
    neighbour of row i. Smaller neighbours are written in parts of PART pairs; pairs of the same row within a part are ranked by
    their order, so the result does not depend on the order of threads.
    """
    sample = tl.program_id(0).to(tl.int64)
    first_node = sample * n
    u += sample * slots
    v += sample * slots
    shift += first_node
    lower += first_node
    seen = tl.load(ahead + first_node)
    own = tl.arange(0, PART)
    earlier = own[None, :] < own[:, None]
    for start in range(0, slots, PART):
        e = start + own
        i = tl.load(u + e, mask=e < slots, other=-1)
        j = tl.load(v + e, mask=e < slots, other=-1)
        present = i >= 0
        rank = tl.cumsum(present.to(tl.int32), axis=0)
        at_i = seen + rank - 1 + tl.load(shift + i, mask=present, other=0)
        seen += tl.sum(present.to(tl.int32))
        before_j = tl.sum((earlier & (j[None, :] == j[:, None])).to(tl.int32), axis=1)
        # Volatile: other threads have changed these values.
        at_j = tl.load(lower + j, mask=present, other=0, volatile=True) + before_j
        tl.store(col + at_i, first_node + j, mask=present)
        tl.store(col + at_j, first_node + i, mask=present)
        tl.debug_barrier()
        tl.atomic_add(lower + j, 1, mask=present)
        tl.debug_barrier()
