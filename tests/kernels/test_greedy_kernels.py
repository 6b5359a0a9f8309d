"""Greedy selection, by every backend, against a plain loop of the paper's Algorithm 1."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgeproof.kernels import numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend
from edgeproof.kernels.reference_greedy import cost_of, take_in_order

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [reference, numba_cpu, triton_gpu]
UNIT = 1 << 36


def device_of(backend: Backend) -> str:
    return "cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu"


def small_chunks(backend: Backend, chunk: int) -> dict[str, Any]:
    """Options that make a backend examine few values at once."""
    return {"chunk": 64, "group": 16} if backend is triton_gpu else {"chunk": chunk}


def loop(cost: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor) -> tuple[list[bool], bool]:
    """Select items one after another; whether each is selected, and whether the total budget ended the selection."""
    room = local.tolist()
    taken = []
    for c, i, j in zip(cost.tolist(), u.tolist(), v.tolist(), strict=True):
        if c > total:
            return taken + [False] * (len(cost) - len(taken)), True
        fits = min(total, room[i], room[j]) >= c
        taken.append(fits)
        if fits:
            total, room[i], room[j] = total - c, room[i] - c, room[j] - c
    return taken, False


def loop_over_largest(p: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor, unit: int, whole: bool) -> Tensor:
    """Select from the positive values in descending order."""
    order = p.argsort(descending=True, stable=True)
    order = order[p[order] > 0]
    taken = torch.zeros_like(p, dtype=torch.bool)
    taken[order] = torch.tensor(
        loop(cost_of(p[order], unit, whole), u[order], v[order], total, local)[0], dtype=torch.bool
    )
    return taken


def random_pairs(count: int, nodes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    return u, u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()


@pytest.mark.parametrize("seed", range(12))
def test_take_in_order_equals_the_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (6, 3_000), (500, 0)][seed % 4]
    cost = torch.randint(1, 100, (count,), generator=generator)
    if seed % 3:
        cost = cost.sort(descending=True).values
    u, v = random_pairs(count, nodes, generator)
    local = torch.randint(0, 400, (nodes,), generator=generator)
    total = [10**6, 500, 0][seed % 3]
    taken, ended = take_in_order(cost, u, v, total, local)
    assert (taken.tolist(), ended) == loop(cost, u, v, total, local)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_take_largest_equals_the_loop_in_small_chunks(backend: Backend, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (200, 1_000)][seed % 3]
    dtype = torch.float64 if seed == 4 else torch.float32
    p = torch.randn(3, count, generator=generator, dtype=dtype) * spread
    # Row 1 has ties.
    p[1] = (p[1] * 4 / spread).round() * spread / 4
    u, v = random_pairs(count, nodes, generator)
    local = torch.randint(0, 4, (nodes,), generator=generator) * UNIT
    device = device_of(backend)
    for total, whole in itertools.product((0, 1, 5, 17, 200), (False, True)):
        tensors = (tensor.to(device) for tensor in (p, u, v, torch.tensor([total * UNIT]), local))
        taken, finite = backend.take_largest(*tensors, UNIT, whole=whole, **small_chunks(backend, 10))
        assert bool(finite)
        for values, row_taken in zip(p, taken.cpu(), strict=True):
            assert torch.equal(row_taken, loop_over_largest(values, u, v, total * UNIT, local, UNIT, whole))
        assert bool(taken.any()) == (total > 0)


@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize("backend", [reference, numba_cpu], ids=lambda backend: backend.name)
def test_take_largest_equals_the_loop_if_a_fraction_of_the_budget_remains(backend: Backend, chunk: int) -> None:
    """On many small graphs, chunks end before, at and after the pair that ends the selection."""
    random = np.random.default_rng(chunk)
    u, v = torch.triu_indices(8, 8, offset=1)
    for _ in range(500):
        p = torch.from_numpy(random.integers(-8, 68, u.numel()) / 64)
        total, local = int(random.integers(1, 6)) * UNIT, torch.from_numpy(random.integers(0, 3, 8)) * UNIT
        taken, _ = backend.take_largest(p[None], u, v, torch.tensor([total]), local, UNIT, whole=False, chunk=chunk)
        assert torch.equal(taken[0], loop_over_largest(p, u, v, total, local, UNIT, False))


@pytest.mark.parametrize("total", [5, 300, 10**6])
@pytest.mark.parametrize("backend", [reference, numba_cpu], ids=lambda backend: backend.name)
def test_chunk_does_not_change_the_selection(backend: Backend, total: int) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(1, 10_000, generator=generator) * 0.05
    u, v = random_pairs(p.size(1), 200, generator)
    local = torch.randint(0, 4, (200,), generator=generator) * UNIT
    everything, _ = backend.take_largest(p, u, v, torch.tensor([total * UNIT]), local, UNIT, whole=False)
    for chunk in (8, 10**6):
        taken, _ = backend.take_largest(p, u, v, torch.tensor([total * UNIT]), local, UNIT, whole=False, chunk=chunk)
        assert torch.equal(taken, everything)
    assert bool(everything.any())
    assert torch.equal(everything[0], loop_over_largest(p[0], u, v, total * UNIT, local, UNIT, False))


@pytest.mark.parametrize("chunk", [1, 1000])
@pytest.mark.parametrize("backend", [reference, numba_cpu], ids=lambda backend: backend.name)
def test_take_largest_orders_values_beyond_float32(backend: Backend, chunk: int) -> None:
    """Float64 values that overflow, vanish or tie in float32; and zeros of both signs."""
    generator = torch.Generator().manual_seed(0)
    few = [0.0, -0.0, 5e-324, 1e-300, 1e-46, 1e-45, 1e-9, 0.5, 0.5 + 1e-12, 0.5 - 1e-12, 1.0, 3e38, 1e300]
    values = torch.tensor(few, dtype=torch.float64)
    close = 0.3 + 1e-10 * torch.rand(40, generator=generator, dtype=torch.float64)
    values = torch.cat([values, -values, close])
    p = values[torch.randperm(values.numel(), generator=generator)]
    u = torch.randint(0, 9, p.shape, generator=generator)
    v = u + 1 + torch.randint(0, 3, p.shape, generator=generator)
    for total, most in itertools.product((1, 4, 9), (1, 3)):
        local = torch.full((12,), most * UNIT)
        taken, _ = backend.take_largest(
            p[None], u, v, torch.tensor([total * UNIT]), local, UNIT, whole=False, chunk=chunk
        )
        assert torch.equal(taken[0], loop_over_largest(p, u, v, total * UNIT, local, UNIT, False))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("most", [0, 2, 50])
def test_total_budget_ends_selection_like_reference_loop(backend: Backend, most: int) -> None:
    """The selection is also right if almost nothing of the total budget remains after a chunk."""
    generator = torch.Generator().manual_seed(0)
    count, total = 64, 3
    # The first half of the values sums to about the total budget.
    p = (0.09 + 0.01 * torch.rand(count, generator=generator)) * torch.linspace(0.9, 1.1, 40)[:, None]
    u = torch.randint(0, 25, (count,), generator=generator)
    v = u + torch.randint(1, 5, (count,), generator=generator)
    local = torch.randint(most // 2, most + 1, (30,), generator=generator) * UNIT
    device = device_of(backend)
    tensors = (tensor.to(device) for tensor in (p, u, v, torch.tensor([total * UNIT]), local))
    options = {"group": 16} if backend is triton_gpu else {}
    taken, _ = backend.take_largest(*tensors, UNIT, whole=False, chunk=32, **options)
    for values, row_taken in zip(p, taken.cpu(), strict=True):
        assert torch.equal(row_taken, loop_over_largest(values, u, v, total * UNIT, local, UNIT, False))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_take_largest_accepts_any_memory_layout(backend: Backend) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(60, 4, generator=generator)
    pairs = torch.stack(
        [torch.randint(0, 6, (60,), generator=generator), torch.randint(6, 12, (60,), generator=generator)]
    )
    budgets = [torch.tensor([9 * UNIT]), torch.full((12,), 2 * UNIT)]
    results = []
    for values, nodes in ((p.T, pairs.T.contiguous().T), (p.T.contiguous(), pairs)):
        tensors = [tensor.to(device_of(backend)) for tensor in (values, *nodes, *budgets)]
        results.append(backend.take_largest(*tensors, UNIT, whole=False)[0])
    assert torch.equal(*results)
    assert 9 <= int(results[0][0].sum()) <= 30


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("largest", [1e-3, 0.1, 3.0])
def test_many_rows_on_a_gpu_equal_the_cpu(largest: float) -> None:
    """Default chunks use all warps of a program, and there are more programs than run at a time."""
    generator = torch.Generator().manual_seed(0)
    count, nodes = 20_000, 300
    p = (torch.rand(300, count, generator=generator) - 0.2) * largest
    u, v = random_pairs(count, nodes, generator)
    budgets = [torch.tensor([200 * UNIT]), torch.randint(0, 4, (nodes,), generator=generator) * UNIT]
    expected, _ = numba_cpu.take_largest(p, u, v, *budgets, UNIT, whole=False)
    tensors = [tensor.cuda() for tensor in (p, u, v, *budgets)]
    for _ in range(3):
        taken, _ = triton_gpu.take_largest(*tensors, UNIT, whole=False)
        assert torch.equal(taken.cpu(), expected)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_tiny_values_have_a_cost(backend: Backend) -> None:
    device = device_of(backend)
    p, zeros = torch.tensor([[1e-13]], device=device), torch.zeros(2, dtype=torch.long, device=device)
    for total, local in ((0, 5), (5, 0), (5, 5)):
        taken, _ = backend.take_largest(
            p, zeros[:1], zeros[:1] + 1, zeros[:1] + total, zeros + local, UNIT, whole=False
        )
        assert bool(taken) == (total * local > 0)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_only_positive_values_are_selected(backend: Backend) -> None:
    device = device_of(backend)
    p, zeros = torch.tensor([[0.0, -0.5]], device=device), torch.zeros(2, dtype=torch.long, device=device)
    taken, finite = backend.take_largest(p, zeros, zeros + 1, zeros[:1] + 5, zeros + 5, 1, whole=True)
    assert (taken.tolist(), bool(finite)) == ([[False, False]], True)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_values_are_reported(backend: Backend, bad: float) -> None:
    device = device_of(backend)
    for at in range(3):
        p, zeros = torch.full((2, 3), 0.5, device=device), torch.zeros(3, dtype=torch.long, device=device)
        p[1, at] = bad
        _, finite = backend.take_largest(p, zeros, zeros + 1, zeros[:1] + 5, zeros + 5, 1, whole=True)
        assert not bool(finite)
