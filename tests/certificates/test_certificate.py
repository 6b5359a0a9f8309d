"""Tests of certificates: accuracy, radii, figures and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgeproof.certificates import Certificate


def make_certificate(grid: Tensor, labels: Tensor | None = None) -> Certificate:
    num_nodes = grid.size(0)
    return Certificate(
        prediction=torch.zeros(num_nodes, dtype=torch.long),
        grid=grid,
        p_lower=torch.zeros(num_nodes),
        p_upper=torch.ones(num_nodes),
        labels=labels,
        alpha=0.05,
        samples=100,
        p_add=0.02,
        p_del=0.5,
    )


def test_accuracy_and_radii() -> None:
    grid = torch.zeros(4, 2, 3, dtype=torch.bool)
    grid[:3, 0, :2] = True
    grid[0, 1, 0] = True
    certificate = make_certificate(grid, labels=torch.tensor([0, 0, 1, 0]))
    assert certificate.abstained.tolist() == [False, False, False, True]
    assert certificate.certified(0, 1).tolist() == [True, True, True, False]
    assert [certificate.accuracy(*radii) for radii in ((0, 0), (0, 1), (1, 0), (1, 1))] == [0.5, 0.5, 0.25, 0.0]
    assert not certificate.certified(10**6, 0).any()
    assert torch.equal(certificate.certified(np.int64(1)), certificate.certified(1))
    assert certificate.average_certifiable_radius == (0.25, 0.5)
    unlabelled = replace(certificate, labels=None)
    assert unlabelled.average_certifiable_radius == (0.25, 0.75)
    with pytest.raises(ValueError, match="expected labels to compute an accuracy, got None"):
        unlabelled.accuracy()
    with pytest.raises(ValueError, match="expected r_del to be an integer >= 0, got -1"):
        certificate.certified(0, -1)


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    grid = torch.rand(5, 2, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    for labels in (None, torch.arange(5)):
        certificate = make_certificate(grid, labels)
        certificate.save(tmp_path / "certificate")
        restored = Certificate.load(tmp_path / "certificate")
        assert torch.equal(restored.grid, grid)
        assert (restored.labels is None) == (labels is None)
        assert (restored.alpha, restored.samples, restored.p_add, restored.p_del) == (0.05, 100, 0.02, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": torch.zeros(2, 1, dtype=torch.bool)}, "damaged: expected a boolean grid of shape"),
        ({"prediction": torch.zeros(3)}, "damaged: expected one prediction, bound and label for each of 2 nodes"),
        ({"alpha": 7.0}, "damaged: expected 0 < alpha < 1 and samples >= 1, got 7.0"),
        ({"p_del": -1.0}, "damaged: expected 0 <= p_del < 1"),
    ],
)
def test_damaged_files_raise(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    certificate = make_certificate(torch.zeros(2, 1, 1, dtype=torch.bool))
    replace(certificate, **changes).save(tmp_path / "bad")
    with pytest.raises(ValueError, match=message):
        Certificate.load(tmp_path / "bad")


def test_figure_has_integer_ticks(tmp_path: Path) -> None:
    grid = torch.zeros(4, 1, 3, dtype=torch.bool)
    grid[:3, 0, :2] = True
    certificate = make_certificate(grid)
    axes = certificate.figure().axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        ticks = axis.get_majorticklocs()
        assert np.array_equal(ticks, ticks.round())
    assert axes.images[0].get_array().tolist() == [[75.0, 75.0, 0.0]]
    certificate.plot(tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000
