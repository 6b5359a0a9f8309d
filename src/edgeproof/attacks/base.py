"""Base classes of attacks: the target under attack, the trace of a search, and the result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, final, overload

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_data, check_not_caching, check_seed, describe, node_ids
from edgeproof._features import for_model
from edgeproof._progress import Advance, duration, progress_bar
from edgeproof._tables import Layout, Record, TabularResult, records
from edgeproof._warnings import warn
from edgeproof.attacks.candidates import Candidates
from edgeproof.budget import NO_FLIPS, Budget
from edgeproof.constraints import Constraints, Costs, Selection
from edgeproof.graph import flip_pairs
from edgeproof.kernels import dispatch
from edgeproof.models.adapt import adapt
from edgeproof.models.base import predict
from edgeproof.models.flipped import FlippedGraphs
from edgeproof.propagation import EdgeGradientEngine, NoEdgeGradientError, Tier
from edgeproof.propagation.pairs import Pairs, num_pairs

if TYPE_CHECKING:
    from edgeproof.attacks._recording import Recording, RecordingOptions

Needs = Literal["gradients", "predictions"]
"""What an attack needs of a model. Attacks that need only predictions run on models of every tier."""

FlipScore = tuple[float, float]
"""Accuracy and negative loss under some flips; a lower score is a stronger attack."""


@dataclass(frozen=True, eq=False)
class Target:
    """Model, graph and nodes under attack.

    Args:
        model: Any module called as ``model(x, edge_index, edge_weight)``.
        data: The graph.
        nodes: Target node ids.
        labels: Labels of the target nodes, in the same order.
        backend: Kernel backend. Default: the fastest that supports the inputs.
        recording: Options for recording attack steps as CUDA graphs, on any device. Default: steps on a small graph on a GPU
            are recorded with the default options, all others are not.
    """

    model: nn.Module
    data: Data
    nodes: Tensor
    labels: Tensor
    backend: str | None = None
    recording: RecordingOptions | None = None

    @cached_property
    def _engines(self) -> dict[str, EdgeGradientEngine]:
        """Gradient engines by loss; shared with the copies of :meth:`for_one_attack`."""
        return {}

    @cached_property
    def _tiers(self) -> list[Tier]:
        """The tier, once it is known; shared with the copies of :meth:`for_one_attack`."""
        return []

    @cached_property
    def _flipped(self) -> FlippedGraphs:
        return FlippedGraphs(self.model, self.data)

    @cached_property
    def _used_losses(self) -> list[str]:
        return []

    @cached_property
    def clean_logits(self) -> Tensor:
        """Logits of the target nodes on the clean graph."""
        return predict(self.model, self.data)[self.nodes]

    @cached_property
    def recordings(self) -> dict[tuple[object, ...], Recording]:
        """Cache of recorded attack steps; used by :func:`edgeproof.attacks._recording.run_recorded`."""
        return {}

    @property
    def num_nodes(self) -> int:
        return int(self.data.x.size(0))

    @property
    def device(self) -> torch.device:
        device: torch.device = self.data.x.device
        return device

    def ones(self, count: int) -> Tensor:
        """Return flip weights of 1."""
        return torch.ones(count, dtype=self.data.x.dtype, device=self.device)

    @property
    def path(self) -> str:
        """Gradient path used so far, ``"propagate"`` or ``"autograd"``; ``"none"`` if no gradient was computed."""
        return self._engines[self._used_losses[0]].path if self._used_losses else "none"

    def engine(self, loss: str) -> EdgeGradientEngine:
        """Return the (cached) gradient engine for a loss.

        Raises:
            NoEdgeGradientError: If the tier is ``"black_box"``.
        """
        engine = self._engine(loss)
        if loss not in self._used_losses:
            self._used_losses.append(loss)
        return engine

    @property
    def tier(self) -> Tier:
        """Tier of the model: ``"propagate"``, ``"autograd"`` or ``"black_box"``."""
        if not self._tiers:
            try:
                self._tiers.append(self._engine(next(iter(self._engines), "tanh_margin")).path)
            except NoEdgeGradientError:
                self._tiers.append("black_box")
        return self._tiers[0]

    def for_one_attack(self) -> Target:
        """Return a copy with the same gradient engines, but its own :attr:`recordings` and its own :attr:`path`."""
        copy = replace(self)
        copy.__dict__.update(_engines=self._engines, _tiers=self._tiers)
        return copy

    def refresh(self) -> None:
        """Recompute cached values after the model's parameters have changed."""
        self.__dict__.pop("clean_logits", None)
        for engine in self._engines.values():
            engine.refresh()

    def records_steps(self, loss: str) -> bool:
        """Whether attack steps on this target may be recorded as CUDA graphs."""
        return self.recording is not None or self.engine(loss).recordable

    def _engine(self, loss: str) -> EdgeGradientEngine:
        if loss not in self._engines:
            self._engines[loss] = EdgeGradientEngine(
                self.model, self.data, self.nodes, labels=self.labels, loss=losses.get(loss), backend=self.backend
            )
        return self._engines[loss]

    def accuracy(self, logits: Tensor) -> Tensor:
        """Return the accuracy of the target nodes, given logits of all nodes."""
        return losses.accuracy(logits[self.nodes], self.labels)

    def score(self, candidates: Sequence[Tensor], loss: str) -> list[FlipScore]:
        """Evaluate the model under each candidate set of flips; a lower score is a stronger attack."""
        loss_of = losses.get(loss)

        def measure(logits: Tensor) -> Tensor:
            z = logits[self.nodes]
            return torch.stack([losses.accuracy(z, self.labels), -loss_of(z, self.labels)])

        measured = [torch.vmap(measure)(logits) for logits in self.logits_of(candidates, loss)]
        return [(accuracy, gain) for accuracy, gain in torch.cat(measured).tolist()] if measured else []

    def logits_of(self, candidates: Sequence[Tensor], loss: str) -> Iterator[Tensor]:
        """Yield the logits of all nodes under each set of flips, in batches: shape ``[sets, nodes, classes]``.

        On the tier ``"black_box"``, the model predicts the perturbed graphs; else the gradient engine of the loss evaluates
        them, without gradients.
        """
        if self.tier == "black_box":
            return self._flipped.logits_of(candidates)
        return self.engine(loss).logits_of(candidates)

    def strongest(self, candidates: Sequence[Tensor], loss: str) -> Tensor:
        """Return the candidate set of flips with the lowest accuracy; the loss breaks ties.

        The empty perturbation is always a candidate.
        """
        empty: Tensor = self.data.edge_index.new_empty(2, 0)
        candidates = [empty, *candidates]
        logits = torch.cat([batch[:, self.nodes] for batch in self.logits_of(candidates, loss)])
        correct = (logits.argmax(dim=2) == self.labels) & logits.isfinite().all(dim=2)
        num_correct = correct.sum(dim=1).tolist()
        lowest = [index for index, count in enumerate(num_correct) if count == min(num_correct)]
        if len(lowest) == 1:
            return candidates[lowest[0]]
        loss_of = losses.get(loss)
        tied_losses = torch.vmap(lambda z: loss_of(z, self.labels))(logits[lowest])
        return candidates[lowest[int(tied_losses.argmax())]]


