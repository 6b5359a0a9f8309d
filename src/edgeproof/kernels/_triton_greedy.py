"""Triton kernel of the greedy selection in Algorithm 1, without a host-device sync. Importing this module needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl


# Specializing on sizes would only repeat the compilation, which takes seconds.
@triton.jit(do_not_specialize=["unit", "count", "nodes"])
def take(
    value,
    position,
    u,
    v,
    total,
    room,
    demand,
    contested,
    taken,
    finite,
    unit,
    count,
    nodes,
    WHOLE: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Run Algorithm 1 on values in descending order, one row per program.

    WINDOW values are examined together. A pair that exceeds the budget of a node exceeds it later, too, and most pairs do. If
    all candidates at a node fit together, their order does not matter and they are selected at once. Contested candidates, at
    a node or in the total budget, are processed in groups of GROUP.

    The first value that exceeds the remaining total budget ends the selection. Values descend, so this can only be the
    successor of a selected value, and cannot happen while the largest candidate of the window would still fit at the end of
    the window.

    Args:
        value: Values in descending order, shape ``[rows, count]``.
        position: Original position of each value in its row, shape ``[rows, count]``.
        u: First node of each position, shape ``[count]``.
        v: Second node of each position, shape ``[count]``.
        total: Total budget, shape ``[1]``.
        room: Remaining budget of each node, shape ``[rows, nodes]``.
        demand: Zeros, as workspace, shape ``[rows, nodes]``.
        contested: Workspace, shape ``[rows, 4, WINDOW]``.
        taken: Zeros; output mask by position, shape ``[rows, count]``.
        finite: Output, whether all values of a row are finite, shape ``[rows]``.
        unit: Cost of a value of at least 1.
    """
    row = tl.program_id(0).to(tl.int64)
    value += row * count
    position += row * count
    room += row * nodes
    demand += row * nodes
    contested += row * 4 * WINDOW
    taken += row * count
    # NaN sorts first.
    is_finite = (tl.load(value) < float("inf")) & (tl.load(value + count - 1) > -float("inf"))
    tl.store(finite + row, is_finite)
    left = tl.load(total)
    proceed = cost_of(tl.load(value), unit, WHOLE) <= left
    start = tl.full([], 0, tl.int32)
    while proceed & (start < count):
        rank = start + tl.arange(0, WINDOW)
        x = tl.load(value + rank, mask=rank < count, other=0.0)
        present = x > 0
        e = tl.load(position + rank, mask=present, other=0)
        i = tl.load(u + e, mask=present, other=0)
        j = tl.load(v + e, mask=present, other=0)
        cost = cost_of(x, unit, WHOLE)
        # Volatile, here and below: another thread may have written these values.
        room_i = tl.load(room + i, mask=present, other=0, volatile=True)
        room_j = tl.load(room + j, mask=present, other=0, volatile=True)
        open_ = present & (room_i >= cost) & (room_j >= cost)
        if left - tl.sum(tl.where(open_, cost, 0)) >= tl.max(cost):
            tl.atomic_add(demand + i, cost, mask=open_, sem="relaxed")
            tl.atomic_add(demand + j, cost, mask=open_, sem="relaxed")
            tl.debug_barrier()
            demand_i = tl.load(demand + i, mask=open_, other=0, volatile=True)
            demand_j = tl.load(demand + j, mask=open_, other=0, volatile=True)
            certain = open_ & (demand_i <= room_i) & (demand_j <= room_j)
            tl.debug_barrier()
            tl.store(demand + i, 0, mask=open_)
            tl.store(demand + j, 0, mask=open_)
            tl.atomic_add(room + i, -cost, mask=certain, sem="relaxed")
            tl.atomic_add(room + j, -cost, mask=certain, sem="relaxed")
            tl.store(taken + e, 1, mask=certain)
            left -= tl.sum(tl.where(certain, cost, 0))
            open_ = open_ & (certain == 0)
        num_open = tl.sum(open_.to(tl.int32))
        slot = contested + tl.cumsum(open_.to(tl.int32), axis=0) - 1
        tl.store(slot, rank, mask=open_)
        tl.store(slot + WINDOW, e, mask=open_)
        tl.store(slot + 2 * WINDOW, (i << 32) | j, mask=open_)
        tl.store(slot + 3 * WINDOW, cost, mask=open_)
        tl.debug_barrier()
        first = tl.full([], 0, tl.int32)
        while proceed & (first < num_open):
            left, proceed = take_group(
                value, room, contested, taken, unit, count, first, num_open, left, WHOLE, WINDOW, GROUP
            )
            tl.debug_barrier()
            first += GROUP
        # Without positive values left, the selection is complete.
        proceed = proceed & (tl.sum(present.to(tl.int32)) == WINDOW)
        start += WINDOW


