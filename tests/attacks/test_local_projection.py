"""The greedy projection of Algorithm 1 and discretization."""

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
from edgeproof.attacks.projections import project_local_reference


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, ep.Budget]:
    n = draw(st.integers(2, 8))
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(n), 2))), min_size=1, unique=True))
    # Multiples of 1/64 are exact in any arithmetic, so the reference decides ties in the same way.
    p = [draw(st.integers(-64, 160)) / 64 for _ in pairs]
    local = torch.tensor([draw(st.integers(0, 3)) for _ in range(n)])
    return torch.tensor(p), torch.tensor(pairs).T, ep.Budget(draw(st.integers(0, 6)), local)


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_project_local_matches_algorithm_1(case: tuple[Tensor, Tensor, ep.Budget]) -> None:
    p, pairs, budget = case
    expected = project_local_reference(p, pairs, budget)
    for backend in (None, "reference", "numba"):
        with ep.kernels.dispatch.using(backend):
            assert project_local(p, pairs, budget).tolist() == expected.tolist()
    unconstrained = ep.Budget(budget.total)
    expected = project_local_reference(p, pairs, unconstrained)
    assert project_local(p, pairs, unconstrained).tolist() == expected.tolist()


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("total", [5, 300, 10**6])
def test_project_local_matches_algorithm_1_on_large_blocks(total: int, backend: str) -> None:
    """Small local budgets reject most of the largest values, so that the kernels must look further, several times."""
    generator = torch.Generator().manual_seed(total)
    for num_nodes, size, most in ((80, 3_000, 3), (200, 10_000, 4), (600, 170_000, 6)):
        block = ep.attacks.sample_block(num_nodes, size, generator=generator)
        p = torch.randint(-8, 68, (len(block.pairs),), generator=generator) / 64
        budget = ep.Budget(total, torch.randint(0, most, (num_nodes,), generator=generator))
        expected = project_local_reference(p, block.pairs.both, budget)
        with ep.kernels.dispatch.using(backend):
            assert project_local(p, block.pairs, budget).tolist() == expected.tolist()
        assert bool(expected.any())


@pytest.mark.parametrize("seed", range(3))
def test_project_local_matches_algorithm_1_on_many_small_cases(seed: int) -> None:
    """Pairs that exceed a local budget are skipped, and the total budget ends within a pair."""
    random = np.random.default_rng(seed)
    pairs = torch.tensor(list(combinations(range(8), 2))).T
    for _ in range(300):
        p = torch.from_numpy(random.integers(-8, 68, pairs.size(1)) / 64)
        budget = ep.Budget(int(random.integers(1, 6)), torch.from_numpy(random.integers(0, 3, 8)))
        expected = project_local_reference(p, pairs, budget)
        for backend in ("reference", "numba"):
            with ep.kernels.dispatch.using(backend):
                assert project_local(p, pairs, budget).tolist() == expected.tolist()


@settings(max_examples=200, deadline=None)
@given(case=cases(), spread=st.sampled_from([1.0, 1e-3, 37.0]))
def test_project_local_is_feasible_and_idempotent(case: tuple[Tensor, Tensor, ep.Budget], spread: float) -> None:
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
def test_discretize_keeps_budget_and_is_maximal(case: tuple[Tensor, Tensor, ep.Budget]) -> None:
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


def test_project_local_value_is_close_to_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    """The kept values against the integer optimum (MILP) and its relaxation (LP) on random graphs."""
    to_milp, to_lp = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        n = 7
        pairs = torch.tensor(list(combinations(range(n), 2))).T
        p = random.exponential(0.4, pairs.size(1)).clip(0, 1)
        local, total = random.integers(0, 4, n), int(random.integers(1, 10))
        value = float(project_local(torch.from_numpy(p), pairs, ep.Budget(total, torch.from_numpy(local))).sum())
        # Variables: the kept fraction of each value, 0 or 1.
        rows, limits = constraints(pairs, n) * p, np.append(local, total)
        integral = milp(
            -p,
            constraints=LinearConstraint(rows, ub=limits),
            bounds=Bounds(0, 1),
            integrality=np.ones(len(p)),
            options={"mip_rel_gap": 1e-9},
        )
        relaxed = linprog(-p, A_ub=rows, b_ub=limits, bounds=(0, 1))
        assert value <= -integral.fun + 1e-6
        assert -integral.fun <= -relaxed.fun + 1e-6
        to_milp.append(value / max(-integral.fun, 1e-12))
        to_lp.append(value / max(-relaxed.fun, 1e-12))
    with capsys.disabled():
        print(
            f"\ngreedy / optimum: least {min(to_milp):.2f}, mean {np.mean(to_milp):.3f}; / LP: mean {np.mean(to_lp):.3f}"
        )
    # Greedy selection under three budgets per pair is at least a third of the optimum; on random values it is much better.
    assert min(to_milp) >= 1 / 3
    assert np.mean(to_lp) >= 0.85


def test_discretize_is_optimal_without_local_budgets_and_near_optimal_with_them() -> None:
    """Without local budgets, the largest values are chosen; with them, at least half of the optimum."""
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


def test_project_local_without_local_budgets_keeps_global_budget() -> None:
    pairs = torch.tensor([[0, 0, 0], [1, 2, 3]])
    assert project_local(torch.tensor([0.9, 0.5, 0.8]), pairs, ep.Budget(2)).tolist() == pytest.approx([0.9, 0, 0.8])
    assert project_local(torch.tensor([0.9, 0.5, 0.8]), pairs, ep.Budget(0)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_values_raise(bad: float) -> None:
    with pytest.raises(ValueError, match="expected finite values"):
        project_local(torch.tensor([0.5, bad]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))


def test_invalid_values_and_pairs_raise() -> None:
    with pytest.raises(ValueError, match="one value per pair"):
        project_local(torch.tensor([0.5]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))
    for pairs, message in (
        (torch.tensor([[0, 1], [1, 1]]), "expected pairs of different nodes, got 1 self-loops"),
        (torch.tensor([[0, 1], [1, 2]], dtype=torch.int32), "expected pairs as an int64 tensor"),
        (torch.tensor([[0, 1], [1, 9]]), "expected node ids between 0 and 2, got 0 to 9"),
    ):
        with pytest.raises(ValueError, match=message):
            project_local(torch.tensor([0.5, 0.4]), pairs, ep.Budget(1, torch.ones(3, dtype=torch.long)))
    with pytest.raises(ValueError, match="floating-point"):
        discretize(torch.tensor([1, 2]), torch.tensor([[0, 1], [1, 2]]), ep.Budget(1))
