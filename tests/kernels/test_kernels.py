"""Every backend against the reference: values over dtypes, shapes, isolated nodes and empty inputs.

Triton's kernels run on the GPU where there is one, and in Triton's interpreter elsewhere.
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
from edgeproof.kernels.dispatch import Backend
from edgeproof.propagation import EdgeGradientEngine, search

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


def check_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[expected.dtype], atol=TOLERANCE[expected.dtype] * 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "channels", "pairs"), [(1, 1, 3), (7, 6, 0), (30, 60, 129), (9, 300, 70)])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_gathered_products(backend: Backend, nodes: int, channels: int, pairs: int, dtype: torch.dtype) -> None:
    b, h, node, u, v = random_inputs(backend, nodes, channels, pairs, dtype)
    check_near(backend.pair_scores(b, h, node, u, v), reference.pair_scores(b, h, node, u, v))
    check_near(backend.gathered_dot(b, h, u, v), reference.gathered_dot(b, h, u, v))
    # Columns of a wider matrix are not contiguous.
    check_near(backend.gathered_dot(b.T.contiguous().T, h, u, v), reference.gathered_dot(b, h, u, v))


@pytest.mark.parametrize("channels", [1, 3, 6, 60])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_pair_scores_the_same_in_any_company(backend: Backend, channels: int) -> None:
    """To the last bit: a search may compare scores from blocks of different sizes."""
    # The interpreter goes through them one by one.
    many = 5_000 if backend is numba_cpu or torch.cuda.is_available() else 300
    b, h, node, u, v = random_inputs(backend, 30, channels, many, torch.float32)
    together, dots = backend.pair_scores(b, h, node, u, v), backend.gathered_dot(b, h, u, v)
    for start, end in ((0, 1), (3, 7), (17, 40), (many // 5, 3 * many // 5)):
        assert torch.equal(backend.pair_scores(b, h, node, u[start:end], v[start:end]), together[start:end])
        assert torch.equal(backend.gathered_dot(b, h, u[start:end], v[start:end]), dots[start:end])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 6, 200])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("longest", [None, 37])
def test_sparse_products(backend: Backend, channels: int, dtype: torch.dtype, longest: int | None) -> None:
    device = device_of(backend)
    rowptr = torch.tensor([0, 0, 3, 3, 40, 41, 41], device=device)
    generator = torch.Generator().manual_seed(0)
    col = torch.randint(0, 6, (41,), generator=generator).to(device)
    weight = torch.randn(41, generator=generator, dtype=dtype).to(device)
    x = torch.randn(6, channels, generator=generator, dtype=dtype).to(device)
    check_near(backend.spmm(rowptr, col, weight, x, longest), reference.spmm(rowptr, col, weight, x))
    nothing = torch.zeros(7, dtype=torch.long, device=device)
    assert backend.spmm(nothing, col[:0], weight[:0], x, None if longest is None else 0).count_nonzero() == 0


@pytest.mark.parametrize("index", [torch.int32, torch.long])
@pytest.mark.parametrize("channels", [7, 40, 70])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_products_with_many_entries(
    backend: Backend, channels: int, index: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "FEW_ENTRIES", 100)
    device, generator = device_of(backend), torch.Generator().manual_seed(0)
    length = torch.zeros(300, dtype=torch.long)
    length[::3] = 5
    length[[0, 40, 41, 299]] = torch.tensor([256, 20, 100, 9])
    rowptr = torch.cat([length.new_zeros(1), length.cumsum(0)])
    entries = int(rowptr[-1])
    col = torch.randint(0, 300, (entries,), generator=generator)
    weight, x = torch.randn(entries, generator=generator), torch.randn(300, channels, generator=generator)
    given = [tensor.to(device) for tensor in (rowptr.to(index), col.to(index), weight, x)]
    row = torch.arange(300).repeat_interleave(length)
    dense = torch.zeros(300, 300, dtype=torch.float64).index_put_((row, col), weight.double(), accumulate=True)
    for longest in (256, None, 257):
        if longest != 256:
            # Those that may be longer are none of Triton's.
            monkeypatch.setattr(triton_gpu, "programs", None)
        found = backend.spmm(*given, longest)
        torch.testing.assert_close(found.cpu(), (dense @ x.double()).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_pairs_are_numbered_alike(backend: Backend) -> None:
    for nodes in (2, 5, 100, 169_343):
        total = nodes * (nodes - 1) // 2
        number = torch.linspace(0, total - 1, min(total, 1000), dtype=torch.float64).long().to(device_of(backend))
        for mine, expected in zip(
            backend.unrank_pairs(number, nodes), reference.unrank_pairs(number, nodes), strict=True
        ):
            assert torch.equal(mine, expected)


@pytest.mark.parametrize("nodes", [2, 17, 150])
@pytest.mark.parametrize("wanted", [1, 20, 10_000])
def test_no_pair_above_the_threshold_is_missed(nodes: int, wanted: int) -> None:
    b, h, node, _, _ = random_inputs(triton_gpu, nodes, 40, 0, torch.float32)
    u, v = torch.triu_indices(nodes, nodes, offset=1, device=b.device)
    scores = reference.pair_scores(b, h, node, u, v)
    best = torch.cat([scores, scores.min()[None] - 1]).topk(min(wanted, scores.numel()) + 1).values
    # Half-way between two scores, so that rounding cannot decide.
    threshold = best[-2:].mean(dim=0, keepdim=True)
    expected = {int(key) for key in (u * nodes + v)[scores > threshold]}
    keys, count = triton_gpu.pairs_above(b, h, node, threshold, scores.numel())
    found = set(keys.tolist())
    assert len(found) == count
    assert expected <= found <= {int(key) for key in u * nodes + v}
    # What is too much is within the rounding that was allowed for.
    b_norm, h_norm = b.norm(dim=1), h.norm(dim=1)
    allowed = 2 * triton_gpu._SLACK * (b_norm[u] * h_norm[v] + h_norm[u] * b_norm[v])
    assert found <= {int(key) for key in (u * nodes + v)[scores + allowed + 1e-4 > threshold]}
    exact, exact_count = reference.pairs_above(b, h, node, threshold, scores.numel())
    assert exact_count == len(expected)
    assert set(exact.tolist()) == expected


def test_a_search_that_overflows_says_how_much_it_needs() -> None:
    b, h, node, _, _ = random_inputs(triton_gpu, 30, 8, 0, torch.float32)
    low = torch.full((1,), -1e9, device=b.device)
    for backend in (triton_gpu, reference):
        _, count = backend.pairs_above(b, h, node, low, 10)
        assert count == 30 * 29 // 2


def test_the_whole_engine_on_triton(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_gpu, "not_supported_reasons", lambda tensors: [])
    monkeypatch.setattr(search, "_FEW_PAIRS", 0)
    monkeypatch.setattr(search, "_SAMPLE", 64)
    data = graph.to(device_of(triton_gpu))
    model = ep.models.build("GPRGNN", 5, 3, seed=0).to(data.x.device)
    nodes = torch.arange(7, device=data.x.device)
    flips = torch.tensor([[0, 3], [1, 6]], device=data.x.device), torch.tensor([0.5, 1.0], device=data.x.device)
    fast = EdgeGradientEngine(model, data, nodes, backend="triton")(*flips)
    plain = EdgeGradientEngine(model, data, nodes, backend="reference")(*flips)
    pairs = torch.triu_indices(7, 7, offset=1, device=data.x.device)
    check_near(fast.at(pairs), plain.at(pairs))
    assert torch.equal(fast.top(5).pairs, plain.top(5).pairs)


@pytest.mark.parametrize(("few", "many"), [(0, 0), (0, 5), (5, 0), (3, 90), (60, 60), (99, 5)])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_merging(backend: Backend, few: int, many: int) -> None:
    generator = torch.Generator().manual_seed(few + many)
    one, two = (torch.randperm(100, generator=generator)[:count].sort().values for count in (few, many))
    merged, place = backend.merge(one.to(device_of(backend)), two.to(device_of(backend)))
    assert merged.tolist() == sorted({*one.tolist(), *two.tolist()})
    assert merged[place].tolist() == one.tolist()


@pytest.mark.parametrize("count", [1, 300, 10_000])
@pytest.mark.parametrize("budget", [0.0, 0.5, 50.0, 1e6])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_narrowing(backend: Backend, budget: float, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(count, generator=generator).mul_(2).to(device_of(backend))
    thresholds = torch.linspace(0, float(values.max().clamp(min=0)), 64, dtype=torch.float64, device=values.device)
    sums = (values.double()[:, None] - thresholds).clamp(0, 1).sum(dim=0)
    place = max(1, min(63, int((sums > budget).sum())))
    limit = torch.full((1,), budget, dtype=torch.float64, device=values.device)
    divided, ends = backend.bracket_threshold(values, thresholds, limit)
    torch.testing.assert_close(ends[0], thresholds[place - 1 : place + 1])
    torch.testing.assert_close(ends[1], sums[place - 1 : place + 1], rtol=1e-5, atol=1e-4)
    expected = torch.linspace(float(ends[0, 0]), float(ends[0, 1]), 64, dtype=torch.float64, device=values.device)
    torch.testing.assert_close(divided, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 5000.0])
@pytest.mark.parametrize("backend", [*BACKENDS, reference], ids=lambda backend: backend.name)
def test_lowering(backend: Backend, scale: float, dtype: torch.dtype) -> None:
    """Between the ends, at one of them, where the sum does not fall at all, and where the budget is never reached."""
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
            around = torch.tensor(ends, dtype=torch.float64, device=values.device) * torch.tensor(
                [[scale], [1.0]], dtype=torch.float64, device=values.device
            )
            limit = torch.full((1,), budget, dtype=torch.float64, device=values.device)
            (low, high), (most, least) = around.tolist()
            share = min(max((most - budget) / (most - least), 0.0), 1.0) if most > least else float(most > budget)
            threshold = low if most <= budget else low + share * (high - low)
            if float(largest) <= 1024.0:
                rounded = torch.tensor(threshold, dtype=torch.float64).to(dtype)
                while float(rounded) < threshold:
                    rounded = torch.nextafter(rounded, torch.tensor(torch.inf, dtype=dtype))
                threshold = float(rounded)
            found = backend.apply_threshold(values, around, limit, largest, 1024.0)
            assert found.dtype == dtype
            # A GPU may multiply and add with one rounding.
            near = 4 * torch.finfo(dtype).eps * scale
            torch.testing.assert_close(found, (values.double() - threshold).clamp(0, 1).to(dtype), rtol=0, atol=near)
    assert backend.apply_threshold(values[:0], around, limit, largest, 1024.0).numel() == 0


def test_reasons_name_what_is_missing() -> None:
    on_cpu = torch.ones(1)
    assert "needs a CUDA GPU, got cpu" in triton_gpu.not_supported_reasons([on_cpu])
    assert numba_cpu.not_supported_reasons([on_cpu]) == []
    assert numba_cpu.not_supported_reasons([on_cpu.to("meta")]) == ["needs the CPU, got meta"]
    assert "needs float32 or float64, got torch.float16" in triton_gpu.not_supported_reasons([on_cpu.half()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_weighted_medians(backend: Backend, dtype: torch.dtype) -> None:
    """Few different values and weights, so that many are equal; some weights 0, and one row of nothing else."""
    generator = torch.Generator().manual_seed(0)
    for rows, k, channels in ((40, 9, 5), (3, 1, 2), (7, 70, 3), (0, 4, 2)):
        x = torch.randint(0, 6, (50, channels), generator=generator).to(dtype)
        values = torch.randint(0, 4, (rows, k), generator=generator).to(dtype) / 7
        values[:1] = 0
        index = torch.randint(0, 50, (rows, k), generator=generator)
        x, values, index = (tensor.to(device_of(backend)) for tensor in (x, values, index))
        found = backend.weighted_median(x, values, index)
        assert torch.equal(found, reference.weighted_median(x, values, index))
        assert found.shape == (rows, channels)


@pytest.mark.parametrize(
    "thresholds",
    [np.linspace(0, 1, 64), np.linspace(-3, 1e5, 64), np.sort(np.random.default_rng(0).random(64)), np.ones(3)],
    ids=["even", "wide", "uneven", "equal"],
)
def test_the_last_threshold_below_a_value(thresholds: np.ndarray) -> None:
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
            found = numba_cpu._last_below(thresholds, value, per_unit)
            assert found == np.searchsorted(thresholds, value) - 1
