"""Taking items in order, by every backend, against the plain loop of the paper's Algorithm 1."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from edgeproof.kernels import _plain_projections, numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [reference, numba_cpu, triton_gpu]


def device_of(backend: Backend) -> str:
    return "cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu"


def one_by_one(size: Tensor, u: Tensor, v: Tensor, total: int, local: Tensor) -> tuple[list[bool], bool]:
    room = local.tolist()
    taken = []
    for s, i, j in zip(size.tolist(), u.tolist(), v.tolist(), strict=True):
        if s > total:
            return taken + [False] * (len(size) - len(taken)), True
        fits = min(total, room[i], room[j]) >= s
        taken.append(fits)
        if fits:
            total, room[i], room[j] = total - s, room[i] - s, room[j] - s
    return taken, False


@pytest.mark.parametrize("seed", range(12))
def test_items_are_taken_as_the_plain_loop_takes_them(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (6, 3_000), (500, 0)][seed % 4]
    size = torch.randint(1, 100, (count,), generator=generator)
    if seed % 3:
        size = size.sort(descending=True).values
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    local = torch.randint(0, 400, (nodes,), generator=generator)
    total = [10**6, 500, 0][seed % 3]
    taken, ended = _plain_projections.take_in_order(size, u, v, total, local)
    assert (taken.tolist(), ended) == one_by_one(size, u, v, total, local)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_largest_values_are_taken_as_the_plain_loop_takes_them(
    backend: Backend, spread: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many values, a few at a time; in single or double precision."""
    for name, value in {"_WIDE": 64, "_GROUP": 16}.items():
        monkeypatch.setattr(triton_gpu, name, value)
    for name, value in {"_LOOKED_AT_FIRST": 10, "_LOOKED_AT_PER_FLIP": 1, "_SAMPLED": 100}.items():
        monkeypatch.setattr(_plain_projections, name, value)
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (200, 1_000)][seed % 3]
    dtype = torch.float64 if seed == 4 else torch.float32
    p = torch.randn(3, count, generator=generator, dtype=dtype) * spread
    # Equal values, in part.
    p[1] = (p[1] * 4 / spread).round() * spread / 4
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    unit = 1 << 36
    local = torch.randint(0, 4, (nodes,), generator=generator) * unit
    device = device_of(backend)
    for total, whole in itertools.product((0, 1, 5, 17, 200), (False, True)):
        boxes = (torch.tensor([total * unit]), local)
        tensors = (tensor.to(device) for tensor in (p, u, v, *boxes))
        taken, finite = backend.take_largest(*tensors, unit, whole=whole)
        assert bool(finite)
        for values, found in zip(p, taken.cpu(), strict=True):
            order = values.argsort(descending=True, stable=True)
            order = order[values[order] > 0]
            size = _plain_projections.steps_of(values[order], unit, whole)
            expected, _ = one_by_one(size, u[order], v[order], total * unit, local)
            assert found[order].tolist() == expected
            assert int(found.sum()) == sum(expected)
        assert bool(taken.any()) == (total > 0)


