"""A Triton program that takes the largest values that fit, without asking the host. Importing this needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl


# Compiling takes seconds; sizes that it would be repeated for make no difference.
@triton.jit(do_not_specialize=["unit", "count", "nodes"])
def take(
    value,
    position,
    u,
    v,
    total,
    room,
    asked,
    disputed,
    taken,
    finite,
    unit,
    count,
    nodes,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Algorithm 1 on values in descending order, one row of them per program.

    Many are looked at together. A pair that does not fit at one of its ends never will, and most do not. Where all that fit at
    a node fit together, nothing is disputed: their order does not matter. What is disputed at one of its ends, or in the common
    box, is gone through in small groups.

    The first value that is larger than what is left in the common box ends it all. Values descend, so this can only be the one
    behind a value that was taken, and none as long as the largest of those at hand would still fit in the end.

    Args:
        value: in descending order, shape ``[rows, count]``.
        position: where in its row each value comes from, likewise.
        u: one end of each position, shape ``[count]``.
        v: its other end.
        total: the common box, shape ``[1]``.
        room: what is left at each node, shape ``[rows, nodes]``.
        asked: zeros, as workspace, shape ``[rows, nodes]``.
        disputed: workspace, shape ``[rows, 4, WIDE]``.
        taken: zeros, to be set to one for each position taken, shape ``[rows, count]``.
        finite: to be set to whether all values of a row are finite, shape ``[rows]``.
        unit: how much room a value of 1 takes; a larger one takes as much.
    """
    row = tl.program_id(0).to(tl.int64)
    value += row * count
    position += row * count
    room += row * nodes
    asked += row * nodes
    disputed += row * 4 * WIDE
    taken += row * count
    # What is not a number comes first.
    is_finite = (tl.load(value) < float("inf")) & (tl.load(value + count - 1) > -float("inf"))
    tl.store(finite + row, is_finite)
    left = tl.load(total)
    going = size_of(tl.load(value), unit, WHOLE) <= left
    start = tl.full([], 0, tl.int32)
    while going & (start < count):
        place = start + tl.arange(0, WIDE)
        x = tl.load(value + place, mask=place < count, other=0.0)
        present = x > 0
        e = tl.load(position + place, mask=present, other=0)
        i = tl.load(u + e, mask=present, other=0)
        j = tl.load(v + e, mask=present, other=0)
        size = size_of(x, unit, WHOLE)
        # Volatile, here and below: another thread may have written them.
        room_i = tl.load(room + i, mask=present, other=0, volatile=True)
        room_j = tl.load(room + j, mask=present, other=0, volatile=True)
        open_ = present & (room_i >= size) & (room_j >= size)
        if left - tl.sum(tl.where(open_, size, 0)) >= tl.max(size):
            tl.atomic_add(asked + i, size, mask=open_, sem="relaxed")
            tl.atomic_add(asked + j, size, mask=open_, sem="relaxed")
            tl.debug_barrier()
            asked_i = tl.load(asked + i, mask=open_, other=0, volatile=True)
            asked_j = tl.load(asked + j, mask=open_, other=0, volatile=True)
            sure = open_ & (asked_i <= room_i) & (asked_j <= room_j)
            tl.debug_barrier()
            tl.store(asked + i, 0, mask=open_)
            tl.store(asked + j, 0, mask=open_)
            tl.atomic_add(room + i, -size, mask=sure, sem="relaxed")
            tl.atomic_add(room + j, -size, mask=sure, sem="relaxed")
            tl.store(taken + e, 1, mask=sure)
            left -= tl.sum(tl.where(sure, size, 0))
            open_ = open_ & (sure == 0)
        many = tl.sum(open_.to(tl.int32))
        slot = disputed + tl.cumsum(open_.to(tl.int32), axis=0) - 1
        tl.store(slot, place, mask=open_)
        tl.store(slot + WIDE, e, mask=open_)
        tl.store(slot + 2 * WIDE, (i << 32) | j, mask=open_)
        tl.store(slot + 3 * WIDE, size, mask=open_)
        tl.debug_barrier()
        first = tl.full([], 0, tl.int32)
        while going & (first < many):
            left, going = take_group(value, room, disputed, taken, unit, count, first, many, left, WHOLE, WIDE, GROUP)
            tl.debug_barrier()
            first += GROUP
        # Behind the last positive value there are no others.
        going = going & (tl.sum(present.to(tl.int32)) == WIDE)
        start += WIDE


@triton.jit
def take_group(
    value,
    room,
    disputed,
    taken,
    unit,
    count,
    first,
    many,
    left,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Take what fits of a group of pairs in order; what is left in the common box, and whether to go on.

    A pair is taken at once if it fits even when all before it are taken; then the others are looked at again.
    """
    own = tl.arange(0, GROUP)
    inside = first + own < many
    slot = disputed + first + own
    e = tl.load(slot + WIDE, mask=inside, other=0)
    ends = tl.load(slot + 2 * WIDE, mask=inside, other=0)
    size = tl.load(slot + 3 * WIDE, mask=inside, other=0)
    i = (ends >> 32).to(tl.int32)
    j = ends.to(tl.int32)
    room_i = tl.load(room + i, mask=inside, other=0, volatile=True)
    room_j = tl.load(room + j, mask=inside, other=0, volatile=True)
    # Every warp has read them before one writes: otherwise they might disagree about what is open.
    tl.debug_barrier()
    open_ = inside & (room_i >= size) & (room_j >= size)
    # Which pairs, along the second axis, share this or that end of a pair.
    at_i = (i[:, None] == i[None, :]) | (i[:, None] == j[None, :])
    at_j = (j[:, None] == i[None, :]) | (j[:, None] == j[None, :])
    earlier = own[None, :] < own[:, None]
    going = left >= 0
    while going & (tl.sum(open_.to(tl.int32)) > 0):
        wanted = tl.where(open_, size, 0)
        before_i = tl.sum(tl.where(at_i & earlier, wanted[None, :], 0), axis=1)
        before_j = tl.sum(tl.where(at_j & earlier, wanted[None, :], 0), axis=1)
        sure = open_ & (before_i + size <= room_i) & (before_j + size <= room_j)
        sure = sure & (left - tl.cumsum(wanted, axis=0) >= tl.max(wanted))
        # The first of them is sure, unless so little would be left that the next one might end it.
        one_alone = tl.sum(sure.to(tl.int32)) == 0
        if one_alone:
            sure = open_ & (own == tl.min(tl.where(open_, own, GROUP)))
        spent = tl.where(sure, size, 0)
        left -= tl.sum(spent)
        tl.store(taken + e, 1, mask=sure)
        tl.atomic_add(room + i, -size, mask=sure, sem="relaxed")
        tl.atomic_add(room + j, -size, mask=sure, sem="relaxed")
        if one_alone:
            behind = tl.sum(tl.load(slot, mask=sure, other=0)) + 1
            x = tl.load(value + behind, mask=behind < count, other=0.0)
            going = size_of(x, unit, WHOLE) <= left
        room_i -= tl.sum(tl.where(at_i, spent[None, :], 0), axis=1)
        room_j -= tl.sum(tl.where(at_j, spent[None, :], 0), axis=1)
        open_ = open_ & (sure == 0) & (room_i >= size) & (room_j >= size)
    return left, going


@triton.jit
def size_of(value, unit, WHOLE: tl.constexpr):
    """How much room a value takes."""
    if WHOLE:
        value = tl.where(value > 0, 1.0, 0.0)
    return tl.ceil(tl.minimum(value, 1.0).to(tl.float64) * unit).to(tl.int64)
