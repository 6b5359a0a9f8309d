"""Tiers: how the effect of edge flips on a model is computed."""

from __future__ import annotations

from typing import Literal

Tier = Literal["propagate", "autograd", "black_box"]
"""Tier of a model, chosen automatically, from fast to slow.

- ``"propagate"``: all layers follow known rules, so the gradient at any pair follows from node quantities.
- ``"autograd"``: the model is differentiable in edge weights, so pairs are added to the graph as weighted edges.
- ``"black_box"``: only predictions are used.
"""

TIERS: tuple[Tier, ...] = ("propagate", "autograd", "black_box")


class NoEdgeGradientError(ValueError):
    """A model has no gradient with respect to edge weights: its tier is ``"black_box"``."""
