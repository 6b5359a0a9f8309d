"""Every kernel of every backend on non-contiguous tensors and on tensors without channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from edgeproof.kernels import dispatch, numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend, Operation
from edgeproof.propagation import Adjacency

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [numba_cpu, triton_gpu, reference]
NODES, PAIRS, CHANNELS = 12, 40, 6
UNIT = 1 << 36


def with_gaps(value: Any) -> Any:
    """Return the same values in non-contiguous memory, next to values that must not be read."""
    if isinstance(value, (list, tuple)):
        return [with_gaps(item) for item in value]
    if not isinstance(value, Tensor) or not value.dim():
        return value
    wrong = ~value if value.dtype == torch.bool else value.flip(0) + 1
    return torch.stack([value, wrong], dim=-1)[..., 0]


def to(value: Any, device: torch.device) -> Any:
    if isinstance(value, (list, tuple)):
        return [to(item, device) for item in value]
    return value.to(device) if isinstance(value, Tensor) else value


def cases(dtype: torch.dtype) -> dict[str, tuple[Sequence[Any], dict[str, Any]]]:
    """Arguments and options of every kernel."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=dtype)

    every = torch.triu_indices(NODES, NODES, offset=1)
    every = every[:, torch.randperm(every.size(1), generator=generator)]
    edges, (u, v) = every[:, :20], every[:, 15 : 15 + PAIRS]
    graph = Adjacency.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), num_nodes=NODES, dtype=dtype)
    pattern = graph.pattern
    b, h = random(NODES, CHANNELS), random(NODES, CHANNELS)
    products = [[random(NODES, width) for width in (3, 5)] for _ in range(4)]
    total, local = torch.tensor([6 * UNIT]), torch.full((NODES,), 2 * UNIT)
    budget = torch.tensor([4.0], dtype=torch.float64)
    thresholds = torch.linspace(0, 1, 64, dtype=torch.float64)
    flip, node = random(PAIRS), random(NODES)
    mask, index = random(PAIRS) < 0.5, torch.randperm(PAIRS, generator=generator)
    ends = torch.tensor([[0.2, 0.3], [9.0, 3.0]], dtype=torch.float64)
    edge_index, (edge_u, edge_v) = torch.arange(0, 60, 7), reference.unrank_pairs(torch.arange(0, 60, 7), NODES)
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
        # Concatenated inputs would be contiguous.
        "normalized_terms": ((*products, node), {"few_numbers": 0}),
        "gathered_dot": ((b, h, u, v), {}),
        "pair_scores": ((b, h, node, u, v), {}),
        "weighted_median": ((random(NODES, 3), random(NODES, 5), torch.randint(0, NODES, (NODES, 5))), {}),
        "pairs_above": ((b, h, node, torch.tensor([3.0], dtype=dtype), 500), {}),
        "merge": ((torch.tensor([2, 5, 7]), torch.tensor([1, 5, 8, 9])), {}),
        "bracket_threshold": ((flip, thresholds, budget), {}),
        "apply_threshold": ((flip, ends, budget, flip.amax(), 1024.0), {}),
        "take_largest": ((flip[None], u, v, total, local, UNIT), {"whole": False}),
        "compact": (
            (mask, index, flip, torch.zeros(PAIRS, dtype=torch.long), torch.zeros(PAIRS, dtype=dtype)),
            {},
        ),
        "unrank_pairs": ((torch.arange(0, 60, 7), NODES), {}),
        "table_at": ((b @ h.T, node, u, v), {}),
        "sample_graphs": ((edge_index, edge_u, edge_v, NODES, 0.1, 0.4, 3, 5, 2), {}),
    }


KERNELS = tuple(cases(torch.float32))


def test_cases_cover_every_kernel() -> None:
    assert set(KERNELS) == {name for name, value in vars(dispatch).items() if isinstance(value, Operation)}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_memory_layout_does_not_change_results(backend: Backend, kernel: str) -> None:
    # On a GPU these kernels have no float64 version.
    dtype = torch.float32 if kernel in ("take_largest", "pairs_above") else torch.float64
    arguments, options = cases(dtype)[kernel]
    expected = getattr(reference, kernel)(*arguments, **options)
    outputs = arguments[3:] if kernel == "compact" else []
    cuda = backend is triton_gpu and torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    # Output buffers are contiguous.
    buffers = [torch.zeros_like(output) for output in outputs]
    inputs = to([*with_gaps(arguments[: len(arguments) - len(outputs)]), *buffers], device)
    actual = getattr(backend, kernel)(*inputs, **options)
    if kernel == "compact":
        # Indices behind the gathered items are undefined.
        size = int(expected)
        actual, expected = (actual, inputs[3][:size], inputs[4]), (expected, outputs[0][:size], outputs[1])
    if kernel == "pairs_above":
        actual, expected = (actual[0].sort().values, actual[1]), (expected[0].sort().values, expected[1])
    if kernel == "sample_graphs":
        # The length of the longest row is optional.
        actual, expected = actual[:3], expected[:3]
    torch.testing.assert_close(to(actual, torch.device("cpu")), to(expected, torch.device("cpu")))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_products_without_channels_are_zero(backend: Backend) -> None:
    cuda = backend is triton_gpu and torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    x, node = torch.ones(5, 0, device=device), torch.arange(5.0, device=device)
    u, v = torch.tensor([[0, 1, 2], [3, 4, 4]], device=device)
    assert not backend.gathered_dot(x, x, u, v).any()
    assert torch.equal(backend.pair_scores(x, x, node, u, v), node[u] + node[v])
    rowptr, col = torch.tensor([0, 1, 1, 2, 2, 3], device=device), torch.tensor([0, 1, 2], device=device)
    assert backend.spmm(rowptr, col, node[:3], x, longest=1).shape == (5, 0)
    empty = torch.zeros(0, 4, device=device)
    assert backend.spmm(rowptr[:1], col[:0], node[:0], empty, longest=1).shape == (0, 4)