@triton.jit
def take_group(
    value,
    room,
    contested,
    taken,
    unit,
    count,
    first,
    num_open,
    left,
    WHOLE: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Select from a group of pairs in order; return the remaining total budget, and whether to continue.

    A pair is selected at once if it fits even when all pairs before it are selected; then the others are examined again.
    """
    own = tl.arange(0, GROUP)
    inside = first + own < num_open
    slot = contested + first + own
    e = tl.load(slot + WINDOW, mask=inside, other=0)
    ends = tl.load(slot + 2 * WINDOW, mask=inside, other=0)
    cost = tl.load(slot + 3 * WINDOW, mask=inside, other=0)
    i = (ends >> 32).to(tl.int32)
    j = ends.to(tl.int32)
    room_i = tl.load(room + i, mask=inside, other=0, volatile=True)
    room_j = tl.load(room + j, mask=inside, other=0, volatile=True)
    # All warps must read before any writes: otherwise their masks of open pairs could differ.
    tl.debug_barrier()
    open_ = inside & (room_i >= cost) & (room_j >= cost)
    # Whether the pair along the second axis shares the first or the second node.
    at_i = (i[:, None] == i[None, :]) | (i[:, None] == j[None, :])
    at_j = (j[:, None] == i[None, :]) | (j[:, None] == j[None, :])
    earlier = own[None, :] < own[:, None]
    proceed = left >= 0
    while proceed & (tl.sum(open_.to(tl.int32)) > 0):
        open_cost = tl.where(open_, cost, 0)
        before_i = tl.sum(tl.where(at_i & earlier, open_cost[None, :], 0), axis=1)
        before_j = tl.sum(tl.where(at_j & earlier, open_cost[None, :], 0), axis=1)
        certain = open_ & (before_i + cost <= room_i) & (before_j + cost <= room_j)
        certain = certain & (left - tl.cumsum(open_cost, axis=0) >= tl.max(open_cost))
        # The first open pair is certain, unless the remaining total budget is so small that its successor may end the
        # selection.
        only_first = tl.sum(certain.to(tl.int32)) == 0
        if only_first:
            certain = open_ & (own == tl.min(tl.where(open_, own, GROUP)))
        paid = tl.where(certain, cost, 0)
        left -= tl.sum(paid)
        tl.store(taken + e, 1, mask=certain)
        tl.atomic_add(room + i, -cost, mask=certain, sem="relaxed")
        tl.atomic_add(room + j, -cost, mask=certain, sem="relaxed")
        if only_first:
            successor = tl.sum(tl.load(slot, mask=certain, other=0)) + 1
            x = tl.load(value + successor, mask=successor < count, other=0.0)
            proceed = cost_of(x, unit, WHOLE) <= left
        room_i -= tl.sum(tl.where(at_i, paid[None, :], 0), axis=1)
        room_j -= tl.sum(tl.where(at_j, paid[None, :], 0), axis=1)
        open_ = open_ & (certain == 0) & (room_i >= cost) & (room_j >= cost)
    return left, proceed


@triton.jit
def cost_of(value, unit, WHOLE: tl.constexpr):
    """Return the integer cost of each value, rounded up."""
    if WHOLE:
        value = tl.where(value > 0, 1.0, 0.0)
    return tl.ceil(tl.minimum(value, 1.0).to(tl.float64) * unit).to(tl.int64)
