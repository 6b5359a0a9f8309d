"""Constraints on flips: membership, listing, costs and budgets, compared with plain enumeration."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.budget import BudgetExceededError
from edgeproof.constraints import Selection

# The triangle 0 1 2 with a tail to 3, the edge 4 5, and the isolated node 6.
EDGES = {(0, 1), (0, 2), (1, 2), (2, 3), (4, 5)}
ALL = set(combinations(range(7), 2))


def pairs_of(pairs: set[tuple[int, int]]) -> Tensor:
    return torch.tensor(sorted(pairs), dtype=torch.long).reshape(-1, 2).T.contiguous()


def sum_is_even(pairs: Tensor) -> Tensor:
    return pairs.sum(dim=0) % 2 == 0


# Each selection beside the set of pairs that it contains.
SELECTIONS: list[tuple[Selection, set[tuple[int, int]]]] = [
    ("additions", ALL - EDGES),
    ("deletions", EDGES),
    (torch.tensor([2, 6]), {pair for pair in ALL if 2 in pair or 6 in pair}),
    (torch.tensor([True, False, False, False, True, False, False]), {pair for pair in ALL if 0 in pair or 4 in pair}),
    (torch.tensor([[1, 3, 5], [0, 4, 4]]), {(0, 1), (3, 4), (4, 5)}),
    (sum_is_even, {pair for pair in ALL if sum(pair) % 2 == 0}),
    (torch.empty(2, 0, dtype=torch.long), set()),
]


@settings(max_examples=60, deadline=None)
@given(
    allowed=st.lists(st.sampled_from(range(len(SELECTIONS))), max_size=2),
    forbidden=st.lists(st.sampled_from(range(len(SELECTIONS))), max_size=2),
)
def test_permitted_pairs_match_set_operations(allowed: list[int], forbidden: list[int]) -> None:
    expected = set(ALL)
    for number in allowed:
        expected &= SELECTIONS[number][1]
    for number in forbidden:
        expected -= SELECTIONS[number][1]
    graph = Data(x=torch.zeros(7, 1), edge_index=torch.cat([pairs_of(EDGES), pairs_of(EDGES).flip(0)], dim=1))
    constraints = ep.Constraints(
        tuple(SELECTIONS[number][0] for number in allowed), tuple(SELECTIONS[number][0] for number in forbidden)
    )
    permitted = constraints.on(graph)
    everything = pairs_of(ALL)
    assert permitted.mask(everything).tolist() == [pair in expected for pair in sorted(ALL)]
    assert permitted.mask(everything.flip(0)).equal(permitted.mask(everything))
    assert permitted.pairs is not None
    assert permitted.pairs.equal(pairs_of(expected))


def test_large_graphs_list_only_pairs_that_are_given() -> None:
    """With 3,000 nodes there are too many pairs to examine all of them."""
    ring = torch.stack([torch.arange(3000), torch.arange(3000).roll(1)])
    graph = Data(x=torch.zeros(3000, 1), edge_index=torch.cat([ring, ring.flip(0)], dim=1)).coalesce()
    assert ep.Constraints("additions").on(graph).pairs is None
    assert ep.Constraints(sum_is_even).on(graph).pairs is None
    deletions = ep.Constraints((sum_is_even, "deletions")).on(graph).pairs
    assert deletions is not None
    assert deletions.size(1) == 0
    at_node = ep.Constraints(("additions", torch.tensor([7]))).on(graph).pairs
    assert at_node is not None
    assert at_node.size(1) == 2999 - 2
    fingerprints = {
        ep.Constraints(allowed).on(graph).fingerprint for allowed in ("additions", sum_is_even, "deletions")
    }
    assert len(fingerprints) == 3


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), total=st.integers(0, 12), with_local=st.booleans(), as_table=st.booleans())
def test_budget_with_costs_matches_plain_sums(seed: int, total: int, with_local: bool, as_table: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    everything = pairs_of(ALL)
    costs = torch.randint(1, 5, (len(ALL),), generator=generator)
    cost_of = dict(zip(sorted(ALL), costs.tolist(), strict=True))
    local = torch.randint(0, 8, (7,), generator=generator) if with_local else None
    graph = Data(x=torch.zeros(7, 1), edge_index=torch.cat([pairs_of(EDGES), pairs_of(EDGES).flip(0)], dim=1))

    def function(pairs: Tensor) -> Tensor:
        return torch.tensor([cost_of[pair] for pair in zip(*pairs.tolist(), strict=True)], dtype=torch.long)

    constraints = ep.Constraints(forbidden="deletions", costs=(everything.flip(0), costs) if as_table else function)
    budget = ep.Budget(total, local, constraints).on(graph)
    flips = everything[
        :, torch.randperm(len(ALL), generator=generator)[: int(torch.randint(0, 4, (), generator=generator))]
    ]
    chosen = [tuple(pair) for pair in flips.T.tolist()]
    spent = [sum(cost_of[pair] for pair in chosen if node in pair) for node in range(7)]
    feasible = (
        sum(cost_of[pair] for pair in chosen) <= total
        and EDGES.isdisjoint(chosen)
        and (local is None or all(cost <= int(limit) for cost, limit in zip(spent, local, strict=True)))
    )
    if feasible:
        budget.check(flips)
        left = budget.after(flips)
        assert left.total == total - sum(cost_of[pair] for pair in chosen)
        if local is not None:
            assert left.local is not None
            assert left.local.tolist() == [int(limit) - cost for cost, limit in zip(spent, local, strict=True)]
        for pair, permitted in zip(sorted(ALL), left.permits(everything).tolist(), strict=True):
            if permitted and pair not in chosen:
                budget.check(torch.cat([flips, torch.tensor(pair)[:, None]], dim=1))
    else:
        with pytest.raises(BudgetExceededError):
            budget.check(flips)


def test_budget_reports_violated_constraints(graph: Data) -> None:
    budget = ep.Budget(3, constraints=ep.Constraints("additions")).on(graph)
    budget.check(torch.tensor([[0, 1], [3, 5]]))
    with pytest.raises(BudgetExceededError, match=r"do not permit 1 of the flips, such as the pair \(0, 1\)"):
        budget.check(torch.tensor([[0, 0], [1, 3]]))
    expensive = ep.Budget(3, constraints=ep.Constraints(costs=(torch.tensor([[0], [3]]), torch.tensor([4])))).on(graph)
    with pytest.raises(BudgetExceededError, match="budget is 3 in total, got flips that cost 4"):
        expensive.check(torch.tensor([[0], [3]]))
    local = ep.Budget(9, torch.full((7,), 3), expensive.constraints).on(graph)
    with pytest.raises(BudgetExceededError, match="node 0 has a budget of 3, got flips at it that cost 4"):
        local.check(torch.tensor([[0], [3]]))


def test_budget_without_permitted_pairs_allows_no_flip(graph: Data) -> None:
    nothing = ep.Constraints("additions", forbidden="additions")
    assert not ep.Budget(3, constraints=nothing).on(graph).allows_flips
    assert ep.Budget(3, constraints=ep.Constraints("additions")).on(graph).allows_flips
    too_expensive = ep.Constraints(costs=lambda pairs: torch.full_like(pairs[0], 4))
    assert not ep.Budget(3, constraints=too_expensive).on(graph).allows_flips
    epsilons = ep.Budget.from_epsilons(graph, torch.arange(7), [0.2, 1.0], constraints=nothing)
    assert [budget.allows_flips for budget in epsilons] == [False, False]


def test_constraints_need_a_graph_before_flips_are_checked() -> None:
    with pytest.raises(ValueError, match=r"call budget.on\(data\) first"):
        ep.Budget(3, constraints=ep.Constraints("additions")).check(torch.tensor([[0], [1]]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ep.Constraints("addition"), ValueError, "unknown allowed 'addition': did you mean 'additions'"),
        (lambda: ep.Constraints(forbidden=[0, 1]), TypeError, "expected forbidden as 'additions', 'deletions', pairs"),
        (lambda: ep.Constraints(torch.zeros(3)), TypeError, "got torch.float32 of shape"),
        (lambda: ep.Constraints(torch.tensor([9])), ValueError, "between 0 and 6, got 9"),
        (lambda: ep.Constraints(torch.tensor([[0], [9]])), ValueError, "between 0 and 6, got 0 to 9"),
        (
            lambda: ep.Constraints(torch.ones(3, dtype=torch.bool)),
            ValueError,
            "mask of the 7 nodes of the graph, got 3",
        ),
        (lambda: ep.Constraints(lambda pairs: True), ValueError, r"return a mask of shape \[1\], got bool"),
        (lambda: ep.Constraints(costs=3), TypeError, "costs as a function or a tuple"),
        (lambda: ep.Constraints(costs=lambda pairs: pairs[0] * 0.5), ValueError, "costs to return int64"),
        (lambda: ep.Constraints(costs=lambda pairs: pairs[0] * 0), ValueError, "costs >= 1, got 0"),
        (
            lambda: ep.Constraints(costs=(torch.tensor([[0], [1]]), torch.tensor([0]))),
            ValueError,
            "costs >= 1, got 0",
        ),
        (
            lambda: ep.Constraints(costs=(torch.tensor([[0], [1]]), torch.ones(2))),
            ValueError,
            "one int64 cost per pair",
        ),
    ],
)
def test_invalid_constraints_raise(
    make: Callable[[], ep.Constraints], error: type[Exception], message: str, graph: Data
) -> None:
    with pytest.raises(error, match=message):
        make().on(graph)