def no_progress(done: float, text: str) -> None:
    """Ignore a progress update."""


class AttackTrace:
    """Losses and phase times of one attack, recorded without a host-device sync.

    Args:
        device: Device of the attack.
        advance: Callback that moves a progress bar; see :func:`edgeproof._progress.progress_bar`.
        done: Number of steps already shown by the progress bar.
    """

    def __init__(self, device: torch.device, advance: Advance = no_progress, done: int = 0) -> None:
        self._cuda = device.type == "cuda"
        self._advance, self._done = advance, done
        self._losses: list[Tensor] = []
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []
        self.queries = 0
        self.phase("")

    def phase(self, name: str) -> None:
        """Attribute the time since the last call to a phase."""
        mark: torch.cuda.Event | float = time.perf_counter()
        if self._cuda:
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
        self._marks.append((name, mark))

    def step(self, loss: Tensor) -> None:
        """Record the loss at the start of a step."""
        self._losses.append(loss.detach())
        self._done += 1
        self._advance(self._done, "")

    def count_queries(self, count: int) -> None:
        """Add to the number of perturbed graphs that the search has evaluated exactly."""
        self.queries += count

    @property
    def num_steps(self) -> int:
        """Number of recorded steps."""
        return len(self._losses)

    def rewind(self, num_steps: int) -> None:
        """Drop all but the first ``num_steps`` steps; the others are repeated."""
        self._done -= len(self._losses) - num_steps
        del self._losses[num_steps:]

    @property
    def trace(self) -> tuple[float, ...]:
        """Loss at every step."""
        return tuple(torch.stack(self._losses).tolist()) if self._losses else ()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per phase."""
        if self._cuda:
            torch.cuda.synchronize()
        total: dict[str, float] = {}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            if isinstance(before, torch.cuda.Event):
                assert isinstance(after, torch.cuda.Event)
                elapsed = before.elapsed_time(after) / 1000
            else:
                assert isinstance(after, float)
                elapsed = after - before
            total[phase] = total.get(phase, 0.0) + elapsed
        return total


@dataclass(frozen=True, eq=False)
class AttackResult(TabularResult):
    """Result of one attack.

    Args:
        flips: Flipped pairs, smaller node id first, in ascending order, shape ``[2, flips]``.
        data: The perturbed graph.
        nodes: Target node ids.
        accuracy: Accuracy of the target nodes on the perturbed graph.
        clean_accuracy: Accuracy of the target nodes on the clean graph.
        margins: Margin of the true class at each target node on the perturbed graph; negative where misclassified.
        clean_margins: The same on the clean graph.
        trace: Loss at every step, of the relaxed flips if the attack relaxes them.
        seconds: Seconds per phase.
        budget: Budget of the attack.
        attack: The attack with its settings.
        seed: Seed of the attack.
        path: Gradient path, ``"propagate"`` or ``"autograd"``; ``"none"`` if the attack uses no gradients.
        tier: Tier of the model, ``"propagate"``, ``"autograd"`` or ``"black_box"``; see :data:`edgeproof.propagation.Tier`.
        queries: Number of perturbed graphs that the search evaluated exactly, fully or incrementally; 0 if the attack does not
            count them.
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
    tier: Tier
    queries: int = 0

    def __repr__(self) -> str:
        return (
            f"AttackResult({self.attack!r}: {self.flips.size(1)} of {self.budget.total} flips, "
            f"accuracy {self.clean_accuracy:.1%} -> {self.accuracy:.1%})"
        )

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {
            "attack": repr(self.attack),
            "clean_accuracy": self.clean_accuracy,
            "accuracy": self.accuracy,
            "flips": self.flips.T.tolist(),
            "budget": self.budget.total,
            "seed": self.seed,
            "path": self.path,
            "queries": self.queries,
            "tier": self.tier,
            "seconds": self.seconds,
            "trace": list(self.trace),
        }

    def _records(self) -> list[Record]:
        at_node = self.flips.flatten().bincount(minlength=self.data.x.size(0))[self.nodes]
        return records(
            {
                "node": self.nodes.tolist(),
                "clean_margin": self.clean_margins.tolist(),
                "margin": self.margins.tolist(),
                "flips": at_node.tolist(),
            }
        )

    def _layout(self) -> Layout:
        misclassified = int(((self.clean_margins > 0) & (self.margins <= 0)).sum())
        local = "" if self.budget.local is None else ", and a local budget per node"
        lines = [
            ("attack", repr(self.attack)),
            ("flips", f"{self.flips.size(1):,} of {self.budget.total:,}{local}"),
            ("accuracy", f"{self.clean_accuracy:.1%} clean, {self.accuracy:.1%} under attack"),
            ("nodes", f"{self.nodes.numel():,}, of which the attack misclassifies {misclassified:,}"),
            ("tier", self.tier),
            ("time", duration(self.seconds["total"])),
        ]
        return Layout("", (), lines, left=2)


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Base class of attacks: a search for edge flips within a budget that minimize a model's accuracy.

    Settings are fixed at construction and the budget is an argument of the call, so one attack serves every budget. A
    subclass is a frozen dataclass of its settings that implements :meth:`run` and :meth:`num_steps`.
    """

    @property
    def needs(self) -> Needs:
        """What the attack needs of a model: ``"gradients"`` with respect to edge weights, or only ``"predictions"``."""
        return "gradients"

    @abstractmethod
    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        """Search for flips.

        Args:
            target: Model, graph and nodes under attack.
            budget: Budget that allows at least one flip.
            generator: Random generator on the graph's device.
            trace: Receives the loss of every step and the time of every phase.

        Returns:
            Distinct pairs within the budget, shape ``[2, flips]``.
        """

    @abstractmethod
    def num_steps(self, budget: Budget) -> int:
        """Return the maximum number of steps of :meth:`run`."""

    def check(self, target: Target, budget: Budget) -> None:  # noqa: B027
        """Raise if the settings do not fit the target or the budget; called before :meth:`run`."""

    @final
    def check_tier(self, target: Target) -> None:
        """Raise :class:`~edgeproof.propagation.NoEdgeGradientError` if the attack needs gradients that the model has not."""
        if self.needs == "gradients" and target.tier == "black_box":
            target.engine("tanh_margin")

    def for_training(self) -> Attack:
        """Return the attack with the (cheaper) settings that the paper uses for adversarial training."""
        return self

    @overload
    def __call__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        budget: Budget,
        *,
        allowed: Selection | tuple[Selection, ...] | None = None,
        forbidden: Selection | tuple[Selection, ...] | None = None,
        costs: Costs | None = None,
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
        nodes: Nodes,
        budget: Sequence[Budget],
        *,
        allowed: Selection | tuple[Selection, ...] | None = None,
        forbidden: Selection | tuple[Selection, ...] | None = None,
        costs: Costs | None = None,
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
        nodes: Nodes,
        budget: Budget | Sequence[Budget],
        *,
        allowed: Selection | tuple[Selection, ...] | None = None,
        forbidden: Selection | tuple[Selection, ...] | None = None,
        costs: Costs | None = None,
        labels: Tensor | None = None,
        seed: int = 0,
        backend: str | None = None,
        progress: bool = False,
    ) -> AttackResult | list[AttackResult]:
        """Attack ``model`` at ``nodes`` of ``data``.

        The model runs in evaluation mode. The returned flips are checked against the budget, and the reported accuracy is that
        on the discrete perturbed graph, not on a relaxation.

        Args:
            model: Any module called as ``model(x, edge_index, edge_weight=None)``.
            data: The graph, on the model's device.
            nodes: Nodes to misclassify: ids, or a boolean mask.
            budget: One budget, or a sequence of them, see :meth:`Budget.from_epsilons <edgeproof.Budget.from_epsilons>`.
            allowed: Pairs that may be flipped; see :class:`~edgeproof.Constraints`, which a budget can also carry.
            forbidden: Pairs that may not be flipped.
            costs: Cost of each flip.
            labels: Labels of ``nodes``, in their order (of a mask: by ascending id). Default: the labels of ``data``.
            seed: Random seed.
            backend: Kernel backend. Default: the fastest that supports the inputs.
            progress: Whether to draw a progress bar (only if standard error is a terminal).

        Returns:
            One result, or a list of results in the order of the budgets.
        """
        target = make_target(model, data, nodes, labels, backend)
        budgets = [budget] if isinstance(budget, Budget) else list(budget)
        if not (allowed is None and forbidden is None and costs is None):
            budgets = _constrained(budgets, Constraints(allowed, forbidden, costs), target)
        results = self.on_target(target, budgets, seed=seed, progress=progress)
        if not all(result.budget.allows_flips for result in results):
            # The decorator adds a frame.
            warn("EP007", NO_FLIPS, stacklevel=3)
        return results[0] if isinstance(budget, Budget) else results

    @final
    @torch.inference_mode(False)
    def on_target(
        self, target: Target, budgets: Sequence[Budget], *, seed: int = 0, progress: bool = False
    ) -> list[AttackResult]:
        """Attack a target from :func:`make_target`, which several attacks may share.

        Args:
            target: Model, graph and nodes under attack.
            budgets: At least one budget.
            seed: Random seed.
            progress: Whether to draw a progress bar (only if standard error is a terminal).

        Returns:
            One result per budget, in their order.
        """
        if not budgets:
            raise ValueError("expected at least one budget, got none")
        budgets = [_checked_budget(budget, target) for budget in budgets]
        num_steps = sum(self.num_steps(budget) for budget in budgets)
        with progress_bar(type(self).__name__, num_steps, show=progress) as advance:
            return list(self.each_on_target(target, budgets, seed=seed, advance=advance))

    @final
    def each_on_target(
        self, target: Target, budgets: Sequence[Budget], *, seed: int = 0, advance: Advance = no_progress
    ) -> Iterator[AttackResult]:
        """Yield the results of :meth:`on_target` one by one.

        Args:
            target: Model, graph and nodes under attack.
            budgets: Budgets.
            seed: Random seed.
            advance: Function called with the number of finished steps, over all budgets.
        """
        seed = check_seed(seed)
        budgets = [_checked_budget(budget, target) for budget in budgets]
        with torch.inference_mode(False):
            _check_logits(target)
        target = target.for_one_attack()
        done = 0
        for budget in budgets:
            trace = AttackTrace(target.device, advance, done)
            with dispatch.using(target.backend), torch.inference_mode(False):
                result = self._attack(target, budget, seed, trace)
            yield result
            done += self.num_steps(budget)

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
        """Run the search without input validation or final evaluation (used inside training).

        Args:
            target: Model, graph and nodes under attack.
            budget: Budget of the attack.
            generator: Random generator on the graph's device.
            trace: Receives the loss of every step and the time of every phase.
            start: Flips to start from; only for :class:`WarmStarting` attacks.

        Returns:
            The flips in ascending order, checked against the budget, shape ``[2, flips]``.
        """
        if not (budget.allows_flips and num_usable_pairs(target.num_nodes, budget)):
            empty: Tensor = target.data.edge_index.new_empty(2, 0)
            return empty
        self.check(target, budget)
        if start is None:
            pairs = self.run(target, budget, generator=generator, trace=trace)
        elif isinstance(self, WarmStarting):
            pairs = self.run(target, budget, generator=generator, trace=trace, start=start)
        else:
            raise TypeError(f"{type(self).__name__} cannot start from given flips: pass start=None")
        flips = Pairs.of(pairs, target.num_nodes).both
        budget.check(flips)
        return flips

    def _attack(self, target: Target, budget: Budget, seed: int, trace: AttackTrace) -> AttackResult:
        start = time.perf_counter()
        generator = torch.Generator(target.device).manual_seed(seed)
        flips = self.find(target, budget, generator=generator, trace=trace)
        result = result_of_flips(self, target, budget, flips, seed=seed)
        seconds = trace.seconds
        return replace(
            result,
            trace=trace.trace,
            seconds={**seconds, "total": time.perf_counter() - start},
            path=target.path,
            queries=trace.queries,
        )


@dataclass(frozen=True, kw_only=True)
class WarmStarting(Attack):
    """Base class of attacks that can start from given flips."""

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
        """Search for flips; see :meth:`Attack.run`.

        Args:
            target: Model, graph and nodes under attack.
            budget: Budget that allows at least one flip.
            generator: Random generator on the graph's device.
            trace: Receives the loss of every step and the time of every phase.
            start: Flips to start from, within the budget, in ascending order. Default: the clean graph.
        """


@dataclass(frozen=True, kw_only=True)
class Refining(Attack):
    """Base class of attacks that improve the flips of another attack.

    A subclass has a field ``start``, the other attack.
    """

    start: Attack

    @property
    @abstractmethod
    def own_steps(self) -> int:
        """Maximum number of steps after those of the other attack."""

    @final
    def num_steps(self, budget: Budget) -> int:
        return self.start.num_steps(budget) + self.own_steps


def make_target(model: nn.Module, data: Data, nodes: Nodes, labels: Tensor | None, backend: str | None) -> Target:
    """Check the inputs of an attack and return them as a :class:`Target`."""
    check_not_caching(model)
    dispatch.check_name(backend)
    check_data(data, labels=labels is None)
    nodes = node_ids(nodes, data, labelled=labels is None)
    if labels is None:
        labels = data.y[nodes]
    elif not isinstance(labels, Tensor) or labels.dtype != torch.long or labels.shape != nodes.shape:
        raise ValueError(f"expected one int64 label per node, shape {list(nodes.shape)}, got {describe(labels)}")
    elif int(labels.min()) < 0:
        raise ValueError(f"expected labels from 0, got {int(labels.min())}")
    devices = {parameter.device for parameter in model.parameters()} | {data.x.device}
    if len(devices) > 1:
        raise ValueError(f"expected model and graph on one device, got {', '.join(sorted(map(str, devices)))}")
    model = adapt(model, data)
    return Target(model, for_model(data, model), nodes, labels, backend)


def result_of_flips(attack: Attack, target: Target, budget: Budget, flips: Tensor, *, seed: int) -> AttackResult:
    """Evaluate the model on the graph with the given flips, without trace, times and gradient path.

    Args:
        attack: Attack that found the flips.
        target: Model, graph and nodes under attack.
        budget: Budget of the attack.
        flips: Flips in ascending order, checked against the budget.
        seed: Seed of the attack.
    """
    data = flip_pairs(target.data, flips)
    logits, clean_logits = predict(target.model, data)[target.nodes], target.clean_logits
    accuracy, clean_accuracy = (float(losses.accuracy(z, target.labels)) for z in (logits, clean_logits))
    return AttackResult(
        flips=flips,
        data=data,
        nodes=target.nodes,
        accuracy=accuracy,
        clean_accuracy=clean_accuracy,
        margins=losses.margin(logits, target.labels),
        clean_margins=losses.margin(clean_logits, target.labels),
        trace=(),
        seconds={"total": 0.0},
        budget=budget,
        attack=attack,
        seed=seed,
        path="none",
        tier=target.tier,
    )


def num_usable_pairs(num_nodes: int, budget: Budget) -> int:
    """Return the number of pairs that a budget allows to flip; an estimate if too many are constrained to list them."""
    if budget.permitted is not None:
        return Candidates(budget, num_nodes).count
    return num_pairs(num_nodes if budget.usable is None else budget.usable.numel())


def _check_logits(target: Target) -> None:
    """Raise unless the model gives finite logits for the classes of all labels."""
    clean_logits = target.clean_logits
    if not bool(clean_logits.isfinite().all()):
        name = type(target.model).__name__
        raise ValueError(f"expected finite logits from {name}, got NaN or Inf on the clean graph")
    num_classes, largest_label = clean_logits.size(1), int(target.labels.max())
    if largest_label >= num_classes:
        raise ValueError(f"expected labels between 0 and {num_classes - 1}, the model's classes, got {largest_label}")


def _constrained(budgets: list[Budget], constraints: Constraints, target: Target) -> list[Budget]:
    if any(budget.constraints is not None for budget in budgets):
        raise ValueError(
            "expected constraints as arguments or in the budget, got both: pass edgeproof.Constraints to the budget"
        )
    permitted = constraints.on(target.data)
    return [replace(budget, constraints=constraints, permitted=permitted) for budget in budgets]


def _checked_budget(budget: object, target: Target) -> Budget:
    if not isinstance(budget, Budget):
        raise TypeError(f"expected an edgeproof.Budget, got {type(budget).__name__}; see Budget.from_epsilon")
    if budget.local is not None and budget.local.numel() != target.num_nodes:
        raise ValueError(
            f"expected local budgets for the {target.num_nodes} nodes of the graph, got {budget.local.numel()}"
        )
    return budget.on(target.data)
