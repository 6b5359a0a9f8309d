from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.budget import BudgetExceededError


def test_total_of_both_counting_rules(graph: Data) -> None:
    """The graph is a triangle 0 1 2 with a tail to 3, an edge 4 5, and the isolated node 6."""
    nodes = torch.tensor([0, 3, 6])
    assert ep.Budget.from_epsilon(graph, nodes, 1.0).total == 3
    # Degrees 2, 1 and 0.
    assert ep.Budget.from_epsilon(graph, nodes, 2.0, count="half_degree").total == 3
    assert ep.Budget.from_epsilon(graph, nodes, 0.0).total == 0
    all_nodes = torch.arange(7)
    assert ep.Budget.from_epsilon(graph, all_nodes, 1.0).total == 5
    assert ep.Budget.from_epsilon(graph, all_nodes, 1.0, count="half_degree").total == 5
    assert ep.Budget.from_epsilon(graph, torch.tensor([6]), 5.0).total == 0


def test_local_budgets_from_factor_or_tensor(graph: Data) -> None:
    nodes = torch.tensor([0])
    half = ep.Budget.from_epsilon(graph, nodes, 1.0, local=0.5)
    assert half.local is not None
    assert half.local.tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert half.usable is not None
    assert half.usable.tolist() == [0, 1, 2]
    own = torch.tensor([3, 0, 0, 0, 0, 0, 1])
    assert ep.Budget.from_epsilon(graph, nodes, 1.0, local=own).local is own
    none = ep.Budget.from_epsilon(graph, nodes, 1.0)
    assert none.local is None
    assert none.usable is None
    several = ep.Budget.from_epsilons(graph, nodes, [0.0, 1.0, 2.0], local=0.5)
    assert [budget.total for budget in several] == [0, 2, 4]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), epsilon=st.floats(0, 3))
def test_total_matches_brute_force_count(seed: int, epsilon: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    upper = (torch.rand(9, 9, generator=generator) < 0.4).triu(1)
    data = Data(x=torch.zeros(9, 1), edge_index=(upper | upper.T).nonzero().T.contiguous())
    nodes = torch.randperm(9, generator=generator)[:4]
    edges = {(int(u), int(v)) for u, v in upper.nonzero()}
    incident = sum(u in nodes or v in nodes for u, v in edges)
    degrees = sum(u in edge for edge in edges for u in nodes.tolist())
    assert ep.Budget.from_epsilon(data, nodes, epsilon).total == round(epsilon * incident)
    assert ep.Budget.from_epsilon(data, nodes, epsilon, count="half_degree").total == round(epsilon * degrees / 2)


@pytest.mark.parametrize(
    ("flips", "message"),
    [
        ([[0, 1, 2], [1, 2, 3]], "the budget is 2 flips in total, got 3"),
        ([[0, 1], [1, 0]], "flipped at most once, got 1 repeated"),
        ([[0, 0], [1, 2]], "node 0 has a budget of 1, got 2 flips at it"),
        ([[3, 1], [1, 3]], "got 1 repeated"),
        ([[3], [1]], "node 3 has a budget of 0, got 1 flips at it"),
        ([[3, 0], [2, 2]], "node 2 has a budget of 1, got 2 flips at it; 1 more nodes exceed their budget"),
    ],
)
def test_check_reports_exceeded_budgets(flips: list[list[int]], message: str) -> None:
    budget = ep.Budget(2, torch.tensor([1, 1, 1, 0]))
    with pytest.raises(BudgetExceededError, match=message):
        budget.check(torch.tensor(flips))


@pytest.mark.parametrize(
    ("flips", "message"),
    [
        (torch.tensor([[1], [1]]), "pairs of different nodes, got 1 self-loops"),
        (torch.tensor([[1], [9]]), "node ids between 0 and 3, got 1 to 9"),
        (torch.tensor([1, 2]), r"int64 tensor of shape \[2, pairs\]"),
    ],
)
def test_check_rejects_invalid_pairs(flips: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ep.Budget(5, torch.tensor([1, 1, 1, 0])).check(flips)


def test_numpy_numbers_are_accepted(graph: Data) -> None:
    assert ep.Budget(np.int64(3)).total == 3
    assert ep.Budget.from_epsilon(graph, torch.arange(7), np.float32(1.0)).total == 5


def test_remaining_budget_after_flips() -> None:
    budget = ep.Budget(3, torch.tensor([1, 2, 1, 0]))
    flips = torch.tensor([[0, 1], [1, 2]])
    budget.check(flips)
    left = budget.after(flips)
    assert left.total == 1
    assert left.local is not None
    assert left.local.tolist() == [0, 0, 0, 0]
    ep.Budget(0).check(torch.empty(2, 0, dtype=torch.long))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: ep.Budget(-1), "total to be an integer >= 0, got -1"),
        (lambda data: ep.Budget(10**30), "total to be an integer from 0 to 4611686018427387904, got 1000"),
        (
            lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), 1e308),
            r"expected an epsilon that allows at most 4611686018427387904 flips, got 1e\+308 of 2 edges",
        ),
        (
            lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), 0.1, local=10**30),
            "expected local budgets of at most 4611686018427387904 flips",
        ),
        (lambda data: ep.Budget(1.5), "total to be an integer >= 0, got 1.5"),
        (lambda data: ep.Budget(1, torch.tensor([0.5])), "1-D int64 tensor"),
        (lambda data: ep.Budget(1, torch.tensor([1, -2])), "got -2 at node 1"),
        (lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), -0.1), "epsilon to be a finite number >= 0"),
        (lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), float("nan")), "epsilon to be a finite number"),
        (lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), 0.1, count="incidnt"), "did you mean 'incident'"),
        (lambda data: ep.Budget.from_epsilon(data, torch.tensor([], dtype=torch.long), 0.1), "at least one node"),
        (
            lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), 0.1, local=-1.0),
            "local as a finite number >= 0",
        ),
        (lambda data: ep.Budget.from_epsilon(data, torch.tensor([0]), 0.1, local=torch.tensor([1])), "shape .7."),
    ],
)
def test_invalid_budgets_raise(make: object, message: str, graph: Data) -> None:
    with pytest.raises(ValueError, match=message):
        make(graph)  # type: ignore[operator]
