"""``edgeproof certify --worst-case`` and its section in the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof.certificates import WorstCase, WorstCaseCertificate
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]
TRAIN = ("train", "--dataset", "csbm", "--max-epochs", "10", "--device", "cpu", "-q", "--max-restarts", "0")


def test_worst_case_matches_python_api(run: Run) -> None:
    assert run(*TRAIN, "--model", "OneHop", "--set", "bound=0.5")[0] == 0
    code, out, err = run("certify", "--model", "model.safetensors", "--worst-case", "-e", "0.1", "--local", "0.4")
    assert code == 0, err
    assert "Worst-case accuracy, computed, csbm" in out
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    view = split.test
    budgets = [ep.Budget.from_epsilon(view.data, view.nodes, 0.1, local=local) for local in (0.4, None)]
    expected = WorstCase().certify(ep.load("model.safetensors"), view.data, view.nodes, budgets)
    assert WorstCaseCertificate.load("certificate.safetensors").to_dict() == expected.to_dict()
    result = Result.read("certificate.safetensors.json")
    for local, bound in zip((0.4, None), expected.budgets, strict=True):
        assert result.score("test", f"guaranteed, local {local}", 0.1) == bound.guaranteed
        assert result.score("test", f"attained, local {local}", 0.1) == bound.attained
    assert result.score("test", "guaranteed, any edges") == expected.any_edges_accuracy
    code, out, err = run("report", "certificate.safetensors", "--out", "report.html")
    assert code == 0, err
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Guaranteed accuracy" in page
    assert "ε = 0.1, local 0.4" in page
    assert f"{100 * expected.budgets[0].guaranteed:.1f} %" in page


def test_bounded_influence_is_certified_for_any_edges(run: Run) -> None:
    assert run(*TRAIN, "--model", "BoundedInfluence", "--set", "model=GCN", "--set", "bound=0.2")[0] == 0
    code, out, err = run("certify", "--model", "model.safetensors", "--worst-case")
    assert code == 0, err
    assert "Only the bound for any edges is known" in out
    assert run("report", "certificate.safetensors")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epsilon", "0.1"), "expected --worst-case with --epsilon"),
        (("--worst-case", "--samples", "100"), "expected no --samples"),
        (("--worst-case", "--local", "-1"), "expected local as a finite number >= 0"),
        (("--worst-case",), "expected a model whose worst case can be computed"),
    ],
)
def test_invalid_options_raise(arguments: tuple[str, ...], message: str, run: Run) -> None:
    assert run(*TRAIN, "--model", "GCN")[0] == 0
    code, _, err = run("certify", "--model", "model.safetensors", *arguments)
    assert code != 0
    assert message in " ".join(err.split())


def test_report_takes_certificate_in_memory() -> None:
    data = ep.datasets.load("csbm")
    model = ep.models.build("OneHop", data.num_features, 2, seed=0)
    nodes = list(range(30))
    certificate = WorstCase().certify(model, data, nodes, ep.Budget(5))
    found = ep.report.Run.of("mine", model, data, nodes, certificate=certificate)
    assert [row.budget for row in found.proven] == ["5 flips", "any edges"]
    assert "Guaranteed accuracy" in ep.report.render(found)
    with pytest.raises(ValueError, match="expected the certificate of these 20 nodes, got one of 30 nodes"):
        ep.report.Run.of("mine", model, data, nodes[:20], certificate=certificate)
