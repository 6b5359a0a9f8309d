"""Products, pair scores, thresholds, medians and sorted lists of every backend against the reference.

Triton's kernels run on the GPU if there is one, otherwise in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.kernels import numba_cpu, reference, triton_gpu
from edgeproof.kernels._numba_kernels import last_below
from edgeproof.kernels.dispatch import Backend
from edgeproof.propagation import EdgeGradientEngine

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [numba_cpu, triton_gpu]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def device_of(backend: Backend) -> torch.device:
    return torch.device("cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu")


def random_inputs(backend: Backend, nodes: int, channels: int, pairs: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(nodes * channels + pairs)
    b, h = torch.randn(2, nodes, channels, generator=generator, dtype=dtype)
    node = torch.randn(nodes, generator=generator, dtype=dtype)
    u, v = torch.randint(0, nodes, (2, pairs), generator=generator)
    return [tensor.to(device_of(backend)) for tensor in (b, h, node, u, v)]


def check_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE[expected.dtype], atol=TOLERANCE[expected.dtype] * 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "channels", "pairs"), [(1, 1, 3), (7, 6, 0), (30, 60, 129), (9, 300, 70)])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_gathered_dot_and_pair_scores(
    backend: Backend, nodes: int, channels: int, pairs: int, dtype: torch.dtype
) -> None:
    b, h, node, u, v = random_inputs(backend, nodes, channels, pairs, dtype)
    check_close(backend.pair_scores(b, h, node, u, v), reference.pair_scores(b, h, node, u, v))
    check_close(backend.gathered_dot(b, h, u, v), reference.gathered_dot(b, h, u, v))
    # Not contiguous.
    check_close(backend.gathered_dot(b.T.contiguous().T, h, u, v), reference.gathered_dot(b, h, u, v))


def test_reference_slices_long_gathers() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 9, 4, generator=generator)
    left, right = torch.randint(0, 9, (2, (1 << 19) + 50), generator=generator)
    torch.testing.assert_close(reference.gathered_dot(a, b, left, right), (a @ b.T)[left, right])


@pytest.mark.parametrize("channels", [1, 3, 6, 60])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_score_of_a_pair_does_not_depend_on_the_other_pairs(backend: Backend, channels: int) -> None:
    """Scores are equal bit for bit, because a search compares scores from blocks of different sizes."""
    # The interpreter is slow.
    many = 5_000 if backend is numba_cpu or torch.cuda.is_available() else 300
    b, h, node, u, v = random_inputs(backend, 30, channels, many, torch.float32)
    scores, dots = backend.pair_scores(b, h, node, u, v), backend.gathered_dot(b, h, u, v)
    for start, end in ((0, 1), (3, 7), (17, 40), (many // 5, 3 * many // 5)):
        assert torch.equal(backend.pair_scores(b, h, node, u[start:end], v[start:end]), scores[start:end])
        assert torch.equal(backend.gathered_dot(b, h, u[start:end], v[start:end]), dots[start:end])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 6, 200])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("longest", [None, 37])
def test_spmm(backend: Backend, channels: int, dtype: torch.dtype, longest: int | None) -> None:
    device = device_of(backend)
    rowptr = torch.tensor([0, 0, 3, 3, 40, 41, 41], device=device)
    generator = torch.Generator().manual_seed(0)
    col = torch.randint(0, 6, (41,), generator=generator).to(device)
    weight = torch.randn(41, generator=generator, dtype=dtype).to(device)
    x = torch.randn(6, channels, generator=generator, dtype=dtype).to(device)
    check_close(backend.spmm(rowptr, col, weight, x, longest), reference.spmm(rowptr, col, weight, x))
    empty = torch.zeros(7, dtype=torch.long, device=device)
    assert backend.spmm(empty, col[:0], weight[:0], x, None if longest is None else 0).count_nonzero() == 0


@pytest.mark.parametrize("index", [torch.int32, torch.long])
@pytest.mark.parametrize("channels", [7, 40, 70])
@pytest.mark.parametrize("longest", [256, None, 257])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_spmm_with_many_entries(backend: Backend, longest: int | None, channels: int, index: torch.dtype) -> None:
    device, generator = device_of(backend), torch.Generator().manual_seed(0)
    length = torch.zeros(300, dtype=torch.long)
    length[::3] = 5
    length[[0, 40, 41, 299]] = torch.tensor([256, 20, 100, 9])
    rowptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    entries = int(rowptr[-1])
    col = torch.randint(0, 300, (entries,), generator=generator)
    weight, x = torch.randn(entries, generator=generator), torch.randn(300, channels, generator=generator)
    tensors = [tensor.to(device) for tensor in (rowptr.to(index), col.to(index), weight, x)]
    row = torch.arange(300).repeat_interleave(length)
    dense = torch.zeros(300, 300, dtype=torch.float64).index_put_((row, col), weight.double(), accumulate=True)
    options = {"few_entries": 100} if backend is triton_gpu else {}
    product = backend.spmm(*tensors, longest, **options)
    torch.testing.assert_close(product.cpu(), (dense @ x.double()).float(), rtol=1e-4, atol=1e-4)


def test_triton_multiplies_short_rows_only() -> None:
    assert [triton_gpu.rows_are_short(longest, 900, 100) for longest in (None, 0, 256, 257)] == [
        False,
        True,
        True,
        False,
    ]
    assert [triton_gpu.rows_are_short(longest, 100, 100) for longest in (None, 1024, 1025)] == [False, True, False]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_unrank_pairs(backend: Backend) -> None:
    for nodes in (2, 5, 100, 169_343):
        total = nodes * (nodes - 1) // 2
        index = torch.linspace(0, total - 1, min(total, 1000), dtype=torch.float64).long().to(device_of(backend))
        for end, expected in zip(backend.unrank_pairs(index, nodes), reference.unrank_pairs(index, nodes), strict=True):
            assert torch.equal(end, expected)


@pytest.mark.parametrize("nodes", [2, 17, 150])
@pytest.mark.parametrize("wanted", [1, 20, 10_000])
def test_pairs_above_misses_no_pair(nodes: int, wanted: int) -> None:
    b, h, node, _, _ = random_inputs(triton_gpu, nodes, 40, 0, torch.float32)
    u, v = torch.triu_indices(nodes, nodes, offset=1, device=b.device)
    scores = reference.pair_scores(b, h, node, u, v)
    best = torch.cat([scores, scores.min()[None] - 1]).topk(min(wanted, scores.numel()) + 1).values
    # Half-way between two scores, so that rounding cannot decide.
    threshold = best[-2:].mean(dim=0, keepdim=True)
    expected = {int(key) for key in (u * nodes + v)[scores > threshold]}
    keys, count = triton_gpu.pairs_above(b, h, node, threshold, scores.numel())
    returned = set(keys.tolist())
    assert len(returned) == count
    assert expected <= returned <= {int(key) for key in u * nodes + v}
    # Pairs below the threshold are within the rounding error.
    b_norm, h_norm = b.norm(dim=1), h.norm(dim=1)
    allowed = 2 * triton_gpu.TF32_SLACK * (b_norm[u] * h_norm[v] + h_norm[u] * b_norm[v])
    assert returned <= {int(key) for key in (u * nodes + v)[scores + allowed + 1e-4 > threshold]}
    exact, exact_count = reference.pairs_above(b, h, node, threshold, scores.numel())
    assert exact_count == len(expected)
    assert set(exact.tolist()) == expected


def test_pairs_above_counts_beyond_its_capacity() -> None:
    b, h, node, _, _ = random_inputs(triton_gpu, 30, 8, 0, torch.float32)
    low = torch.full((1,), -1e9, device=b.device)
    for backend in (triton_gpu, reference):
        _, count = backend.pairs_above(b, h, node, low, 10)
        assert count == 30 * 29 // 2


def test_triton_search_finds_the_best_pairs_of_the_reference() -> None:
    """Candidates above a threshold, scored again by the same backend."""
    nodes = 40
    b, h, node, _, _ = random_inputs(triton_gpu, nodes, 12, 0, torch.float32)
    best = []
    for backend in (triton_gpu, reference):
        sample = backend.pair_scores(b, h, node, *backend.unrank_pairs(torch.arange(64, device=b.device), nodes))
        key, count = backend.pairs_above(b, h, node, sample.topk(8).values[-1:], 780)
        key = key.sort().values
        scores = backend.pair_scores(b, h, node, key // nodes, key % nodes)
        assert count >= 8
        best.append(key[scores.topk(5).indices].sort().values)
    assert torch.equal(*best)


def test_engine_on_triton_equals_the_reference(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU, the interpreter accepts CPU tensors.
    monkeypatch.setattr(triton_gpu, "devices", ())
    monkeypatch.setattr(triton_gpu, "not_supported_reasons", lambda tensors: [])
    data = graph.to(device_of(triton_gpu))
    model = ep.models.build("GPRGNN", 5, 3, seed=0).to(data.x.device)
    nodes = torch.arange(7, device=data.x.device)
    flips = torch.tensor([[0, 3], [1, 6]], device=data.x.device), torch.tensor([0.5, 1.0], device=data.x.device)
    fast = EdgeGradientEngine(model, data, nodes, backend="triton")(*flips)
    plain = EdgeGradientEngine(model, data, nodes, backend="reference")(*flips)
    pairs = torch.triu_indices(7, 7, offset=1, device=data.x.device)
    check_close(fast.at(pairs), plain.at(pairs))
    assert torch.equal(fast.top(5).pairs, plain.top(5).pairs)


@pytest.mark.parametrize(("few", "many"), [(0, 0), (0, 5), (5, 0), (3, 90), (60, 60), (99, 5)])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_merge(backend: Backend, few: int, many: int) -> None:
    generator = torch.Generator().manual_seed(few + many)
    first, second = (torch.randperm(100, generator=generator)[:count].sort().values for count in (few, many))
    merged, position = backend.merge(first.to(device_of(backend)), second.to(device_of(backend)))
    assert merged.tolist() == sorted({*first.tolist(), *second.tolist()})
    assert merged[position].tolist() == first.tolist()


@pytest.mark.parametrize("count", [1, 300, 10_000])
@pytest.mark.parametrize("budget", [0.0, 0.5, 50.0, 1e6])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_bracket_threshold(backend: Backend, budget: float, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(count, generator=generator).mul_(2).to(device_of(backend))
    thresholds = torch.linspace(0, float(values.max().clamp(min=0)), 64, dtype=torch.float64, device=values.device)
    sums = (values.double()[:, None] - thresholds).clamp(0, 1).sum(dim=0)
    high = max(1, min(63, int((sums > budget).sum())))
    limit = torch.full((1,), budget, dtype=torch.float64, device=values.device)
    divided, ends = backend.bracket_threshold(values, thresholds, limit)
    torch.testing.assert_close(ends[0], thresholds[high - 1 : high + 1])
    torch.testing.assert_close(ends[1], sums[high - 1 : high + 1], rtol=1e-5, atol=1e-4)
    expected = torch.linspace(float(ends[0, 0]), float(ends[0, 1]), 64, dtype=torch.float64, device=values.device)
    torch.testing.assert_close(divided, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 5000.0])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_apply_threshold(backend: Backend, scale: float, dtype: torch.dtype) -> None:
    """Thresholds inside and at the ends of the bracket, with a constant sum, and with a budget that is never reached."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3000, generator=generator, dtype=torch.float64).mul_(scale).to(dtype).to(device_of(backend))
    values[7] = -torch.inf
    largest = values.amax()
    for ends in (
        [[0.1, 0.3], [40.0, 10.0]],
        [[0.0, 0.3], [20.0, 20.0]],
        [[0.2, 0.2], [25.0, 15.0]],
        [[1 / 3, 2 / 3], [9.0, 3.0]],
    ):
        for budget in (5.0, 20.0, 30.0, 1e9):
            scaled = torch.tensor(ends, dtype=torch.float64, device=values.device) * torch.tensor(
                [[scale], [1.0]], dtype=torch.float64, device=values.device
            )
            limit = torch.full((1,), budget, dtype=torch.float64, device=values.device)
            (low, high), (at_low, at_high) = scaled.tolist()
            fraction = (
                min(max((at_low - budget) / (at_low - at_high), 0.0), 1.0)
                if at_low > at_high
                else float(at_low > budget)
            )
            threshold = low if at_low <= budget else low + fraction * (high - low)
            if float(largest) <= 1024.0:
                rounded = torch.tensor(threshold, dtype=torch.float64).to(dtype)
                while float(rounded) < threshold:
                    rounded = torch.nextafter(rounded, torch.tensor(torch.inf, dtype=dtype))
                threshold = float(rounded)
            projected = backend.apply_threshold(values, scaled, limit, largest, 1024.0)
            assert projected.dtype == dtype
            # A GPU may use fused multiply-add.
            atol = 4 * torch.finfo(dtype).eps * scale
            expected = (values.double() - threshold).clamp(0, 1).to(dtype)
            torch.testing.assert_close(projected, expected, rtol=0, atol=atol)
    assert backend.apply_threshold(values[:0], scaled, limit, largest, 1024.0).numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_weighted_median(backend: Backend, dtype: torch.dtype) -> None:
    """Inputs have many ties in values and weights, weights of 0, and a row of zeros."""
    generator = torch.Generator().manual_seed(0)
    for rows, k, channels in ((40, 9, 5), (3, 1, 2), (7, 70, 3), (0, 4, 2)):
        x = torch.randint(0, 6, (50, channels), generator=generator).to(dtype)
        values = torch.randint(0, 4, (rows, k), generator=generator).to(dtype) / 7
        values[:1] = 0
        index = torch.randint(0, 50, (rows, k), generator=generator)
        x, values, index = (tensor.to(device_of(backend)) for tensor in (x, values, index))
        median = backend.weighted_median(x, values, index)
        assert torch.equal(median, reference.weighted_median(x, values, index))
        assert median.shape == (rows, channels)


@pytest.mark.parametrize(
    "thresholds",
    [np.linspace(0, 1, 64), np.linspace(-3, 1e5, 64), np.sort(np.random.default_rng(0).random(64)), np.ones(3)],
    ids=["even", "wide", "uneven", "equal"],
)
def test_last_below_equals_searchsorted(thresholds: np.ndarray) -> None:
    width = thresholds[-1] - thresholds[0]
    per_unit = (thresholds.size - 1) / width if width > 0 else 0.0
    above = [
        *thresholds[1:],
        *(thresholds + 1),
        *np.nextafter(thresholds, np.inf),
        *np.random.default_rng(1).random(100),
    ]
    for value in (*above, 1e300, np.inf):
        if value > thresholds[0]:
            assert last_below(thresholds, value, per_unit) == np.searchsorted(thresholds, value) - 1
