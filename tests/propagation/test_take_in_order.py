"""Taking items in order, by every backend, against the plain loop of the paper's Algorithm 1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgeproof.propagation.kernels import numba_cpu, reference, triton_gpu
from edgeproof.propagation.kernels.dispatch import Backend

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [reference, numba_cpu, triton_gpu]


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


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("seed", range(12))
def test_every_backend_takes_what_the_plain_loop_takes(backend: Backend, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, count = [(3, 20), (40, 300), (6, 3_000), (500, 0)][seed % 4]
    size = torch.randint(1, 100, (count,), generator=generator)
    if seed % 3:
        size = size.sort(descending=True).values
    u = torch.randint(0, nodes - 1, (count,), generator=generator)
    v = u + 1 + (torch.rand(count, generator=generator) * (nodes - 1 - u)).long()
    local = torch.randint(0, 400, (nodes,), generator=generator)
    total = [10**6, 500, 0][seed % 3]
    device = "cuda" if backend is triton_gpu and torch.cuda.is_available() else "cpu"
    taken, ended = backend.take_in_order(*(tensor.to(device) for tensor in (size, u, v)), total, local.to(device))
    assert (taken.tolist(), ended) == one_by_one(size, u, v, total, local)
