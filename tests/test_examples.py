"""Scripts in examples/ run and write their reports."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))
PAGES = {"attack_my_model": "attacked.html", "certify_it": "certified.html", "make_it_robust": "robust.html"}


def test_every_example_is_tested() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(PAGES)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_writes_report(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    page = PAGES[script.stem]
    assert page in capsys.readouterr().out
    assert (tmp_path / page).read_text(encoding="utf-8").startswith("<!doctype html>")
