"""Cache of recorded attack steps: selects capacities, records steps when needed, and retries after failures.

The first steps often give a small weight to very many pairs. Later steps need less capacity, and a smaller capacity is
faster, so a run is divided into parts with separate capacities.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from edgeproof._tensors import fingerprint
from edgeproof.attacks._recorded_steps import RecordedSteps, Recorder, record_cuda_graph, uses_dense_matrix
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.attacks.blocks import Block
from edgeproof.budget import Budget
from edgeproof.propagation.pairs import num_pairs

if TYPE_CHECKING:
    from edgeproof.attacks.rbcd import Best, Steps


@dataclass(frozen=True)
class RecordingOptions:
    """Tuning options of recorded attack steps.

    Args:
        min_capacity: Minimum number of flips that a recording has room for.
        capacity_per_flip: Minimum capacity per flip of the budget.
        min_steps: Minimum number of steps for recording, if the recording can serve several runs.
        min_steps_once: Minimum number of steps for recording, if the recording can serve only one run.
        part_starts: First step of each part of a run; each part has its own capacity.
        check_every: Number of steps between checks for failures; each check is a host-device sync.
        table_ratio: A table of the scores of all pairs is computed if at least one in ``table_ratio`` entries is needed.
        max_dense_nodes: Maximum number of nodes for a dense adjacency matrix.
        early_steps: Largest number of steps of a run that may use a dense matrix; most steps of a short run flip many pairs.
        recorder: Function that records a step.
    """

    min_capacity: int = 1024
    capacity_per_flip: int = 2
    min_steps: int = 8
    min_steps_once: int = 50
    part_starts: tuple[int, ...] = (1, 3, 6, 12)
    check_every: int = 32
    table_ratio: int = 16
    max_dense_nodes: int = 4096
    early_steps: int = 32
    recorder: Recorder = record_cuda_graph


def run_recorded(
    target: Target,
    block: Block,
    budget: Budget,
    steps: Steps,
    *,
    generator: torch.Generator,
    trace: AttackTrace,
    best: Best | None,
) -> Block | None:
    """Run the loop of :func:`~edgeproof.attacks.rbcd.ascend` with recorded steps.

    Returns:
        The last block; None if recording is impossible or does not pay off. Then ``trace`` and ``generator`` are unchanged.
    """
    recording = _find_recording(target, block, steps, keep_best=best is not None)
    if recording is None:
        return None
    num_steps, state = trace.num_steps, generator.get_state()
    while True:
        outcome = recording.run(target, block, budget, steps, generator=generator, trace=trace)
        if outcome.block is not None:
            if best is not None and outcome.best is not None:
                best.update(*outcome.best)
            return outcome.block
        # Every attempt starts from the same state, so that the result depends on the seed only.
        trace.rewind(num_steps)
        generator.set_state(state)
        if not outcome.retry:
            return None


@dataclass(frozen=True)
class Outcome:
    """Outcome of one attempt to run recorded steps.

    Args:
        block: The last block; None after a failure.
        best: The block of lowest accuracy at the start of any step, and that accuracy, if requested.
        retry: Whether another attempt can succeed, because the capacity was increased.
    """

    block: Block | None
    best: tuple[Block, float] | None = None
    retry: bool = False


class Recording:
    """Recorded steps of one kind, in parts with separate capacities.

    Args:
        options: Tuning options.
        keep_best: Whether to keep the block of lowest accuracy.
        starts: First step of each part, beginning with 1.
        max_capacity: Maximum capacity that any run can need.
    """

    def __init__(self, options: RecordingOptions, keep_best: bool, starts: tuple[int, ...], max_capacity: int) -> None:
        self.options, self.keep_best, self.starts, self.max_capacity = options, keep_best, starts, max_capacity
        # Recorded steps by capacity, and the capacity that each part needs.
        self.by_capacity: dict[int, RecordedSteps] = {}
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
        """Run all steps; see :func:`~edgeproof.attacks.rbcd.ascend` for the arguments."""
        wanted = max(self.options.min_capacity, self.options.capacity_per_flip * budget.total)
        minimum = min(self.max_capacity, 1 << wanted.bit_length())
        self.capacity = [max(minimum, capacity) for capacity in self.capacity]
        previous, best = None, None
        starts = [start for start in self.starts if start <= steps.count]
        # Drawn at once, because reading them is a host-device sync.
        seeds = torch.randint(1 << 62, (len(starts),), generator=generator, device=generator.device).tolist()
        for part, (first, end) in enumerate(pairwise([*starts, steps.count + 1])):
            recorded = self._with_capacity(self.capacity[part], target, block, steps)
            if recorded is None:
                return Outcome(None)
            if previous is None:
                recorded.begin(block, budget, seeds[part])
            else:
                recorded.follow(previous, seeds[part])
            if not recorded.replay(first, end - 1, steps, trace):
                return Outcome(None, retry=self._increase_capacity(part, recorded))
            if self.keep_best and (best is None or float(recorded.best_accuracy) < best[1]):
                best = recorded.best_block
            previous = recorded
        assert previous is not None
        return Outcome(previous.block(block), best)

    def _with_capacity(self, capacity: int, target: Target, block: Block, steps: Steps) -> RecordedSteps | None:
        """Return recorded steps with a capacity from one to two times the given one; None if recording is impossible."""
        sufficient = [known for known in self.by_capacity if capacity <= known <= 2 * capacity]
        if not sufficient and not self.impossible:
            # Free the memory of recordings that no part uses any more.
            self.by_capacity = {
                known: recorded
                for known, recorded in self.by_capacity.items()
                if any(needed <= known <= 2 * needed for needed in self.capacity)
            }
            try:
                recorded = RecordedSteps(
                    target, block, steps, self.options, keep_best=self.keep_best, capacity=capacity
                )
                recorded.record(self.options.recorder, warm=bool(self.by_capacity))
                self.by_capacity[capacity] = recorded
            except RuntimeError:
                # Some operation of the model needs a host-device sync, or memory suffices for plain steps only.
                self.impossible = True
        if self.impossible:
            self.by_capacity.clear()
            if target.device.type == "cuda":
                torch.cuda.empty_cache()
            return None
        return self.by_capacity[min(sufficient, default=capacity)]

    def _increase_capacity(self, part: int, failed: RecordedSteps) -> bool:
        """Increase the capacity of a part after a failure, and return whether another attempt can succeed."""
        # Retry as long as an attempt can succeed: whether steps are recorded must not depend on earlier runs.
        if bool(failed.invalid):
            return False
        # A quarter more than the failed steps needed.
        self.capacity[part] = min(self.max_capacity, 1 << (int(failed.max_flips) * 5 // 4).bit_length())
        return failed.capacity < self.max_capacity


def _find_recording(target: Target, block: Block, steps: Steps, *, keep_best: bool) -> Recording | None:
    """Return the (cached) recording of such steps; None if recording is impossible or does not pay off."""
    options = target.recording or RecordingOptions()
    total = num_pairs(block.num_nodes)
    resamples = steps.resamples(total)
    reusable = resamples or block.number.numel() == total
    # The GPU kernels project in single precision.
    if block.flip.dtype != torch.float32:
        return None
    if steps.count < (options.min_steps if reusable else options.min_steps_once):
        return None
    nodes = None if block.nodes is None else fingerprint([block.nodes])
    size = steps.block_size if resamples and steps.block_size is not None else block.number.numel()
    early = steps.count <= options.early_steps
    kind = (steps.loss, steps.greedy, size, resamples, steps.keep_block, nodes, keep_best, early)
    recording = target.recordings.get(kind)
    if recording is None:
        # At most half of a resampled block is kept, and a dense matrix of fixed pairs needs no capacity.
        no_capacity = not resamples and uses_dense_matrix(target, block, steps, options)
        max_capacity = size // 2 if resamples else 1 if no_capacity else size
        recording = Recording(options, keep_best, options.part_starts if reusable else (1,), max_capacity)
        if reusable:
            target.recordings[kind] = recording
    return None if recording.impossible else recording
