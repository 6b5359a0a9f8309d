from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import edgeproof as ep
from edgeproof.report import AttackRow, AttackTable, Outcomes, Run, render, write
from edgeproof.report.groups import group
from edgeproof.report.sections._parts import Page
from edgeproof.report.sections.nodes import nodes

Parse = Callable[[str], Any]

TITLES = (
    "Summary",
    "Tested models",
    "Accuracy by budget",
    "Model comparison",
    "Attack results",
    "Misclassified nodes",
    "Certified accuracy",
    "Learned filters",
    "Reproduce",
)


@pytest.fixture(scope="module")
def page(page_runs: list[Run], hostile: str) -> str:
    return render(page_runs, title=hostile)


def test_page_has_every_section_and_link(page: str) -> None:
    for title in TITLES:
        assert f'-title">{title}</h2>' in page
        assert f">{title}</a>" in page


def test_page_loads_no_external_resources(page: str, parse: Parse) -> None:
    parsed = parse(page)
    # Elements that load resources or send data, and inline event handlers.
    assert not {"img", "link", "iframe", "object", "embed", "form", "base"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name in ("src", "srcset", "action") or name.startswith("on")]
    assert all(value is not None and value.startswith("#") for name, value in parsed.attributes if name == "href")
    assert not [value for name, value in parsed.attributes if name == "style"]
    assert not re.search(r"@import|url\(", page)


def test_hostile_names_are_escaped(page: str, parse: Parse) -> None:
    parsed = parse(page)
    assert parsed.tags.count("script") == 2
    assert parsed.tags.count("style") == parsed.tags.count("title") == 1
    assert parsed.text.count("window.hacked=1") >= 10
    assert "<img" not in page


