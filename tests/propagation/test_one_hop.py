"""Worst flips at single nodes against enumeration of all flips."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.models import OneHop
from edgeproof.propagation import Adjacency, EdgeGradientEngine
from edgeproof.propagation.one_hop import (
    Limits,
    Neighbors,
    OneHopTerms,
    OneHopWorstCase,
    any_edges_margins,
)


def random_terms(n: int, classes: int, least: int, generator: torch.Generator) -> OneHopTerms:
    draw = torch.rand(n, 2 * classes + 1, generator=generator, dtype=torch.float64)
    # A coarse grid, so that ties occur.
    own, message = (draw[:, :classes] * 2).round(decimals=1), (draw[:, classes:-1] - 0.5).round(decimals=1)
    return OneHopTerms(own, message, draw[:, -1], least)


def random_matrix(n: int, generator: torch.Generator) -> Tensor:
    density = float(torch.rand((), generator=generator)) * 1.2 - 0.1
    upper = (torch.rand(n, n, generator=generator) < density).triu(1)
    return (upper | upper.T).double()


def adjacency_of(matrix: Tensor) -> Adjacency:
    return Adjacency.from_edge_index(matrix.nonzero().T.contiguous(), num_nodes=matrix.size(0), symmetric=True)


def margins_of(terms: OneHopTerms, row: Tensor, node: int, label: int) -> Tensor:
    """Margins to every class of a node with this row of the adjacency matrix, by the definition of the model."""
    logits = terms.own[node] + terms.gate[node] * (row @ terms.message) / max(float(row.sum()), terms.least)
    margins = logits[label] - logits
    margins[label] = torch.inf
    return margins


def enumerate_rows(matrix: Tensor, node: int, partners: list[int], limits: tuple[int, int, int]) -> list[Tensor]:
    """All rows of the adjacency matrix of a node within the limits on flips, additions and deletions."""
    total, added, deleted = limits
    rows = []
    for size in range(min(total, len(partners)) + 1):
        for chosen in combinations(partners, size):
            num_deleted = int(matrix[node, list(chosen)].sum())
            if num_deleted <= deleted and size - num_deleted <= added:
                row = matrix[node].clone()
                row[list(chosen)] = 1 - row[list(chosen)]
                rows.append(row)
    return rows


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(2, 7),
    classes=st.integers(2, 4),
    least=st.integers(1, 4),
    data=st.data(),
)
def test_worst_margin_matches_enumeration(seed: int, n: int, classes: int, least: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    terms, matrix = random_terms(n, classes, least, generator), random_matrix(n, generator)
    permitted = torch.rand(n, generator=generator) < 0.8
    labels = torch.randint(0, classes, (n,), generator=generator)
    limits = Limits(*torch.randint(0, n + 2, (3, n), generator=generator))
    search = OneHopWorstCase(terms, Neighbors(adjacency_of(matrix)), torch.arange(n), labels, permitted)
    worst, threshold = search.worst(limits), float(torch.rand((), generator=generator)) - 0.5
    fewest = search.fewest_flips(limits, torch.full((n,), threshold, dtype=torch.float64))
    for node in range(n):
        partners = [other for other in range(n) if other != node and permitted[other]]
        label, bounds = int(labels[node]), tuple(int(part[node]) for part in limits)
        rows = enumerate_rows(matrix, node, partners, bounds)  # type: ignore[arg-type]
        margins = torch.stack([margins_of(terms, row, node, label) for row in rows])
        torch.testing.assert_close(worst.margin[node], margins.amin(dim=0))
        flips = torch.stack([(row != matrix[node]).sum() for row in rows])
        reached = flips[margins.amin(dim=1) <= threshold]
        # Sums in another order may differ by rounding where a margin equals the threshold.
        if bool(((margins - threshold).abs() > 1e-9).all()):
            assert int(fewest[node]) == (int(reached.min()) if reached.numel() else bounds[0] + 1)
        for other in range(classes):
            a, d = int(worst.added[node, other]), int(worst.deleted[node, other])
            if other != label:
                joined, removed = search.partners(node, other, a, d)
                assert a + d <= bounds[0]
                assert joined.numel() == a
                assert removed.numel() == d
                row = matrix[node].clone()
                assert not row[joined].any()
                assert row[removed].all()
                row[joined], row[removed] = 1, 0
                assert float(margins_of(terms, row, node, label)[other]) == pytest.approx(
                    float(worst.margin[node, other])
                )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000), n=st.integers(1, 7), classes=st.integers(2, 4), least=st.integers(1, 4))
def test_any_edges_margin_matches_enumeration(seed: int, n: int, classes: int, least: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    terms, matrix = random_terms(n, classes, least, generator), random_matrix(n, generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    found = any_edges_margins(terms, torch.arange(n), labels)
    for node in range(n):
        others = [other for other in range(n) if other != node]
        rows = enumerate_rows(matrix, node, others, (n, n, n))
        expected = min(float(margins_of(terms, row, node, int(labels[node])).min()) for row in rows)
        assert float(found[node]) == pytest.approx(expected)


def test_margin_gradient_is_that_of_the_worst_graph() -> None:
    generator = torch.Generator().manual_seed(3)
    n, label = 6, 0
    # Without ties, the worst flips are unique.
    own, message, gate = (torch.rand(n, size, generator=generator, dtype=torch.float64) for size in (3, 3, 1))
    parts = [part.requires_grad_() for part in (own, message, gate)]
    terms = OneHopTerms(parts[0], parts[1], parts[2][:, 0], 2)
    matrix = random_matrix(n, generator)
    search = OneHopWorstCase(terms, Neighbors(adjacency_of(matrix)), torch.tensor([1]), torch.tensor([label]))
    least = search.worst(Limits.of_total(torch.tensor([3]))).margin.amin()
    found = torch.autograd.grad(least, parts)
    rows = enumerate_rows(matrix, 1, [0, 2, 3, 4, 5], (3, 3, 3))
    expected = torch.autograd.grad(torch.stack([margins_of(terms, row, 1, label).amin() for row in rows]).amin(), parts)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_unequal_degrees_and_limits_in_one_call() -> None:
    """A star: the hub and its leaves are in different groups."""
    generator = torch.Generator().manual_seed(0)
    n = 9
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[0, 1:] = matrix[1:, 0] = 1
    terms = random_terms(n, 3, 1, generator)
    nodes, labels = torch.tensor([5, 0, 3]), torch.tensor([0, 1, 2])
    together = OneHopWorstCase(terms, Neighbors(adjacency_of(matrix)), nodes, labels)
    limits = Limits.of_total(torch.tensor([1, 4, 0]))
    worst = together.worst(limits)
    for position in range(3):
        one = slice(position, position + 1)
        alone = OneHopWorstCase(terms, Neighbors(adjacency_of(matrix)), nodes[one], labels[one])
        single = alone.worst(Limits.of_total(limits.total[one]))
        torch.testing.assert_close(single.margin[0], worst.margin[position])


@pytest.mark.parametrize("least", [1, 2, 4])
def test_averaged_over_matches_its_equation(least: int) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = random_matrix(7, generator) * torch.rand(7, 7, generator=generator).double()
    matrix = matrix + matrix.T
    edges = matrix.nonzero().T.contiguous()
    adjacency = Adjacency.from_edge_index(edges, matrix[edges[1], edges[0]], num_nodes=7, dtype=torch.float64)
    expected = matrix / matrix.sum(dim=1, keepdim=True).clamp(min=least)
    torch.testing.assert_close(adjacency.averaged_over(least).dense(), expected)


@pytest.mark.parametrize("least", [1, 2, 5])
def test_edge_gradients_of_one_hop_models_match_autograd(least: int) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = random_matrix(8, generator)
    data = Data(x=torch.rand(8, 4, generator=generator).double(), edge_index=matrix.nonzero().T.contiguous())
    torch.manual_seed(0)
    model = OneHop(4, 3, hidden_channels=4, least=least, relative=False).double()
    nodes, labels = torch.arange(8), torch.arange(8) % 3
    pairs = torch.triu_indices(8, 8, 1)
    fast, slow = (
        EdgeGradientEngine(model, data, nodes, labels=labels, path=path)(pairs[:, :3], torch.full((3,), 0.3).double())
        for path in ("propagate", "autograd")
    )
    torch.testing.assert_close(fast.at(pairs), slow.at(pairs))
