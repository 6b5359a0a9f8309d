"""Every attack under constraints and costs: flips are permitted, and exact searches find the optimum."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import (
    DICE,
    FGSM,
    LRBCD,
    PGD,
    PRBCD,
    Attack,
    EvA,
    ExactGain,
    ExactSearch,
    FixedFlips,
    GreedyRBCD,
    LocalSearch,
    NodeSelection,
    QueryGain,
    RandomFlips,
    discretize,
    project_global,
    resample,
    sample_block,
)
from edgeproof.attacks.base import make_target
from edgeproof.attacks.candidates import Candidates, top_candidates
from edgeproof.attacks.projections import project_global_costs, project_local
from edgeproof.budget import BudgetExceededError
from edgeproof.propagation import Pairs

ATTACKS: list[Attack] = [
    PGD(steps=6, samples=3),
    PRBCD(steps=6, fine_tune_steps=3, block_size=60, samples=3),
    LRBCD(steps=6, block_size=60, samples=3),
    FGSM(),
    GreedyRBCD(steps=4, block_size=60),
    LocalSearch(start=GreedyRBCD(steps=4, block_size=60), patience=2, candidates=4, swaps=2),
    ExactGain(candidates=200, refresh=3, batch=20),
    NodeSelection(candidates=200),
    ExactSearch(start=ExactGain(candidates=100), candidates=100, moves=8, refresh=5),
    QueryGain(candidates=12, batch=6, refresh=3, rounds=2),
    EvA(population=6, generations=3),
    DICE(),
    RandomFlips(),
]


def random_graph(seed: int, n: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    upper = (torch.rand(n, n, generator=generator) < 0.25).triu(1)
    edge_index = (upper | upper.T).nonzero().T.contiguous()
    return Data(x=torch.randn(n, 4, generator=generator), edge_index=edge_index, y=torch.arange(n) % 3)


def cost_by_parity(pairs: Tensor) -> Tensor:
    return 1 + 2 * (pairs.sum(dim=0) % 2)


CONSTRAINTS = {
    "additions": ep.Constraints("additions"),
    "deletions": ep.Constraints("deletions"),
    "pairs": ep.Constraints(torch.tensor([[0, 1, 2, 3, 0], [5, 6, 7, 8, 9]])),
    "nodes": ep.Constraints(torch.tensor([0, 4]), forbidden=torch.tensor([2])),
    "function": ep.Constraints(lambda pairs: pairs.sum(dim=0) % 3 != 0),
    "costs": ep.Constraints(forbidden="deletions", costs=cost_by_parity),
    "nothing": ep.Constraints("additions", forbidden="additions"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
def test_flips_satisfy_constraints_and_budgets(attack: Attack, name: str) -> None:
    data, model = random_graph(0, 14), ep.models.build("GCN", 4, 3, seed=7)
    # All predictions are correct at first.
    data.y = ep.models.predict(model, data).argmax(dim=1)
    constraints, edges = CONSTRAINTS[name], set(map(tuple, data.edge_index.T.tolist()))
    for local in (None, torch.full((14,), 3)):
        budget = ep.Budget(6, local, constraints)
        result = attack(model, data, torch.arange(14), budget) if name != "nothing" else None
        if result is None:
            with pytest.warns(UserWarning, match="EP007"):
                result = attack(model, data, torch.arange(14), budget)
            assert result.flips.size(1) == 0
            continue
        weak = isinstance(attack, (DICE, RandomFlips))
        assert result.accuracy <= 1.0 if weak else result.accuracy < 1.0 == result.clean_accuracy
        pairs = [tuple(pair) for pair in result.flips.T.tolist()]
        assert pairs
        costs = [1 + 2 * (sum(pair) % 2) if name == "costs" else 1 for pair in pairs]
        assert sum(costs) <= 6
        if local is not None:
            assert all(sum(cost for pair, cost in zip(pairs, costs, strict=True) if v in pair) <= 3 for v in range(14))
        if name in ("additions", "costs"):
            assert edges.isdisjoint(pairs)
        elif name == "deletions":
            assert edges.issuperset(pairs)
        elif name == "pairs":
            assert {(0, 5), (1, 6), (2, 7), (3, 8), (0, 9)}.issuperset(pairs)
        elif name == "nodes":
            assert all((0 in pair or 4 in pair) and 2 not in pair for pair in pairs)
        else:
            assert all(sum(pair) % 3 for pair in pairs)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    attack=st.sampled_from(ATTACKS),
    total=st.integers(1, 6),
    density=st.floats(0.05, 1),
    max_cost=st.integers(1, 4),
    with_local=st.booleans(),
)
def test_flips_satisfy_random_constraints(
    seed: int, attack: Attack, total: int, density: float, max_cost: int, with_local: bool
) -> None:
    data, n = random_graph(seed, 9), 9
    generator = torch.Generator().manual_seed(seed)
    permitted = (torch.rand(n, n, generator=generator) < density).triu(1)
    cost = torch.randint(1, max_cost + 1, (n, n), generator=generator)
    local = torch.randint(0, 5, (n,), generator=generator) if with_local else None
    constraints = ep.Constraints(
        lambda pairs: permitted[pairs[0], pairs[1]], costs=lambda pairs: cost[pairs[0], pairs[1]]
    )
    target = make_target(ep.models.build("GCN", 4, 3, seed=0), data, torch.arange(n), None, None)
    (result,) = attack.on_target(target, [ep.Budget(total, local, constraints)], seed=seed)
    u, v = result.flips
    assert permitted[u, v].all()
    assert int(cost[u, v].sum()) <= total
    if local is not None:
        used = torch.zeros(n, dtype=torch.long).index_add_(0, result.flips.flatten(), cost[u, v].repeat(2))
        assert bool((used <= local).all())


def test_local_search_finds_the_optimum_under_constraints() -> None:
    """All feasible sets of flips are enumerated; the search reaches the lowest accuracy on every graph tried here."""
    nodes, total = torch.arange(6), 3
    for seed in range(4):
        data = random_graph(seed, 6)
        model = ep.models.build("GCN", 4, 3, seed=seed)
        budget = ep.Budget(total, constraints=ep.Constraints(forbidden=torch.tensor([5]), costs=cost_by_parity)).on(
            data
        )
        target = make_target(model, data, nodes, None, None)
        assert budget.permitted is not None
        assert budget.permitted.pairs is not None
        pairs = budget.permitted.pairs
        sets = [
            torch.tensor(chosen, dtype=torch.long)
            for size in range(total + 1)
            for chosen in combinations(range(pairs.size(1)), size)
        ]
        feasible = [pairs[:, chosen] for chosen in sets if int(budget.cost(pairs[:, chosen]).sum()) <= total]
        lowest = min(accuracy for accuracy, _ in target.score(feasible, "log_margin"))
        (found,) = LocalSearch().on_target(target, [budget])
        assert found.accuracy == pytest.approx(lowest)


@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name != "nothing"])
def test_top_candidates_match_enumeration(name: str) -> None:
    data = random_graph(1, 14)
    target = make_target(ep.models.build("GCN", 4, 3, seed=0).double(), _double(data), torch.arange(14), None, None)
    local = torch.tensor([0, *[3] * 13])
    budget = ep.Budget(4, local, CONSTRAINTS[name]).on(target.data)
    gradient, everything = target.engine("tanh_margin")(), torch.triu_indices(14, 14, 1)
    permitted = everything[:, budget.permits(everything)]
    exclude = permitted[:, :1]
    permitted = permitted[:, 1:]
    score = gradient.at(permitted) / budget.cost(permitted)
    best = top_candidates(gradient, 3, budget, exclude=exclude)
    assert best.scores.tolist() == pytest.approx(score.sort(descending=True).values[:3].tolist())
    assert gradient.at(best.pairs).div(budget.cost(best.pairs)).tolist() == pytest.approx(best.scores.tolist())


def _double(data: Data) -> Data:
    return Data(x=data.x.double(), edge_index=data.edge_index, y=data.y)


def test_unlisted_constraints_are_sampled_and_searched() -> None:
    """With 3,000 nodes, pairs that a function permits are too many to list; one in eight is permitted here."""
    n = 3000
    x, model = torch.randn(n, 4, generator=torch.Generator().manual_seed(0)), ep.models.build("GCN", 4, 3, seed=7)
    data = Data(x=x, edge_index=random_graph(0, 60).edge_index)
    data.y = ep.models.predict(model, data).argmax(dim=1)
    constraints = ep.Constraints(lambda pairs: (pairs % 8).sum(dim=0) % 8 == 3)
    budget = ep.Budget(5, torch.full((n,), 1), constraints).on(data)
    candidates = Candidates(budget, n)
    assert candidates.listed is None
    total = n * (n - 1) // 2
    assert candidates.count == pytest.approx(total / 8, rel=0.05)
    generator = torch.Generator().manual_seed(0)
    block = sample_block(n, 4000, generator=generator, candidates=candidates)
    assert len(block.pairs) == pytest.approx(4000, rel=0.15)
    assert budget.permits(block.pairs.both).all()
    assert bool((block.number[1:] > block.number[:-1]).all())
    flip = torch.zeros(len(block.pairs)).index_fill_(0, torch.tensor([3, 9]), 0.5)
    again = resample(block.with_flip(flip), 4000, generator=generator)
    assert len(again.pairs) == pytest.approx(4000, rel=0.15)
    assert budget.permits(again.pairs.both).all()
    kept = again.pairs[again.flip > 0].both
    assert kept.equal(block.pairs[torch.tensor([3, 9])].both)
    for attack in (FGSM(), GreedyRBCD(block_size=4000)):
        result = attack(model, data, torch.arange(60), ep.Budget(1, constraints=constraints))
        assert result.accuracy < result.clean_accuracy
        assert budget.permits(result.flips).all()


def test_attack_takes_constraints_as_arguments() -> None:
    data, nodes, model = random_graph(0, 14), torch.arange(14), ep.models.build("GCN", 4, 3, seed=0)
    attack, constraints = FGSM(), ep.Constraints("additions", torch.tensor([3]), cost_by_parity)
    carried = attack(model, data, nodes, ep.Budget(5, constraints=constraints))
    passed = attack(
        model, data, nodes, ep.Budget(5), allowed="additions", forbidden=torch.tensor([3]), costs=cost_by_parity
    )
    assert carried.flips.equal(passed.flips)
    assert "constraints=" in repr(carried.budget)
    with pytest.raises(ValueError, match="as arguments or in the budget, got both"):
        attack(model, data, nodes, ep.Budget(5, constraints=constraints), allowed="deletions")
    with pytest.raises(BudgetExceededError, match="do not permit 1 of the flips"):
        FixedFlips(flips=torch.tensor([[0], [3]]))(model, data, nodes, ep.Budget(5, constraints=constraints))


def test_constraints_of_another_graph_are_applied_again() -> None:
    """A budget made for one graph is used on another, whose edges differ."""
    data, model = random_graph(0, 14), ep.models.build("GCN", 4, 3, seed=0)
    budget = ep.Budget.from_epsilon(data, torch.arange(14), 0.2, constraints=ep.Constraints("additions"))
    other = random_graph(1, 14)
    flips = FGSM()(model, other, torch.arange(14), budget).flips
    assert flips.size(1) > 0
    assert set(map(tuple, flips.T.tolist())).isdisjoint(map(tuple, other.edge_index.T.tolist()))


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-1, 3), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
    budget=st.floats(0, 12),
)
def test_projection_with_costs_is_optimal(values: list[float], seed: int, budget: float) -> None:
    """The KKT conditions of the projection determine its unique solution."""
    p = torch.tensor(values, dtype=torch.float64)
    cost = torch.randint(1, 5, p.shape, generator=torch.Generator().manual_seed(seed))
    x = project_global_costs(p, cost, budget)
    assert float((cost * x).sum()) <= budget + 1e-9
    assert bool(((x >= 0) & (x <= 1)).all())
    inner = (x > 1e-9) & (x < 1 - 1e-9)
    if float((cost * p.clamp(0, 1)).sum()) <= budget:
        assert x.equal(p.clamp(0, 1))
    elif inner.any():
        multiplier = float(((p - x) / cost)[inner].mean())
        assert multiplier >= -1e-9
        torch.testing.assert_close(x, (p - multiplier * cost.double()).clamp(0, 1), atol=1e-8, rtol=0)
        assert float((cost * x).sum()) == pytest.approx(budget, abs=1e-8)
    ones = torch.ones_like(cost)
    torch.testing.assert_close(project_global_costs(p, ones, budget), project_global(p, budget), atol=1e-8, rtol=0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), total=st.integers(0, 12), with_local=st.booleans(), whole=st.booleans())
def test_greedy_selection_with_costs_matches_plain_loop(seed: int, total: int, with_local: bool, whole: bool) -> None:
    n, generator = 7, torch.Generator().manual_seed(seed)
    pairs = torch.triu_indices(n, n, 1)
    p = torch.rand(pairs.size(1), generator=generator, dtype=torch.float64) * 1.4 - 0.2
    table = torch.randint(1, 5, (n, n), generator=generator)
    local = torch.randint(0, 7, (n,), generator=generator) if with_local else None
    data = Data(x=torch.zeros(n, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    constraints = ep.Constraints(costs=lambda pairs: table[pairs[0], pairs[1]])
    budget = ep.Budget(total, local, constraints).on(data)

    cost = table[pairs[0], pairs[1]]
    left, room = float(total), [float(total)] * n if local is None else [min(float(x), total) for x in local.tolist()]
    expected = torch.zeros_like(p)
    for i in (p / cost).argsort(descending=True, stable=True).tolist():
        u, v, value = int(pairs[0, i]), int(pairs[1, i]), float(p[i].clamp(0, 1))
        used = float(cost[i]) * (1.0 if whole else value)
        if value > 0 and int(cost[i]) <= total and used <= min(left, room[u], room[v]) + 1e-12:
            expected[i] = 1.0 if whole else value
            left, room[u], room[v] = left - used, room[u] - used, room[v] - used
    if whole:
        found = torch.zeros_like(p).index_fill_(0, discretize(p, Pairs.of(pairs, n), budget), 1.0)
    else:
        found = project_local(p, Pairs.of(pairs, n), budget)
    assert found.equal(expected)
