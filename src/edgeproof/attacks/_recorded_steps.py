"""Attack steps in buffers of fixed size, recorded as one CUDA graph and replayed.

A step on a small graph consists of about a hundred kernels that run for less time than their launch takes. Here all shapes
are fixed and no operation needs a host-device sync, so a whole step is recorded once and then replayed. Failures that depend
on values (more flips than the capacity, non-finite values) are flagged on the GPU and checked every few steps
(:mod:`edgeproof.attacks._recording`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.attacks.blocks import (
    MIN_WEIGHT,
    Block,
    gaps_fit_float32,
    num_gaps,
    sample_successes,
)
from edgeproof.attacks.projections import fixed_point_budget, project_global_nosync, project_local_nosync
from edgeproof.budget import Budget
from edgeproof.kernels import dispatch
from edgeproof.kernels.cuda_graph import record
from edgeproof.propagation.adjacency import DenseGraph, FixedPairsGraph
from edgeproof.propagation.pairs import Bilinear, Pairs, Scores, contained, num_pairs, numbers_among, pairs_among

if TYPE_CHECKING:
    from edgeproof.attacks._recording import RecordingOptions
    from edgeproof.attacks.rbcd import Steps


# Records a function and returns a function that replays it. Arguments: the function, its device, the generator that it draws
# from, and whether a similar function has been recorded before.
Recorder = Callable[[Callable[[], None], torch.device, torch.Generator, bool], Callable[[], None]]


def record_cuda_graph(
    run: Callable[[], None], device: torch.device, generator: torch.Generator, warm: bool
) -> Callable[[], None]:
    """Record a function as a CUDA graph and return a function that replays it."""
    graph, _ = record(run, device, generator, warm=warm)
    return graph.replay


class RecordedSteps:
    """The loop of :func:`~edgeproof.attacks.rbcd.ascend` without a host-device sync.

    Until :meth:`record` is called, :meth:`replay` runs the same steps one by one.

    Args:
        target: Model, graph and nodes under attack.
        block: Example block. Blocks of later runs must have the same ``nodes``, and the same pairs if they are not
            resampled.
        steps: Example settings. Later runs may differ in the learning rate, and in the count if it is on the same side
            of ``options.early_steps``.
        options: Tuning options.
        keep_best: Whether to keep the block of lowest accuracy.
        capacity: Maximum number of pairs of non-zero weight. If it is half of ``steps.block_size``, only the largest weights
            are kept, as :func:`~edgeproof.attacks.resample` does. Any value serves a dense matrix of fixed pairs.
    """

    def __init__(
        self, target: Target, block: Block, steps: Steps, options: RecordingOptions, *, keep_best: bool, capacity: int
    ) -> None:
        # No reference to the target, whose cache holds this object: GPU memory must be freed together with the target.
        self.engine, self.target_nodes, self.labels = target.engine(steps.loss), target.nodes, target.labels
        self.nodes, self.num_nodes, self.num_pairs = block.nodes, target.num_nodes, num_pairs(block.num_nodes)
        self.block_size = size = steps.block_size if steps.resamples(self.num_pairs) else None
        self.greedy, self.keep_best, self.capacity = steps.greedy, keep_best, capacity
        self.check_every = options.check_every
        self.truncates = size is not None and capacity == size // 2
        device, like = target.device, block.flip
        self.generator = torch.Generator(device)
        # Inputs and outputs of a step: numbers and weights of the flipped pairs, and the budget.
        self.number = torch.zeros(capacity, dtype=torch.long, device=device)
        self.weight = like.new_zeros(capacity)
        self.learning_rate = like.new_zeros(())
        self.budget, self.total_units = like.new_zeros(1, dtype=torch.float64), self.number.new_zeros(1)
        self.local_units = self.number.new_zeros(self.num_nodes)
        # Failures that more capacity does not fix, and the largest number of pairs of non-zero weight.
        self.invalid = torch.zeros((), dtype=torch.bool, device=device)
        self.max_flips = self.number.new_zeros(())
        self.loss = like.new_zeros(())
        self.edge_numbers = _edge_numbers(self.engine.edge_key, self.nodes, self.num_nodes)
        slots = block.number.numel() if size is None else capacity + num_gaps(size)
        # Padding pairs of weight 0 are spread out, because many at one node would make its row long.
        self.padding = torch.arange(capacity, device=device) * max(1, self.num_pairs // capacity) % self.num_pairs
        if size is None:
            self.fixed = block.number, block.pairs, self.engine.sign(block.pairs, True)
        self.dense: DenseGraph | FixedPairsGraph | None = None
        if uses_dense_matrix(target, block, steps, options):
            graph = self.engine.adjacency
            self.dense = FixedPairsGraph(graph, *block.pairs.both) if size is None else graph.dense_graph
        self.flip = like.new_zeros(slots)
        if keep_best:
            self.best_accuracy = like.new_zeros(())
            self.best = self.number.new_zeros(slots), like.new_zeros(slots), like.new_zeros(slots)
        # Independent of the capacity, which must not influence the result.
        num_scored = block.number.numel() if size is None else num_gaps(size)
        self.from_table = num_scored * options.table_ratio >= self.num_nodes**2
        # Pair numbers and signs of the last resampled block, if pairs of weight zero are needed, too.
        whole = size is not None and (steps.keep_block or self.truncates)
        self.last = (self.number.new_zeros(slots), like.new_zeros(slots)) if whole else None
        self._run_step: Callable[[], None] = self._step

    def begin(self, block: Block, budget: Budget, seed: int) -> None:
        """Prepare the first step.

        Args:
            block: Initial block.
            budget: Budget to project onto.
            seed: Seed of the resampled pairs.
        """
        total, local = fixed_point_budget(budget, self.num_nodes, self.flip.numel(), self.local_units.device)
        self.budget.fill_(budget.total)
        self.total_units.copy_(total)
        self.local_units.copy_(local)
        self._start(block.number, block.flip, seed)

    def follow(self, earlier: RecordedSteps, seed: int) -> None:
        """Continue after the steps of another recording (or of this one), which may have a different capacity."""
        self.budget.copy_(earlier.budget)
        self.total_units.copy_(earlier.total_units)
        self.local_units.copy_(earlier.local_units)
        flipped = (earlier.number, earlier.weight) if self.block_size else (self.fixed[0], earlier.flip)
        self._start(*flipped, seed)

    def record(self, recorder: Recorder = record_cuda_graph, *, warm: bool = False) -> None:
        """Record a step for :meth:`replay`.

        Args:
            recorder: Function that records.
            warm: Whether a step that differs only in its capacity has been recorded before.
        """
        self._run_step = recorder(self._step, self.number.device, self.generator, warm)

    def replay(self, first: int, last: int, steps: Steps, trace: AttackTrace) -> bool:
        """Run the steps ``first, ..., last`` and return whether all of them succeeded."""
        for step in range(first, last + 1):
            self.learning_rate.fill_(steps.learning_rate(step))
            self._run_step()
            trace.step(self.loss.clone())
            if step % self.check_every == 0 and self._failed():
                break
        trace.phase("recorded steps")
        return not self._failed()

    def block(self, initial: Block) -> Block:
        """Return the block after the last step; pairs of weight zero may be missing unless ``steps.keep_block``."""
        if self.block_size is None:
            return initial.with_flip(self.flip.clone())
        if self.last is not None:
            number, sign = self.last
            return self._block(number, self.flip, sign != 0)
        return self._block(self.number, self.weight, self.weight > 0)

    @property
    def best_block(self) -> tuple[Block, float]:
        """Block of lowest accuracy at the start of any step, and that accuracy."""
        number, flip, is_pair = self.best
        return self._block(number, flip, is_pair > 0), float(self.best_accuracy)

    def resample(self, size: int) -> tuple[Tensor, Pairs, Tensor]:
        """Draw a new block around the flipped pairs; see :func:`edgeproof.attacks.resample`.

        Returns:
            Numbers, pairs and signs (see :meth:`EdgeGradientEngine.sign`). Flipped pairs come first, then the new pairs in
            ascending order. Slots without a pair have sign 0.
        """
        is_flipped = self.weight > 0
        num_kept = is_flipped.sum()
        probability = (size - num_kept).double() / (self.num_pairs - num_kept)
        new = sample_successes(
            num_gaps(size),
            torch.log1p(-probability),
            self.generator,
            single_precision=gaps_fit_float32(size, self.num_pairs),
        ).sub_(1)
        # Practically never: the sampled gaps do not cover all pairs.
        self.invalid.logical_or_(new[-1] < self.num_pairs)

        slots, sign = self.flip.numel(), self.flip.new_empty(self.flip.numel() + 1)
        flipped_sign = torch.where(contained(self.number, self.edge_numbers), -1.0, 1.0)
        sign[: self.capacity] = torch.where(is_flipped, flipped_sign, 0.0)
        sign[self.capacity : slots] = (new < self.num_pairs).to(sign.dtype)
        # New pairs that are edges have sign -1, those that are flipped already 0; writes that match no slot go to the last one.
        for few, value, mask in ((self.edge_numbers, -1.0, None), (self.number, 0.0, is_flipped)):
            place = torch.searchsorted(new, few)
            matches = new[place.clamp(max=new.numel() - 1)] == few
            matches = matches if mask is None else matches & mask
            sign.scatter_(0, torch.where(matches, place + self.capacity, slots), value)

        number = torch.cat([self.number, new.clamp_(max=self.num_pairs - 1)])
        self.flip.zero_()
        self.flip[: self.capacity].copy_(self.weight)
        return number, self._pairs(number), sign[:slots]

    def _failed(self) -> bool:
        return bool(self.invalid | (self.max_flips > self.capacity))

    def _start(self, number: Tensor, flip: Tensor, seed: int) -> None:
        """Fill the buffers that the first step reads."""
        self.invalid.fill_(False)
        self.max_flips.zero_()
        self.generator.manual_seed(seed)
        if self.keep_best:
            self.best_accuracy.fill_(math.inf)
        if self.block_size is None:
            self.flip.copy_(flip)
        # The arguments may be the buffers that are written.
        self._keep_flipped(number.clone(), flip.clone())

    def _step(self) -> None:
        """Run one step: gradient at the flipped pairs, scores of all pairs, weight update and projection."""
        number, pairs, sign = self.fixed if self.block_size is None else self.resample(self.block_size)
        loss, logits, scores = self._run_model()
        assert scores is not None
        self.loss.copy_(loss)
        if self.keep_best:
            self._update_best(losses.accuracy(logits[self.target_nodes], self.labels), number, sign)
        if self.last is not None:
            for buffer, value in zip(self.last, (number, sign), strict=True):
                buffer.copy_(value)
        terms = [self._scored(score, pairs) for score in scores]
        gradient = (sum(terms[1:], terms[0]) if terms else torch.zeros_like(sign)) * sign
        updated = torch.addcmul(self.flip, gradient, self.learning_rate)
        if self.greedy:
            flip, valid = project_local_nosync(updated, pairs, self.total_units, self.local_units)
        else:
            flip, valid = project_global_nosync(updated, self.budget)
        self.invalid.logical_or_(~valid)
        self.flip.copy_(flip)
        self._keep_flipped(number, flip)

    def _run_model(self) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Return loss, logits and gradient terms at the current weights."""
        if isinstance(self.dense, FixedPairsGraph):
            return self.engine.run_over(self.dense.perturbed(self.flip))
        flipped = self._pairs(torch.where(self.weight > 0, self.number, self.padding)).both
        if self.dense is not None:
            return self.engine.run_over(self.dense.perturbed(flipped, self.weight))
        return self.engine.run_on_tape(flipped, self.weight)

    def _scored(self, score: Scores, pairs: Pairs) -> Tensor:
        return (score.at_many if self.from_table else score.at)(pairs, self.engine.backend)

    def _keep_flipped(self, number: Tensor, flip: Tensor) -> None:
        """Gather the pairs of non-zero weight, in order, into the fixed-size buffers; the rest gets weight 0."""
        if isinstance(self.dense, FixedPairsGraph):
            return
        if not flip.numel():
            self.weight.zero_()
            return
        is_flipped = flip > MIN_WEIGHT
        if self.truncates and self.capacity < flip.numel():
            # As resample does: at most half of the block is kept.
            largest = flip.topk(self.capacity, sorted=False).indices
            is_flipped &= torch.zeros_like(is_flipped).index_fill_(0, largest, True)
        count = dispatch.compact(is_flipped, number, flip, self.number, self.weight, backend=self.engine.backend)
        torch.maximum(self.max_flips, count, out=self.max_flips)

    def _update_best(self, accuracy: Tensor, number: Tensor, sign: Tensor) -> None:
        better = accuracy < self.best_accuracy
        for buffer, value in zip(self.best, (number, self.flip, sign.abs()), strict=True):
            buffer.copy_(torch.where(better, value, buffer))
        self.best_accuracy.copy_(torch.minimum(accuracy, self.best_accuracy))

    def _pairs(self, number: Tensor) -> Pairs:
        """Convert numbers to pairs, here in any order and with repeats among those of weight 0."""
        return pairs_among(number, self.num_nodes, self.nodes)

    def _block(self, number: Tensor, flip: Tensor, mask: Tensor) -> Block:
        number, order = number[mask].sort()
        return Block(number, self._pairs(number), flip[mask][order], self.nodes)


