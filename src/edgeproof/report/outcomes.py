"""What became of every target node under every attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof.attacks.base import AttackResult
from edgeproof.graph import UNKNOWN, degree
from edgeproof.serialization import read_tensors, write_tensors

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Target nodes and, for every attack at every budget, what is left of their margins.

    Args:
        nodes: their ids, shape ``[nodes]``.
        degree: before the attack, same shape.
        labels: their classes, same shape; none where they are not known.
        clean_margins: before the attack, same shape.
        keys: attack and epsilon of each row below.
        margins: after the attack, shape ``[attacks, nodes]``.
        flips: how many flips are at each node, same shape.
    """

    nodes: Tensor
    degree: Tensor
    labels: Tensor | None
    clean_margins: Tensor
    keys: tuple[tuple[str, float], ...]
    margins: Tensor
    flips: Tensor

    def __post_init__(self) -> None:
        one, all_of_them = (self.nodes.numel(),), (len(self.keys), self.nodes.numel())
        shapes = {"degree": one, "labels": one, "clean_margins": one, "margins": all_of_them, "flips": all_of_them}
        for name, expected in shapes.items():
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != expected:
                raise ValueError(f"expected {name} of shape {list(expected)}, got {list(value.shape)}")

    @classmethod
    def of(
        cls, results: Mapping[tuple[str, float], AttackResult], data: Data, nodes: Tensor, ids: Tensor | None = None
    ) -> Outcomes:
        """Of attacks on the same nodes.

        Args:
            results: by attack and epsilon, at least one.
            data: the graph before the attacks.
            nodes: the target nodes.
            ids: what to call them; by default ``nodes``.

        >>> from edgeproof import Budget, attacks, datasets, models
        >>> data, nodes = datasets.load("csbm"), torch.arange(5)
        >>> result = attacks.FixedFlips(flips=torch.tensor([[0], [1]]))(models.MLP(21, 2), data, nodes, Budget(1))
        >>> Outcomes.of({("FixedFlips", 0.1): result}, data, nodes).flips
        tensor([[1, 1, 0, 0, 0]], dtype=torch.int32)
        """
        found = list(results.values())
        num_nodes = data.x.size(0)
        labels = data.y[nodes].cpu() if isinstance(data.get("y"), Tensor) else None
        if labels is not None and bool((labels == UNKNOWN).any()):
            # Attacked by other labels than those of the data.
            labels = None
        flips = [result.flips.flatten().bincount(minlength=num_nodes)[nodes] for result in found]
        return cls(
            nodes=(nodes if ids is None else ids).cpu(),
            degree=degree(data)[nodes].cpu(),
            labels=labels,
            clean_margins=found[0].clean_margins.float().cpu(),
            keys=tuple(results),
            margins=torch.stack([result.margins for result in found]).float().cpu(),
            flips=torch.stack(flips).int().cpu(),
        )

    def save(self, path: str | Path) -> None:
        """Write it; the file appears whole or not at all."""
        tensors = {name: getattr(self, name) for name in ("nodes", "degree", "clean_margins", "margins", "flips")}
        if self.labels is not None:
            tensors["labels"] = self.labels
        header = {"outcomes": _FORMAT, "keys": self.keys}
        write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, header)

    @classmethod
    def load(cls, path: str | Path) -> Outcomes:
        """Read what :meth:`save` wrote; raises ``ValueError`` for anything else."""
        header, tensors = read_tensors(path)
        if header.get("outcomes") != _FORMAT:
            raise ValueError(f"{path} holds no outcomes of nodes of this version")
        try:
            keys = tuple((str(attack), float(epsilon)) for attack, epsilon in header["keys"])
            return cls(keys=keys, labels=tensors.pop("labels", None), **tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
