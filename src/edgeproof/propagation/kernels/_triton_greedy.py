"""Triton programs that take the largest values that fit, without asking the host. Importing this needs triton.

Rounds of four: :func:`set_threshold` finds a value that about as many values lie above as one program can hold,
:func:`gather_keys` gathers them, :func:`order_keys` sorts them, and :func:`take` takes, in descending order, what fits.

While a whole unit is left in the common box, every value fits into it, and only the boxes of nodes decide (``PASSING``): a pair
that does not fit now never will, and is passed over. Once less is left, a pair that does not fit into the rest ends it all,
whether or not its nodes have room, so all pairs are looked at (``STRICT``).

``state`` holds the status, how many values were gathered, how many are not finite, the bits of the threshold, and how often too
many were gathered. ``ledger`` holds what is left in the common box, and the key below which nothing has been looked at. Keys
ascend with the value, and with an earlier position.
"""
# mypy: ignore-errors

import triton
import triton.language as tl

PASSING, STRICT, DONE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
BEYOND = tl.constexpr(0x7FFFFFFFFFFFFFFF)
LATE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def size_of(value, unit):
    """How much room a value takes."""
    return tl.ceil(tl.minimum(value, 1.0).to(tl.float64) * unit).to(tl.int64)


@triton.jit
def keys_left(x, e, present, u, v, room, state, ledger, unit):
    """Keys of values that are to be looked at; -1 for all others."""
    bits = tl.where(present & (x > 0), x.to(tl.int32, bitcast=True), 0)
    key = tl.where(bits > 0, (bits.to(tl.int64) << 32) + (0x7FFFFFFF - e), -1)
    key = tl.where(key < tl.load(ledger + 1), key, -1)
    if tl.load(state) == PASSING:
        asked = key >= 0
        size = size_of(x, unit)
        room_u = tl.load(room + tl.load(u + e, mask=asked, other=0), mask=asked, other=0)
        room_v = tl.load(room + tl.load(v + e, mask=asked, other=0), mask=asked, other=0)
        key = tl.where((room_u >= size) & (room_v >= size), key, -1)
    return key


@triton.jit
def set_threshold(p, u, v, room, state, ledger, unit, count, stride, wanted, SAMPLE: tl.constexpr):
    """From a sample, the value that so many of it reach; 0 if there are not so many."""
    if tl.load(state) < DONE:
        wanted = tl.maximum(wanted >> tl.load(state + 4), 1)
        e = tl.arange(0, SAMPLE) * stride
        present = e < count
        key = keys_left(tl.load(p + e, mask=present, other=0.0), e, present, u, v, room, state, ledger, unit)
        bits = tl.where(key >= 0, key >> 32, 0).to(tl.int32)
        threshold = tl.full([], 0, tl.int32)
        for place in range(31):
            tried = threshold | (1 << (30 - place))
            threshold = tl.where(tl.sum((bits >= tried).to(tl.int32)) >= wanted, tried, threshold)
        tl.store(state + 3, threshold)
        tl.store(state + 1, 0)


@triton.jit
def gather_keys(p, u, v, room, state, ledger, unit, keys, count, capacity, PART: tl.constexpr):
    """The keys, in no order, of all values to be looked at that reach the threshold."""
    if tl.load(state) < DONE:
        e = tl.program_id(0) * PART + tl.arange(0, PART)
        present = e < count
        x = tl.load(p + e, mask=present, other=0.0)
        above = present & (x.to(tl.int32, bitcast=True) >= tl.load(state + 3))
        key = keys_left(x, e, above, u, v, room, state, ledger, unit)
        good = key >= 0
        many = tl.sum(good.to(tl.int32))
        if many > 0:
            slot = tl.atomic_add(state + 1, many) + tl.cumsum(good.to(tl.int32), axis=0) - 1
            tl.store(keys + slot, key, mask=good & (slot < capacity))
        if tl.load(ledger + 1) == BEYOND:
            odd = tl.sum((present & ((tl.abs(x) < float("inf")) == 0)).to(tl.int32))
            if odd > 0:
                tl.atomic_add(state + 2, odd)


@triton.jit
def order_keys(state, keys, ordered, capacity, PART: tl.constexpr, AGAINST: tl.constexpr):
    """The keys in descending order: the place of each is the number of larger ones."""
    found = tl.load(state + 1)
    first = tl.program_id(0) * PART
    if (tl.load(state) < DONE) & (found <= capacity) & (first < found):
        slot = first + tl.arange(0, PART)
        key = tl.load(keys + slot, mask=slot < found, other=-1)
        place = tl.zeros([PART], dtype=tl.int32)
        for start in range(0, found, AGAINST):
            other = start + tl.arange(0, AGAINST)
            against = tl.load(keys + other, mask=other < found, other=-1)
            place += tl.sum((against[None, :] > key[:, None]).to(tl.int32), axis=1)
        tl.store(ordered + place, key, mask=slot < found)


