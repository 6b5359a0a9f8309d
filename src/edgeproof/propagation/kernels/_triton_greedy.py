"""Triton programs that take the largest values that fit, without asking the host. Importing this needs triton.

Rounds of three: :func:`set_threshold` finds a value that about as many values lie above as one program can hold,
:func:`gather_keys` gathers them, and :func:`take` takes, in descending order, what fits. Values looked at in an earlier round,
and pairs at full nodes, are passed over. ``state`` holds the status, how many values were gathered, how many are not finite,
and the bits of two values: below the first nothing has been looked at, and down to the second this round looks.
"""
# mypy: ignore-errors

import triton
import triton.language as tl

GOING, DONE, GIVEN_UP = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def bits_left(x, e, present, u, v, room, state, FIRST: tl.constexpr):
    """The bits of values that can still be taken, which ascend with them; 0 for all others."""
    bits = tl.where(present & (x > 0), x.to(tl.int32, bitcast=True), 0)
    if not FIRST:
        bits = tl.where(bits < tl.load(state + 3), bits, 0)
        free_u = tl.load(room + tl.load(u + e, mask=bits > 0, other=0), mask=bits > 0, other=0) > 0
        free_v = tl.load(room + tl.load(v + e, mask=bits > 0, other=0), mask=bits > 0, other=0) > 0
        bits = tl.where(free_u & free_v, bits, 0)
    return bits


@triton.jit
def set_threshold(p, u, v, room, state, count, stride, wanted, FIRST: tl.constexpr, SAMPLE: tl.constexpr):
    """From a sample, the value that so many of it reach; the smallest one if there are not so many."""
    if tl.load(state) == GOING:
        e = tl.arange(0, SAMPLE) * stride
        present = e < count
        bits = bits_left(tl.load(p + e, mask=present, other=0.0), e, present, u, v, room, state, FIRST)
        threshold = tl.full([], 0, tl.int32)
        for place in range(31):
            tried = threshold | (1 << (30 - place))
            threshold = tl.where(tl.sum((bits >= tried).to(tl.int32)) >= wanted, tried, threshold)
        tl.store(state + 4, threshold)
        tl.store(state + 1, 0)


@triton.jit
def gather_keys(p, u, v, room, state, keys, count, capacity, FIRST: tl.constexpr, PART: tl.constexpr):
    """Keys that ascend with the value, and with an earlier position, of all values that reach the threshold."""
    if tl.load(state) == GOING:
        e = tl.program_id(0) * PART + tl.arange(0, PART)
        present = e < count
        x = tl.load(p + e, mask=present, other=0.0)
        above = present & (x.to(tl.int32, bitcast=True) >= tl.load(state + 4))
        bits = bits_left(x, e, above, u, v, room, state, FIRST)
        good = bits > 0
        many = tl.sum(good.to(tl.int32))
        if many > 0:
            slot = tl.atomic_add(state + 1, many) + tl.cumsum(good.to(tl.int32), axis=0) - 1
            key = (bits.to(tl.int64) << 32) + (0x7FFFFFFF - e)
            tl.store(keys + slot, key, mask=good & (slot < capacity))
        if FIRST:
            odd = tl.sum((present & ((tl.abs(x) < float("inf")) == 0)).to(tl.int32))
            if odd > 0:
                tl.atomic_add(state + 2, odd)


@triton.jit
def size_of(key, unit):
    """How much room a key's value takes."""
    value = (key >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.ceil(tl.minimum(value, 1.0).to(tl.float64) * unit).to(tl.int64)


@triton.jit
def take(u, v, room, left, state, keys, taken, unit, FIRST: tl.constexpr, CAPACITY: tl.constexpr):
    """Algorithm 1 on the keys gathered: the largest that fits, again and again, until one does not fit into what is left."""
    if tl.load(state) == GOING:
        found = tl.load(state + 1)
        if found > CAPACITY:
            tl.store(state, GIVEN_UP)
        else:
            slot = tl.arange(0, CAPACITY)
            key = tl.load(keys + slot, mask=slot < found, other=-1)
            position = 0x7FFFFFFF - (key & 0xFFFFFFFF)
            i = tl.load(u + position, mask=slot < found, other=0).to(tl.int32)
            j = tl.load(v + position, mask=slot < found, other=0).to(tl.int32)
            size = size_of(key, unit)
            fits = (slot < found) & (tl.load(room + i) >= size) & (tl.load(room + j) >= size)
            remaining = tl.load(left)
            last = tl.full([], 0x7FFFFFFFFFFFFFFF, tl.int64)
            status = tl.full([], 0, tl.int32)
            going = tl.full([], 1, tl.int32)
            while going > 0:
                # The next one in order, whether or not its ends have room, ends it all if too little is left.
                following = tl.max(tl.where(key < last, key, -1))
                best = tl.max(tl.where(fits, key, -1))
                ended = (following >= 0) & (size_of(following, unit) > remaining)
                # Except in the first round, pairs at full nodes were passed over, and one of them might have ended it.
                unsure = (remaining > 0) & (remaining < unit) & (not FIRST)
                status = tl.where(unsure, GIVEN_UP, tl.where(ended, DONE, GOING))
                going = ((best >= 0) & (status == GOING)).to(tl.int32)
                if going > 0:
                    spent = size_of(best, unit)
                    where = 0x7FFFFFFF - (best & 0xFFFFFFFF)
                    one, other = tl.load(u + where).to(tl.int32), tl.load(v + where).to(tl.int32)
                    # Volatile: another thread may have written them.
                    room_one = tl.load(room + one, volatile=True) - spent
                    room_other = tl.load(room + other, volatile=True) - spent
                    tl.debug_barrier()
                    tl.store(room + one, room_one)
                    tl.store(room + other, room_other)
                    tl.store(taken + where, 1)
                    tl.debug_barrier()
                    full = (((i == one) | (j == one)) & (size > room_one)) | (
                        ((i == other) | (j == other)) & (size > room_other)
                    )
                    fits = fits & (key < best) & (full == 0)
                    remaining -= spent
                    last = best
            threshold = tl.load(state + 4)
            tl.store(left, remaining)
            tl.store(state + 3, threshold)
            # Down to 0, everything has been looked at.
            tl.store(state, tl.where((status == GOING) & (threshold == 0), DONE, status))
