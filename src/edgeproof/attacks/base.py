"""What every attack has in common: it is asked in one way, held to its budget, and judged on the graph that it leaves."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final, overload

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import check_data, check_nodes, check_not_caching, describe
from edgeproof._progress import progress_bar
from edgeproof.attacks.target import Target, num_usable_pairs
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.graph import flip_pairs
from edgeproof.kernels import dispatch
from edgeproof.models.base import predict
from edgeproof.propagation.pairs import Pairs


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What an attack found, and what it does to the model.

    Args:
        flips: the pairs flipped, shape ``[2, flips]``, the smaller end first, ascending.
        data: the graph with these flips.
        nodes: the target nodes.
        accuracy: share of the target nodes that the model gets right on that graph.
        clean_accuracy: the same before the attack.
        margins: by how much the true class leads at each target node, on that graph; negative where the model is wrong.
        clean_margins: the same before the attack.
        trace: the loss at every step, of relaxed flips where the attack relaxes them.
        seconds: by phase.
        budget: what it was allowed.
        attack: the attack with all its settings.
        seed: of its random choices.
        path: how gradients were computed, ``"propagate"`` or ``"autograd"``; ``"none"`` where none were needed.
    """

    flips: Tensor
    data: Data
    nodes: Tensor
    accuracy: float
    clean_accuracy: float
    margins: Tensor
    clean_margins: Tensor
    trace: tuple[float, ...]
    seconds: dict[str, float]
    budget: Budget
    attack: Attack
    seed: int
    path: str

    def __repr__(self) -> str:
        return (
            f"AttackResult({self.attack!r}: {self.flips.size(1)} of {self.budget.total} flips, "
            f"accuracy {self.clean_accuracy:.1%} -> {self.accuracy:.1%})"
        )


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """A search for the flips within a budget that cost a model most accuracy.

    Settings are fixed at construction, the budget comes with the call: one attack serves every budget. A subclass is a
    frozen dataclass of its settings and writes :meth:`run`.
    """

    @abstractmethod
    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        """Find flips.

        Args:
            target: what to attack.
            budget: at least one flip of a pair of usable nodes.
            generator: for all that is random, on the graph's device.
            trace: takes note of steps and times.

        Returns:
            Distinct pairs, shape ``[2, flips]``, within the budget.
        """

    @abstractmethod
    def num_steps(self, budget: Budget) -> int:
        """How many steps :meth:`run` makes at most."""

    def check(self, target: Target, budget: Budget) -> None:  # noqa: B027
        """Raise if the settings do not fit what is to be attacked; called before :meth:`run`."""

    def for_training(self) -> Attack:
        """The same attack as adversarial training uses it: cheaper where the paper made it cheaper."""
        return self

    @overload
    def __call__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        budget: Budget,
        *,
        labels: Tensor | None = None,
        seed: int = 0,
        backend: str | None = None,
        progress: bool = False,
    ) -> AttackResult: ...

    @overload
    def __call__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        budget: Sequence[Budget],
        *,
        labels: Tensor | None = None,
        seed: int = 0,
        backend: str | None = None,
        progress: bool = False,
    ) -> list[AttackResult]: ...

    @final
    @torch.inference_mode(False)
    def __call__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        budget: Budget | Sequence[Budget],
        *,
        labels: Tensor | None = None,
        seed: int = 0,
        backend: str | None = None,
        progress: bool = False,
    ) -> AttackResult | list[AttackResult]:
        """Attack ``model`` at ``nodes`` of ``data``.

        The model is used in evaluation mode. What comes back keeps the budget, always: it is checked here, and the accuracy is
        that on the perturbed graph itself, not on a relaxation.

        Args:
            model: any module called as ``model(x, edge_index, edge_weight=None)``.
            data: the graph, on the model's device.
            nodes: the nodes whose classification the attack wants to spoil.
            budget: one, or several; :meth:`Budget.from_epsilons <edgeproof.Budget.from_epsilons>` makes several.
            labels: what the nodes should be classified as, in their order; by default the labels of ``data``.
            seed: decides all that is random.
            backend: the kernels to use; by default the fastest that fit.
            progress: whether to draw a progress bar (on terminals only).

        Returns:
            One result; for several budgets a list, in their order.
        """
        budgets = [budget] if isinstance(budget, Budget) else list(budget)
        target = make_target(model, data, nodes, labels, backend)
        if not budgets:
            raise ValueError("expected at least one budget, got none")
        budgets = [_checked(one, target) for one in budgets]
        clean = predict(model, data)[nodes]
        if not bool(clean.isfinite().all()):
            raise ValueError(f"expected finite logits from {type(model).__name__}, got NaN or Inf on the clean graph")
        if int(target.labels.max()) >= clean.size(1):
            found = int(target.labels.max())
            raise ValueError(f"expected labels between 0 and {clean.size(1) - 1}, the model's classes, got {found}")
        results, done = [], 0
        with dispatch.using(backend), progress_bar(type(self).__name__, self._steps(budgets), show=progress) as advance:
            for one in budgets:
                trace = AttackTrace(target.device, advance, done)
                results.append(self._attack(target, one, clean, seed, trace))
                done += self._steps([one])
        return results[0] if isinstance(budget, Budget) else results

    def _steps(self, budgets: list[Budget]) -> int:
        return sum(self.num_steps(budget) for budget in budgets)

    @final
    def find(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        start: Tensor | None = None,
    ) -> Tensor:
        """What :meth:`run` finds, ascending, and checked against the budget; nothing where the budget allows nothing.

        This is an attack without the questions before it and the judgement after it, for who attacks again and again.
        """
        if not (budget.total and num_usable_pairs(target.num_nodes, budget)):
            nothing: Tensor = target.data.edge_index.new_empty(2, 0)
            return nothing
        self.check(target, budget)
        if start is None:
            found = self.run(target, budget, generator=generator, trace=trace)
        elif isinstance(self, WarmStarting):
            found = self.run(target, budget, generator=generator, trace=trace, start=start)
        else:
            raise TypeError(f"{type(self).__name__} cannot begin at flips found before")
        flips = Pairs.of(found, target.num_nodes).both
        budget.check(flips)
        return flips

    def _attack(self, target: Target, budget: Budget, clean: Tensor, seed: int, trace: AttackTrace) -> AttackResult:
        start = time.perf_counter()
        generator = torch.Generator(target.device).manual_seed(seed)
        flips = self.find(target, budget, generator=generator, trace=trace)
        data = flip_pairs(target.data, flips)
        logits = predict(target.model, data)[target.nodes]
        accuracy, clean_accuracy = (float(losses.accuracy(z, target.labels)) for z in (logits, clean))
        seconds = trace.seconds
        return AttackResult(
            flips=flips,
            data=data,
            nodes=target.nodes,
            accuracy=accuracy,
            clean_accuracy=clean_accuracy,
            margins=losses.margin(logits, target.labels),
            clean_margins=losses.margin(clean, target.labels),
            trace=trace.trace,
            seconds={**seconds, "total": time.perf_counter() - start},
            budget=budget,
            attack=self,
            seed=seed,
            path=target.path,
        )


