"""Exact incremental evaluation: the margins of the target nodes after one more flip, for many candidates at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeproof.propagation.incremental.base import IncrementalEvaluator, Scan, toggled
from edgeproof.propagation.incremental.diffusion import (
    DiffusionEvaluator,
    Polynomial,
    WithPolynomial,
    diffusion_evaluator,
)
from edgeproof.propagation.incremental.full import FlippedLogits, FullEvaluator
from edgeproof.propagation.incremental.rows import RowsEvaluator, rows_evaluator
from edgeproof.propagation.incremental.stack import StackEvaluator, WithConvolutions, stack_evaluator

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradientEngine

__all__ = [
    "DiffusionEvaluator",
    "FlippedLogits",
    "FullEvaluator",
    "IncrementalEvaluator",
    "Polynomial",
    "RowsEvaluator",
    "Scan",
    "StackEvaluator",
    "WithConvolutions",
    "WithPolynomial",
    "incremental_evaluator",
    "toggled",
]


def incremental_evaluator(engine: EdgeGradientEngine) -> IncrementalEvaluator:
    """Return the fastest exact evaluator for a model on a graph.

    Args:
        engine: Model, graph, target nodes and labels.

    >>> import torch
    >>> from edgeproof import datasets, models
    >>> from edgeproof.propagation import EdgeGradientEngine
    >>> data = datasets.load("csbm")
    >>> evaluator = incremental_evaluator(EdgeGradientEngine(models.GCN(21, 2), data, torch.arange(10)))
    >>> candidates = torch.tensor([[0, 1, 2], [100, 101, 102]])
    >>> evaluator.name, len(evaluator.scan(candidates)), evaluator.scan(candidates).num_lost.shape
    ('stack', 3, torch.Size([3]))
    >>> evaluator.apply(candidates[:, :1])
    >>> evaluator.flips.tolist()
    [[0], [100]]
    """
    return stack_evaluator(engine) or diffusion_evaluator(engine) or rows_evaluator(engine) or FullEvaluator(engine)