def test_content_security_policy_allows_only_inline_style_and_script(page: str, parse: Parse) -> None:
    policy = next(value for name, value in parse(page).attributes if name == "content" and "default-src" in str(value))
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for rule, pattern in (("style-src", r"<style>(.*?)</style>"), ("script-src", r"<script>(.*?)</script>")):
        (inline,) = re.findall(pattern, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_page_shows_measured_accuracies(page: str, page_runs: list[Run], parse: Parse, hostile: str) -> None:
    text = parse(page).text
    user_run = page_runs[2]
    assert user_run.clean is not None
    assert f"{100 * user_run.clean:.1f} %" in text
    assert f"{100 * user_run.attacks[0].worst(0.2).accuracy:.1f} %" in text
    block = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    series = json.loads(block[0])["curve-0"]["series"]
    assert [line["name"] for line in series] == ["GPRGNN", hostile]
    means = [sum(run.attacks[0].worst(epsilon).accuracy for run in page_runs[:2]) / 2 for epsilon in (0.05, 0.2)]
    assert [point[1] for point in series[0]["points"]["worst case"][1:]] == pytest.approx(means)


def test_warnings_are_listed(page_runs: list[Run], parse: Parse) -> None:
    checked = render(page_runs[:1])
    assert "found no problems" in checked
    seen = replace(page_runs[0], split={"test": 40, "test_nodes_seen": 12}, warnings=("labels are poor",))
    text = parse(render([seen])).text
    assert "Warnings: these results may be unreliable" in text
    assert "12 of 40 test nodes are in graphs seen in training or validation" in text
    assert "labels are poor" in text


def test_trained_model_without_attacks_is_rendered(page_runs: list[Run], parse: Parse) -> None:
    trained = replace(page_runs[0], attacks=(), certificate=None, filter=None)
    assert trained.clean is not None
    text = parse(render([trained])).text
    assert f"{100 * trained.clean:.1f} % (" in text
    assert "Reproduce" in text


def test_single_model_has_no_comparison(page_runs: list[Run]) -> None:
    assert 'id="comparison"' not in render(page_runs[2:])


def test_certificate_without_attacks_is_rendered(page_runs: list[Run]) -> None:
    page = render([replace(page_runs[0], clean=None, attacks=())])
    assert 'id="certificates"' in page
    assert 'id="curves"' not in page


def test_threat_model_is_described(page_runs: list[Run], parse: Parse) -> None:
    text = parse(render(page_runs)).text
    total = page_runs[0].attacks[0].rows[0].total
    assert f"At ε = 0.05: at most {total} edge flips." in text
    assert "none of them seen in training or validation" in text
    assert "edge flips at a node are at most 0.5 times its degree" in text
    global_only = replace(page_runs[0], attacks=(replace(page_runs[0].attacks[0], local=None),))
    assert "There is no local budget." in render([global_only])


def test_misclassified_nodes_by_degree_margin_and_class() -> None:
    # Of four correct nodes, those of degrees 1 and 2 with the lowest margins are misclassified under attack.
    outcomes = Outcomes(
        nodes=torch.tensor([10, 11, 12, 13, 14]),
        degree=torch.tensor([1, 2, 2, 9, 1]),
        labels=torch.tensor([0, 0, 1, 1, 1]),
        clean_margins=torch.tensor([1.0, 2.0, 3.0, 4.0, -1.0]),
        keys=(("A", 0.1),),
        margins=torch.tensor([[-1.0, -0.5, 3.0, 4.0, -1.0]]),
        flips=torch.tensor([[2, 0, 0, 0, 1]]),
    )
    attack_table = AttackTable(None, "incident", (AttackRow("A", 0.1, 0.4),), (outcomes,))
    run = Run("net", "g", {"name": "Net"}, {"test": 5}, clean=0.8, attacks=(attack_table,))
    section = nodes(Page("", tuple(group([run]))))
    assert section is not None
    view = json.loads(json.dumps(section.charts))["nodes"]["runs"][0]["views"][0]
    assert view["summary"].startswith(
        "2 of the 4 correctly classified nodes are misclassified under attack. Their mean degree is 1.5"
    )
    assert "1 of them have more edge flips than edges; 1 have no edge flip" in view["summary"]
    assert view["degree"] == [["1", 1, 1], ["2", 2, 1], ["7–9", 1, 0]]
    assert view["margin"] == [["lowest", 1, 1], ["low", 1, 1], ["high", 1, 0], ["highest", 1, 0]]
    assert view["class"] == [["0", 2, 2], ["1", 2, 0]]
    assert view["misclassified"] == [[11, 0, 2, 0, 2.0, -0.5], [10, 0, 1, 2, 1.0, -1.0]]


def test_report_needs_at_least_one_result() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        render([])
    with pytest.raises(ValueError, match="expected an evaluation or a certificate"):
        Run.of("net", ep.models.GCN(21, 2), ep.datasets.load("csbm"), torch.arange(3))


def test_mismatched_inputs_raise(tmp_path: Path, page_runs: list[Run]) -> None:
    data, model = ep.datasets.load("csbm"), ep.models.GCN(21, 2)
    few, many = torch.arange(3), torch.arange(5)
    scores = ep.evaluate(model, data, few, [0.1], ["FGSM"])
    noise = ep.certificates.SparseSmoothing(0.01, 0.4)
    certificate = noise.certify(model, data, few, samples=50, choosing_samples=10, progress=False)
    for other in (many, few + 1):
        with pytest.raises(
            ValueError, match=f"expected the evaluation of these {len(other)} nodes, got one of other nodes"
        ):
            Run.of("net", model, data, other, evaluation=scores)
    with pytest.raises(ValueError, match="expected the certificate of these 5 nodes, got one of 3 nodes"):
        Run.of("net", model, data, many, certificate=certificate)
    with pytest.raises(TypeError, match="expected name as a str, got 3"):
        Run.of(3, model, data, few, evaluation=scores)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"expected runs from edgeproof\.report\.Run\.of or edgeproof\.report\.read, got 'x'"
    ):
        write("x", tmp_path / "report.html")  # type: ignore[arg-type]
    assert render(page_runs[0]) == render(page_runs[:1])


def test_write_is_atomic(tmp_path: Path, page_runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    write(page_runs, out)
    assert out.read_text(encoding="utf-8") == render(page_runs)
    undecodable = replace(page_runs[0], commands=("edgeproof attack --out \udcff",))
    write([undecodable], out)  # a file name that is not valid Unicode
    before = out.read_bytes()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(page_runs, out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(ValueError, match="cannot write"):
        write(page_runs, "/dev/null/report.html")
