"""Measurements for comparisons: the memorizing defence, PyG's PR-BCD attack, and the accuracy of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof._checks import check_int, is_int
from edgeproof.attacks import FixedFlips
from edgeproof.budget import Budget
from edgeproof.evaluation import clean_accuracy
from edgeproof.experiments.measurements import attack_entries, check_budgets, check_view, run_attack, view_of
from edgeproof.experiments.plain_training import build_plain, train_plainly
from edgeproof.experiments.schema import check_accuracies, require
from edgeproof.experiments.spec import AttackSpec
from edgeproof.experiments.sweep import Measurement, register
from edgeproof.graph import num_classes
from edgeproof.models import predict
from edgeproof.splits import Split, View
from edgeproof.training import Memorizing


@register("memorizing")
@dataclass(frozen=True)
class MemorizingAccuracy(Measurement):
    """Accuracy of the model wrapped in :class:`edgeproof.training.Memorizing`, on the clean graph and under one attack.

    The defence has no gradient, so the attack perturbs the graph against the model itself.

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
        defence, nodes = Memorizing(model, split.train.data).eval(), split.test.nodes
        results = run_attack(self.attack, model, split.test, self.epsilons, self.local, self.count, seed)
        graphs = [(0.0, split.test.data), *zip(self.epsilons, (result.data for result in results), strict=True)]
        return {"accuracy": [[epsilon, clean_accuracy(defence, graph, nodes)] for epsilon, graph in graphs]}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["accuracy"], [(epsilon,) for epsilon in (0.0, *identity["epsilons"])])

    @property
    def columns(self) -> tuple[str, ...]:
        return ("clean", *(f"{epsilon:g}" for epsilon in self.epsilons))

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {f"{epsilon:g}" if epsilon else "clean": accuracy for epsilon, accuracy in values["accuracy"]}


@register("pyg_prbcd")
@dataclass(frozen=True)
class PygRobustAccuracy(Measurement):
    """Accuracy under ``torch_geometric.contrib.nn.PRBCDAttack``, without local budgets.

    Args:
        epsilons: Budgets as fractions of the edges at the test nodes, ascending.
        steps: Number of steps.
        resampling_steps: Number of first steps, after which the block is resampled.
        block_size: Number of candidate pairs.
        loss: Loss of the attack.
    """

    epsilons: tuple[float, ...]
    steps: int = 500
    resampling_steps: int = 400
    block_size: int = 500_000
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_budgets(self.epsilons, None, "incident")
        check_int(1, steps=self.steps, resampling_steps=self.resampling_steps, block_size=self.block_size)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = split.test
        budgets = Budget.from_epsilons(view.data, view.nodes, list(self.epsilons))
        rows = []
        for epsilon, budget in zip(self.epsilons, budgets, strict=True):
            flips = FixedFlips(flips=self._flips(model, view, budget, seed), origin="PyG PRBCDAttack")
            rows.append([epsilon, flips(model, view.data, view.nodes, budget).accuracy])
        return {"accuracy": rows}

    def _flips(self, model: nn.Module, view: View, budget: Budget, seed: int) -> Tensor:
        from torch_geometric.contrib.nn import PRBCDAttack

        # PyG draws from the global generators.
        devices = [view.nodes.device] if view.nodes.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            attack = PRBCDAttack(
                model.eval(),
                block_size=self.block_size,
                epochs=self.steps,
                epochs_resampling=self.resampling_steps,
                loss=self.loss,
                log=False,
            )
            data = view.data
            _, flips = attack.attack(data.x, data.edge_index, data.y, budget=budget.total, idx_attack=view.nodes)
        return torch.as_tensor(flips)

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["accuracy"], [(epsilon,) for epsilon in identity["epsilons"]])

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{epsilon:g}" for epsilon in self.epsilons)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {f"{epsilon:g}": accuracy for epsilon, accuracy in values["accuracy"]}


@register("plain_training")
@dataclass(frozen=True)
class PlainAccuracy(Measurement):
    """Test accuracy of the same architecture after plain training; see :mod:`edgeproof.experiments.plain_training`.

    The trained model of the run gives only its class name.
    """

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        sizes = split.test.data.num_features, num_classes(split.test.data)
        plain = build_plain(type(model).__name__, *sizes, seed).to(split.test.nodes.device)
        return {"accuracy": [[0.0, train_plainly(plain, split, seed=seed)]]}

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        check_accuracies(values["accuracy"], [(0.0,)])

    @property
    def columns(self) -> tuple[str, ...]:
        return ("plain",)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        return {"plain": values["accuracy"][0][1]}


@register("class_accuracy")
@dataclass(frozen=True)
class ClassAccuracy(Measurement):
    """Numbers of correctly classified nodes and of all nodes per class, on the unperturbed graph.

    Tables show the mean accuracy of the classes.

    Args:
        nodes: ``"test"`` or ``"val"``.
    """

    nodes: str = "test"

    def __post_init__(self) -> None:
        check_view(self.nodes)

    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        view = view_of(split, self.nodes)
        labels, classes = view.data.y[view.nodes], num_classes(view.data)
        correct = predict(model, view.data)[view.nodes].argmax(dim=1) == labels
        counts = (labels[correct], labels)
        return dict(
            zip(("correct", "nodes"), (count.bincount(minlength=classes).tolist() for count in counts), strict=True)
        )

    @staticmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        correct, nodes = values["correct"], values["nodes"]
        require(values, len(correct) == len(nodes) > 0 and all(map(is_int, (*correct, *nodes))) and sum(nodes) > 0)
        require(values, all(0 <= count <= total for count, total in zip(correct, nodes, strict=True)))

    @property
    def columns(self) -> tuple[str, ...]:
        return ("mean",)

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        pairs = zip(values["correct"], values["nodes"], strict=True)
        return {"mean": fmean(count / total for count, total in pairs if total)}
