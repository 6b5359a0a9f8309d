"""Baselines without edges and efforts of evaluations in the report."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.evaluation.result import Result, Score
from edgeproof.report import AttackRow, Run, read, render
from edgeproof.splits import Split

BASELINES = {"majority baseline": 0.3, "MLP baseline": 0.55}
THREAT = {"local": None, "count": "incident", "budgets": {"0.1": 7}, "attacks": "standard", "effort": "quick"}
RESULT = Result(
    command="edgeproof evaluate --effort quick --baselines",
    dataset="csbm",
    split={"test": 40, "fingerprint": "f"},
    model={"name": "GCN", "fingerprint": "a"},
    training={},
    seed=0,
    scores=(
        Score("test", "clean", 0.0, 0.8),
        *(Score("test", name, 0.0, accuracy) for name, accuracy in BASELINES.items()),
        Score("test", "DICE", 0.1, 0.6),
        Score("test", "worst", 0.1, 0.6),
    ),
    threat=THREAT,
)


def charts(page: str) -> dict[str, Any]:
    """Return the data of all charts of a page."""
    (block,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    return dict(json.loads(block))


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    RESULT.write(tmp_path / "evaluation.json")
    return read([tmp_path])


def test_baselines_are_read_apart_from_attacks(runs: list[Run]) -> None:
    (run,) = runs
    assert run.baselines == BASELINES
    (table,) = run.attacks
    assert table.rows == (AttackRow("DICE", 0.1, 0.6, 7),)
    assert table.efforts == ("quick",)


def test_files_without_effort_and_baselines_are_read(tmp_path: Path) -> None:
    threat = {name: value for name, value in THREAT.items() if name != "effort"}
    scores = tuple(score for score in RESULT.scores if score.attack not in BASELINES)
    replace(RESULT, threat=threat, scores=scores).write(tmp_path / "evaluation.json")
    (run,) = read([tmp_path])
    assert run.baselines == {}
    assert run.attacks[0].efforts == ()
    page = render([run])
    assert not any(name in page for name in BASELINES)
    assert "Effort of the evaluation" not in page


def test_page_has_a_row_and_a_line_per_baseline_and_names_the_effort(runs: list[Run]) -> None:
    page = render(runs)
    assert "Effort of the evaluation: GCN: quick." in page
    series = {line["name"]: line for line in charts(page)["curve-0"]["series"]}
    for name, accuracy in BASELINES.items():
        for attack in ("worst case", "DICE"):
            points = series[name]["points"][attack]
            assert [point[:2] for point in points] == [[0.0, accuracy], [0.1, accuracy]]
        assert f'<th scope="row">{name}</th>' in page
    assert len({line["slot"] for line in series.values()}) == 3


def test_baselines_of_models_on_one_split_are_shown_once(runs: list[Run]) -> None:
    (run,) = runs
    other = replace(run, name="GAT", model={"name": "GAT"})
    names = [line["name"] for line in charts(render([run, other]))["curve-0"]["series"]]
    assert names == ["GCN", "GAT", *BASELINES]


def test_run_of_evaluation_keeps_baselines_and_effort(split: Split) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    data, nodes = split.test.data, split.test.nodes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        scores = ep.evaluate(model, data, nodes, [0.02], effort="quick", baselines=split)
    run = Run.of("GCN", model, data, nodes, evaluation=scores)
    assert run.baselines == scores.baselines
    assert run.attacks[0].efforts == ("quick",)
    assert run.merge(replace(run, baselines={"MLP baseline": 0.0})).baselines == scores.baselines
