"""Measurements for figures and studies: learned filters, diffusion, degrees of misclassified nodes, and logit margins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from edgeproof._checks import check_int, check_positive
from edgeproof.analysis import Coefficients, attacked_degrees, coefficients, diffusion, spectrum
from edgeproof.attacks import AttackResult
from edgeproof.experiments.measurements import attack_entries, check_budgets, run_attack
from edgeproof.experiments.schema import are_numbers, require
from edgeproof.experiments.spec import AttackSpec
from edgeproof.experiments.sweep import Measurement, register
from edgeproof.losses import margin
from edgeproof.models import predict
from edgeproof.splits import Split

# Bins of the eigenvalue histogram on [0, 2]; with an odd number, the many eigenvalues at 1 share one bin.
BINS = 41


@register("filter")
@dataclass(frozen=True)
class LearnedFilter(Measurement):
    """Learned polynomial coefficients, and a histogram of the graph's frequencies.

    Args:
        bins: Number of bins of the histogram.
    """

    bins: int = BINS

    def __post_init__(self) -> None:
        check_int(1, bins=self.bins)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        return self.of(coefficients(model), split.test.data)

    def of(self, learned: Coefficients, graph: Data) -> dict[str, Any]:
        """Return the values for known coefficients."""
        frequencies = spectrum(learned, graph)
        return {
            "gamma": learned.gamma.tolist(),
            "self_loops": learned.self_loops,
            "density": [round(fraction, 6) for fraction in frequencies.histogram(self.bins).tolist()],
            "mean_frequency": frequencies.mean_frequency,
        }

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        gamma = values["gamma"]
        require(values, bool(gamma) and are_numbers(gamma, len(gamma)))
        require(values, isinstance(values["self_loops"], bool) and are_numbers([values["mean_frequency"]], 1))
        require(values, are_numbers(values["density"], identity.get("bins", BINS)))


@register("diffusion")
@dataclass(frozen=True)
class DiffusionMatrix(Measurement):
    """Total diffusion matrix of a small graph, stored with the graph for drawing."""

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        return self.of(coefficients(model), split.test.data)

    def of(self, learned: Coefficients, graph: Data) -> dict[str, Any]:
        """Return the values for known coefficients."""
        return {
            "matrix": [[round(entry, 5) for entry in row] for row in diffusion(learned, graph).tolist()],
            "edges": [pair for pair in graph.edge_index.T.tolist() if pair[0] < pair[1]],
            "classes": graph.y.tolist(),
        }

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        nodes = len(values["classes"])
        matrix = values["matrix"]
        require(values, len(matrix) == nodes > 0 and all(are_numbers(row, nodes) for row in matrix))
        require(values, all(len(pair) == 2 and set(pair) <= set(range(nodes)) for pair in values["edges"]))


@register("degrees")
@dataclass(frozen=True)
class AttackedDegrees(Measurement):
    """Numbers of misclassified and robust test nodes by degree and adversarial edges.

    Args:
        attack: The attack.
        epsilons: Budgets as fractions of the edges at the test nodes, ascending.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        count: Edges that an epsilon is a fraction of.
    """

    attack: AttackSpec
    epsilons: tuple[float, ...]
    local: float | None = None
    count: str = "incident"

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, self.local, self.count)
        self.attack.build()

    @property
    def entries(self) -> dict[str, Any]:
        return attack_entries(self.kind, self.attack, self.epsilons, self.local, self.count)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        results = run_attack(self.attack, model, split.test, self.epsilons, self.local, self.count, seed)
        pairs = zip(self.epsilons, results, strict=True)
        return {"nodes": [[epsilon, _count(result, split.test.data)] for epsilon, result in pairs]}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        require(values, [epsilon for epsilon, _ in values["nodes"]] == identity["epsilons"])
        require(values, all(are_numbers(row, 4) for _, rows in values["nodes"] for row in rows))


def _count(result: AttackResult, graph: Data) -> list[list[int]]:
    """Return rows of degree, adversarial edges, misclassified nodes, robust nodes."""
    nodes = attacked_degrees(result, graph)
    pairs = torch.stack([nodes.degree, nodes.flips], dim=1)
    misclassified, robust = (Counter(map(tuple, pairs[mask].tolist())) for mask in (nodes.misclassified, nodes.robust))
    return [[*pair, misclassified[pair], robust[pair]] for pair in sorted({*misclassified, *robust})]


@register("margins")
@dataclass(frozen=True)
class LogitMargins(Measurement):
    r"""Sizes of the logit margins :math:`m` at the test nodes of the unperturbed graph.

    The values are the median of :math:`|m|` and the fraction of flat nodes, those with
    :math:`\tanh'(m) = 1 - \tanh^2(m)` below ``flat_slope``: the tanh margin hardly depends on their logits.

    Args:
        flat_slope: Slope of the tanh below which nodes are flat.
    """

    flat_slope: float = 1e-4

    def __post_init__(self) -> None:
        check_positive(flat_slope=self.flat_slope)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        graph, nodes = split.test.data, split.test.nodes
        margins = margin(predict(model, graph)[nodes].detach(), graph.y[nodes]).double()
        flat = 1 - margins.tanh().square() < self.flat_slope
        return {"median": float(margins.abs().median()), "flat": float(flat.double().mean())}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        require(values, are_numbers([values["median"], values["flat"]], 2))
        require(values, values["median"] >= 0 and 0 <= values["flat"] <= 1)