@dataclass(frozen=True, kw_only=True)
class WarmStarting(Attack):
    """An attack that can begin at flips found before."""

    @abstractmethod
    def run(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        start: Tensor | None = None,
    ) -> Tensor:
        """Find flips; see :meth:`Attack.run`.

        Args:
            target: what to attack.
            budget: at least one flip of a pair of usable nodes.
            generator: for all that is random, on the graph's device.
            trace: takes note of steps and times.
            start: flips to begin at, within the budget, ascending; none to begin with nothing.
        """


def make_target(model: nn.Module, data: Data, nodes: Tensor, labels: Tensor | None, backend: str | None) -> Target:
    """What was asked to be attacked, checked."""
    check_not_caching(model)
    dispatch.check_name(backend)
    check_data(data, labels=labels is None)
    check_nodes(nodes, data, labelled=labels is None)
    if labels is None:
        labels = data.y[nodes]
    elif not isinstance(labels, Tensor) or labels.dtype != torch.long or labels.shape != nodes.shape:
        raise ValueError(f"expected one int64 label per node, shape {list(nodes.shape)}, got {describe(labels)}")
    elif int(labels.min()) < 0:
        raise ValueError(f"expected labels from 0, got {int(labels.min())}")
    devices = {parameter.device for parameter in model.parameters()} | {data.x.device}
    if len(devices) > 1:
        raise ValueError(f"expected model and graph on one device, got {', '.join(sorted(map(str, devices)))}")
    return Target(model, data, nodes, labels, backend)


def _checked(budget: object, target: Target) -> Budget:
    if not isinstance(budget, Budget):
        raise TypeError(f"expected an edgeproof.Budget, got {type(budget).__name__}; see Budget.from_epsilon")
    if budget.local is not None and budget.local.numel() != target.num_nodes:
        raise ValueError(
            f"expected local budgets for the {target.num_nodes} nodes of the graph, got {budget.local.numel()}"
        )
    return budget.to(target.device)


def check_settings(*, whole: dict[str, tuple[int, int]], numbers: dict[str, float], loss: str | None = None) -> None:
    """Raise unless settings are sound: whole numbers, each with the least that it may be, and finite positive numbers."""
    for name, (value, least) in whole.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"expected {name} to be a whole number >= {least}, got {value!r}")
    for name, number in numbers.items():
        if not isinstance(number, (int, float)) or not 0 < number < float("inf"):
            raise ValueError(f"expected {name} to be a finite number > 0, got {number!r}")
    if loss is not None:
        losses.get(loss)
