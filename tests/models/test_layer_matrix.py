"""The matrix of layers in the documentation: the tier of every row, and the page, equal the stored measurements."""

from __future__ import annotations

import json

import layer_matrix as matrix
import pytest

import edgeproof as ep
from edgeproof.models import tier_of

ROWS = json.loads(matrix.RESULTS.read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def views() -> ep.splits.Split:
    return matrix.split()


@pytest.mark.parametrize("name", [*matrix.CONVOLUTIONS, *matrix.MODELS])
def test_tier_equals_the_documented_one(name: str, views: ep.splits.Split) -> None:
    assert tier_of(matrix.build(name, views), views.test.data).tier == ROWS[name]["tier"]


def test_matrix_is_complete() -> None:
    assert list(ROWS) == [*matrix.CONVOLUTIONS, *matrix.MODELS]
    assert len(matrix.CONVOLUTIONS) >= 25
    assert {row["tier"] for row in ROWS.values()} == {"propagate", "autograd", "black_box"}


def test_page_shows_the_stored_measurements() -> None:
    record = json.loads(matrix.RESULTS.read_text(encoding="utf-8"))
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.render(record)


@pytest.mark.filterwarnings("ignore::edgeproof._warnings.EdgeproofWarning")
@pytest.mark.parametrize("name", ["SAGEConv, max", "MFConv"])
def test_attack_training_and_certificate_run(name: str, views: ep.splits.Split) -> None:
    found = matrix.measure(name, views)
    assert found["tier"] == ROWS[name]["tier"]
    assert found["training"].endswith("2 epochs")
    assert found["certificate"]
    assert found["accuracy"] <= found["clean_accuracy"]
