from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof.cli._demo import DemoSettings, run_demo
from edgeproof.evaluation.result import Result
from edgeproof.report import Outcomes, nodes_file, read

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tested(run: Run) -> Path:
    """Return a folder with the files of all commands for one model."""
    model = ("--model", "runs/model.safetensors")
    noise = ("--samples", "300", "--choosing-samples", "20", "--p-add", "0.001", "--p-del", "0.4")
    for arguments in (
        ("train", "--dataset", "csbm", "--model", "GPRGNN", "--max-epochs", "20", "--out", model[1]),
        ("attack", *model, "--attack", "DICE", "-e", "0.1", "--out", "runs/attack.json"),
        ("evaluate", *model, "-e", "0.01", "-e", "0.02", "--attack", "FGSM", "--out", "runs/evaluation.json"),
        ("certify", *model, *noise, "--out", "runs/certificate"),
    ):
        code, _, err = run(*arguments, "--quiet")
        assert code == 0, err
    return Path("runs")


def test_report_of_a_folder(run: Run, tested: Path) -> None:
    code, out, err = run("report", str(tested), "--out", "out/report.html", "--title", "One [bold] model")
    assert code == 0, err
    assert "1 model   report: out/report.html" in out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<h1>One [bold] model</h1>" in page
    (found,) = read([tested])
    assert [row.attack for row in found.attacks[0].rows] == ["DICE", "FGSM", "FGSM"]
    assert found.filter is not None
    assert found.filter.gamma == tuple(ep.analysis.coefficients(ep.load("runs/model.safetensors")).gamma.tolist())
    assert found.certificate is not None
    for command in ("train", "attack", "evaluate", "certify", "report"):
        assert f"edgeproof {command} " in page
    # Outcomes are stored by node ids of the whole graph.
    outcomes = Outcomes.load(nodes_file(tested / "evaluation.json"))
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    assert outcomes.nodes.tolist() == split.test.ids[split.test.nodes].tolist()
    result = Result.read(tested / "evaluation.json")
    for number, (attack, epsilon) in enumerate(outcomes.keys):
        share = float((outcomes.margins[number] > 0).double().mean())
        assert share == pytest.approx(result.score("test", attack, epsilon))
    # The report never overwrites its input files.
    for name in ("model.safetensors", "evaluation.json", "evaluation.json.nodes", "certificate"):
        before = (tested / name).read_bytes()
        code, _, err = run("report", str(tested), "--out", f"out/../runs/{name}")
        assert code == 1
        assert "expected an output file other than" in err
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
def test_invalid_report_options_are_one_line_errors(run: Run, arguments: tuple[str, ...], message: str) -> None:
    Path("odd.json").write_text("{")
    code, _, err = run("report", *arguments)
    assert code == 1
    assert message in err
    assert not Path("report.html").exists()


def test_demo_prints_and_writes_all_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Very few steps; the README shows the results with the default settings."""
    attack = ep.attacks.LRBCD(steps=1, block_size=500)
    settings = DemoSettings(
        training_attack=attack,
        attacks=(attack, ep.attacks.PRBCD(steps=1, fine_tune_steps=0, block_size=500)),
        regular_epochs=10,
        adversarial_epochs=2,
        samples=300,
    )
    monkeypatch.setenv("COLUMNS", "80")
    run_demo(tmp_path / "out" / "report.html", settings, progress=False)
    out = capsys.readouterr().out
    for line in (
        "clean",
        "LRBCD, epsilon 0.05",
        "PRBCD, epsilon 0.25",
        "certified, 1 deleted",
        "filter of GPRGNN",
    ):
        assert line in out
    assert "…" not in out  # no cell is truncated
    assert out.strip().splitlines()[-1].startswith("Next: edgeproof train ")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for name in ("GCN, regular", "GCN, adversarial", "GPRGNN, regular", "GPRGNN, adversarial"):
        assert f"<h3>{name}</h3>" in page
