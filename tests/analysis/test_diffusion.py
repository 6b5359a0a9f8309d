"""Tests of the total diffusion matrix."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._checks import check_data
from edgeproof.analysis import Coefficients, coefficients, diffusion, self_influence


@pytest.mark.parametrize("name", ["GPRGNN", "APPNP", "ChebNetII", "MLP"])
def test_logits_equal_diffusion_times_hidden_states(name: str, graph: Data) -> None:
    graph.x = graph.x.double()
    model = ep.models.build(name, 5, 3, seed=1).double().eval()
    for parameter in model.parameters():
        # Random values, so that some coefficients need their sign changed.
        nn.init.uniform_(parameter, -0.6, 0.3, generator=torch.Generator().manual_seed(2))
    scale = coefficients(model).scale
    logits = scale * diffusion(model, graph) @ model.encode(graph.x)
    torch.testing.assert_close(logits, model(graph.x, graph.edge_index), rtol=0, atol=1e-11)


def test_negative_scale_is_divided_out(graph: Data) -> None:
    model = ep.models.build("GPRGNN", 5, 3, seed=1).eval()
    nn.init.constant_(model.gamma, -0.5)
    assert coefficients(model).scale < 0
    assert (diffusion(model, graph) >= 0).all()


def test_linear_gcn_equals_its_diffusion(graph: Data) -> None:
    """With positive weights and features the ReLUs are the identity."""
    graph.x = graph.x.double().abs()
    model = ep.models.build("GCN", 5, 3, seed=0).double().eval()
    for weight in model.weights:
        nn.init.uniform_(weight)
    expected = diffusion(model, graph) @ model.encode(graph.x) @ model.weights[1]
    torch.testing.assert_close(model(graph.x, graph.edge_index), expected)


def test_rows_match_full_matrix(sbm: Data) -> None:
    model = ep.models.build("GPRGNN", 21, 2, seed=0)
    whole = diffusion(model, sbm)
    nodes = torch.tensor([17, 3, 199])
    rows = diffusion(model, sbm, nodes)
    assert rows.shape == (3, 200)
    torch.testing.assert_close(rows, whole[nodes])
    torch.testing.assert_close(whole, whole.T)


def test_diffusion_is_permutation_equivariant(sbm: Data) -> None:
    model = ep.models.build("APPNP", 21, 2, seed=0)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    new_id = order.argsort()
    permuted = Data(x=sbm.x[order], edge_index=new_id[sbm.edge_index]).coalesce()
    check_data(permuted, labels=False)
    torch.testing.assert_close(diffusion(model, permuted), diffusion(model, sbm)[order][:, order])


def test_powers_are_random_walks(cycle: Data) -> None:
    """On a cycle, two steps return with probability 1/2 and reach each node at distance two with 1/4."""
    row = diffusion(Coefficients.of([0.0, 0.0, 1.0], self_loops=False), cycle, torch.tensor([0]))[0]
    expected = torch.zeros(12, dtype=torch.float64)
    expected[[0, 2, 10]] = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    torch.testing.assert_close(row, expected)


def test_rows_of_large_graph_need_little_memory() -> None:
    """The full matrix would take 320 gigabytes."""
    nodes = torch.arange(200_000)
    pairs = torch.stack([nodes, nodes.roll(1)])
    large = Data(x=torch.ones(200_000, 1), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    rows = diffusion(ep.models.APPNP(1, 2, K=3), large, torch.tensor([100_000]))
    assert rows.nonzero()[:, 1].tolist() == list(range(99_997, 100_004))
    assert float(rows.sum()) == pytest.approx(1)  # on a regular graph, rows sum to the coefficients
    with pytest.raises(
        ValueError, match=r"expected nodes \(the rows to compute\) for a graph of more than 10000 nodes"
    ):
        diffusion(ep.models.APPNP(1, 2), large)


def test_self_influence(graph: Data) -> None:
    assert self_influence(diffusion(ep.models.MLP(5, 3), graph)) == 1
    half = diffusion(Coefficients.of([1.0, 1.0], self_loops=False), graph)
    # Row sums of the normalized adjacency matrix; degrees 2, 2, 3, 1, 1, 1 and 0.
    others = (half - 0.5 * torch.eye(7)).sum(dim=1)
    assert self_influence(half) == pytest.approx(float((0.5 / (0.5 + others)).mean()))
    nodes = torch.tensor([2, 6])
    assert self_influence(half[nodes], nodes) == pytest.approx((0.5 / (0.5 + float(others[2])) + 1) / 2)
    off_diagonal = diffusion(Coefficients.of([0.0, 1.0], self_loops=False), graph)
    assert self_influence(off_diagonal) == pytest.approx(
        1 / 7
    )  # only the all-zero row of the isolated node counts as 1
    with pytest.raises(ValueError, match="expected one node per row, 7 in total, got 2 nodes"):
        self_influence(half, nodes)


def test_invalid_arguments_raise(graph: Data) -> None:
    with pytest.raises(ValueError, match=r"expected nodes between 0 and 6, got 7"):
        diffusion(ep.models.MLP(5, 3), graph, torch.tensor([7]))
    with pytest.raises(TypeError, match="expected a model with a polynomial filter"):
        diffusion(ep.models.GAT(5, 3), graph)
