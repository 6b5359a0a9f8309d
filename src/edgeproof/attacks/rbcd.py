r"""PGD, PR-BCD and LR-BCD: projected gradient ascent on the weights of edge flips.

The attacks share the loop of the paper's section 4 (:func:`ascend`), which repeats three steps for relaxed flips
:math:`P_t \in [0, 1]^b` of a block of :math:`b` pairs:

1. Resample the block: keep the flipped pairs, draw the others at random.
2. Take a gradient step, :math:`S_t = P_{t-1} + \alpha_t \nabla \ell(P_{t-1})`.
3. Project onto the budget, :math:`P_t = \Pi(S_t)`: by :func:`~edgeproof.attacks.project_global` without local budgets, by the
   paper's Algorithm 1 (:func:`~edgeproof.attacks.project_local`) with them.

Afterwards the relaxed flips are discretized by sampling (:func:`discretize_by_sampling`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._checks import check_bool, check_int, check_positive
from edgeproof.attacks._recording import run_recorded
from edgeproof.attacks.base import AttackTrace, Target, WarmStarting, num_usable_pairs
from edgeproof.attacks.blocks import Block, resample, sample_block
from edgeproof.attacks.candidates import Candidates
from edgeproof.attacks.projections import discretize_rows, project_global, project_global_costs, project_local
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import Pairs, num_pairs, numbers_among

# PGD holds a weight, a score and both node ids of every pair: a few gigabytes.
_MAX_PGD_PAIRS = 1 << 27


@dataclass(frozen=True)
class Steps:
    r"""Settings of :func:`ascend`.

    Args:
        count: Number of steps.
        loss: Name of the loss :math:`\ell` to maximize.
        learning_rate: Learning rate :math:`\alpha_t` of step :math:`t = 1, 2, \dots`
        greedy: Whether to project with :func:`~edgeproof.attacks.project_local` (Algorithm 1) instead of
            :func:`~edgeproof.attacks.project_global`.
        block_size: Size of the block that is resampled after every step but the last. Default: keep the pairs.
        keep_block: Whether the last block is needed with its pairs of weight zero.
    """

    count: int
    loss: str
    learning_rate: Callable[[int], float]
    greedy: bool
    block_size: int | None = None
    keep_block: bool = False

    def resamples(self, num_pairs: int) -> bool:
        """Whether blocks are resampled on a graph with this many pairs; a block of all pairs never is."""
        return self.block_size is not None and self.block_size < num_pairs


@dataclass
class Best:
    """Block of lowest accuracy so far.

    Args:
        block: The block; None before the first update.
        accuracy: Accuracy under its relaxed flips.
    """

    block: Block | None = None
    accuracy: float = math.inf

    def update(self, block: Block, accuracy: Tensor | float) -> None:
        """Replace the block if the accuracy is lower."""
        accuracy = float(accuracy)
        if accuracy < self.accuracy:
            self.block, self.accuracy = block, accuracy


def ascend(
    target: Target,
    block: Block,
    budget: Budget,
    steps: Steps,
    *,
    generator: torch.Generator,
    trace: AttackTrace,
    best: Best | None = None,
) -> Block:
    """Maximize the loss over the flip weights of a block: the loop of PGD, PR-BCD and LR-BCD.

    On a GPU, steps on a small graph are recorded once as a CUDA graph and replayed (:mod:`edgeproof.attacks._recording`).

    Args:
        target: Model, graph and nodes under attack.
        block: Initial block :math:`P_0`.
        budget: Budget to project onto.
        steps: Settings of the loop.
        generator: Random generator for resampling.
        trace: Receives the loss of every step and the time of every phase.
        best: Updated with every block and its accuracy.

    Returns:
        The last block; pairs of weight zero may be missing unless ``steps.keep_block``.
    """
    engine = target.engine(steps.loss)
    result = None
    # Recorded steps draw from all pairs of usable nodes.
    if block.candidates is None and target.records_steps(steps.loss):
        result = run_recorded(target, block, budget, steps, generator=generator, trace=trace, best=best)
    if result is None:
        for step in range(1, steps.count + 1):
            gradient = engine(*block.flipped)
            if best is not None:
                # Appendix, attack settings of PR-BCD: the state of the best epoch is recovered.
                best.update(block, target.accuracy(gradient.logits))
            trace.step(gradient.loss)
            trace.phase("forward and backward")
            # Sec. 4, step (2): S_t <- P_{t-1} + alpha * grad l(P_{t-1})
            s = torch.add(block.flip, gradient.at(block.pairs), alpha=steps.learning_rate(step))
            # Free the memory before the projection and the next step.
            del gradient
            trace.phase("scores")
            # Sec. 4, step (3): P_t <- Pi(S_t)
            block = block.with_flip(_project(s, block.pairs, budget, steps.greedy))
            trace.phase("projection")
            if steps.block_size is not None and step < steps.count:
                # Sec. 4, step (1): all pairs of weight zero, and at least half of the block, are resampled.
                block = resample(block, steps.block_size, generator=generator)
                trace.phase("resampling")
        result = block
    if best is not None and steps.count:
        best.update(result, target.accuracy(engine.logits(*result.flipped)))
    return result


def _project(s: Tensor, pairs: Pairs, budget: Budget, greedy: bool) -> Tensor:
    if greedy:
        return project_local(s, pairs, budget)
    if budget.unit_costs:
        return project_global(s, budget.total)
    return project_global_costs(s, budget.cost(pairs.both), budget.total)


def initial_block(
    target: Target, budget: Budget, size: int, start: Tensor | None, *, generator: torch.Generator
) -> Block:
    """Sample the first block; flips to start from are part of it, with weight 1."""
    n, nodes, dtype = target.num_nodes, budget.usable, target.data.x.dtype
    candidates = None if budget.permitted is None else Candidates(budget, n)
    if start is None or not start.numel():
        return sample_block(n, size, generator=generator, nodes=nodes, candidates=candidates, dtype=dtype)
    pairs = Pairs(start[0], start[1], n)
    # Pairs are numbered among the usable nodes.
    number, ones = numbers_among(pairs, nodes), torch.ones_like(start[0], dtype=dtype)
    return resample(Block(number, pairs, ones, nodes, candidates), size, generator=generator)


def discretize_by_sampling(
    target: Target, block: Block, budget: Budget, *, loss: str, samples: int, generator: torch.Generator
) -> Tensor:
    """Return the strongest of several discretizations of a block's relaxed flips, all within the budget.

    The first candidate keeps the pairs of largest weight; the others keep each pair with its weight as the probability, and
    drop the pairs of smallest weight that do not fit the budget.
    """
    pairs, p = block.flipped
    drawn = p * (torch.rand(samples - 1, p.numel(), generator=generator, device=p.device) < p)
    rows = discretize_rows(torch.cat([p[None], drawn]), pairs, budget)
    candidates = pairs.both[:, torch.cat(rows)].split([row.numel() for row in rows], dim=1)
    return target.strongest(candidates, loss)


class ProjectedAscent(WarmStarting):
    """Base class of PGD, PR-BCD and LR-BCD: one or two stages of :func:`ascend`, then discretization."""

    # Not a dataclass: subclasses declare these fields, in the order of their repr.
    steps: int
    samples: int
    loss: str
    keep_best: bool = False

    @abstractmethod
    def stages(self, num_nodes: int, budget: Budget) -> list[Steps]:
        """Return the settings of every stage."""

    def num_steps(self, budget: Budget) -> int:
        return self.steps

    def run(
        self,
        target: Target,
        budget: Budget,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
        start: Tensor | None = None,
    ) -> Tensor:
        stages = self.stages(target.num_nodes, budget)
        size = stages[0].block_size or max(num_usable_pairs(target.num_nodes, budget), 2)
        block = initial_block(target, budget, size, start, generator=generator)
        best = Best() if self.keep_best else None
        for steps in stages:
            block = ascend(target, block, budget, steps, generator=generator, trace=trace, best=best)
            if best is not None and best.block is not None:
                block = best.block
        flips = discretize_by_sampling(target, block, budget, loss=self.loss, samples=self.samples, generator=generator)
        trace.phase("choice")
        return flips


@dataclass(frozen=True, kw_only=True)
class PGD(ProjectedAscent):
    r"""Projected gradient ascent on the weights of all pairs at once (Xu et al., 2019).

    The learning rate of step :math:`t` is :math:`\alpha_t = \mathrm{lr} \cdot \Delta / \sqrt t`. Memory grows with the number
    of pairs; for graphs of many thousand nodes use :class:`PRBCD`.

    Args:
        steps: Number of steps.
        lr: Base learning rate.
        samples: Number of discretizations tried at the end: the largest weights, and random draws.
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.csbm("homophilous", num_nodes=100, p=0.1, q=0.05), torch.arange(50)
    >>> result = PGD(steps=10)(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    lr: float = 0.1
    samples: int = 20
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_int(1, steps=self.steps, samples=self.samples)
        check_positive(lr=self.lr)
        losses.get(self.loss)

    def for_training(self) -> PGD:
        """Return the attack with 10 steps."""
        return replace(self, steps=10)

    def check(self, target: Target, budget: Budget) -> None:
        count = num_usable_pairs(target.num_nodes, budget)
        if count > _MAX_PGD_PAIRS:
            raise ValueError(
                f"expected a graph with at most {_MAX_PGD_PAIRS:,} pairs of nodes, because PGD holds a weight for each, got "
                f"{count:,}: use PRBCD or LRBCD"
            )

    def stages(self, num_nodes: int, budget: Budget) -> list[Steps]:
        lr = self.lr * budget.total
        return [Steps(self.steps, self.loss, lambda t: lr / math.sqrt(t), greedy=budget.local is not None)]


@dataclass(frozen=True, kw_only=True)
class PRBCD(ProjectedAscent):
    r"""Projected gradient ascent on a random block of pairs, resampled after every step (Geisler et al., 2021).

    The learning rate is scaled to the problem,
    :math:`\alpha = \mathrm{lr} \cdot \max(\log_2(\#\mathrm{pairs} / b), 1) \cdot \Delta / 2n`. After ``steps`` steps, the best
    block is restored and fine-tuned for ``fine_tune_steps`` steps with :math:`\alpha / \sqrt t` and without resampling. With
    local budgets, the projection of LR-BCD replaces the Euclidean one.

    Args:
        steps: Number of steps with resampling.
        fine_tune_steps: Number of steps without resampling.
        block_size: Number of pairs per block.
        lr: Base learning rate.
        samples: Number of discretizations tried at the end: the largest weights, and random draws.
        keep_best: Whether to restore the block of lowest accuracy; otherwise the last block is used.
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = PRBCD(steps=10, fine_tune_steps=5, block_size=10_000)
    >>> result = attack(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    fine_tune_steps: int = 100
    block_size: int = 500_000
    lr: float = 100.0
    samples: int = 20
    keep_best: bool = True
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_int(1, steps=self.steps, samples=self.samples)
        check_int(0, fine_tune_steps=self.fine_tune_steps)
        check_int(2, block_size=self.block_size)
        check_positive(lr=self.lr)
        check_bool(keep_best=self.keep_best)
        losses.get(self.loss)

    def for_training(self) -> PRBCD:
        """Return the attack with 20 steps on blocks of a million pairs, without fine-tuning."""
        return replace(self, steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False)

    def check(self, target: Target, budget: Budget) -> None:
        _check_block_size(self.block_size, target, budget)

    def num_steps(self, budget: Budget) -> int:
        return self.steps + self.fine_tune_steps

    def stages(self, num_nodes: int, budget: Budget) -> list[Steps]:
        lr = self.lr * max(math.log2(num_pairs(num_nodes) / self.block_size), 1.0) * budget.total / (2 * num_nodes)
        greedy = budget.local is not None
        if not self.fine_tune_steps:
            return [Steps(self.steps, self.loss, lambda t: lr, greedy, self.block_size)]
        return [
            Steps(self.steps, self.loss, lambda t: lr, greedy, self.block_size, keep_block=True),
            Steps(self.fine_tune_steps, self.loss, lambda t: lr / math.sqrt(t), greedy, keep_block=True),
        ]


@dataclass(frozen=True, kw_only=True)
class LRBCD(ProjectedAscent):
    r"""Gradient ascent on a random block of pairs with the greedy projection onto local and global budgets (Algorithm 1).

    The projection is :func:`~edgeproof.attacks.project_local`. Without local budgets, it keeps the global budget only.

    Args:
        steps: Number of steps, with resampling after each.
        block_size: Number of pairs per block.
        lr: Learning rate. The paper's value, 100, is meant for local budgets; without them, 3 makes a far stronger attack
            (``edgeproof reproduce run fig14``).
        samples: Number of discretizations tried at the end: the largest weights, and random draws.
        loss: Name of the loss to maximize; see :mod:`edgeproof.losses`.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> budget = Budget.from_epsilon(data, nodes, 0.25, local=0.5)
    >>> result = LRBCD(steps=10, block_size=10_000)(models.build("GCN", 21, 2, seed=0), data, nodes, budget)
    >>> result.flips.size(1) <= budget.total, result.accuracy <= result.clean_accuracy
    (True, True)
    """

    steps: int = 400
    block_size: int = 500_000
    lr: float = 100.0
    samples: int = 20
    loss: str = "tanh_margin"

    def __post_init__(self) -> None:
        check_int(1, steps=self.steps, samples=self.samples)
        check_int(2, block_size=self.block_size)
        check_positive(lr=self.lr)
        losses.get(self.loss)

    def for_training(self) -> LRBCD:
        """Return the attack with 20 larger steps on blocks of a million pairs."""
        return replace(self, steps=20, block_size=1_000_000, lr=2000.0)

    def check(self, target: Target, budget: Budget) -> None:
        _check_block_size(self.block_size, target, budget)

    def stages(self, num_nodes: int, budget: Budget) -> list[Steps]:
        return [Steps(self.steps, self.loss, lambda t: self.lr, greedy=True, block_size=self.block_size)]


def _check_block_size(block_size: int, target: Target, budget: Budget) -> None:
    # Half of a block is resampled, so the budget must fit into the other half.
    usable = num_usable_pairs(target.num_nodes, budget)
    if block_size < usable and block_size < 2 * min(budget.total, usable):
        raise ValueError(f"expected block_size >= twice the budget of {budget.total} flips, got {block_size}")
