"""Which recording serves which steps of an attack, and with how much room.

The first steps have the most flips, often very many; later ones do not need so much room, which costs time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from edgeproof._tensors import fingerprint
from edgeproof.attacks.blocks import Block
from edgeproof.attacks.recorded import EARLY, RecordedAscent, is_dense
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import num_pairs

# Flips that there is room for, at least, and for each that the budget allows.
_LEAST_CAPACITY, _PER_FLIP = 1024, 2
# From so many steps on recording pays off, if it serves several runs, or one alone.
_WORTH_RECORDING, _WORTH_RECORDING_ONCE = 8, 50
# Steps that parts of a run begin with, each with room of its own.
_PARTS = (1, 3, 6, 12)


@dataclass(frozen=True)
class Outcome:
    """Of a run.

    Args:
        block: the block after all steps; none if something did not fit.
        best: the block of lowest accuracy before any of the steps, and this accuracy, if it was asked for.
        again: after a failure, whether there is more room now, and another try worth while.
    """

    block: Block | None
    best: tuple[Block, float] | None = None
    again: bool = False


class Recording:
    """Recorded steps of one kind, in parts that have as much room as they were found to need.

    Args:
        keep_best: whether to remember the block of lowest accuracy.
        starts: the steps that parts begin with, from 1 on.
        most: more flips than these need no room.
    """

    def __init__(self, keep_best: bool, starts: tuple[int, ...], most: int) -> None:
        self.keep_best, self.starts, self.most = keep_best, starts, most
        self.made: dict[int, RecordedAscent] = {}
        # Of each part.
        self.capacity = [0] * len(starts)
        self.impossible = False

    def run(
        self,
        target: Target,
        block: Block,
        budget: Budget,
        steps: Steps,
        *,
        generator: torch.Generator,
        trace: AttackTrace,
    ) -> Outcome:
        """Make all steps; see :func:`~edgeproof.attacks.ascent.ascend` for the arguments."""
        least = min(self.most, 1 << max(_LEAST_CAPACITY, _PER_FLIP * budget.total).bit_length())
        self.capacity = [max(least, capacity) for capacity in self.capacity]
        before, best = None, None
        starts = [start for start in self.starts if start <= steps.count]
        # All at once: a GPU is waited for.
        seeds = torch.randint(1 << 62, (len(starts),), generator=generator, device=generator.device).tolist()
        for part, (first, after) in enumerate(pairwise([*starts, steps.count + 1])):
            ascent = self._with_room(self.capacity[part], target, block, steps)
            if ascent is None:
                return Outcome(None)
            if before is None:
                ascent.begin(block, budget, seeds[part])
            else:
                ascent.follow(before, seeds[part])
            if not ascent.replay(first, after - 1, steps, trace):
                return Outcome(None, again=self._mend(part, ascent))
            if self.keep_best and (best is None or float(ascent.best_accuracy) < best[1]):
                best = ascent.best_block
            before = ascent
        assert before is not None
        return Outcome(before.block(block), best)

    def _with_room(self, capacity: int, target: Target, block: Block, steps: Steps) -> RecordedAscent | None:
        """The one with so much room, or up to twice as much; made if there is none, and none if it cannot be."""
        enough = [known for known in self.made if capacity <= known <= 2 * capacity]
        if not enough and not self.impossible:
            # What no part uses any more would keep its memory.
            self.made = {
                known: one for known, one in self.made.items() if any(c <= known <= 2 * c for c in self.capacity)
            }
            try:
                recording = RecordedAscent(target, block, steps, keep_best=self.keep_best, capacity=capacity)
                recording.record(warm=bool(self.made))
                self.made[capacity] = recording
            except RuntimeError:
                # Something in the model needs the host, as a weighted median does; or memory suffices for plain steps only.
                self.impossible = True
        if self.impossible:
            self.made.clear()
            if target.device.type == "cuda":
                torch.cuda.empty_cache()
            return None
        return self.made[min(enough, default=capacity)]

    def _mend(self, part: int, failed: RecordedAscent) -> bool:
        """Make room after a failure; whether that can be done."""
        # As long as there can be enough it is tried: whether steps are recorded must not depend on earlier runs.
        if bool(failed.hopeless):
            return False
        # A little more than was needed.
        self.capacity[part] = min(self.most, 1 << (int(failed.most) * 5 // 4).bit_length())
        return failed.capacity < self.most


def recording_of(target: Target, block: Block, steps: Steps, *, keep_best: bool) -> Recording | None:
    """The recording of such steps; none where that does not pay or cannot be."""
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
    kind = (steps.loss, steps.greedy, size, draws, steps.keep_block, nodes, keep_best, steps.count <= EARLY)
    known = target.recordings.get(kind)
    if known is None:
        # Half a block is the most that is kept of it when it is drawn anew; a dense matrix of pairs that stay has room for all.
        most = size // 2 if draws else 1 if is_dense(target, block, steps) else size
        known = Recording(keep_best, _PARTS if again else (1,), most)
        if again:
            target.recordings[kind] = known
    return None if known.impossible else known
