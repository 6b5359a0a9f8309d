"""Ascent over a block of pairs in buffers of fixed size, which a GPU replays as one CUDA graph.

A step of an attack on a small graph is some hundred short kernels: a GPU is done with each before the host has launched the
next. Here no size depends on a value and the host asks for none, so that a whole step is recorded once and then replayed. What
cannot be known beforehand (more flips than there is room for, values that are not finite) is noted on the GPU and looked at
later. The first steps have the most flips, often very many: a recording with much room serves them, one with less the others.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof._tensors import fingerprint
from edgeproof.attacks.blocks import LEAST_WEIGHT, Block, draw_numbers, gaps, is_coarse, pairs_among
from edgeproof.attacks.projections import boxes, project_global_unattended, take_greedily
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.watch import Watch
from edgeproof.budget import Budget
from edgeproof.propagation.captured import record
from edgeproof.propagation.pair_scores import Scores
from edgeproof.propagation.pairs import Pairs, contained, num_pairs

# Flips that there is room for, at least, and for each that the budget allows.
_LEAST_CAPACITY, _PER_FLIP = 1024, 2
# From so many steps on recording pays off, if it serves several runs, or one alone.
_WORTH_RECORDING, _WORTH_RECORDING_ONCE = 8, 50
# Steps that parts of a run begin with, each with room of its own; and steps after which a look is taken at what was noted.
_PARTS, _LOOK_EVERY = (1, 3, 6, 12), 32
# Values that the greedy choice looks at in a round, about, and rounds that it has beside those that the flips need.
_PER_ROUND, _MORE_ROUNDS = 4096, 4
# If at least one in so many entries of the adjacency matrix is asked for, a table of all scores is made faster than theirs.
_TABLE = 16


class RecordedAscent:
    """The loop of :func:`~edgeproof.attacks.ascent.ascend` without a word to the host.

    On a CPU the same steps run one after the other, unrecorded.

    Args:
        target: what is under attack.
        block: of a kind with those that it will be run on: from the same nodes, and if ``size`` is none, of the same pairs.
        steps: of a kind with those that it will make; only their number and learning rate may differ.
        keep_best: whether to remember the block of lowest accuracy.
        capacity: most pairs of non-zero weight.
    """

    def __init__(
        self,
        target: Target,
        block: Block,
        steps: Steps,
        *,
        keep_best: bool,
        capacity: int,
    ) -> None:
        # Not the target itself, which holds its recordings: their memory must go when it goes.
        self.engine, self.counted, self.labels = target.engine(steps.loss), target.nodes, target.labels
        self.nodes, self.num_nodes, self.total = block.nodes, target.num_nodes, num_pairs(block.num_nodes)
        self.size = size = steps.size if steps.draws(self.total) else None
        self.greedy, self.keep_best, self.capacity = steps.greedy, keep_best, capacity
        self.rounds = _MORE_ROUNDS + capacity // _PER_ROUND
        device, like = target.device, block.flip
        self.generator = torch.Generator(device)
        # What a step reads and writes.
        self.number = torch.zeros(capacity, dtype=torch.long, device=device)
        self.weight = like.new_zeros(capacity)
        self.learning_rate = like.new_zeros(())
        self.limit, self.box = like.new_zeros(1, dtype=torch.float64), self.number.new_zeros(1)
        self.room = self.number.new_zeros(self.num_nodes)
        self.unsure, self.most = torch.zeros((), dtype=torch.bool, device=device), self.number.new_zeros(())
        self.loss = like.new_zeros(())
        self.edges = _numbers(self.engine.edge_key, self.nodes, self.num_nodes)
        slots = block.number.numel() if size is None else capacity + gaps(size)
        self.everyone = torch.arange(self.num_nodes, device=device)
        self.places = torch.arange(1, capacity + 1, dtype=torch.int32, device=device)
        # Pairs of weight 0 that fill up those of non-zero weight: far apart, for many at one node would make its row long.
        self.idle = torch.arange(capacity, device=device) * max(1, self.total // capacity) % self.total
        if size is None:
            self.fixed = block.number, block.pairs, self.engine.sign(block.pairs, True)
        self.flip = like.new_zeros(slots)
        if keep_best:
            self.best_accuracy = like.new_zeros(())
            self.best = self.number.new_zeros(slots), like.new_zeros(slots), like.new_zeros(slots)
        # The last block, number and sign, where it is drawn and needed whole.
        self.last = (self.number.new_zeros(slots), like.new_zeros(slots)) if size and steps.keep_block else None
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(self, block: Block, budget: Budget, generator: torch.Generator) -> None:
        """Be ready for the first step; see :func:`~edgeproof.attacks.ascent.ascend` for the arguments."""
        total, room = boxes(budget, self.num_nodes, self.flip.numel(), self.room.device)
        self.limit.fill_(budget.total)
        self.box.fill_(total)
        self.room.copy_(room)
        self._start(block.number, block.flip, generator)

    def follow(self, earlier: RecordedAscent, generator: torch.Generator) -> None:
        """Be ready for the steps after those that another recording, or this one, has made; its room may be another."""
        for mine, known in ((self.limit, earlier.limit), (self.box, earlier.box), (self.room, earlier.room)):
            mine.copy_(known)
        flipped = (earlier.number, earlier.weight) if self.size else (self.fixed[0], earlier.flip)
        self._start(*flipped, generator)

    def replay(self, first: int, last: int, steps: Steps, watch: Watch) -> bool:
        """Make the steps of these numbers; whether all went well."""
        for step in range(first, last + 1):
            self.learning_rate.fill_(steps.learning_rate(step))
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
            watch.step(self.loss.clone())
            if step % _LOOK_EVERY == 0 and self._failed():
                break
        watch.lap("recorded steps")
        return not self._failed()

    def block(self, begun: Block) -> Block:
        """What the steps have led to, from this block; perhaps only the pairs that are flipped."""
        if self.size is None:
            return begun.with_flip(self.flip.clone())
        if self.last is not None:
            number, sign = self.last
            return self._block(number, self.flip, sign != 0)
        return self._block(self.number, self.weight, self.weight > 0)

    @property
    def best_block(self) -> tuple[Block, float]:
        """The block of lowest accuracy before any of the steps, and this accuracy."""
        number, flip, there = self.best
        return self._block(number, flip, there > 0), float(self.best_accuracy)

    def _failed(self) -> bool:
        return bool(self.unsure | (self.most > self.capacity))

    def _start(self, number: Tensor, flip: Tensor, generator: torch.Generator) -> None:
        """Fill the other buffers that the first step reads."""
        self.unsure.fill_(False)
        self.most.zero_()
        seed = torch.randint(1 << 62, (1,), generator=generator, device=generator.device)
        self.generator.manual_seed(int(seed))
        if self.keep_best:
            self.best_accuracy.fill_(math.inf)
        if self.size is None:
            self.flip.copy_(flip)
        self._keep(number, flip)

    def record(self) -> None:
        """Record a step, for :meth:`replay`; on a GPU only."""
        self._graph, _ = record(self._step, self.number.device, self.generator)

    def _step(self) -> None:
        """One step: what is flipped is run, all pairs are scored, and the weights are moved and projected."""
        number, pairs, sign = self.fixed if self.size is None else self._drawn(self.size)
        flipped = self._pairs(torch.where(self.weight > 0, self.number, self.idle)).both
        loss, logits, scores = self.engine.run_on_tape(flipped, self.weight)
        assert scores is not None
        self.loss.copy_(loss)
        if self.keep_best:
            self._remember(losses.accuracy(logits[self.counted], self.labels), number, sign)
        if self.last is not None:
            for kept, now in zip(self.last, (number, sign), strict=True):
                kept.copy_(now)
        terms = [self._scored(score, pairs) for score in scores]
        gradient = (sum(terms[1:], terms[0]) if terms else torch.zeros_like(sign)) * sign
        value = torch.addcmul(self.flip, gradient, self.learning_rate)
        if self.greedy:
            flip, sure = take_greedily(value, pairs, self.box, self.room, self.rounds)
        else:
            flip, sure = project_global_unattended(value, self.limit)
        self.unsure.logical_or_(~sure)
        self.flip.copy_(flip)
        self._keep(number, flip)

    def _scored(self, score: Scores, pairs: Pairs) -> Tensor:
        if pairs.u.numel() * _TABLE < self.num_nodes**2:
            return score.at(pairs, self.engine.backend)
        return score.tile(self.everyone, self.everyone)[pairs.u, pairs.v]

    def _keep(self, number: Tensor, flip: Tensor) -> None:
        """Gather the pairs of non-zero weight, in their order; behind them weights of 0."""
        there = flip > LEAST_WEIGHT
        if self.size is not None and self.capacity == self.size // 2 < flip.numel():
            # More are not kept of a block that is drawn anew; see :func:`~edgeproof.attacks.blocks.resample`.
            largest = flip.topk(self.capacity, sorted=False).indices
            there &= torch.zeros_like(there).index_fill_(0, largest, True)
        up_to = there.cumsum(0, dtype=torch.int32)
        self.most.copy_(torch.maximum(self.most, up_to[-1]))
        place = torch.searchsorted(up_to, self.places)
        there = place < flip.numel()
        place.clamp_(max=flip.numel() - 1)
        self.number.copy_(number[place])
        self.weight.copy_(torch.where(there, flip[place], 0.0))

    def _drawn(self, size: int) -> tuple[Tensor, Pairs, Tensor]:
        """A new block around what is flipped: numbers, pairs, and the sign of each flip, 0 for places that hold no pair.

        Flipped pairs come first, the others ascend behind them. See :func:`~edgeproof.attacks.blocks.resample`.
        """
        there = self.weight > 0
        kept = there.sum()
        share = (size - kept).double() / (self.total - kept)
        coarse = is_coarse(size, self.total)
        fresh = draw_numbers(gaps(size), torch.log1p(-share), self.generator, coarse=coarse).sub_(1)
        # As good as never: so many gaps pass the end but for one chance in many billions.
        self.unsure.logical_or_(fresh[-1] < self.total)

        slots, sign = self.flip.numel(), self.flip.new_empty(self.flip.numel() + 1)
        sign[: self.capacity] = torch.where(there, torch.where(contained(self.number, self.edges), -1.0, 1.0), 0.0)
        sign[self.capacity : slots] = (fresh < self.total).to(sign.dtype)
        # The last place takes what goes nowhere. Few are looked for among many.
        for few, value, wanted in ((self.edges, -1.0, None), (self.number, 0.0, there)):
            place = torch.searchsorted(fresh, few)
            found = fresh[place.clamp(max=fresh.numel() - 1)] == few
            found = found if wanted is None else found & wanted
            sign.scatter_(0, torch.where(found, place + self.capacity, slots), value)

        number = torch.cat([self.number, fresh.clamp_(max=self.total - 1)])
        self.flip.zero_()
        self.flip[: self.capacity].copy_(self.weight)
        return number, self._pairs(number), sign[:slots]

    def _remember(self, accuracy: Tensor, number: Tensor, sign: Tensor) -> None:
        better = accuracy < self.best_accuracy
        for kept, now in zip(self.best, (number, self.flip, sign.abs()), strict=True):
            kept.copy_(torch.where(better, now, kept))
        self.best_accuracy.copy_(torch.minimum(accuracy, self.best_accuracy))

    def _pairs(self, number: Tensor) -> Pairs:
        """Here in no order, and with repeats among those of weight 0: no step minds."""
        return pairs_among(number, self.num_nodes, self.nodes)

    def _block(self, number: Tensor, flip: Tensor, there: Tensor) -> Block:
        number, order = number[there].sort()
        return Block(number, self._pairs(number), flip[there][order], self.nodes)


class Recording:
    """Recorded steps of one kind, in parts that have as much room as they were found to need.

    Args:
        keep_best: whether to remember the block of lowest accuracy.
        starts: the steps that parts begin with, from 1 on.
        most: more flips than these need no room.
    """

    def __init__(self, keep_best: bool, starts: tuple[int, ...], most: int) -> None:
        self.keep_best, self.starts, self.most = keep_best, starts, most
        self.made: dict[int, RecordedAscent | None] = {}
        # Of each part; and whether the last run failed for more than want of room.
        self.capacity, self.exhausted = [0] * len(starts), False

    def run(
        self,
        target: Target,
        block: Block,
        budget: Budget,
        steps: Steps,
        *,
        generator: torch.Generator,
        watch: Watch,
    ) -> tuple[Block | None, list[tuple[Block, float]]]:
        """The block after all steps, none if something did not fit; and the best block of each part, with its accuracy.

        After a run that failed there is more room where there was too little, unless ``exhausted``.
        See :func:`~edgeproof.attacks.ascent.ascend` for the arguments.
        """
        least = min(self.most, 1 << max(_LEAST_CAPACITY, _PER_FLIP * budget.total).bit_length())
        self.capacity = [max(least, capacity) for capacity in self.capacity]
        self.exhausted = False
        before, best = None, []
        starts = [start for start in self.starts if start <= steps.count]
        for part, (first, after) in enumerate(pairwise([*starts, steps.count + 1])):
            ascent = self._with_room(self.capacity[part], target, block, steps)
            if ascent is None:
                self.exhausted = True
                return None, []
            if before is None:
                ascent.begin(block, budget, generator)
            else:
                ascent.follow(before, generator)
            if not ascent.replay(first, after - 1, steps, watch):
                self._grow(part, ascent)
                return None, []
            before = ascent
            best += [ascent.best_block] if self.keep_best else []
        assert before is not None
        return before.block(block), best

    def _with_room(self, capacity: int, target: Target, block: Block, steps: Steps) -> RecordedAscent | None:
        """The one with so much room, or a little more; made if there is none, and none if it cannot be."""
        enough = [known for known in self.made if capacity <= known <= 2 * capacity]
        if not enough:
            self.made[capacity] = _recorded(target, block, steps, self.keep_best, capacity)
        return self.made[min(enough, default=capacity)]

    def _grow(self, part: int, small: RecordedAscent) -> None:
        # As long as there can be enough room it is made: whether steps are recorded must not depend on earlier runs.
        self.exhausted = small.capacity >= self.most
        # A little more than was needed, and in any case more than before.
        needed = max(int(small.most) * 5 // 4, small.capacity)
        self.capacity[part] = min(self.most, 1 << needed.bit_length())


def recording_of(target: Target, block: Block, steps: Steps, *, keep_best: bool) -> Recording | None:
    """The recording of such steps, to be tried again as long as it makes more room; none where that does not pay."""
    total = num_pairs(block.num_nodes)
    draws = steps.draws(total)
    again = draws or block.number.numel() == total
    # Values are projected in single precision.
    if not target.engine(steps.loss).recordable or block.flip.dtype != torch.float32:
        return None
    if steps.count < (_WORTH_RECORDING if again else _WORTH_RECORDING_ONCE):
        return None
    nodes = None if block.nodes is None else fingerprint([block.nodes])
    size = steps.size if draws and steps.size is not None else block.number.numel()
    kind = (steps.loss, steps.greedy, size, draws, steps.keep_block, nodes, keep_best)
    known = target.recordings.get(kind)
    if known is None:
        # Half a block is the most that is kept of it when it is drawn anew.
        most = size // 2 if draws else size
        known = Recording(keep_best, _PARTS if again else (1,), most)
        if again:
            target.recordings[kind] = known
    return known


def _recorded(target: Target, block: Block, steps: Steps, keep_best: bool, capacity: int) -> RecordedAscent | None:
    """A new recording; none if it cannot be made."""
    try:
        recording = RecordedAscent(target, block, steps, keep_best=keep_best, capacity=capacity)
        recording.record()
    except RuntimeError:
        # Something in the model needs the host, as a weighted median does; or memory suffices for plain steps only.
        recording = None
    if recording is None and target.device.type == "cuda":
        torch.cuda.empty_cache()
    return recording


def _numbers(key: Tensor, nodes: Tensor | None, num_nodes: int) -> Tensor:
    """The numbers of pairs given by ascending keys, ascending; only of those among the nodes, if these are given."""
    pairs = Pairs.from_key(key, num_nodes)
    if nodes is None:
        return pairs.number
    pairs = pairs[contained(pairs.u, nodes) & contained(pairs.v, nodes)]
    return Pairs(torch.searchsorted(nodes, pairs.u), torch.searchsorted(nodes, pairs.v), nodes.numel()).number
