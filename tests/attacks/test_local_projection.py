"""The greedy projection of Algorithm 1, and the choice of whole flips."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from torch import Tensor

import edgeproof as ep
from edgeproof.attacks import discretize, project_local


def algorithm_1(p: list[float], pairs: list[tuple[int, int]], total: float, local: list[int]) -> list[float]:
    """The paper's lines, one by one; sums with slack for the rounding of this loop's own additions."""
    room, projected = [float(budget) for budget in local], [0.0] * len(p)
    clipped = [min(max(value, 0.0), 1.0) for value in p]
    for e in sorted(range(len(p)), key=lambda e: -p[e]):
        u, v = pairs[e]
        if clipped[e] == 0 or total - clipped[e] < -1e-9:
            return projected
        if min(total, room[u], room[v]) >= clipped[e] - 1e-9:
            projected[e] = clipped[e]
            total, room[u], room[v] = total - clipped[e], room[u] - clipped[e], room[v] - clipped[e]
    return projected


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, ep.Budget]:
    n = draw(st.integers(2, 8))
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(n), 2))), min_size=1, unique=True))
    # Sixty-fourths: exact in any arithmetic, so that a plain loop decides ties the same way.
    p = [draw(st.integers(-64, 160)) / 64 for _ in pairs]
    local = torch.tensor([draw(st.integers(0, 3)) for _ in range(n)])
    return torch.tensor(p), torch.tensor(pairs).T, ep.Budget(draw(st.integers(0, 6)), local)


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_it_is_algorithm_1(case: tuple[Tensor, Tensor, ep.Budget]) -> None:
    p, pairs, budget = case
    assert budget.local is not None
    expected = algorithm_1(p.tolist(), [tuple(pair) for pair in pairs.T.tolist()], budget.total, budget.local.tolist())
    found = project_local(p, pairs, budget)
    assert found.tolist() == expected
    for backend in ("reference", "numba"):
        with ep.kernels.dispatch.using(backend):
            assert torch.equal(project_local(p, pairs, budget), found)


@settings(max_examples=200, deadline=None)
@given(case=cases(), spread=st.sampled_from([1.0, 1e-3, 37.0]))
def test_it_is_feasible_and_stays_where_it_is(case: tuple[Tensor, Tensor, ep.Budget], spread: float) -> None:
    p, pairs, budget = case
    x = project_local((p * spread).double(), pairs, budget)
    assert budget.local is not None
    assert bool(((x >= 0) & (x <= 1)).all())
    assert float(x.sum()) <= budget.total
    at_nodes = torch.zeros(budget.local.numel(), dtype=x.dtype).index_add(0, pairs.flatten(), torch.cat([x, x]))
    assert bool((at_nodes <= budget.local).all())
    assert torch.equal(project_local(x, pairs, budget), x)


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_whole_flips_keep_the_budget_and_leave_no_room(case: tuple[Tensor, Tensor, ep.Budget]) -> None:
    p, pairs, budget = case
    chosen = discretize(p, pairs, budget)
    assert bool((p[chosen] > 0).all())
    assert torch.equal(chosen, chosen.sort().values)
    budget.check(pairs[:, chosen])
    left = budget.after(pairs[:, chosen])
    others = [e for e in range(p.numel()) if p[e] > 0 and e not in chosen]
    assert left.local is not None
    assert not left.total or not any(bool((left.local[pairs[:, e]] > 0).all()) for e in others)


def constraints(pairs: Tensor, n: int) -> np.ndarray:
    rows = np.ones((n + 1, pairs.size(1)))
    for u in range(n):
        rows[u] = (pairs == u).any(dim=0).numpy()
    return rows


def test_how_near_the_greedy_value_comes_to_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    """Kept values against the best all-or-nothing choice (MILP) and its relaxation (LP), on random graphs."""
    to_milp, to_lp = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        n = 7
        pairs = torch.tensor(list(combinations(range(n), 2))).T
        p = random.exponential(0.4, pairs.size(1)).clip(0, 1)
        local, total = random.integers(0, 4, n), int(random.integers(1, 10))
        value = float(project_local(torch.from_numpy(p), pairs, ep.Budget(total, torch.from_numpy(local))).sum())
        # Keeping a share x of each value: all of it, or none.
        rows, limits = constraints(pairs, n) * p, np.append(local, total)
        whole = milp(
            -p,
            constraints=LinearConstraint(rows, ub=limits),
            bounds=Bounds(0, 1),
            integrality=np.ones(len(p)),
            options={"mip_rel_gap": 1e-9},
        )
        relaxed = linprog(-p, A_ub=rows, b_ub=limits, bounds=(0, 1))
        assert value <= -whole.fun + 1e-6
        assert -whole.fun <= -relaxed.fun + 1e-6
        to_milp.append(value / max(-whole.fun, 1e-12))
        to_lp.append(value / max(-relaxed.fun, 1e-12))
    with capsys.disabled():
        print(
            f"\ngreedy / optimum: least {min(to_milp):.2f}, mean {np.mean(to_milp):.3f}; / LP: mean {np.mean(to_lp):.3f}"
        )
    # Greedy choice under one budget per end and one for all cannot fall below a third; on random values it is much better.
    assert min(to_milp) >= 1 / 3
    assert np.mean(to_lp) >= 0.85


def test_whole_flips_against_the_best_choice() -> None:
    """Without local budgets the largest are taken; with them the greedy choice is at least half of the optimum."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        n = 10
        pairs = torch.tensor(list(combinations(range(n), 2))).T
        p = random.random(pairs.size(1))
        total = int(random.integers(1, 8))
        largest = discretize(torch.from_numpy(p), pairs, ep.Budget(total))
        assert set(largest.tolist()) == set(np.argsort(-p)[:total].tolist())
        local = random.integers(0, 3, n)
        greedy = p[discretize(torch.from_numpy(p), pairs, ep.Budget(total, torch.from_numpy(local)))].sum()
        limits = LinearConstraint(constraints(pairs, n), ub=np.append(local, total))
        best = -milp(-p, constraints=limits, bounds=Bounds(0, 1), integrality=np.ones(len(p))).fun
        assert best / 2 <= greedy <= best + 1e-9


def test_without_local_budgets_only_the_total_counts() -> None:
    pairs = torch.tensor([[0, 0, 0], [1, 2, 3]])
    assert project_local(torch.tensor([0.9, 0.5, 0.8]), pairs, ep.Budget(2)).tolist() == pytest.approx([0.9, 0, 0.8])
    assert project_local(torch.tensor([0.9, 0.5, 0.8]), pairs, ep.Budget(0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="expected finite values"):
        project_local(torch.tensor([0.5, bad]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))


def test_values_must_fit_the_pairs() -> None:
    with pytest.raises(ValueError, match="one value per pair"):
        project_local(torch.tensor([0.5]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))
    for pairs, said in (
        (torch.tensor([[0, 1], [1, 1]]), "expected pairs of different nodes, got 1 self-loops"),
        (torch.tensor([[0, 1], [1, 2]], dtype=torch.int32), "expected pairs as an int64 tensor"),
        (torch.tensor([[0, 1], [1, 9]]), "expected node ids between 0 and 2, got 0 to 9"),
    ):
        with pytest.raises(ValueError, match=said):
            project_local(torch.tensor([0.5, 0.4]), pairs, ep.Budget(1, torch.ones(3, dtype=torch.long)))
    with pytest.raises(ValueError, match="floating-point"):
        discretize(torch.tensor([1, 2]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))
