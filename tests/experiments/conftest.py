"""A table small enough to run for real."""

from __future__ import annotations

import pytest

from edgeproof.experiments import Store, Table, paper
from edgeproof.experiments.paper import Column, Printed, Row

SMALL = Table("tab:small", 99, "small", "two models on a generated graph")


def small_cells() -> list[Printed]:
    plain = Row("inductive", "csbm", "GCN", False, None, None)
    trained = Row("inductive", "csbm", "GPRGNN", False, "LRBCD", 0.2)
    columns = [Column("clean"), Column("LRBCD", 0.1), Column("LRBCD", 0.25)]
    return [
        *(Printed("tab:small", plain, column, 70.0, 30.0) for column in columns),
        *(Printed("tab:small", trained, column, 99.9, 0.1) for column in columns),
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table, known to the library for the length of a test."""
    monkeypatch.setattr(paper, "_by_table", lambda: {"tab:small": small_cells()})
    return SMALL


@pytest.fixture
def store(tmp_path: pytest.TempPathFactory) -> Store:
    return Store(tmp_path / "store")  # type: ignore[operator]
