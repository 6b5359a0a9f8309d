"""Ascent over a block of pairs in buffers of fixed size, which a GPU replays as one CUDA graph.

A step of an attack on a small graph is some hundred short kernels: a GPU is done with each before the host has launched the
next. Here no size depends on a value and the host asks for none, so that a whole step is recorded once and then replayed. What
cannot be known beforehand (more flips than there is room for, values that are not finite) is noted on the GPU and looked at
later (:mod:`~edgeproof.attacks.recordings`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof.attacks.blocks import LEAST_WEIGHT, Block, draw_numbers, gaps, is_coarse, pairs_among
from edgeproof.attacks.projections import boxes, project_global_nosync, project_local_nosync
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.kernels import dispatch
from edgeproof.kernels.cuda_graph import record
from edgeproof.propagation.adjacency import DenseGraph, FixedPairsGraph
from edgeproof.propagation.pairs import Bilinear, Pairs, Scores, contained, num_pairs

# Steps after which a look is taken at what was noted.
_LOOK_EVERY = 32
# If at least one in so many entries of the adjacency matrix is asked for, a table of all scores is made faster than theirs.
_TABLE = 16
# Of a graph of no more nodes than this, the adjacency matrix may be dense.
_DENSE = 4096
# Of so many steps, or fewer, most are early ones, which have very many flips.
EARLY = 32


class RecordedAscent:
    """The loop of :func:`~edgeproof.attacks.ascent.ascend` without a word to the host.

    On a CPU the same steps run one after the other, unrecorded.

    Args:
        target: what is under attack.
        block: of a kind with those that it will be run on: from the same nodes, and if ``size`` is none, of the same pairs.
        steps: of a kind with those that it will make; only their learning rate may differ, and their number, if it is on the
            same side of :data:`EARLY`.
        keep_best: whether to remember the block of lowest accuracy.
        capacity: most pairs of non-zero weight; where all pairs stay, any number will do. If it is half of
            ``steps.size``, the largest are kept where there are more: as many as plain steps keep of a block that is drawn
            anew.
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
        self.cut = size is not None and capacity == size // 2
        device, like = target.device, block.flip
        self.generator = torch.Generator(device)
        # What a step reads and writes.
        self.number = torch.zeros(capacity, dtype=torch.long, device=device)
        self.weight = like.new_zeros(capacity)
        self.learning_rate = like.new_zeros(())
        self.limit, self.box = like.new_zeros(1, dtype=torch.float64), self.number.new_zeros(1)
        self.room = self.number.new_zeros(self.num_nodes)
        # What no room would mend; and the most pairs of non-zero weight.
        self.hopeless = torch.zeros((), dtype=torch.bool, device=device)
        self.most = self.number.new_zeros(())
        self.loss = like.new_zeros(())
        self.edges = _numbers(self.engine.edge_key, self.nodes, self.num_nodes)
        slots = block.number.numel() if size is None else capacity + gaps(size)
        # Pairs of weight 0 that fill up those of non-zero weight: far apart, for many at one node would make its row long.
        self.idle = torch.arange(capacity, device=device) * max(1, self.total // capacity) % self.total
        if size is None:
            self.fixed = block.number, block.pairs, self.engine.sign(block.pairs, True)
        self.filled: DenseGraph | FixedPairsGraph | None = None
        if is_dense(target, block, steps):
            graph = self.engine.adjacency
            self.filled = FixedPairsGraph(graph, *block.pairs.both) if size is None else graph.dense_graph
        self.flip = like.new_zeros(slots)
        if keep_best:
            self.best_accuracy = like.new_zeros(())
            self.best = self.number.new_zeros(slots), like.new_zeros(slots), like.new_zeros(slots)
        # Known beforehand, so that capacity has no say in what is found.
        asked = block.number.numel() if size is None else gaps(size)
        self.from_table = asked * _TABLE >= self.num_nodes**2
        # The last block, number and sign, where it is drawn and needed whole.
        whole = size is not None and (steps.keep_block or self.cut)
        self.last = (self.number.new_zeros(slots), like.new_zeros(slots)) if whole else None
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(self, block: Block, budget: Budget, seed: int) -> None:
        """Be ready for the first step, from this block within this budget; ``seed`` is of the pairs that are drawn."""
        total, room = boxes(budget, self.num_nodes, self.flip.numel(), self.room.device)
        self.limit.fill_(budget.total)
        self.box.copy_(total)
        self.room.copy_(room)
        self._start(block.number, block.flip, seed)

    def follow(self, earlier: RecordedAscent, seed: int) -> None:
        """Be ready for the steps after those that another recording, or this one, has made; its room may be another."""
        for mine, known in ((self.limit, earlier.limit), (self.box, earlier.box), (self.room, earlier.room)):
            mine.copy_(known)
        flipped = (earlier.number, earlier.weight) if self.size else (self.fixed[0], earlier.flip)
        self._start(*flipped, seed)

    def replay(self, first: int, last: int, steps: Steps, trace: AttackTrace) -> bool:
        """Make the steps of these numbers; whether all went well."""
        for step in range(first, last + 1):
            self.learning_rate.fill_(steps.learning_rate(step))
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
            trace.step(self.loss.clone())
            if step % _LOOK_EVERY == 0 and self._failed():
                break
        trace.phase("recorded steps")
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
        return bool(self.hopeless | (self.most > self.capacity))

    def _start(self, number: Tensor, flip: Tensor, seed: int) -> None:
        """Fill the other buffers that the first step reads."""
        self.hopeless.fill_(False)
        self.most.zero_()
        self.generator.manual_seed(seed)
        if self.keep_best:
            self.best_accuracy.fill_(math.inf)
        if self.size is None:
            self.flip.copy_(flip)
        # They may be the buffers that are written to.
        self._keep(number.clone(), flip.clone())

    def record(self, *, warm: bool = False) -> None:
        """Record a step, for :meth:`replay`; on a GPU only.

        Args:
            warm: whether one like it, but for its room, has been recorded before.
        """
        self._graph, _ = record(self._step, self.number.device, self.generator, warm=warm)

    def _step(self) -> None:
        """One step: what is flipped is run, all pairs are scored, and the weights are moved and projected."""
        number, pairs, sign = self.fixed if self.size is None else self._drawn(self.size)
        loss, logits, scores = self._run()
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
            flip, finite = project_local_nosync(value, pairs, self.box, self.room)
        else:
            flip, finite = project_global_nosync(value, self.limit)
        self.hopeless.logical_or_(~finite)
        self.flip.copy_(flip)
        self._keep(number, flip)

    def _run(self) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Loss, logits and the terms of the gradient at the weights so far."""
        if isinstance(self.filled, FixedPairsGraph):
            return self.engine.run_over(self.filled.perturbed(self.flip))
        flipped = self._pairs(torch.where(self.weight > 0, self.number, self.idle)).both
        if self.filled is not None:
            return self.engine.run_over(self.filled.perturbed(flipped, self.weight))
        return self.engine.run_on_tape(flipped, self.weight)

    def _scored(self, score: Scores, pairs: Pairs) -> Tensor:
        return (score.at_many if self.from_table else score.at)(pairs, self.engine.backend)

    def _keep(self, number: Tensor, flip: Tensor) -> None:
        """Gather the pairs of non-zero weight, in their order; behind them weights of 0."""
        if isinstance(self.filled, FixedPairsGraph):
            return
        if not flip.numel():
            self.weight.zero_()
            return
        there = flip > LEAST_WEIGHT
        if self.cut and self.capacity < flip.numel():
            # See :func:`~edgeproof.attacks.blocks.resample`.
            largest = flip.topk(self.capacity, sorted=False).indices
            there &= torch.zeros_like(there).index_fill_(0, largest, True)
        count = dispatch.compact(there, number, flip, self.number, self.weight, backend=self.engine.backend)
        torch.maximum(self.most, count, out=self.most)

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
        self.hopeless.logical_or_(fresh[-1] < self.total)

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


def is_dense(target: Target, block: Block, steps: Steps) -> bool:
    """Whether such steps are made over a dense matrix, whatever room there is for flips.

    Where nothing but the sum of the weights is limited, and those of all pairs move at once, most of them are soon not 0; where
    those of many do, in the first steps. Not where neighbours are attended to: that takes far longer for a place than a
    product does.
    """
    total = num_pairs(block.num_nodes)
    if steps.draws(total):
        assert steps.size is not None
        many = steps.count <= EARLY and steps.size * _TABLE >= target.num_nodes**2
    else:
        many = block.nodes is None and block.number.numel() == total
    if steps.greedy or not many or target.num_nodes > _DENSE:
        return False
    scores = target.engine(steps.loss)().scores
    return all(isinstance(score, Bilinear) for score in scores)


def _numbers(key: Tensor, nodes: Tensor | None, num_nodes: int) -> Tensor:
    """The numbers of pairs given by ascending keys, ascending; only of those among the nodes, if these are given."""
    pairs = Pairs.from_key(key, num_nodes)
    if nodes is None:
        return pairs.number
    pairs = pairs[contained(pairs.u, nodes) & contained(pairs.v, nodes)]
    return Pairs(torch.searchsorted(nodes, pairs.u), torch.searchsorted(nodes, pairs.v), nodes.numel()).number