def uses_dense_matrix(target: Target, block: Block, steps: Steps, options: RecordingOptions) -> bool:
    """Whether steps run over a dense adjacency matrix, whatever their capacity.

    A dense matrix pays off if many weights are non-zero: with the global projection, if all pairs are updated at once or
    blocks are large and steps are few. It does not pay off for attention, whose cost per entry is much higher.
    """
    total = num_pairs(block.num_nodes)
    if steps.resamples(total):
        assert steps.block_size is not None
        large_blocks = steps.block_size * options.table_ratio >= target.num_nodes**2
        many = steps.count <= options.early_steps and large_blocks
    else:
        many = block.nodes is None and block.number.numel() == total
    if steps.greedy or not many or target.num_nodes > options.max_dense_nodes:
        return False
    scores = target.engine(steps.loss)().scores
    return all(isinstance(score, Bilinear) for score in scores)


def _edge_numbers(key: Tensor, nodes: Tensor | None, num_nodes: int) -> Tensor:
    """Convert ascending edge keys to ascending linear indices; only of pairs among ``nodes`` if given."""
    pairs = Pairs.from_key(key, num_nodes)
    if nodes is None:
        return pairs.number
    return numbers_among(pairs[contained(pairs.u, nodes) & contained(pairs.v, nodes)], nodes)
