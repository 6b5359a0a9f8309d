"""Taking items in order, by every backend, against the plain loop of the paper's Algorithm 1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgeproof.propagation.kernels import numba_cpu, reference, triton_gpu
from edgeproof.propagation.kernels.dispatch import Backend

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [reference, numba_cpu, triton_gpu]
TAKES = {"reference": reference.take_in_order, "numba": numba_cpu.take_in_order}


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


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("seed", range(12))
def test_items_are_taken_as_the_plain_loop_takes_them(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (6, 3_000), (500, 0)][seed % 4]
    size = torch.randint(1, 100, (count,), generator=generator)
    if seed % 3:
        size = size.sort(descending=True).values
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    local = torch.randint(0, 400, (nodes,), generator=generator)
    total = [10**6, 500, 0][seed % 3]
    taken, ended = TAKES[name](size, u, v, total, local)
    assert (taken.tolist(), ended) == one_by_one(size, u, v, total, local)


@pytest.mark.parametrize("backend", [numba_cpu, triton_gpu], ids=lambda backend: backend.name)
@pytest.mark.parametrize("seed", range(8))
def test_the_largest_values_are_taken_as_the_reference_takes_them(backend: Backend, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (30, 5_000), (500, 2_500)][seed % 4]
    p = torch.randn(3, count, generator=generator)
    # Equal values, in part.
    p[1] = (p[1] * 4).round() / 4
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    unit = 1 << 36
    local = torch.randint(1, 4, (nodes,), generator=generator) * unit
    device = "cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu"
    for total, least in ((10**3, 0.0), (7, 0.3), (10**3, 1.0)):
        wanted = count
        inputs = (p, torch.full((3,), least), u, v)
        for whole in (False, True):
            expected = reference.take_above(*inputs, total * unit, local, unit, whole=whole, wanted=wanted)
            taken, done = backend.take_above(
                *(tensor.to(device) for tensor in inputs),
                total * unit,
                local.to(device),
                unit,
                whole=whole,
                wanted=wanted,
            )
            assert done == expected[1]
            assert torch.equal(taken.cpu(), expected[0])
            assert bool(taken.any())


@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_few_values_are_taken_on_the_gpu_as_the_reference_takes_them(
    seed: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many values, a few at a time: in several rounds, of which all but the first pass over pairs at full nodes."""
    for name, value in {"_CAPACITY": 64, "_AT_ONCE": 32, "_SAMPLE": 128, "_ROUNDS": 5}.items():
        monkeypatch.setattr(triton_gpu, name, value)
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(6, 100), (40, 300), (200, 2_000)][seed % 3]
    p = torch.randn(count, generator=generator) * spread
    if seed % 2:
        p = (p * 200 / spread).round() * spread / 200
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    unit = 1 << 36
    local = torch.randint(0, 4, (nodes,), generator=generator) * unit
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gone_through = 0
    for total in (0, 1, 5, 17, 200):
        (expected,), _ = reference.take_above(
            p[None], torch.zeros(1), u, v, total * unit, local, unit, whole=False, wanted=0
        )
        taken = triton_gpu.take_largest(*(t.to(device) for t in (p, u, v)), total * unit, local.to(device), unit)
        if taken is not None:
            gone_through += 1
            assert torch.equal(taken.cpu(), expected)
    # It may give up when many values are equal.
    assert gone_through >= 4


def test_values_on_the_gpu_must_be_finite_too() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p, ends = torch.tensor([0.5, float("nan")], device=device), torch.zeros(2, dtype=torch.long, device=device)
    with pytest.raises(ValueError, match="expected finite values"):
        triton_gpu.take_largest(p, ends, ends + 1, 1, ends, 1)


def test_more_large_values_than_there_is_room_for_are_not_done() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    p, ends = torch.ones(1, 100, device=device), torch.zeros(100, dtype=torch.long, device=device)
    local = torch.full((2,), 10**6, device=device)
    for wanted, expected in ((40, False), (50, True)):
        _, done = triton_gpu.take_above(
            p, torch.zeros(1, device=device), ends, ends + 1, 10**6, local, 1, whole=True, wanted=wanted
        )
        assert done == [expected]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(backend: Backend, bad: float) -> None:
    device = "cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu"
    p, ends = torch.tensor([[0.5, bad]], device=device), torch.zeros(2, dtype=torch.long, device=device)
    with pytest.raises(ValueError, match="expected finite values"):
        backend.take_above(p, p.new_zeros(1), ends, ends + 1, 1, ends, 1, whole=True, wanted=2)
