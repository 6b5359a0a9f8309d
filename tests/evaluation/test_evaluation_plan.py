"""Suites of each effort, and their order of strength."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.evaluation import EvaluationWarning
from edgeproof.evaluation.plan import EXACT_SEARCH, LOCAL_SEARCH, TRANSFER, suite_plan

BUDGETS = [ep.Budget(3), ep.Budget(10)]


def test_each_effort_contains_all_steps_of_the_weaker_one() -> None:
    quick, standard, thorough = (
        suite_plan(effort, BUDGETS, 200, "propagate", "stack") for effort in ("quick", "standard", "thorough")
    )
    assert set(map(repr, quick)) < set(map(repr, standard))
    assert thorough[: len(standard)] == standard
    assert len(thorough) > len(standard)
    assert {TRANSFER, LOCAL_SEARCH} <= {step.name for step in standard}
    work = [sum(step.work(budget) for step in steps for budget in BUDGETS) for steps in (quick, standard, thorough)]
    assert work == sorted(work)


def test_evaluator_selects_attacks_by_exact_gains() -> None:
    names = {
        evaluator: [step.name for step in suite_plan("standard", BUDGETS, 200, "propagate", evaluator)]
        for evaluator in ("stack", "full")
    }
    assert {"EvA", "ExactGain", "NodeSelection", EXACT_SEARCH} <= set(names["stack"])
    # Where every candidate costs a run of the model, only a few candidates are scanned.
    assert set(names["stack"]) - set(names["full"]) == {"EvA", "NodeSelection", EXACT_SEARCH}
    # The suite of earlier versions comes first.
    assert names["full"][: names["full"].index(LOCAL_SEARCH)] == names["stack"][: names["stack"].index(LOCAL_SEARCH)]


def test_local_budgets_select_lrbcd_in_all_efforts() -> None:
    local = [ep.Budget(3, torch.ones(200, dtype=torch.long))]
    for effort in ("standard", "thorough"):
        names = [step.name for step in suite_plan(effort, local, 200, "propagate", "stack")]
        assert "LRBCD" in names
        assert "PRBCD" not in names


@pytest.mark.parametrize("name", ["GCN", "GPRGNN"])
def test_more_effort_never_gives_higher_accuracy(name: str) -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=30, p=0.3, q=0.1, K=2.0, seed=3)
    model, nodes = ep.models.build(name, data.num_features, 2, seed=0).eval(), torch.arange(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        ep.losses.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        for effort in ("quick", "standard", "thorough"):
            found[effort] = ep.evaluate(model, data, nodes, [0.05], effort=effort)
    quick, standard, thorough = (scores.accuracy(0.05) for scores in found.values())
    assert thorough <= standard <= quick <= found["quick"].clean_accuracy
    assert {effort: scores.effort for effort, scores in found.items()} == {effort: effort for effort in found}
    assert "worst (quick effort)" in str(found["quick"])


def test_effort_applies_to_suites_only(sbm: Data) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(10)
    with pytest.raises(ValueError, match="unknown effort 'quik': did you mean 'quick'"):
        ep.evaluate(model, sbm, nodes, [0.1], effort="quik")
    with pytest.raises(ValueError, match="expected effort 'quick' without a list of attacks"):
        ep.evaluate(model, sbm, nodes, [0.1], ["DICE"], effort="quick")
    assert ep.evaluate(model, sbm, nodes, [0.1], ["FGSM"]).effort is None


def test_given_surrogate_is_used_by_all_efforts(sbm: Data) -> None:
    model, surrogate = ep.models.build("GCN", 21, 2, seed=0), ep.models.build("MLP", 21, 2, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        found = ep.evaluate(model, sbm, torch.arange(10), [0.05], effort="quick", surrogate=surrogate)
    # An MLP has no edge gradient, so it finds no flips.
    assert found.results["transfer", 0.05].flips.size(1) == 0
