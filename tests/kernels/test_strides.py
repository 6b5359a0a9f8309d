"""Every kernel of every backend on tensors with gaps in memory, and on rows without channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from edgeproof.attacks.projections import fixed_point_budget
from edgeproof.budget import Budget
from edgeproof.kernels import numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend
from edgeproof.propagation import Adjacency

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [numba_cpu, triton_gpu, reference]
NODES, PAIRS, CHANNELS = 12, 40, 6
UNIT = 1 << 36


def gapped(value: Any) -> Any:
    """The same numbers, each beside one that must not be read."""
    if isinstance(value, (list, tuple)):
        return [gapped(one) for one in value]
    if not isinstance(value, Tensor) or not value.dim():
        return value
    other = ~value if value.dtype == torch.bool else value.flip(0) + 1
    return torch.stack([value, other], dim=-1)[..., 0]


def to(value: Any, device: torch.device) -> Any:
    if isinstance(value, (list, tuple)):
        return [to(one, device) for one in value]
    return value.to(device) if isinstance(value, Tensor) else value


def cases(dtype: torch.dtype) -> dict[str, tuple[Sequence[Any], dict[str, Any]]]:
    """Arguments of every kernel."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=dtype)

    every = torch.triu_indices(NODES, NODES, offset=1)
    every = every[:, torch.randperm(every.size(1), generator=generator)]
    edges, (u, v) = every[:, :20], every[:, 15 : 15 + PAIRS]
    graph = Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), num_nodes=NODES, dtype=dtype)
    pattern = graph.pattern
    b, h = random(NODES, CHANNELS), random(NODES, CHANNELS)
    calls = [[random(NODES, width) for width in (3, 5)] for _ in range(4)]
    total, local = fixed_point_budget(Budget(6, torch.full((NODES,), 2)), NODES, PAIRS, torch.device("cpu"))
    budget = torch.tensor([4.0], dtype=torch.float64)
    thresholds = torch.linspace(0, 1, 64, dtype=torch.float64)
    flip, node = random(PAIRS), random(NODES)
    there, number = random(PAIRS) < 0.5, torch.randperm(PAIRS, generator=generator)
    ends = torch.tensor([[0.2, 0.3], [9.0, 3.0]], dtype=torch.float64)
    return {
        "spmm": ((pattern.rowptr, pattern.col, graph.weight, random(NODES, CHANNELS)), {"longest": pattern.longest}),
        "insert_pairs": (
            (pattern.rowptr, pattern.col, pattern.key, graph.weight, pattern.diagonal, u, v, flip),
            {},
        ),
        "normalize": (
            (pattern.rowptr, pattern.col, graph.weight, pattern.diagonal),
            {"self_loops": True, "longest": pattern.longest},
        ),
        "normalized_terms": ((*calls, node), {}),
        "gathered_dot": ((b, h, u, v), {}),
        "pair_scores": ((b, h, node, u, v), {}),
        "weighted_median": ((random(NODES, 3), random(NODES, 5), torch.randint(0, NODES, (NODES, 5))), {}),
        "pairs_above": ((b, h, node, torch.tensor([3.0], dtype=dtype), 500), {}),
        "merge": ((torch.tensor([2, 5, 7]), torch.tensor([1, 5, 8, 9])), {}),
        "bracket_threshold": ((flip, thresholds, budget), {}),
        "apply_threshold": ((flip, ends, budget, flip.amax(), 1024.0), {}),
        "take_largest": ((flip[None], u, v, total, local, UNIT), {"whole": False}),
        "compact": (
            (there, number, flip, torch.zeros(PAIRS, dtype=torch.long), torch.zeros(PAIRS, dtype=dtype)),
            {},
        ),
        "unrank_pairs": ((torch.arange(0, 60, 7), NODES), {}),
        "table_at": ((b @ h.T, node, u, v), {}),
    }


KERNELS = tuple(cases(torch.float32))


def test_every_kernel_is_here() -> None:
    kernels = {name for name in vars(Backend) if not name.startswith("_")} - {"name", "summary"}
    assert set(KERNELS) == kernels - {"not_supported_reasons"}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_gaps_in_memory_do_not_matter(backend: Backend, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Call by call: joined, there are no gaps.
    monkeypatch.setattr(reference, "FEW_NUMBERS", 0)
    # The greedy kernel of a GPU takes single precision only.
    dtype = torch.float32 if kernel in ("take_largest", "pairs_above") else torch.float64
    arguments, named = cases(dtype)[kernel]
    expected = getattr(reference, kernel)(*arguments, **named)
    kept = arguments[3:] if kernel == "compact" else []
    cuda = backend is triton_gpu and torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    # Buffers that are written to are those of the caller, and whole.
    written = [torch.zeros_like(one) for one in kept]
    strided = to([*gapped(arguments[: len(arguments) - len(kept)]), *written], device)
    found = getattr(backend, kernel)(*strided, **named)
    if kernel == "compact":
        # Behind the last item that is there, numbers may be any.
        size = int(expected)
        found, expected = (found, strided[3][:size], strided[4]), (expected, kept[0][:size], kept[1])
    if kernel == "pairs_above":
        found, expected = (found[0].sort().values, found[1]), (expected[0].sort().values, expected[1])
    torch.testing.assert_close(to(found, torch.device("cpu")), to(expected, torch.device("cpu")))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_without_channels_products_are_0(backend: Backend) -> None:
    cuda = backend is triton_gpu and torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    x, node = torch.ones(5, 0, device=device), torch.arange(5.0, device=device)
    u, v = torch.tensor([[0, 1, 2], [3, 4, 4]], device=device)
    assert not backend.gathered_dot(x, x, u, v).any()
    assert torch.equal(backend.pair_scores(x, x, node, u, v), node[u] + node[v])
    rowptr, col = torch.tensor([0, 1, 1, 2, 2, 3], device=device), torch.tensor([0, 1, 2], device=device)
    assert backend.spmm(rowptr, col, node[:3], x, longest=1).shape == (5, 0)
    nobody = torch.zeros(0, 4, device=device)
    assert backend.spmm(rowptr[:1], col[:0], node[:0], nobody, longest=1).shape == (0, 4)
