"""Per-node outcomes of attacks: margins and flips of every target node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._checks import Nodes, node_ids
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.attacks.base import AttackResult
from edgeproof.graph import UNKNOWN, degree
from edgeproof.serialization import read_tensors, write_tensors

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Outcomes(TabularResult):
    """Margins of the target nodes under every attack and budget.

    Args:
        nodes: Node ids, shape ``[nodes]``.
        degree: Degrees in the clean graph, shape ``[nodes]``.
        labels: Classes, shape ``[nodes]``. None if unknown.
        clean_margins: Margins in the clean graph, shape ``[nodes]``.
        keys: Attack and epsilon of each row of ``margins`` and ``flips``.
        margins: Margins in the perturbed graph, shape ``[attacks, nodes]``.
        flips: Number of edge flips at each node, shape ``[attacks, nodes]``.
    """

    nodes: Tensor
    degree: Tensor
    labels: Tensor | None
    clean_margins: Tensor
    keys: tuple[tuple[str, float], ...]
    margins: Tensor
    flips: Tensor

    def __post_init__(self) -> None:
        per_node, per_attack = (self.nodes.numel(),), (len(self.keys), self.nodes.numel())
        shapes = {
            "degree": per_node,
            "labels": per_node,
            "clean_margins": per_node,
            "margins": per_attack,
            "flips": per_attack,
        }
        for name, expected in shapes.items():
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != expected:
                raise ValueError(f"expected {name} of shape {list(expected)}, got {list(value.shape)}")

    @classmethod
    def of(
        cls, results: Mapping[tuple[str, float], AttackResult], data: Data, nodes: Nodes, ids: Tensor | None = None
    ) -> Outcomes:
        """Collect the outcomes of attacks on the same nodes.

        Args:
            results: At least one attack result, by attack and epsilon.
            data: Clean graph.
            nodes: Target nodes: ids, or a boolean mask.
            ids: Node ids to store. Default: ``nodes``.

        >>> from edgeproof import Budget, attacks, datasets, models
        >>> data, nodes = datasets.load("csbm"), torch.arange(5)
        >>> result = attacks.FixedFlips(flips=torch.tensor([[0], [1]]))(models.MLP(21, 2), data, nodes, Budget(1))
        >>> Outcomes.of({("FixedFlips", 0.1): result}, data, nodes).flips
        tensor([[1, 1, 0, 0, 0]], dtype=torch.int32)
        """
        nodes = node_ids(nodes, data)
        attacks = list(results.values())
        num_nodes = data.x.size(0)
        labels = data.y[nodes].cpu() if isinstance(data.get("y"), Tensor) else None
        if labels is not None and bool((labels == UNKNOWN).any()):
            # The attacks used labels that are not in the data.
            labels = None
        flips = [attack.flips.flatten().bincount(minlength=num_nodes)[nodes] for attack in attacks]
        return cls(
            nodes=(nodes if ids is None else ids).cpu(),
            degree=degree(data)[nodes].cpu(),
            labels=labels,
            clean_margins=attacks[0].clean_margins.float().cpu(),
            keys=tuple(results),
            margins=torch.stack([attack.margins for attack in attacks]).float().cpu(),
            flips=torch.stack(flips).int().cpu(),
        )

    def __repr__(self) -> str:
        return f"Outcomes({self.nodes.numel()} nodes, {len(self.keys)} attacks)"

    def summary(self) -> Record:
        """Return the nodes with their degrees, labels and margins in the clean graph."""
        names = ("nodes", "degree", "labels", "clean_margins")
        values = {name: getattr(self, name) for name in names}
        return {name: None if value is None else value.tolist() for name, value in values.items()}

    def _records(self) -> list[Record]:
        return [
            {"attack": attack, "epsilon": epsilon, "node": node, "margin": margin, "flips": flips}
            for (attack, epsilon), margins, row in zip(
                self.keys, self.margins.tolist(), self.flips.tolist(), strict=True
            )
            for node, margin, flips in zip(self.nodes.tolist(), margins, row, strict=True)
        ]

    def _layout(self) -> Layout:
        correct = self.clean_margins > 0
        lines = [("clean", "0", f"{int((~correct).sum()):,}", "")]
        for (attack, epsilon), margins, flips in zip(self.keys, self.margins, self.flips, strict=True):
            misclassified = int((margins <= 0).sum())
            lines.append((attack, f"{epsilon:g}", f"{misclassified:,}", f"{int((flips > 0).sum()):,}"))
        return Layout(
            title=f"outcomes at {self.nodes.numel():,} nodes",
            header=("attack", "epsilon", "misclassified", "with flips"),
            lines=lines,
        )

    def save(self, path: str | Path) -> None:
        """Write a safetensors file atomically."""
        tensors = {name: getattr(self, name) for name in ("nodes", "degree", "clean_margins", "margins", "flips")}
        if self.labels is not None:
            tensors["labels"] = self.labels
        header = {"outcomes": _FORMAT, "keys": self.keys}
        write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, header)

    @classmethod
    def load(cls, path: str | Path) -> Outcomes:
        """Read a file written by :meth:`save`.

        Raises:
            ValueError: If the file is damaged or does not contain outcomes.
        """
        header, tensors = read_tensors(path)
        if header.get("outcomes") != _FORMAT:
            raise ValueError(f"{path} does not contain node outcomes of format {_FORMAT}")
        try:
            keys = tuple((str(attack), float(epsilon)) for attack, epsilon in header["keys"])
            return cls(keys=keys, labels=tensors.pop("labels", None), **tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
