"""Measurement of the computed worst case of models with bounded messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgeproof.budget import Budget
from edgeproof.certificates import WorstCase
from edgeproof.experiments.measurements import check_budgets, check_view, view_of
from edgeproof.experiments.schema import check_accuracies
from edgeproof.experiments.sweep import Measurement, register
from edgeproof.splits import Split


@register("proven")
@dataclass(frozen=True)
class ProvenAccuracy(Measurement):
    """Guaranteed accuracy, and the accuracy that matching flips attain, by :class:`edgeproof.certificates.WorstCase`.

    Args:
        epsilons: Global budgets as fractions of the edges at the nodes, ascending. Each is measured with and without local
            budgets.
        local: Local budget of each node as a factor of its degree.
        nodes: ``"test"`` or ``"val"``.
        collective: Bound for all nodes together; see :class:`~edgeproof.certificates.WorstCase`.
    """

    epsilons: tuple[float, ...]
    local: float = 0.5
    nodes: str = "test"
    collective: str = "count"

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, self.local, "incident")
        check_view(self.nodes)
        WorstCase(collective=self.collective)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = view_of(split, self.nodes)
        budgets = [
            Budget.from_epsilon(view.data, view.nodes, epsilon, local=local)
            for local in (self.local, None)
            for epsilon in self.epsilons
        ]
        found = WorstCase(collective=self.collective).certify(model, view.data, view.nodes, budgets)
        rows = list(zip(_positions(self.epsilons), found.budgets, strict=True))
        return {
            "clean": found.clean_accuracy,
            "guaranteed": [[*position, bound.guaranteed] for position, bound in rows],
            "attained": [[*position, bound.attained] for position, bound in rows if bound.attained is not None],
            "any_edges": found.any_edges_accuracy,
            "any_nodes": found.any_nodes_accuracy,
        }

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        expected = _positions(tuple(identity["epsilons"]))
        check_accuracies(values["guaranteed"], expected)
        if values["attained"]:
            check_accuracies(values["attained"], expected)
        for name in ("clean", "any_edges", "any_nodes"):
            check_accuracies([[name, values[name]]], [(name,)])

    @property
    def columns(self) -> tuple[str, ...]:
        return ("any edges", *(f"{kind} {epsilon:g}" for kind, epsilon in _positions(self.epsilons)))

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        rows = {f"{kind} {epsilon:g}": accuracy for kind, epsilon, accuracy in values["guaranteed"]}
        return {"any edges": values["any_edges"], **rows}


def _positions(epsilons: tuple[float, ...]) -> list[tuple[str, float]]:
    """Return kind and size of all budgets."""
    return [(kind, float(epsilon)) for kind in ("local", "global") for epsilon in epsilons]
