"""A Triton program that takes the largest values that fit, without asking the host. Importing this needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl

LATE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def size_of(value, unit, WHOLE: tl.constexpr):
    """How much room a value takes."""
    if WHOLE:
        value = tl.where(value > 0, 1.0, 0.0)
    return tl.ceil(tl.minimum(value, 1.0).to(tl.float64) * unit).to(tl.int64)


@triton.jit
def take(
    value,
    position,
    u,
    v,
    total,
    room,
    fitting,
    taken,
    unit,
    count,
    nodes,
    WHOLE: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Algorithm 1 on values in descending order, one row of them per program.

    A pair that does not fit at one of its ends never will, and most do not: many are looked at together, and those that fit
    are gone through in small groups. In a group a pair is taken at once if it fits even when all before it are taken; then the
    others are looked at again.

    While a whole unit is left in the common box, every value fits into it. After that the first value that is larger than what
    is left ends it all. Values descend, so this can only be the one behind a value that was taken, which is why the last few
    are taken one by one.

    Args:
        value: in descending order, shape ``[rows, count]``.
        position: where in its row each value comes from, likewise.
        u: one end of each position, shape ``[count]``.
        v: its other end.
        total: the common box, shape ``[1]``.
        room: what is left at each node, shape ``[rows, nodes]``.
        fitting: workspace, shape ``[rows, WIDE]``.
        taken: zeros, to be set to one for each position taken, shape ``[rows, count]``.
        unit: how much room a value of 1 takes; a larger one takes as much.
    """
    row = tl.program_id(0).to(tl.int64)
    value += row * count
    position += row * count
    room += row * nodes
    fitting += row * WIDE
    taken += row * count
    left = tl.load(total)
    going = (left >= unit) | (size_of(tl.load(value), unit, WHOLE) <= left)
    start = tl.full([], 0, tl.int32)
    while going & (start < count):
        place = start + tl.arange(0, WIDE)
        x = tl.load(value + place, mask=place < count, other=0.0)
        present = x > 0
        e = tl.load(position + place, mask=present, other=0)
        size = size_of(x, unit, WHOLE)
        # Volatile: another thread may have written them.
        room_i = tl.load(room + tl.load(u + e, mask=present, other=0), mask=present, other=0, volatile=True)
        room_j = tl.load(room + tl.load(v + e, mask=present, other=0), mask=present, other=0, volatile=True)
        fits = present & (room_i >= size) & (room_j >= size)
        many = tl.sum(fits.to(tl.int32))
        tl.store(fitting + tl.cumsum(fits.to(tl.int32), axis=0) - 1, place, mask=fits)
        tl.debug_barrier()
        first = tl.full([], 0, tl.int32)
        while going & (first < many):
            left, going = take_group(
                value, position, u, v, room, fitting, taken, unit, count, first, many, left, WHOLE, GROUP
            )
            tl.debug_barrier()
            first += GROUP
        # Behind the last positive value there are no others.
        going = going & (tl.sum(present.to(tl.int32)) == WIDE)
        start += WIDE


@triton.jit
def take_group(
    value,
    position,
    u,
    v,
    room,
    fitting,
    taken,
    unit,
    count,
    first,
    many,
    left,
    WHOLE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Take what fits of a group of pairs in order; what is left in the common box, and whether to go on."""
    own = tl.arange(0, GROUP)
    inside = first + own < many
    place = tl.load(fitting + first + own, mask=inside, other=0, volatile=True)
    e = tl.load(position + place, mask=inside, other=0)
    size = size_of(tl.load(value + place, mask=inside, other=0.0), unit, WHOLE)
    i = tl.load(u + e, mask=inside, other=-1).to(tl.int32)
    j = tl.load(v + e, mask=inside, other=-2).to(tl.int32)
    room_i = tl.load(room + i, mask=inside, other=0, volatile=True)
    room_j = tl.load(room + j, mask=inside, other=0, volatile=True)
    open_ = inside & (room_i >= size) & (room_j >= size)
    # Which pairs, along the second axis, share this or that end of a pair.
    at_i = (i[:, None] == i[None, :]) | (i[:, None] == j[None, :])
    at_j = (j[:, None] == i[None, :]) | (j[:, None] == j[None, :])
    earlier = own[None, :] < own[:, None]
    one_by_one = left - tl.sum(tl.where(open_, size, 0)) < unit
    going = left >= 0
    while going & (tl.sum(open_.to(tl.int32)) > 0):
        wanted = tl.where(open_, size, 0)
        before_i = tl.sum(tl.where(at_i & earlier, wanted[None, :], 0), axis=1)
        before_j = tl.sum(tl.where(at_j & earlier, wanted[None, :], 0), axis=1)
        sure = open_ & (before_i + size <= room_i) & (before_j + size <= room_j)
        if one_by_one:
            chosen = tl.min(tl.where(open_, own, GROUP))
            sure = open_ & (own == chosen)
        spent = tl.where(sure, size, 0)
        left -= tl.sum(spent)
        tl.store(taken + e, 1, mask=sure)
        tl.atomic_add(room + i, -size, mask=sure, sem="relaxed")
        tl.atomic_add(room + j, -size, mask=sure, sem="relaxed")
        if one_by_one:
            behind = tl.sum(tl.where(sure, place, 0)) + 1
            x = tl.load(value + behind, mask=behind < count, other=0.0)
            going = (left >= unit) | (size_of(x, unit, WHOLE) <= left) | (x <= 0)
        room_i -= tl.sum(tl.where(at_i, spent[None, :], 0), axis=1)
        room_j -= tl.sum(tl.where(at_j, spent[None, :], 0), axis=1)
        open_ = open_ & (sure == 0) & (room_i >= size) & (room_j >= size)
    return left, going
