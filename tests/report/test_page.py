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
from edgeproof.report import Attacked, Outcomes, Row, Run, render, write
from edgeproof.report.groups import group
from edgeproof.report.sections._parts import Page
from edgeproof.report.sections.nodes import nodes

Parse = Callable[[str], Any]

TITLES = (
    "In short",
    "What was tested",
    "Accuracy over the budget",
    "Side by side",
    "Attack by attack",
    "Which nodes fell, and why",
    "Certified accuracy",
    "What was learned",
    "How to get this again",
)


@pytest.fixture(scope="module")
def page(pages_runs: list[Run], hostile: str) -> str:
    return render(pages_runs, title=hostile)


def test_every_section_is_there(page: str) -> None:
    for title in TITLES:
        assert f'-title">{title}</h2>' in page
        assert f">{title}</a>" in page


def test_nothing_is_loaded(page: str, parse: Parse) -> None:
    found = parse(page)
    # What a page could load from elsewhere, and what it could do without its script.
    assert not {"img", "link", "iframe", "object", "embed", "form", "base"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name in ("src", "srcset", "action") or name.startswith("on")]
    assert all(value is not None and value.startswith("#") for name, value in found.attributes if name == "href")
    assert not [value for name, value in found.attributes if name == "style"]
    assert not re.search(r"@import|url\(", page)


def test_hostile_names_stay_text(page: str, parse: Parse) -> None:
    found = parse(page)
    assert found.tags.count("script") == 2
    assert found.tags.count("style") == found.tags.count("title") == 1
    assert found.text.count("window.hacked=1") >= 10
    assert "<img" not in page


def test_the_policy_lets_only_the_page_itself_run(page: str, parse: Parse) -> None:
    policy = next(value for name, value in parse(page).attributes if name == "content" and "default-src" in str(value))
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for rule, pattern in (("style-src", r"<style>(.*?)</style>"), ("script-src", r"<script>(.*?)</script>")):
        (inline,) = re.findall(pattern, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_the_figures_are_those_that_were_measured(page: str, pages_runs: list[Run], parse: Parse, hostile: str) -> None:
    text = parse(page).text
    own = pages_runs[2]
    assert own.clean is not None
    assert f"{100 * own.clean:.1f} %" in text
    assert f"{100 * own.attacked[0].worst(0.2).accuracy:.1f} %" in text
    block = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    series = json.loads(block[0])["curve-0"]["series"]
    assert [one["name"] for one in series] == ["GPRGNN", hostile]
    means = [sum(run.attacked[0].worst(e).accuracy for run in pages_runs[:2]) / 2 for e in (0.05, 0.2)]
    assert [point[1] for point in series[0]["points"]["worst case"][1:]] == pytest.approx(means)


def test_warnings_are_shown(pages_runs: list[Run], parse: Parse) -> None:
    fine = render(pages_runs[:1])
    assert "no reason to distrust" in fine
    seen = replace(pages_runs[0], split={"test": 40, "test_nodes_seen": 12}, warnings=("labels are poor",))
    text = parse(render([seen])).text
    assert "Reasons not to trust" in text
    assert "12 of 40 test nodes were in graphs that training or validation saw" in text
    assert "labels are poor" in text


def test_a_trained_model_alone_is_a_page(pages_runs: list[Run], parse: Parse) -> None:
    bare = replace(pages_runs[0], attacked=(), certified=None, filter=None)
    assert bare.clean is not None
    text = parse(render([bare])).text
    assert f"{100 * bare.clean:.1f} % (" in text
    assert "How to get this again" in text


def test_one_model_has_nothing_beside_it(pages_runs: list[Run]) -> None:
    assert 'id="comparison"' not in render(pages_runs[2:])


def test_a_certificate_alone_is_a_page(pages_runs: list[Run]) -> None:
    page = render([replace(pages_runs[0], clean=None, attacked=())])
    assert 'id="certificates"' in page
    assert 'id="curves"' not in page


def test_the_threat_in_words(pages_runs: list[Run], parse: Parse) -> None:
    text = parse(render(pages_runs)).text
    total = pages_runs[0].attacked[0].rows[0].total
    assert f"At ε = 0.05: at most {total} changed pairs of nodes." in text
    assert "none of which training or validation has seen" in text
    assert "At no node may more than 0.5 times its number of edges change" in text
    free = replace(pages_runs[0], attacked=(replace(pages_runs[0].attacked[0], local=None),))
    assert "Nothing limits the changes at a single node." in render([free])


def test_who_fell_by_hand() -> None:
    """Four nodes were right, of which two fell: of degrees 1 and 2, and of the lower margins."""
    outcomes = Outcomes(
        nodes=torch.tensor([10, 11, 12, 13, 14]),
        degree=torch.tensor([1, 2, 2, 9, 1]),
        labels=torch.tensor([0, 0, 1, 1, 1]),
        clean_margins=torch.tensor([1.0, 2.0, 3.0, 4.0, -1.0]),
        keys=(("A", 0.1),),
        margins=torch.tensor([[-1.0, -0.5, 3.0, 4.0, -1.0]]),
        flips=torch.tensor([[2, 0, 0, 0, 1]]),
    )
    attacked = Attacked(None, "incident", (Row("A", 0.1, 0.4),), (outcomes,))
    run = Run("net", "g", {"name": "Net"}, {"test": 5}, clean=0.8, attacked=(attacked,))
    section = nodes(Page("", tuple(group([run]))))
    assert section is not None
    view = json.loads(json.dumps(section.charts))["nodes"]["runs"][0]["views"][0]
    assert view["says"].startswith("2 of the 4 nodes that were right before the attack fell. They have 1.5 edges")
    assert "1 of them got more changed edges than they had edges; 1 fell without a change at themselves" in view["says"]
    assert view["degree"] == [["1", 1, 1], ["2", 2, 1], ["7–9", 1, 0]]
    assert view["margin"] == [["lowest", 1, 1], ["low", 1, 1], ["high", 1, 0], ["highest", 1, 0]]
    assert view["class"] == [["0", 2, 2], ["1", 2, 0]]
    assert view["fallen"] == [[11, 0, 2, 0, 2.0, -0.5], [10, 0, 1, 2, 1.0, -1.0]]


def test_a_report_needs_something_to_report() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        render([])
    with pytest.raises(ValueError, match="expected an evaluation or a certificate"):
        Run.of("net", ep.models.GCN(21, 2), ep.datasets.load("csbm"), torch.arange(3))


def test_what_does_not_belong_together_is_told(tmp_path: Path, pages_runs: list[Run]) -> None:
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
    with pytest.raises(TypeError, match="expected a name as text, got 3"):
        Run.of(3, model, data, few, evaluation=scores)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected runs, of Run\.of or of read, got 'x'"):
        write("x", tmp_path / "report.html")  # type: ignore[arg-type]
    assert render(pages_runs[0]) == render(pages_runs[:1])


def test_the_file_is_whole_or_absent(tmp_path: Path, pages_runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    write(pages_runs, out)
    assert out.read_text(encoding="utf-8") == render(pages_runs)
    odd = replace(pages_runs[0], commands=("edgeproof attack --out \udcff",))
    write([odd], out)  # a name of a file that is no text
    before = out.read_bytes()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(pages_runs, out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(ValueError, match="cannot write"):
        write(pages_runs, "/dev/null/report.html")
