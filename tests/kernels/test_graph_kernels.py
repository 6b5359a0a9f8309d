"""What changes a matrix for a step of an attack, in every backend: against the reference, and that against dense matrices."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

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
    nodes: int, edges: int, generator: torch.Generator, dtype: torch.dtype, *, odd: bool = False
) -> Adjacency:
    """An undirected graph; some nodes have no edge. An odd one has self-loops, and some edges twice."""
    pairs = torch.triu_indices(nodes, nodes, offset=1)
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=generator)[:edges]]
    both = torch.cat([pairs, pairs.flip(0)], dim=1)
    if odd:
        loops = torch.arange(0, nodes, 2).expand(2, -1)
        both = torch.cat([both, pairs[:, ::3], pairs[:, ::3].flip(0), loops], dim=1)
    return Adjacency.from_edge_index(both, num_nodes=nodes, dtype=dtype, symmetric=True)


def arguments(adjacency: Adjacency) -> tuple[Tensor, ...]:
    pattern = adjacency.pattern
    return pattern.rowptr, pattern.col, pattern.key, adjacency.weight, pattern.diagonal


def check_insertion(backend: Backend, nodes: int, edges: int, flips: int, idle: int, dtype: torch.dtype) -> None:
    """Some of the pairs are edges; idle ones are there again, or for the first time, with 0."""
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
    known = [tensor.to(device_of(backend)) for tensor in (*arguments(graph), *pairs, flip)]
    found = backend.insert_pairs(*known)
    for mine, expected in zip(found, reference.insert_pairs(*(tensor.cpu() for tensor in known)), strict=True):
        torch.testing.assert_close(mine.cpu(), expected)
    p = torch.zeros(nodes, nodes, dtype=dtype)
    p.index_put_((pairs[0], pairs[1]), flip, accumulate=True)
    dense, p = graph.dense(), p + p.T
    rowptr, col, weight, diagonal = (tensor.cpu() for tensor in found)
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
def test_pairs_are_put_into_sorted_rows(
    backend: Backend, nodes: int, edges: int, flips: int, idle: int, dtype: torch.dtype
) -> None:
    check_insertion(backend, nodes, edges, flips, idle, dtype)


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(2, 12), edges=st.integers(0, 30), flips=st.integers(0, 40), idle=st.integers(0, 9))
def test_pairs_are_placed_without_sorting(nodes: int, edges: int, flips: int, idle: int) -> None:
    check_insertion(triton_gpu, nodes, edges, flips, idle, torch.float64)


def test_a_gpu_does_not_sort_pairs_where_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(40, 60, torch.Generator().manual_seed(0), torch.float32)
    pairs = torch.triu_indices(40, 40, offset=1)[:, ::20]
    known = [tensor.to(DEVICE) for tensor in (*arguments(graph), *pairs, torch.ones(pairs.size(1)))]
    expected = reference.insert_pairs(*known)
    monkeypatch.setattr(reference, "insert_pairs", None)
    for mine, other in zip(triton_gpu.insert_pairs(*known), expected, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    ("where", "limit", "value"), [(triton_gpu, "_LISTED", 2), (reference, "FEW_ENTRIES", 100)], ids=["pairs", "entries"]
)
def test_very_many_pairs_are_sorted(where: ModuleType, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, limit, value)
    monkeypatch.setattr(triton_gpu, "graphs", None)
    check_insertion(triton_gpu, 40, 60, 41, 0, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "widths"), [(30, [6, 6, 6]), (5, [1]), (17, [70, 3]), (9, [])])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("few", [0, 1 << 20])
def test_terms_of_a_normalized_matrix(
    few: int, backend: Backend, nodes: int, widths: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "FEW_NUMBERS", few)
    generator = torch.Generator().manual_seed(nodes)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    b, h, out, back = ([numbers(nodes, width) for width in widths] for _ in range(4))
    # Not contiguous, as gradients may be.
    b = [part.T.contiguous().T for part in b]
    scale = numbers(nodes).abs()
    given_to = [[part.to(device_of(backend)) for part in parts] for parts in (b, h, out, back)]
    found = backend.normalized_terms(*given_to, scale.to(device_of(backend)))
    empty = numbers(nodes, 0)
    joined = [torch.cat([empty, *parts], dim=1) for parts in (b, h, out, back)]
    expected = (
        scale[:, None] * joined[0],
        scale[:, None] * joined[1],
        (joined[0] * joined[2] + joined[3] * joined[1]).sum(dim=1),
    )
    for mine, other in zip(found, expected, strict=True):
        # Rows may be filled up with zeros.
        assert not mine[..., other.size(-1) :].any()
        torch.testing.assert_close(mine[..., : other.size(-1)].cpu(), other)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_of_equal_entries_the_first_is_changed(backend: Backend) -> None:
    """Edges that are there twice, self-loops, and pairs that are flipped a second time."""
    graph = random_graph(12, 20, torch.Generator().manual_seed(0), torch.float64, odd=True)
    u, v = torch.triu_indices(12, 12, offset=1)[:, ::2]
    flip = torch.linspace(0.1, 0.4, u.numel(), dtype=torch.float64)
    known = [tensor.to(device_of(backend)) for tensor in arguments(graph)]
    pairs = [tensor.to(device_of(backend)) for tensor in (u, v, flip)]
    expected = arguments(graph)
    for _ in range(2):
        found = backend.insert_pairs(*known, *pairs)
        wanted = reference.insert_pairs(*expected, u, v, flip)
        for mine, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine.cpu(), other)
        row = torch.arange(12).repeat_interleave(wanted[0].diff())
        expected = (*wanted[:2], row * 12 + wanted[1], *wanted[2:])
        known = [tensor.to(device_of(backend)) for tensor in expected]


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_normalization(backend: Backend, dtype: torch.dtype, self_loops: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    cases = ((40, 60, 9, False), (40, 300, 30, False), (2, 0, 1, False), (40, 60, None, False), (40, 60, 9, True))
    for nodes, edges, longest, odd in cases:
        graph = random_graph(nodes, edges, generator, dtype, odd=odd)
        weight = graph.weight * torch.rand(graph.weight.numel(), generator=generator, dtype=dtype)
        dense = graph.with_weight(weight).dense() + (torch.eye(nodes, dtype=dtype) if self_loops else 0)
        degree = dense.sum(dim=1)
        scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
        pattern = graph.pattern
        given_to = [tensor.to(device_of(backend)) for tensor in (pattern.rowptr, pattern.col, weight, pattern.diagonal)]
        found, found_scale = backend.normalize(*given_to, self_loops=self_loops, longest=longest)
        torch.testing.assert_close(found_scale.cpu(), scale)
        torch.testing.assert_close(graph.with_weight(found.cpu()).dense(), scale[:, None] * dense * scale)


def test_normalization_has_a_gradient() -> None:
    graph = random_graph(6, 7, torch.Generator().manual_seed(1), torch.float64)
    pattern = graph.pattern
    weight = torch.rand_like(graph.weight).requires_grad_()
    for self_loops in (False, True):

        def weights(weight: Tensor, self_loops: bool = self_loops) -> Tensor:
            return reference.normalize(pattern.rowptr, pattern.col, weight, pattern.diagonal, self_loops=self_loops)[0]

        assert torch.autograd.gradcheck(weights, weight)


def test_what_needs_a_gradient_keeps_it() -> None:
    """Triton's programs know of none, so they are not used then."""
    graph = random_graph(6, 7, torch.Generator().manual_seed(1), torch.float64)
    rowptr, col, key, weight, diagonal = (tensor.to(DEVICE) for tensor in arguments(graph))
    u, v = torch.tensor([[0, 1], [2, 3]], device=DEVICE)
    flip = torch.full((2,), 0.5, dtype=torch.float64, device=DEVICE)
    for needs in (weight, flip):
        needs.requires_grad_()
        assert triton_gpu.insert_pairs(rowptr, col, key, weight, diagonal, u, v, flip)[2].requires_grad
        needs.requires_grad_(False)
    normalized, _ = triton_gpu.normalize(rowptr, col, weight.requires_grad_(), diagonal, self_loops=True, longest=9)
    assert normalized.requires_grad


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_table_gives_what_single_products_give(backend: Backend) -> None:
    generator = torch.Generator().manual_seed(0)
    b, h = torch.randn(2, 30, 6, generator=generator, dtype=torch.float64)
    node = torch.randn(30, generator=generator, dtype=torch.float64)
    u, v = torch.randint(0, 30, (2, 3000), generator=generator)
    table, node, u, v = (tensor.to(device_of(backend)) for tensor in (b @ h.T, node, u, v))
    expected = reference.pair_scores(b, h, node.cpu(), u.cpu(), v.cpu())
    torch.testing.assert_close(backend.table_at(table, node, u, v).cpu(), expected)
    assert backend.table_at(table, node, u[:0], v[:0]).numel() == 0