@pytest.mark.parametrize("first", [1, 1000])
@pytest.mark.parametrize("backend", [reference, numba_cpu], ids=lambda backend: backend.name)
def test_values_of_any_size_are_taken_in_their_order(
    backend: Backend, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So small, so large or so close to each other that single precision cannot tell them apart; and zeros of both signs."""
    monkeypatch.setattr(_plain_projections, "_LOOKED_AT_FIRST", first)
    generator = torch.Generator().manual_seed(0)
    few = [0.0, -0.0, 5e-324, 1e-300, 1e-46, 1e-45, 1e-9, 0.5, 0.5 + 1e-12, 0.5 - 1e-12, 1.0, 3e38, 1e300]
    values = torch.tensor(few, dtype=torch.float64)
    close = 0.3 + 1e-10 * torch.rand(40, generator=generator, dtype=torch.float64)
    values = torch.cat([values, -values, close])
    p = values[torch.randperm(values.numel(), generator=generator)][None]
    u = torch.randint(0, 9, (p.size(1),), generator=generator)
    v = u + 1 + torch.randint(0, 3, (p.size(1),), generator=generator)
    unit, order = 1 << 36, p[0].argsort(descending=True, stable=True)
    order = order[p[0, order] > 0]
    for total, most in itertools.product((1, 4, 9), (1, 3)):
        local = torch.full((12,), most * unit)
        taken, _ = backend.take_largest(p, u, v, torch.tensor([total * unit]), local, unit, whole=False)
        size = _plain_projections.steps_of(p[0, order], unit, False)
        assert taken[0, order].tolist() == one_by_one(size, u[order], v[order], total * unit, local)[0]
        assert int(taken.sum()) == int(taken[0, order].sum())


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("most", [0, 2, 50])
def test_the_common_box_ends_it_where_the_plain_loop_says(
    backend: Backend, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where hardly anything is left in it after all that are looked at together."""
    monkeypatch.setattr(triton_gpu, "_WIDE", 32)
    monkeypatch.setattr(triton_gpu, "_GROUP", 16)
    generator = torch.Generator().manual_seed(0)
    count, unit, total = 64, 1 << 36, 3
    # The first half sums to about what the common box holds.
    p = (0.09 + 0.01 * torch.rand(count, generator=generator)) * torch.linspace(0.9, 1.1, 40)[:, None]
    u = torch.randint(0, 25, (count,), generator=generator)
    v = u + torch.randint(1, 5, (count,), generator=generator)
    local = torch.randint(most // 2, most + 1, (30,), generator=generator) * unit
    device = device_of(backend)
    tensors = (tensor.to(device) for tensor in (p, u, v, torch.tensor([total * unit]), local))
    taken, _ = backend.take_largest(*tensors, unit, whole=False)
    for values, found in zip(p, taken.cpu(), strict=True):
        order = values.argsort(descending=True, stable=True)
        size = _plain_projections.steps_of(values[order], unit, False)
        assert found[order].tolist() == one_by_one(size, u[order], v[order], total * unit, local)[0]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_tensors_may_lie_in_memory_as_they_like(backend: Backend) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(60, 4, generator=generator)
    ends = torch.stack(
        [torch.randint(0, 6, (60,), generator=generator), torch.randint(6, 12, (60,), generator=generator)]
    )
    unit = 1 << 36
    boxes = [torch.tensor([9 * unit]), torch.full((12,), 2 * unit)]
    found = []
    for values, pairs in ((p.T, ends.T.contiguous().T), (p.T.contiguous(), ends)):
        tensors = [tensor.to(device_of(backend)) for tensor in (values, *pairs, *boxes)]
        found.append(backend.take_largest(*tensors, unit, whole=False)[0])
    assert torch.equal(*found)
    assert 9 <= int(found[0][0].sum()) <= 30


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("largest", [1e-3, 0.1, 3.0])
def test_many_rows_side_by_side_are_taken_as_the_cpu_takes_them(largest: float) -> None:
    """As many values at once as in earnest: all warps of a program, and more programs than a GPU runs at a time."""
    generator = torch.Generator().manual_seed(0)
    count, nodes, unit = 20_000, 300, 1 << 36
    p = (torch.rand(300, count, generator=generator) - 0.2) * largest
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    boxes = [torch.tensor([200 * unit]), torch.randint(0, 4, (nodes,), generator=generator) * unit]
    expected, _ = numba_cpu.take_largest(p, u, v, *boxes, unit, whole=False)
    tensors = [tensor.cuda() for tensor in (p, u, v, *boxes)]
    for _ in range(3):
        taken, _ = triton_gpu.take_largest(*tensors, unit, whole=False)
        assert torch.equal(taken.cpu(), expected)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_smallest_value_takes_room(backend: Backend) -> None:
    device = device_of(backend)
    p, ends = torch.tensor([[1e-13]], device=device), torch.zeros(2, dtype=torch.long, device=device)
    for total, local in ((0, 5), (5, 0), (5, 5)):
        boxes = (ends[:1] + total, ends + local)
        taken, _ = backend.take_largest(p, ends[:1], ends[:1] + 1, *boxes, 1 << 36, whole=False)
        assert bool(taken) == (total * local > 0)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_without_positive_values_nothing_is_taken(backend: Backend) -> None:
    device = device_of(backend)
    p, ends = torch.tensor([[0.0, -0.5]], device=device), torch.zeros(2, dtype=torch.long, device=device)
    taken, finite = backend.take_largest(p, ends, ends + 1, ends[:1] + 5, ends + 5, 1, whole=True)
    assert (taken.tolist(), bool(finite)) == ([[False, False]], True)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_told_of(backend: Backend, bad: float) -> None:
    device = device_of(backend)
    for at in range(3):
        p, ends = torch.full((2, 3), 0.5, device=device), torch.zeros(3, dtype=torch.long, device=device)
        p[1, at] = bad
        _, finite = backend.take_largest(p, ends, ends + 1, ends[:1] + 5, ends + 5, 1, whole=True)
        assert not bool(finite)
