"""Triton kernels that modify a sparse matrix without a host-device sync. Importing this module needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl


# Specializing on sizes would only repeat the compilation, which takes seconds.
@triton.jit(do_not_specialize=["pairs"])
def count_ends(u, v, count, pairs, PART: tl.constexpr):
    """Count the pairs at each node."""
    e = tl.program_id(0) * PART + tl.arange(0, PART)
    present = e < pairs
    tl.atomic_add(count + tl.load(u + e, mask=present, other=0), 1, mask=present, sem="relaxed")
    tl.atomic_add(count + tl.load(v + e, mask=present, other=0), 1, mask=present, sem="relaxed")


@triton.jit(do_not_specialize=["pairs"])
def list_ends(u, v, count, begin, partner, position, pairs, PART: tl.constexpr):
    """Write, for each node, the list of its partners in the pairs and their positions, in any order.

    The list of a node starts at ``begin[node]``; ``count[node]`` is decremented for each element written.
    """
    own = tl.program_id(0) * PART + tl.arange(0, PART)
    present = own < 2 * pairs
    i = tl.where(own < pairs, own, own - pairs)
    i_u, i_v = tl.load(u + i, mask=present, other=0), tl.load(v + i, mask=present, other=0)
    node = tl.where(own < pairs, i_u, i_v)
    left = tl.atomic_add(count + node, -1, mask=present, sem="relaxed")
    slot = tl.load(begin + node, mask=present, other=0) + left - 1
    tl.store(partner + slot, tl.where(own < pairs, i_v, i_u), mask=present)
    tl.store(position + slot, own, mask=present)


@triton.jit(do_not_specialize=["nodes", "entries", "pairs"])
def insert_pairs(
    rowptr,
    col,
    key,
    weight,
    diagonal,
    u,
    v,
    flip,
    begin,
    listed_partner,
    listed_position,
    new_rowptr,
    new_col,
    new_weight,
    new_diagonal,
    nodes,
    entries,
    pairs,
    OWN: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Insert pairs in both directions into sorted rows; OWN new entries, old entries or rows per program.

    Nothing is sorted: each entry counts the new entries of its row before it; ties go to the earlier position.
    """
    own = tl.program_id(0) * OWN + tl.arange(0, OWN)
    is_new = own < 2 * pairs
    is_old = (own >= 2 * pairs) & (own < 2 * pairs + entries)
    is_row = (own >= 2 * pairs + entries) & (own <= 2 * pairs + entries + nodes)
    i = tl.where(own < pairs, own, own - pairs)
    i_u, i_v = tl.load(u + i, mask=is_new, other=0), tl.load(v + i, mask=is_new, other=0)
    old = own - 2 * pairs
    old_key = tl.load(key + old, mask=is_old, other=0)
    row = tl.where(is_new, tl.where(own < pairs, i_u, i_v), tl.where(is_old, old_key // nodes, old - entries))
    own_col = tl.where(is_new, tl.where(own < pairs, i_v, i_u), old_key % nodes)

    first = tl.load(begin + row, mask=is_new | is_old | is_row, other=0)
    last = tl.load(begin + row + 1, mask=is_new | is_old, other=0)
    before = tl.zeros([OWN], dtype=tl.int32)
    same = tl.zeros([OWN], dtype=new_weight.dtype.element_ty)
    for start in range(0, tl.max(last - first), CHUNK):
        k = first[:, None] + start + tl.arange(0, CHUNK)[None, :]
        listed = k < last[:, None]
        partner = tl.load(listed_partner + k, mask=listed, other=0)
        position = tl.load(listed_position + k, mask=listed, other=0)
        equal = listed & (partner == own_col[:, None])
        earlier = equal & (position < own[:, None])
        before += tl.sum((earlier | (listed & (partner < own_col[:, None]))).to(tl.int32), axis=1)
        changes = equal & is_old[:, None]
        same += tl.sum(
            tl.load(flip + tl.where(position < pairs, position, position - pairs), mask=changes, other=0.0), axis=1
        )
    before += first

    # Binary search for the position of a new entry among the old ones of its row.
    low = tl.load(rowptr + row, mask=is_new, other=0)
    end = tl.load(rowptr + row + 1, mask=is_new, other=0)
    high = end
    while tl.max(high - low) > 0:
        middle = (low + high) // 2
        below = tl.load(col + middle, mask=low < high, other=0) < own_col
        low, high = tl.where((low < high) & below, middle + 1, low), tl.where((low < high) & (below == 0), middle, high)
    exists = tl.load(col + low, mask=is_new & (low < end), other=-1) == own_col
    added = tl.where(exists, 0.0, tl.load(flip + i, mask=is_new, other=0.0))
    tl.store(new_col + low + before, own_col, mask=is_new)
    tl.store(new_weight + low + before, added, mask=is_new)

    tl.store(new_col + old + before, own_col, mask=is_old)
    # Of several entries with the same key only the first is changed.
    is_first = tl.load(key + old - 1, mask=is_old & (old > 0), other=-1) != old_key
    changed = tl.load(weight + old, mask=is_old, other=0.0) - tl.where(is_first, same, 0.0)
    tl.store(new_weight + old + before, changed, mask=is_old)
    on_diagonal = is_old & (tl.load(diagonal + row, mask=is_old, other=-1) == old)
    tl.store(new_diagonal + row, old + before, mask=on_diagonal)
    tl.store(new_rowptr + row, tl.load(rowptr + row, mask=is_row, other=0) + before, mask=is_row)


@triton.jit(do_not_specialize=["rows"])
def inverse_roots(rowptr, weight, scale, rows, SELF_LOOPS: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr):
    """Compute 1 / sqrt(sum of the weights) of each row, or 0 if the sum is 0; ROWS rows per program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    start = tl.load(rowptr + row, mask=row < rows, other=0)
    end = tl.load(rowptr + row + 1, mask=row < rows, other=0)
    total = tl.zeros([ROWS], dtype=scale.dtype.element_ty)
    for first in range(0, tl.max(end - start), ENTRIES):
        e = start[:, None] + first + tl.arange(0, ENTRIES)[None, :]
        total += tl.sum(tl.load(weight + e, mask=e < end[:, None], other=0.0), axis=1)
    if SELF_LOOPS:
        total += 1.0
    root = 1.0 / tl.sqrt(tl.where(total > 0, total, 1.0))
    tl.store(scale + row, tl.where(total > 0, root, 0.0), mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def scaled(
    rowptr,
    col,
    weight,
    diagonal,
    scale,
    out,
    rows,
    SELF_LOOPS: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Scale each entry: out = scale[row] * weight * scale[col]; ROWS rows per program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    start = tl.load(rowptr + row, mask=row < rows, other=0)
    end = tl.load(rowptr + row + 1, mask=row < rows, other=0)
    row_scale = tl.load(scale + row, mask=row < rows, other=0.0)[:, None]
    loop = tl.load(diagonal + row, mask=row < rows, other=0)[:, None]
    for first in range(0, tl.max(end - start), ENTRIES):
        e = start[:, None] + first + tl.arange(0, ENTRIES)[None, :]
        inside = e < end[:, None]
        j = tl.load(col + e, mask=inside, other=0)
        w = tl.load(weight + e, mask=inside, other=0.0)
        if SELF_LOOPS:
            w += tl.where(e == loop, 1.0, 0.0)
        tl.store(out + e, row_scale * w * tl.load(scale + j, mask=inside, other=0.0), mask=inside)


@triton.jit(do_not_specialize=["count", "nodes"])
def table_at(table, node, u, v, out, count, nodes, PART: tl.constexpr):
    """Look up pair scores: out[e] = table[u, v] + table[v, u] + node[u] + node[v]."""
    e = tl.program_id(0) * PART + tl.arange(0, PART)
    present = e < count
    i = tl.load(u + e, mask=present, other=0)
    j = tl.load(v + e, mask=present, other=0)
    forth = tl.load(table + i * nodes + j, mask=present, other=0.0)
    back = tl.load(table + j * nodes + i, mask=present, other=0.0)
    ends = tl.load(node + i, mask=present, other=0.0) + tl.load(node + j, mask=present, other=0.0)
    tl.store(out + e, forth + back + ends, mask=present)


@triton.jit(do_not_specialize=["count", "capacity"])
def compact(mask, rank, index, flip, out_index, out_flip, count, capacity, PART: tl.constexpr):
    """Copy each masked item to the position given by its rank, up to the capacity."""
    e = tl.program_id(0) * PART + tl.arange(0, PART)
    position = tl.load(rank + e, mask=e < count, other=0) - 1
    kept = (tl.load(mask + e, mask=e < count, other=0) != 0) & (position < capacity)
    tl.store(out_index + position, tl.load(index + e, mask=kept, other=0), mask=kept)
    tl.store(out_flip + position, tl.load(flip + e, mask=kept, other=0.0), mask=kept)
