"""Adversarial training: threat models and graphs under repeated attack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._tensors import fingerprint
from edgeproof.attacks.base import Attack, AttackTrace, Target, make_target
from edgeproof.budget import Budget, check_count, check_epsilon, check_factor
from edgeproof.graph import UNKNOWN, flip_pairs
from edgeproof.losses import Loss
from edgeproof.models import WithObjective, graph_of
from edgeproof.propagation import Adjacency

# Larger than the number of epochs of any run, so that all seeds of attacks are distinct.
_MAX_EPOCHS = 1 << 24


@dataclass(frozen=True)
class Threat:
    """Threat model of adversarial training: an attack and its budgets.

    Args:
        attack: Attack, used with its own settings; :meth:`~edgeproof.attacks.Attack.for_training` gives the paper's
            cheaper settings.
        epsilon: Global budget as a fraction of the edges at the target nodes.
        local: Local budget of each node as a fraction of its degree; None for no local budgets.
        count: Edges that ``epsilon`` is a fraction of; see :meth:`edgeproof.Budget.from_epsilon`.
    """

    attack: Attack
    epsilon: float
    local: float | None = None
    count: str = "incident"

    def __post_init__(self) -> None:
        if not isinstance(self.attack, Attack):
            raise TypeError(f"expected an attack of edgeproof.attacks to train with, got {self.attack!r}")
        check_epsilon(self.epsilon)
        if self.local is not None:
            # Budgets by node id would fit only one of the training and the validation graph.
            check_factor(self.local)
        check_count(self.count)

    @property
    def identity(self) -> list[str]:
        """Settings, with tensors replaced by hashes; equal only for equal threat models."""
        tensors = (value for value in vars(self.attack).values() if isinstance(value, Tensor))
        return [repr(self), fingerprint(tensors)]

    def budget(self, data: Data, nodes: Tensor) -> Budget:
        """Return the budget of the attack in this graph."""
        return Budget.from_epsilon(data, nodes, self.epsilon, local=self.local, count=self.count)


def make_threat(
    attack: Attack | None, epsilon: float | None, local: float | None, count: str | None, default: Threat | None = None
) -> Threat | None:
    """Build the threat model of these options; None without an attack.

    Args:
        attack: See :class:`Threat`.
        epsilon: See :class:`Threat`.
        local: See :class:`Threat`.
        count: See :class:`Threat`.
        default: Threat model if ``attack`` is None; the other options, where given, replace its budgets.

    Raises:
        ValueError: For budgets without an attack, or an attack without a budget.
    """
    options = {"epsilon": epsilon, "local": local, "count": count}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if attack is None and default is not None:
        return replace(default, **given)
    if attack is None:
        if given:
            named = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(
                f"expected an attack to train against with {named}, got None; the paper's is "
                "edgeproof.attacks.LRBCD().for_training() (--attack LRBCD)"
            )
        return None
    if epsilon is None:
        raise ValueError(f"expected epsilon, the budget of {attack!r} as a fraction of the edges, got None")
    return Threat(attack, **given)


class Adversary:
    """Repeated attack on one model and one graph.

    All parts that do not change between epochs are prepared once: the graph, the budget, and on a GPU the recorded run of the
    model.

    Args:
        threat: Threat model.
        model: Model under attack; its parameters may change between attacks.
        data: Graph.
        nodes: Target nodes.
        labels: Labels of the target nodes, in the same order.
        seed: Seed of all random choices.

    Raises:
        ValueError: If the attack does not fit the model, the graph or the budget.
    """

    def __init__(self, threat: Threat, model: nn.Module, data: Data, nodes: Tensor, labels: Tensor, seed: int) -> None:
        self.attack, self.seed = threat.attack, seed
        # Some attacks read the labels of all nodes: mask those that training does not use.
        visible = torch.full_like(data.y, UNKNOWN).index_copy_(0, nodes, labels)
        self.target = make_target(
            model, Data(x=data.x, edge_index=data.edge_index, y=visible), nodes, labels, backend=None
        )
        self.budget = threat.budget(data, nodes)
        self.attack.check(self.target, self.budget)
        loss = getattr(self.attack, "loss", None)
        if isinstance(loss, str):
            # Raises for models without a gradient with respect to edges.
            self.target.engine(loss)

    def find(self, epoch: int, budget_fraction: float, trace: AttackTrace, start: Tensor | None = None) -> Tensor:
        """Attack the model with its current parameters, and return the flips.

        Args:
            epoch: Epoch, which determines the random choices together with the seed.
            budget_fraction: Fraction of the global budget to use.
            trace: Recorder of the runtime of each phase.
            start: Initial flips; None to start without flips.

        Raises:
            torch.OutOfMemoryError: If memory runs out; the message names a block size that fits.
        """
        self.target.refresh()
        budget = self.budget
        if budget_fraction != 1:
            budget = replace(self.budget, total=round(budget_fraction * self.budget.total))
        # One seed per epoch: a resumed run needs no generator state.
        generator = torch.Generator(self.target.device).manual_seed(self.seed * _MAX_EPOCHS + epoch)
        try:
            return self.attack.find(self.target, budget, generator=generator, trace=trace, start=start)
        except torch.OutOfMemoryError as error:
            reason = str(error)
        # Outside the handler, because its traceback holds references to the tensors of the failed attempt.
        raise torch.OutOfMemoryError(f"not enough memory for {self.attack!r}: {self._memory_advice(budget)} ({reason})")

    def _memory_advice(self, budget: Budget) -> str:
        """Return a block size that fits into memory, found by halving, as advice for the error message."""
        size = getattr(self.attack, "block_size", 0) // 2
        while size >= 2:
            # Release the memory of the failed attempt, including recorded runs.
            self.target = Target(self.target.model, self.target.data, self.target.nodes, self.target.labels)
            if self.target.device.type == "cuda":
                torch.cuda.empty_cache()
            generator = torch.Generator(self.target.device).manual_seed(self.seed)
            try:
                smaller = replace(self.attack, block_size=size)  # type: ignore[call-arg]
                smaller.find(self.target, budget, generator=generator, trace=AttackTrace(self.target.device))
            except torch.OutOfMemoryError:
                size //= 2
            except ValueError:
                # The block is too small for the budget.
                break
            else:
                return f"block_size={size} would fit"
        return "use an attack on blocks of pairs, such as LRBCD, a smaller graph or a smaller model"


class Stage:
    """Training or validation stage: a model on a graph, its target nodes, and their adversary.

    Args:
        model: Model that is trained or validated.
        data: Graph.
        nodes: Target nodes.
        labels: True or pseudo-labels of the target nodes, in the same order.
        threat: Threat model; None for clean training.
        seed: Seed of the attacks.
    """

    def __init__(
        self, model: nn.Module, data: Data, nodes: Tensor, labels: Tensor, threat: Threat | None, seed: int
    ) -> None:
        self.model, self.data, self.nodes, self.labels = model, data, nodes, labels
        self.graph = graph_of(model, data)
        self.adversary = None if threat is None else Adversary(threat, model, data, nodes, labels, seed)

    def attack(
        self, epoch: int, budget_fraction: float, trace: AttackTrace, start: Tensor | None = None
    ) -> Tensor | None:
        """Return the flips of :meth:`Adversary.find`; None without an adversary."""
        return None if self.adversary is None else self.adversary.find(epoch, budget_fraction, trace, start)

    def logits(self, flips: Tensor | None = None) -> Tensor:
        """Return the logits of the target nodes on the graph with these flips."""
        logits: Tensor = self.model(self.data.x, self._perturbed(flips))
        return logits.index_select(0, self.nodes)

    def objective(self, loss: Loss, flips: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the training objective on the graph with these flips, and the logits of the target nodes.

        The objective is that of the model (:class:`~edgeproof.models.WithObjective`), if it has one, else the loss.
        """
        if isinstance(self.model, WithObjective):
            return self.model.training_objective(self.data.x, self._perturbed(flips), self.nodes, self.labels, loss)
        logits = self.logits(flips)
        return loss(logits, self.labels), logits

    def _perturbed(self, flips: Tensor | None) -> Tensor | Adjacency:
        if flips is None or not flips.numel():
            return self.graph
        if isinstance(self.graph, Adjacency):
            return self.graph.perturbed(flips, self.graph.weight.new_ones(flips.size(1)))
        return graph_of(self.model, flip_pairs(self.data, flips))
