"""Kernels that modify and normalise a sparse matrix: every backend against the reference, and that against dense matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.kernels import dispatch, numba_cpu, reference, triton_gpu
from edgeproof.kernels.dispatch import Backend
from edgeproof.propagation import Adjacency, EdgeGradientEngine, Pairs
from edgeproof.propagation.adjacency import DenseGraph, FixedPairsGraph

pytest.importorskip("triton", reason="triton is not installed")

BACKENDS: list[Backend] = [numba_cpu, triton_gpu, reference]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_of(backend: Backend) -> torch.device:
    return DEVICE if backend is triton_gpu else torch.device("cpu")


def random_graph(
    nodes: int, edges: int, generator: torch.Generator, dtype: torch.dtype, *, multigraph: bool = False
) -> Adjacency:
    """Undirected graph with isolated nodes; a multigraph also has self-loops and repeated edges."""
    pairs = torch.triu_indices(nodes, nodes, offset=1)
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=generator)[:edges]]
    both = torch.cat([pairs, pairs.flip(0)], dim=1)
    if multigraph:
        loops = torch.arange(0, nodes, 2).expand(2, -1)
        both = torch.cat([both, pairs[:, ::3], pairs[:, ::3].flip(0), loops], dim=1)
    return Adjacency.from_edge_index(both, num_nodes=nodes, dtype=dtype, symmetric=True)


def arguments(adjacency: Adjacency) -> tuple[Tensor, ...]:
    pattern = adjacency.pattern
    return pattern.rowptr, pattern.col, pattern.key, adjacency.weight, pattern.diagonal


def check_insertion(
    backend: Backend, nodes: int, edges: int, flips: int, idle: int, dtype: torch.dtype, **options: Any
) -> None:
    """Insert distinct pairs, some of them edges, and idle pairs: repeated or new, with flip 0."""
    generator = torch.Generator().manual_seed(nodes + edges + flips)
    graph = random_graph(nodes, edges, generator, dtype)
    every = torch.triu_indices(nodes, nodes, offset=1)
    every = every[:, torch.randperm(every.size(1), generator=generator)]
    pairs = torch.cat(
        [every[:, :flips], every[:, torch.randint(0, every.size(1), (idle,), generator=generator)]], dim=1
    )
    pairs = torch.where(torch.rand(pairs.size(1), generator=generator) < 0.5, pairs, pairs.flip(0))
    flip = torch.cat(
        [torch.rand(min(flips, every.size(1)), generator=generator, dtype=dtype), torch.zeros(idle, dtype=dtype)]
    )
    inputs = [tensor.to(device_of(backend)) for tensor in (*arguments(graph), *pairs, flip)]
    inserted = backend.insert_pairs(*inputs, **options)
    for actual, expected in zip(inserted, reference.insert_pairs(*(tensor.cpu() for tensor in inputs)), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)
    p = torch.zeros(nodes, nodes, dtype=dtype)
    p.index_put_((pairs[0], pairs[1]), flip, accumulate=True)
    dense, p = graph.dense(), p + p.T
    rowptr, col, weight, diagonal = (tensor.cpu() for tensor in inserted)
    row = torch.arange(nodes).repeat_interleave(rowptr.diff())
    changed = torch.zeros_like(p).index_put_((row, col), weight, accumulate=True)
    torch.testing.assert_close(changed, dense + (1 - 2 * dense) * p)
    assert torch.equal(col[diagonal], torch.arange(nodes))
    assert torch.equal(row[diagonal], torch.arange(nodes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("nodes", "edges", "flips", "idle"), [(40, 60, 150, 170), (3, 3, 2, 4), (9, 0, 1, 0), (7, 5, 0, 0)]
)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_insert_pairs_equals_a_dense_update(
    backend: Backend, nodes: int, edges: int, flips: int, idle: int, dtype: torch.dtype
) -> None:
    check_insertion(backend, nodes, edges, flips, idle, dtype)


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(2, 12), edges=st.integers(0, 30), flips=st.integers(0, 40), idle=st.integers(0, 9))
def test_triton_inserts_pairs_by_rank(nodes: int, edges: int, flips: int, idle: int) -> None:
    check_insertion(triton_gpu, nodes, edges, flips, idle, torch.float64)


def test_triton_ranks_few_pairs_and_sorts_many() -> None:
    assert triton_gpu.ranking_is_faster(40, 160, 41)
    assert triton_gpu.ranking_is_faster(40, 160, 2000)
    assert not triton_gpu.ranking_is_faster(40, 160, 2001)
    assert not triton_gpu.ranking_is_faster(40, 160, 41, new_per_node=2)
    assert not triton_gpu.ranking_is_faster(40, 160, 41, few_entries=100)


@pytest.mark.parametrize("options", [{"new_per_node": 2}, {"few_entries": 100}], ids=["pairs", "entries"])
def test_triton_sorts_many_pairs(options: dict[str, int]) -> None:
    check_insertion(triton_gpu, 40, 60, 41, 0, torch.float32, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "widths"), [(30, [6, 6, 6]), (5, [1]), (17, [70, 3]), (9, [])])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("few_numbers", [0, 1 << 20])
def test_normalized_terms(
    few_numbers: int, backend: Backend, nodes: int, widths: list[int], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(nodes)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    b, h, out, grad_x = ([random(nodes, width) for width in widths] for _ in range(4))
    # Gradients may be non-contiguous.
    b = [part.T.contiguous().T for part in b]
    scale = random(nodes).abs()
    inputs = [[part.to(device_of(backend)) for part in parts] for parts in (b, h, out, grad_x)]
    terms = backend.normalized_terms(*inputs, scale.to(device_of(backend)), few_numbers=few_numbers)
    empty = random(nodes, 0)
    joined = [torch.cat([empty, *parts], dim=1) for parts in (b, h, out, grad_x)]
    expected_terms = (
        scale[:, None] * joined[0],
        scale[:, None] * joined[1],
        (joined[0] * joined[2] + joined[3] * joined[1]).sum(dim=1),
    )
    for actual, expected in zip(terms, expected_terms, strict=True):
        # Rows may be padded with zeros.
        assert not actual[..., expected.size(-1) :].any()
        torch.testing.assert_close(actual[..., : expected.size(-1)].cpu(), expected)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_insert_pairs_changes_the_first_of_equal_entries(backend: Backend) -> None:
    """Inputs have repeated edges, self-loops, and pairs that are flipped twice."""
    graph = random_graph(12, 20, torch.Generator().manual_seed(0), torch.float64, multigraph=True)
    u, v = torch.triu_indices(12, 12, offset=1)[:, ::2]
    flip = torch.linspace(0.1, 0.4, u.numel(), dtype=torch.float64)
    inputs = [tensor.to(device_of(backend)) for tensor in arguments(graph)]
    pairs = [tensor.to(device_of(backend)) for tensor in (u, v, flip)]
    expected_inputs = arguments(graph)
    for _ in range(2):
        inserted = backend.insert_pairs(*inputs, *pairs)
        expected = reference.insert_pairs(*expected_inputs, u, v, flip)
        for actual, expected_tensor in zip(inserted, expected, strict=True):
            torch.testing.assert_close(actual.cpu(), expected_tensor)
        row = torch.arange(12).repeat_interleave(expected[0].diff())
        expected_inputs = (*expected[:2], row * 12 + expected[1], *expected[2:])
        inputs = [tensor.to(device_of(backend)) for tensor in expected_inputs]


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_normalize_equals_dense_normalization(backend: Backend, dtype: torch.dtype, self_loops: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    cases = ((40, 60, 9, False), (40, 300, 30, False), (2, 0, 1, False), (40, 60, None, False), (40, 60, 9, True))
    for nodes, edges, longest, multigraph in cases:
        graph = random_graph(nodes, edges, generator, dtype, multigraph=multigraph)
        weight = graph.weight * torch.rand(graph.weight.numel(), generator=generator, dtype=dtype)
        dense = graph.with_weight(weight).dense() + (torch.eye(nodes, dtype=dtype) if self_loops else 0)
        degree = dense.sum(dim=1)
        scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
        pattern = graph.pattern
        inputs = [tensor.to(device_of(backend)) for tensor in (pattern.rowptr, pattern.col, weight, pattern.diagonal)]
        normalized, actual_scale = backend.normalize(*inputs, self_loops=self_loops, longest=longest)
        torch.testing.assert_close(actual_scale.cpu(), scale)
        torch.testing.assert_close(graph.with_weight(normalized.cpu()).dense(), scale[:, None] * dense * scale)


def test_normalize_is_differentiable() -> None:
    graph = random_graph(6, 7, torch.Generator().manual_seed(1), torch.float64)
    pattern = graph.pattern
    weight = torch.rand_like(graph.weight).requires_grad_()
    for self_loops in (False, True):

        def weights(weight: Tensor, self_loops: bool = self_loops) -> Tensor:
            return reference.normalize(pattern.rowptr, pattern.col, weight, pattern.diagonal, self_loops=self_loops)[0]

        assert torch.autograd.gradcheck(weights, weight)


def test_triton_uses_the_reference_for_inputs_that_require_grad() -> None:
    graph = random_graph(6, 7, torch.Generator().manual_seed(1), torch.float64)
    rowptr, col, key, weight, diagonal = (tensor.to(DEVICE) for tensor in arguments(graph))
    u, v = torch.tensor([[0, 1], [2, 3]], device=DEVICE)
    flip = torch.full((2,), 0.5, dtype=torch.float64, device=DEVICE)
    for tensor in (weight, flip):
        tensor.requires_grad_()
        assert triton_gpu.insert_pairs(rowptr, col, key, weight, diagonal, u, v, flip)[2].requires_grad
        tensor.requires_grad_(False)
    normalized, _ = triton_gpu.normalize(rowptr, col, weight.requires_grad_(), diagonal, self_loops=True, longest=9)
    assert normalized.requires_grad


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_table_at_equals_pair_scores(backend: Backend) -> None:
    generator = torch.Generator().manual_seed(0)
    b, h = torch.randn(2, 30, 6, generator=generator, dtype=torch.float64)
    node = torch.randn(30, generator=generator, dtype=torch.float64)
    u, v = torch.randint(0, 30, (2, 3000), generator=generator)
    table, node, u, v = (tensor.to(device_of(backend)) for tensor in (b @ h.T, node, u, v))
    expected = reference.pair_scores(b, h, node.cpu(), u.cpu(), v.cpu())
    torch.testing.assert_close(backend.table_at(table, node, u, v).cpu(), expected)
    assert backend.table_at(table, node, u[:0], v[:0]).numel() == 0


@pytest.mark.parametrize(
    ("count", "fraction", "capacity"), [(3000, 0.3, 2000), (3000, 0.3, 500), (5, 1.0, 5), (5, 0.0, 3)]
)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_compact_gathers_up_to_the_capacity(backend: Backend, count: int, fraction: float, capacity: int) -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(count, generator=generator) < fraction
    index, flip = torch.randperm(count, generator=generator), torch.rand(count, generator=generator) + 0.1
    # The buffers are views; the elements behind them must not change.
    out = [torch.full((capacity + 9,), -1).to(device_of(backend)), torch.ones(capacity + 9).to(device_of(backend))]
    out_index, out_flip = (buffer[:capacity] for buffer in out)
    inputs = [tensor.to(device_of(backend)) for tensor in (mask, index, flip)]
    assert int(backend.compact(*inputs, out_index, out_flip)) == int(mask.sum())
    size = min(capacity, int(mask.sum()))
    assert torch.equal(out_index[:size].cpu(), index[mask][:size])
    assert torch.equal(out_flip[:size].cpu(), flip[mask][:size])
    assert not out_flip[size:].any()
    assert bool((out[0][capacity:] == -1).all())
    assert bool((out[1][capacity:] == 1).all())


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("name", ["GCN", "APPNP", "GPRGNN", "ChebNetII", "GAT"])
def test_dense_matrix_equals_sparse_matrix(graph: Data, name: str, isolated: bool) -> None:
    """Loss, logits and scores over all pairs and over some of them, on a graph with a node that may stay isolated."""
    data = Data(x=graph.x.double(), edge_index=graph.edge_index, y=graph.y)
    model = ep.models.build(name, 5, 3, seed=0).double().eval()
    engine = EdgeGradientEngine(model, data, torch.arange(7))
    every = Pairs.from_number(torch.arange(21), 7)
    for pairs in (every, every[torch.arange(0, 21, 2)]):
        flip = torch.rand(len(pairs), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        if isolated:
            flip[(pairs.u == 6) | (pairs.v == 6)] = 0
        filled = FixedPairsGraph(engine.adjacency, pairs.u, pairs.v).perturbed(flip)
        torch.testing.assert_close(filled.dense(), engine.adjacency.perturbed(pairs.both, flip).dense())
        # Repeated pairs with flip 0 change nothing.
        more = torch.cat([pairs.both, every.both, every.both], dim=1), torch.cat([flip, flip.new_zeros(42)])
        assert torch.equal(DenseGraph(engine.adjacency).perturbed(*more).dense(), filled.dense())
        loss, logits, scores = engine.run_over(filled)
        expected = engine.run_on_tape(pairs.both, flip)
        torch.testing.assert_close((loss, logits), expected[:2])
        assert scores is not None
        assert expected[2] is not None
        for actual, expected_scores in zip(scores, expected[2], strict=True):
            torch.testing.assert_close(actual.at_many(every, None), expected_scores.at(every, None))


def test_engine_uses_the_requested_backend_for_all_kernels(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    choose = dispatch.choose

    def recorded(tensors: Sequence[Tensor], backend: str | None = None) -> Backend:
        selected = choose(tensors, backend)
        chosen.append(selected.name)
        return selected

    engine = EdgeGradientEngine(ep.models.build("GPRGNN", 5, 3, seed=0), graph, torch.arange(7), backend="reference")
    monkeypatch.setattr(dispatch, "choose", recorded)
    flips = torch.tensor([[0, 2], [4, 5]]), torch.tensor([0.5, 1.0])
    engine.run_on_tape(*flips)
    engine.logits(*flips)
    assert len(chosen) > 20
    assert set(chosen) == {"reference"}
