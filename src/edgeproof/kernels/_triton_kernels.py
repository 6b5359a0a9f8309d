"""Triton kernels for products, pair scores, thresholds and pair indices. Importing this module needs triton."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def spmm(
    rowptr,
    col,
    weight,
    x,
    out,
    rows,
    channels,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Multiply sparse by dense: out[row] = sum over the row's entries of weight * x[col]; ROWS rows and CHANNELS
    channels per program.

    Offsets into ``x`` have the dtype of ``col``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    start = tl.load(rowptr + row, mask=row < rows, other=0)
    end = tl.load(rowptr + row + 1, mask=row < rows, other=0)
    total = tl.zeros([ROWS, CHANNELS], dtype=out.dtype.element_ty)
    for first in range(0, tl.max(end - start), ENTRIES):
        e = start[:, None] + first + tl.arange(0, ENTRIES)[None, :]
        inside = e < end[:, None]
        j = tl.load(col + e, mask=inside, other=0)
        w = tl.load(weight + e, mask=inside, other=0.0)
        gathered = tl.load(
            x + j[:, :, None] * channels + c[None, None, :],
            mask=inside[:, :, None] & (c < channels)[None, None, :],
            other=0.0,
        )
        total += tl.sum(gathered * w[:, :, None], axis=1)
    tl.store(out + row[:, None] * channels + c[None, :], total, mask=(row < rows)[:, None] & (c < channels)[None, :])


@triton.jit
def gathered_dot(a, b, left, right, out, count, channels, PAIRS: tl.constexpr, CHANNELS: tl.constexpr):
    """Compute dot products of gathered rows: out[e] = a[left[e]] . b[right[e]]; PAIRS pairs per program."""
    e = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    present = e < count
    i = tl.load(left + e, mask=present, other=0).to(tl.int64)
    j = tl.load(right + e, mask=present, other=0).to(tl.int64)
    total = tl.zeros([PAIRS, CHANNELS], dtype=out.dtype.element_ty)
    for start in range(0, channels, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        inside = present[:, None] & (c < channels)[None, :]
        total += tl.load(a + i[:, None] * channels + c[None, :], mask=inside, other=0.0) * tl.load(
            b + j[:, None] * channels + c[None, :], mask=inside, other=0.0
        )
    tl.store(out + e, tl.sum(total, axis=1), mask=present)


@triton.jit
def normalized_terms(
    b,
    h,
    out,
    grad_x,
    scale,
    joined_b,
    joined_h,
    dots,
    rows,
    channels,
    width,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """joined_b = scale b, joined_h = scale h, in rows of ``width``; dots += b . out + grad_x . h; ROWS rows per program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    s = tl.load(scale + row, mask=row < rows, other=0.0)[:, None]
    total = tl.zeros([ROWS, CHANNELS], dtype=joined_b.dtype.element_ty)
    for start in range(0, channels, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        inside = (row < rows)[:, None] & (c < channels)[None, :]
        read, written = row[:, None] * channels + c[None, :], row[:, None] * width + c[None, :]
        b_tile, h_tile = tl.load(b + read, mask=inside, other=0.0), tl.load(h + read, mask=inside, other=0.0)
        total += b_tile * tl.load(out + read, mask=inside, other=0.0)
        total += h_tile * tl.load(grad_x + read, mask=inside, other=0.0)
        tl.store(joined_b + written, s * b_tile, mask=inside)
        tl.store(joined_h + written, s * h_tile, mask=inside)
    before = tl.load(dots + row, mask=row < rows, other=0.0)
    tl.store(dots + row, before + tl.sum(total, axis=1), mask=row < rows)


@triton.jit
def pair_scores(b, h, node, u, v, out, count, channels, PAIRS: tl.constexpr, CHANNELS: tl.constexpr):
    """Score pairs: out[e] = b[u] . h[v] + h[u] . b[v] + node[u] + node[v]; PAIRS pairs per program."""
    e = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    present = e < count
    i = tl.load(u + e, mask=present, other=0).to(tl.int64)
    j = tl.load(v + e, mask=present, other=0).to(tl.int64)
    total = tl.zeros([PAIRS, CHANNELS], dtype=out.dtype.element_ty)
    for start in range(0, channels, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        inside = present[:, None] & (c < channels)[None, :]
        at_i, at_j = i[:, None] * channels + c[None, :], j[:, None] * channels + c[None, :]
        total += tl.load(b + at_i, mask=inside, other=0.0) * tl.load(h + at_j, mask=inside, other=0.0)
        total += tl.load(h + at_i, mask=inside, other=0.0) * tl.load(b + at_j, mask=inside, other=0.0)
    ends = tl.load(node + i, mask=present, other=0.0) + tl.load(node + j, mask=present, other=0.0)
    tl.store(out + e, tl.sum(total, axis=1) + ends, mask=present)


@triton.jit
def pairs_above(
    left,
    right,
    node,
    b_norm,
    h_norm,
    threshold,
    slack,
    num_found,
    capacity,
    keys,
    nodes,
    tiles,
    channels,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    CHANNELS: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Append the keys of all pairs u < v whose score may exceed the threshold; one tile of all pairs per program.

    The score is b[u] . h[v] + h[u] . b[v] + node[u] + node[v] with left = [b, h] and right = [h, b]. The rounding error of
    each of the two products is at most slack times the product of its norms.
    """
    # Tiles are processed in groups of rows, so that concurrent tiles share their operands in the cache.
    program = tl.program_id(0)
    per_group = GROUP * tiles
    group = program // per_group
    rows_in_group = min(tiles - group * GROUP, GROUP)
    tile_row = group * GROUP + (program % per_group) % rows_in_group
    tile_col = (program % per_group) // rows_in_group
    if (tile_col + 1) * COLS <= tile_row * ROWS:
        return
    row = tile_row * ROWS + tl.arange(0, ROWS)
    col = tile_col * COLS + tl.arange(0, COLS)
    row_in, col_in = row < nodes, col < nodes
    row_at, col_at = row.to(tl.int64) * channels, col.to(tl.int64) * channels
    score = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for start in range(0, channels, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        c_in = c < channels
        left_tile = tl.load(left + row_at[:, None] + c[None, :], mask=row_in[:, None] & c_in[None, :], other=0.0)
        right_tile = tl.load(right + col_at[None, :] + c[:, None], mask=c_in[:, None] & col_in[None, :], other=0.0)
        score = tl.dot(left_tile, right_tile, score, input_precision=PRECISION)
    score += tl.load(node + row, mask=row_in, other=0.0)[:, None] + tl.load(node + col, mask=col_in, other=0.0)[None, :]
    row_b, row_h = tl.load(b_norm + row, mask=row_in, other=0.0), tl.load(h_norm + row, mask=row_in, other=0.0)
    col_b, col_h = tl.load(b_norm + col, mask=col_in, other=0.0), tl.load(h_norm + col, mask=col_in, other=0.0)
    norms = row_b[:, None] * col_h[None, :] + row_h[:, None] * col_b[None, :]
    exceeds = (
        (score + slack * norms > tl.load(threshold)) & (row[:, None] < col[None, :]) & row_in[:, None] & col_in[None, :]
    )
    count = tl.sum(exceeds.to(tl.int64))
    if count > 0:
        begin = tl.atomic_add(num_found, count)
        flags = tl.reshape(exceeds.to(tl.int32), [ROWS * COLS])
        key = tl.reshape(row[:, None].to(tl.int64) * nodes + col[None, :], [ROWS * COLS])
        slot = begin + tl.cumsum(flags, axis=0) - 1
        tl.store(keys + slot, key, mask=(flags > 0) & (slot < capacity))


@triton.jit
def clipped_sums(values, thresholds, sums, count, PART: tl.constexpr, STEP: tl.constexpr, THRESHOLDS: tl.constexpr):
    """Sum clipped values per threshold: sums[program, t] = sum of min(max(value - threshold[t], 0), 1) over PART
    values."""
    part = tl.program_id(0)
    t = tl.arange(0, THRESHOLDS)
    threshold = tl.load(thresholds + t).to(values.dtype.element_ty)
    # The reduction across threads runs only once, at the end.
    total = tl.zeros([STEP, THRESHOLDS], dtype=values.dtype.element_ty)
    for start in range(0, PART, STEP):
        e = part * PART + start + tl.arange(0, STEP)
        value = tl.load(values + e, mask=e < count, other=-float("inf"))
        total += tl.minimum(tl.maximum(value[:, None] - threshold[None, :], 0.0), 1.0)
    tl.store(sums + part * THRESHOLDS + t, tl.sum(total.to(tl.float64), axis=0))


@triton.jit
def bracket_threshold(sums, thresholds, budget, divided, ends, parts, ROWS: tl.constexpr, THRESHOLDS: tl.constexpr):
    """Add the partial sums, bracket the threshold at which the total falls to the budget, and divide the bracket."""
    t = tl.arange(0, THRESHOLDS)
    total = tl.zeros([THRESHOLDS], dtype=tl.float64)
    for start in range(0, parts, ROWS):
        part = start + tl.arange(0, ROWS)
        chunk = tl.load(sums + part[:, None] * THRESHOLDS + t[None, :], mask=(part < parts)[:, None], other=0.0)
        total += tl.sum(chunk, axis=0)
    threshold = tl.load(thresholds + t)
    high = tl.sum((total > tl.load(budget)).to(tl.int32))
    high = tl.minimum(tl.maximum(high, 1), THRESHOLDS - 1)
    low_end = tl.sum(tl.where(t == high - 1, threshold, 0.0))
    high_end = tl.sum(tl.where(t == high, threshold, 0.0))
    tl.store(divided + t, low_end + (high_end - low_end) * (t.to(tl.float64) / (THRESHOLDS - 1)))
    tl.store(ends, low_end)
    tl.store(ends + 1, high_end)
    tl.store(ends + 2, tl.sum(tl.where(t == high - 1, total, 0.0)))
    tl.store(ends + 3, tl.sum(tl.where(t == high, total, 0.0)))


@triton.jit(do_not_specialize=["count"])
def apply_threshold(values, ends, budget, largest, out, count, LARGE: tl.constexpr, PART: tl.constexpr):
    """Subtract the threshold and clip: out = min(max(value - threshold, 0), 1), with the threshold interpolated
    linearly inside the bracket."""
    low, high = tl.load(ends), tl.load(ends + 1)
    sum_at_low, sum_at_high = tl.load(ends + 2), tl.load(ends + 3)
    beyond, fall = sum_at_low - tl.load(budget), sum_at_low - sum_at_high
    fraction = tl.where(fall > 0, beyond / tl.where(fall > 0, fall, 1.0), 1.0)
    threshold = tl.where(beyond <= 0, low, low + tl.minimum(tl.maximum(fraction, 0.0), 1.0) * (high - low))
    if values.dtype.element_ty == tl.float32:
        rounded = threshold.to(tl.float32)
        # Incrementing the bits gives the next larger float, because a threshold is not negative.
        successor = (rounded.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
        up = tl.where(rounded.to(tl.float64) < threshold, successor, rounded).to(tl.float64)
        threshold = tl.where(tl.load(largest) > LARGE, threshold, up)
    e = tl.program_id(0) * PART + tl.arange(0, PART)
    value = tl.load(values + e, mask=e < count, other=0.0).to(tl.float64) - threshold
    clipped = tl.minimum(tl.maximum(value, 0.0), 1.0)
    tl.store(out + e, clipped.to(out.dtype.element_ty), mask=e < count)


@triton.jit
def unrank_pairs(index, n, u, v, count, PART: tl.constexpr):
    """Convert pair indices to nodes: u[e], v[e] = the two nodes of the pair index[e]."""
    e = tl.program_id(0) * PART + tl.arange(0, PART)
    present = e < count
    i, j = unrank(tl.load(index + e, mask=present, other=0), n)
    tl.store(u + e, i, mask=present)
    tl.store(v + e, j, mask=present)


@triton.jit
def unrank(c, n):
    """Return the two nodes of the pair with index c: row i starts at index i (2 n - i - 1) / 2."""
    half = tl.full([], 0, tl.float64) + n - 0.5
    root = tl.sqrt(tl.maximum(half * half - 2.0 * c.to(tl.float64), 0.0))
    i = (half - root).to(tl.int64)
    n = tl.full([], 0, tl.int64) + n
    i = tl.minimum(tl.maximum(i, 0), n - 2)
    # The root can be off by one in floating point.
    i -= (i * (2 * n - i - 1) // 2 > c).to(tl.int64)
    i += ((i + 1) * (2 * n - i - 2) // 2 <= c).to(tl.int64)
    return i, c - i * (2 * n - i - 1) // 2 + i + 1
