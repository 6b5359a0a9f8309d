"""The adversary of adversarial training: it attacks one graph again and again while the model changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._tensors import fingerprint
from edgeproof.attacks.base import Attack, AttackTrace, Target, WarmStarting, make_target
from edgeproof.budget import Budget, check_count, check_epsilon, check_factor
from edgeproof.graph import UNKNOWN
from edgeproof.training.config import TrainConfig

# More epochs than any run has.
_EPOCHS = 1 << 24


@dataclass(frozen=True)
class Threat:
    """What training defends against.

    Args:
        attack: used as it is; :meth:`~edgeproof.attacks.Attack.for_training` gives the paper's cheaper settings.
        epsilon: its budget, as a share of the edges at the nodes that count.
        local: the budget of each node as a share of its degree; none for no local budgets.
        count: which edges ``epsilon`` is a share of; see :meth:`edgeproof.Budget.from_epsilon`.
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
            # Training and validation graph differ, so a budget for each node by name would fit only one of them.
            check_factor(self.local)
        check_count(self.count)

    @property
    def identity(self) -> list[str]:
        """What tells this threat from any other: its settings, and what its tensors hold."""
        tensors = (value for value in vars(self.attack).values() if isinstance(value, Tensor))
        return [repr(self), fingerprint(tensors)]

    def budget(self, data: Data, nodes: Tensor) -> Budget:
        """What the adversary may change in this graph."""
        return Budget.from_epsilon(data, nodes, self.epsilon, local=self.local, count=self.count)


def make_threat(
    attack: Attack | None, epsilon: float | None, local: float | None, count: str | None, usual: Threat | None = None
) -> Threat | None:
    """The threat of these options, if there is one; raises for half of one.

    Args:
        attack: see :class:`Threat`.
        epsilon: likewise.
        local: likewise.
        count: likewise.
        usual: what holds where no attack is named; its budgets may be named without it.
    """
    options = {"epsilon": epsilon, "local": local, "count": count}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if attack is None and usual is not None:
        return replace(usual, **given)
    if attack is None:
        if given:
            named = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(
                f"expected an attack to train against beside {named}, got none; edgeproof.attacks.LRBCD().for_training() "
                "(--attack LRBCD) is the paper's"
            )
        return None
    if epsilon is None:
        raise ValueError(f"expected epsilon, the budget of {attack!r} as a share of the edges, got none")
    return Threat(attack, **given)


def check_threatened(config: TrainConfig, threat: Threat | None) -> None:
    """Raise for settings that mean nothing without an attack, or without one that can begin at its last flips."""
    if config.warm_start and (threat is None or not isinstance(threat.attack, WarmStarting)):
        raise ValueError(f"expected warm_start only with PGD, PRBCD or LRBCD, got {threat and threat.attack!r}")
    for name in ("clean_share", "epsilon_warmup"):
        if threat is None and getattr(config, name):
            raise ValueError(f"expected {name} only beside an attack to train against, got none")


class Adversary:
    """A threat to one model on one graph.

    What does not change between epochs is prepared once: the graph, the budget, and on a GPU the recorded run of the model.

    Args:
        threat: what it may do.
        model: whom it attacks; its parameters may change between attacks.
        data: the graph.
        nodes: the nodes that count.
        labels: their labels.
        seed: of all that is random.
    """

    def __init__(self, threat: Threat, model: nn.Module, data: Data, nodes: Tensor, labels: Tensor, seed: int) -> None:
        self.attack, self.seed = threat.attack, seed
        # An adversary knows no more labels than training does: some attacks look at those of other nodes.
        known = torch.full_like(data.y, UNKNOWN).index_copy_(0, nodes, labels)
        self.target = make_target(
            model, Data(x=data.x, edge_index=data.edge_index, y=known), nodes, labels, backend=None
        )
        self.budget = threat.budget(data, nodes)
        self.attack.check(self.target, self.budget)
        loss = getattr(self.attack, "loss", None)
        if isinstance(loss, str):
            # This is where a model turns out to be none that can be attacked.
            self.target.engine(loss)

    def find(self, epoch: int, share: float, trace: AttackTrace, start: Tensor | None = None) -> Tensor:
        """Flips against the model as it is.

        Args:
            epoch: every epoch has random choices of its own.
            share: of the budget.
            trace: takes note of times.
            start: flips to begin at; none to begin with nothing.
        """
        self.target.refresh()
        budget = self.budget if share == 1 else Budget(round(share * self.budget.total), self.budget.local)
        # A seed for every epoch, so that an interrupted run needs no generator's state to go on.
        generator = torch.Generator(self.target.device).manual_seed(self.seed * _EPOCHS + epoch)
        try:
            return self.attack.find(self.target, budget, generator=generator, trace=trace, start=start)
        except torch.OutOfMemoryError as error:
            reason = str(error)
        # Outside the handler, which would hold on to all that the failed try had allocated.
        raise torch.OutOfMemoryError(f"not enough memory for {self.attack!r}: {self._advice(budget)} ({reason})")

    def _advice(self, budget: Budget) -> str:
        """The largest block, by halving, with which the attack was seen to fit."""
        size = getattr(self.attack, "block_size", 0) // 2
        while size >= 2:
            # What the failed try held must go, the recorded run included.
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
                # The block has become too small for the budget.
                break
            else:
                return f"block_size={size} would fit"
        return "use an attack that looks at blocks of pairs, such as LRBCD, on a smaller graph or with a smaller model"