@pytest.mark.parametrize(("count", "share", "room"), [(3000, 0.3, 2000), (3000, 0.3, 500), (5, 1.0, 5), (5, 0.0, 3)])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_items_are_gathered_as_far_as_there_is_room(backend: Backend, count: int, share: float, room: int) -> None:
    generator = torch.Generator().manual_seed(0)
    there = torch.rand(count, generator=generator) < share
    number, flip = torch.randperm(count, generator=generator), torch.rand(count, generator=generator) + 0.1
    # What stands behind the room is not to be touched.
    kept = [torch.full((room + 9,), -1).to(device_of(backend)), torch.ones(room + 9).to(device_of(backend))]
    buffers = [*(tensor.to(device_of(backend)) for tensor in (there, number, flip)), *(one[:room] for one in kept)]
    assert int(backend.compact(*buffers)) == int(there.sum())
    size = min(room, int(there.sum()))
    assert torch.equal(buffers[3][:size].cpu(), number[there][:size])
    assert torch.equal(buffers[4][:size].cpu(), flip[there][:size])
    assert not buffers[4][size:].any()
    assert bool((kept[0][room:] == -1).all())
    assert bool((kept[1][room:] == 1).all())


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("name", ["GCN", "APPNP", "GPRGNN", "ChebNetII", "GAT"])
def test_a_dense_matrix_gives_what_a_sparse_one_gives(graph: Data, name: str, isolated: bool) -> None:
    """Over all pairs, and over some of them: loss, logits and scores, on a graph with a node that may stay isolated."""
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
        # As many pairs of weight 0 as there is room for.
        more = torch.cat([pairs.both, every.both, every.both], dim=1), torch.cat([flip, flip.new_zeros(42)])
        assert torch.equal(DenseGraph(engine.adjacency).perturbed(*more).dense(), filled.dense())
        loss, logits, scores = engine.run_over(filled)
        expected = engine.run_on_tape(pairs.both, flip)
        torch.testing.assert_close((loss, logits), expected[:2])
        assert scores is not None
        assert expected[2] is not None
        for mine, other in zip(scores, expected[2], strict=True):
            torch.testing.assert_close(mine.at_many(every, None), other.at(every, None))


def test_all_kernels_of_a_run_are_of_the_backend_asked_for(graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    choose = dispatch.choose

    def noted(tensors: Sequence[Tensor], backend: str | None = None) -> Backend:
        found = choose(tensors, backend)
        chosen.append(found.name)
        return found

    engine = EdgeGradientEngine(ep.models.build("GPRGNN", 5, 3, seed=0), graph, torch.arange(7), backend="reference")
    monkeypatch.setattr(dispatch, "choose", noted)
    flips = torch.tensor([[0, 2], [4, 5]]), torch.tensor([0.5, 1.0])
    engine.run_on_tape(*flips)
    engine.logits(*flips)
    assert len(chosen) > 20
    assert set(chosen) == {"reference"}
