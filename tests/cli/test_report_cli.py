from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof.cli import demo
from edgeproof.evaluation.result import Result
from edgeproof.report import Outcomes, nodes_file, read

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tested(run: Run) -> Path:
    """A folder with all that the commands save about one model."""
    model = ("--model", "runs/model.safetensors")
    noise = ("--samples", "300", "--choosing-samples", "20", "--p-add", "0.001", "--p-del", "0.4")
    for arguments in (
        ("train", "--dataset", "csbm", "--model", "GPRGNN", "--max-epochs", "20", "--out", model[1]),
        ("attack", *model, "--attack", "DICE", "-e", "0.1", "--out", "runs/attack.json"),
        ("evaluate", *model, "-e", "0.1", "-e", "0.2", "--attack", "FGSM", "--out", "runs/evaluation.json"),
        ("certify", *model, *noise, "--out", "runs/certificate"),
    ):
        code, _, err = run(*arguments, "--quiet")
        assert code == 0, err
    return Path("runs")


def test_a_folder_becomes_a_page(run: Run, tested: Path) -> None:
    code, out, err = run("report", str(tested), "--out", "out/report.html", "--title", "One [bold] model")
    assert code == 0, err
    assert "1 model   report: out/report.html" in out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<h1>One [bold] model</h1>" in page
    (found,) = read([tested])
    assert [row.attack for row in found.attacks[0].rows] == ["DICE", "FGSM", "FGSM"]
    assert found.filter is not None
    assert found.filter.gamma == tuple(
        ep.analysis.coefficients(ep.load("runs/model.safetensors")).gamma.tolist()  # as it was saved, so as it is
    )
    assert found.certificate is not None
    for command in ("train", "attack", "evaluate", "certify", "report"):
        assert f"edgeproof {command} " in page
    # Single nodes are kept by their ids in the whole graph.
    outcomes = Outcomes.load(nodes_file(tested / "evaluation.json"))
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    assert outcomes.nodes.tolist() == split.test.ids[split.test.nodes].tolist()
    result = Result.read(tested / "evaluation.json")
    for number, (attack, epsilon) in enumerate(outcomes.keys):
        share = float((outcomes.margins[number] > 0).double().mean())
        assert share == pytest.approx(result.score("test", attack, epsilon))
    # The page takes the place of nothing that it is about.
    for name in ("model.safetensors", "evaluation.json", "evaluation.json.nodes", "certificate"):
        before = (tested / name).read_bytes()
        code, _, err = run("report", str(tested), "--out", f"out/../runs/{name}")
        assert code == 1
        assert "expected another --out than the files to report on" in err
        assert (tested / name).read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no file or folder nothing"),
        (("name=nothing",), "no file or folder nothing"),
        (("odd.json",), "odd.json is not valid JSON"),
        (("odd.json", "--out", "/dev/null/x"), "cannot write /dev/null/x"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    Path("odd.json").write_text("{")
    code, _, err = run("report", *arguments)
    assert code == 1
    assert message in err
    assert not Path("report.html").exists()


def test_the_demo_tells_and_writes_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hardly any steps: what the real one finds is in the README."""
    few = ep.attacks.LRBCD(steps=1, block_size=500)
    monkeypatch.setattr(demo, "_TRAINING", few)
    monkeypatch.setattr(demo, "_ATTACKS", (few, ep.attacks.PRBCD(steps=1, fine_tune_steps=0, block_size=500)))
    monkeypatch.setattr(demo, "_EPOCHS", (10, 2))
    monkeypatch.setattr(demo, "_SAMPLES", 300)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("demo", "--quiet", "--out", "here/report.html")
    assert code == 0, err
    for line in (
        "clean",
        "LRBCD, epsilon 0.05",
        "PRBCD, epsilon 0.25",
        "certified, 1 deleted",
        "filter of GPRGNN",
    ):
        assert line in out
    assert "…" not in out  # nothing is cut off in a narrow terminal
    assert out.strip().splitlines()[-1].startswith("Next: edgeproof train ")
    page = Path("here/report.html").read_text(encoding="utf-8")
    for name in ("GCN, regular", "GCN, adversarial", "GPRGNN, regular", "GPRGNN, adversarial"):
        assert f"<h3>{name}</h3>" in page
