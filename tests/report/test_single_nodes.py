"""Single nodes in the report: histogram of flips per node, and drawings of explained nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score
from edgeproof.report import Run, read, render


@pytest.fixture(scope="module")
def run() -> Run:
    data, nodes = ep.datasets.load("csbm"), torch.arange(40)
    model = ep.models.build("GCN", data.num_features, 2, seed=0)
    scores = ep.evaluate(model, data, nodes, [0.05], ["FGSM"], fragility=3)
    explanations = [ep.evaluation.explain(model, data, node, max_flips=3) for node in (0, 7)]
    return Run.of("GCN", model, data, nodes, evaluation=scores, explanations=explanations, dataset="csbm")


def test_report_shows_histogram_and_drawings(run: Run, parse: Any) -> None:
    page = parse(render(run))
    assert ("id", "single-nodes") in page.attributes
    assert run.fragility is not None
    for explanation in run.explanations:
        node = explanation.fragility.node
        for when in ("before", "after"):
            assert ("aria-label", f"Neighborhood of node {node} {when} the flips") in page.attributes
        added = sum(kind == "add" for *_, kind in explanation.flips)
        removed = sum(kind == "remove" for *_, kind in explanation.flips)
        assert added + removed == explanation.fragility.flips.size(1)
    classes = [value for name, value in page.attributes if name == "class"]
    kinds = [kind for explanation in run.explanations for *_, kind in explanation.flips]
    assert classes.count("added") == kinds.count("add")
    assert classes.count("removed") == kinds.count("remove")
    label = ", ".join(f"{k} flips: {count} nodes" for k, count in sorted(run.fragility.histogram.items()))
    assert ("aria-label", f"{label}, > 3 flips: {run.fragility.surviving} nodes") in page.attributes
    assert "style" not in [name for name, _ in page.attributes]


def test_report_reads_histogram_and_explanations_from_files(run: Run, tmp_path: Path) -> None:
    base: dict[str, Any] = {
        "command": "by hand",
        "dataset": "csbm",
        "split": {"test": 40, "fingerprint": "f"},
        "model": {"name": "GCN", "settings": {}, "fingerprint": "a"},
        "training": {},
        "seed": 0,
    }
    assert run.fragility is not None
    histogram = {str(k): count for k, count in run.fragility.histogram.items()}
    exact = {str(k): count for k, count in run.fragility.exact.items()}
    counts = {"histogram": histogram, "exact": exact, "surviving": run.fragility.surviving, "max_flips": 3}
    counts |= {"scope": "influence", "constraints": ""}
    attacked = {"local": None, "count": "incident", "budgets": {"0.1": 7}, "attacks": {}, "fragility": counts}
    scores = (Score("test", "clean", 0.0, 0.8), Score("test", "FGSM", 0.1, 0.5))
    Result(**base, scores=scores, threat=attacked).write(tmp_path / "evaluation.json")
    for number, explanation in enumerate(run.explanations):
        threat = {"explanation": explanation.to_dict()}
        Result(**base, scores=(), threat=threat).write(tmp_path / f"node-{number}.json")
    (merged,) = read([tmp_path])
    assert merged.fragility == run.fragility
    assert [each.to_dict() for each in merged.explanations] == [each.to_dict() for each in run.explanations]
    assert "Node 7" in render(merged)


@pytest.mark.parametrize(
    "threat",
    [
        {"explanation": {"node": 1}},
        {"explanation": 3},
        {
            "local": None,
            "count": "incident",
            "budgets": {},
            "attacks": {},
            "fragility": {"histogram": {"0": 1}, "exact": {"0": 2}, "max_flips": 0},
        },
    ],
)
def test_damaged_entries_of_single_nodes_raise(threat: dict[str, Any], tmp_path: Path) -> None:
    Result(
        command="by hand",
        dataset="csbm",
        split={"test": 40},
        model={"name": "GCN"},
        training={},
        seed=0,
        scores=(),
        threat=threat,
    ).write(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.json"):
        read([tmp_path / "a.json"])
