"""Measurements of logit margins."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.experiments import DatasetSpec, LogitMargins, ModelSpec, Run, SplitSpec, Task, TrainingSpec
from edgeproof.experiments.schema import check_values


class ConstantMargin(nn.Module):
    """A model whose logits differ by a constant."""

    def __init__(self, difference: float, classes: int) -> None:
        super().__init__()
        logits = torch.zeros(classes)
        logits[0] = difference
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.logits.expand(x.size(0), -1)


@pytest.mark.parametrize(("difference", "flat"), [(0.5, 0.0), (20.0, 1.0)])
def test_logit_margins_are_the_median_and_the_fraction_of_flat_nodes(difference: float, flat: float) -> None:
    data: Data = ep.datasets.load("csbm")
    split = ep.splits.inductive(data, seed=0)
    values = LogitMargins().measure(ConstantMargin(difference, ep.num_classes(data)), split, seed=0)
    assert values == {"median": difference, "flat": flat}


def test_invalid_values_of_logit_margins_raise() -> None:
    run = Run(DatasetSpec("csbm"), SplitSpec(), ModelSpec("GCN"), TrainingSpec())
    identity = Task(run, LogitMargins()).identity
    assert identity["kind"] == "margins"
    check_values(identity, {"median": 1.5, "flat": 0.25})
    for median, flat in ((-1.0, 0.5), (1.0, 1.5), (math.nan, 0.5)):
        with pytest.raises(ValueError, match="invalid values"):
            check_values(identity, {"median": median, "flat": flat})
