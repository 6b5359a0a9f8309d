"""Fixtures of the tests of experiments."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_experiments import small_jobs

from edgeproof.experiments import Job, Store


@pytest.fixture
def jobs() -> list[Job]:
    """A clean and an adversarial training, with two measurements each."""
    return small_jobs()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")
