"""The page of the black-box study matches its stored results."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_page_of_black_box_attacks_matches_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "studies")
    study = importlib.import_module("black_box")
    cells = study.stored()
    assert study.PAGE.read_text(encoding="utf-8") == study.page(cells)
    for cell in cells.values():
        found = cell["results"]
        assert (found["gradients"]["tier"], found["predictions"]["tier"]) == ("propagate", "black_box")
        # EvA has at least as many queries as the suite that it is compared with.
        assert min(found["EvA, queries of suite"]["queries"]) >= found["predictions"]["queries"]