@triton.jit
def take(
    u, v, room, state, ledger, ordered, taken, first_at, asked_at, unit, CAPACITY: tl.constexpr, PART: tl.constexpr
):
    """Algorithm 1 on the keys in order, so many at a time, among which only those that share a node depend on each other.

    Again and again a pair is taken for good if at each end it is the first that is undecided, or all undecided ones there fit
    together. ``first_at`` and ``asked_at`` are workspace for every node: beyond all places, and 0.
    """
    status = tl.load(state)
    if status < DONE:
        found = tl.load(state + 1)
        left = tl.load(ledger)
        below = tl.load(ledger + 1)
        start = tl.full([], 0, tl.int32)
        began = status
        while (status == began) & (start < found) & (found <= CAPACITY):
            place = start + tl.arange(0, PART)
            present = place < found
            key = tl.load(ordered + place, mask=present, other=0)
            e = 0x7FFFFFFF - (key & 0xFFFFFFFF)
            i = tl.load(u + e, mask=present, other=0)
            j = tl.load(v + e, mask=present, other=0)
            size = size_of((key >> 32).to(tl.int32).to(tl.float32, bitcast=True), unit)
            # Volatile: another thread may have written them.
            room_i = tl.load(room + i, mask=present, other=0, volatile=True)
            room_j = tl.load(room + j, mask=present, other=0, volatile=True)
            open_ = present & (room_i >= size) & (room_j >= size)
            accepted = tl.zeros([PART], dtype=tl.int32)
            while tl.sum(open_.to(tl.int32)) > 0:
                tl.atomic_min(first_at + i, place, mask=open_)
                tl.atomic_min(first_at + j, place, mask=open_)
                tl.atomic_add(asked_at + i, size, mask=open_)
                tl.atomic_add(asked_at + j, size, mask=open_)
                tl.debug_barrier()
                sure_i = (tl.load(first_at + i, mask=open_, other=0, volatile=True) == place) | (
                    tl.load(asked_at + i, mask=open_, other=0, volatile=True) <= room_i
                )
                sure_j = (tl.load(first_at + j, mask=open_, other=0, volatile=True) == place) | (
                    tl.load(asked_at + j, mask=open_, other=0, volatile=True) <= room_j
                )
                sure = open_ & sure_i & sure_j
                tl.debug_barrier()
                tl.store(first_at + i, LATE, mask=open_)
                tl.store(first_at + j, LATE, mask=open_)
                tl.store(asked_at + i, 0, mask=open_)
                tl.store(asked_at + j, 0, mask=open_)
                tl.atomic_add(room + i, -size, mask=sure)
                tl.atomic_add(room + j, -size, mask=sure)
                tl.debug_barrier()
                accepted += sure.to(tl.int32)
                room_i = tl.load(room + i, mask=open_, other=0, volatile=True)
                room_j = tl.load(room + j, mask=open_, other=0, volatile=True)
                open_ = open_ & (sure == 0) & (room_i >= size) & (room_j >= size)
            spent = tl.where(accepted > 0, size, 0)
            through = tl.cumsum(spent, axis=0)
            if began == PASSING:
                # Up to the pair after which less than a unit is left.
                late = present & (left - through < unit)
                last = tl.min(tl.where(late, place, LATE))
                good = (accepted > 0) & (place <= last)
            else:
                # Up to the first pair, taken or not, that does not fit into what is left.
                late = present & (through - spent + size > left)
                last = tl.min(tl.where(late, place, LATE))
                good = (accepted > 0) & (place < last)
            tl.store(taken + e, 1, mask=good)
            gone = tl.sum(tl.where(good, spent, 0))
            if last < LATE:
                if began == PASSING:
                    # Those behind are put back, to be looked at again among all.
                    back = (accepted > 0) & (good == 0)
                    tl.atomic_add(room + i, size, mask=back)
                    tl.atomic_add(room + j, size, mask=back)
                    below = tl.sum(tl.where(place == last, key, 0))
                    status = tl.where(left - gone == 0, DONE, STRICT)
                else:
                    status = tl.full([], 0, tl.int32) + DONE
            left -= gone
            tl.debug_barrier()
            start += PART
        if found > CAPACITY:
            # Once more, with a threshold that half as many of the sample reach.
            tl.store(state + 4, tl.load(state + 4) + 1)
        elif status == began:
            threshold = tl.load(state + 3)
            below = threshold.to(tl.int64) << 32
            # Down to 0, everything has been looked at.
            status = tl.where(threshold == 0, DONE, status)
        tl.store(ledger, left)
        tl.store(ledger + 1, below)
        tl.store(state, status)
