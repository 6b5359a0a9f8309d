"""Steps in buffers of fixed size against the plain ones; on a GPU recorded and replayed, elsewhere run one by one."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import (
    LRBCD,
    PGD,
    PRBCD,
    Block,
    prbcd,
    project_global,
    project_local,
    recorded,
    recordings,
    sample_block,
)
from edgeproof.attacks.ascent import Best, ascend
from edgeproof.attacks.projections import boxes
from edgeproof.attacks.recorded import RecordedAscent
from edgeproof.attacks.recordings import Outcome, Recording
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace, ignore
from edgeproof.budget import Budget
from edgeproof.propagation import EdgeGradientEngine

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# A GPU takes values greedily in single precision only; there rounding, times the learning rate, grows from step to step.
DTYPE, STEPS, CLOSE = (torch.float64, 6, 1e-9) if DEVICE.type == "cpu" else (torch.float32, 1, 1e-4)


@pytest.fixture
def data() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=120, p=0.1, q=0.02, seed=3).to(DEVICE)


def target_of(data: Data, name: str = "GPRGNN", dtype: torch.dtype = torch.float32) -> Target:
    """A trained model: one that is not hardly listens to edges, and would have nearly all of them flipped a little."""
    model = ep.models.build(name, 21, 2, seed=0).to(DEVICE)
    split = ep.splits.inductive(data, train_per_class=20, val_per_class=10)
    ep.train(model, split, max_epochs=40, progress=False)
    nodes = torch.arange(0, 120, 3, device=DEVICE)
    exact = Data(x=data.x.to(dtype), edge_index=data.edge_index, y=data.y)
    return Target(model.to(dtype).eval(), exact, nodes, data.y[nodes])


def budget_of(data: Data, local: bool) -> Budget:
    return Budget.from_epsilon(data, torch.arange(120, device=DEVICE), 0.1, local=0.3 if local else None)


def steps_of(count: int, size: int | None, greedy: bool, lr: float = 400.0, loss: str = "tanh_margin") -> Steps:
    return Steps(count, loss, lambda step: lr / step, greedy, size)


def made(target: Target, block: Block, steps: Steps, capacity: int = 1024, keep_best: bool = False) -> RecordedAscent:
    recording = RecordedAscent(target, block, steps, keep_best=keep_best, capacity=capacity)
    if DEVICE.type == "cuda":
        recording.record()
    return recording


def replayed(
    recording: RecordedAscent, block: Block, budget: Budget, steps: Steps, trace: AttackTrace | None = None
) -> Block | None:
    """All steps with the same room."""
    recording.begin(block, budget, 0)
    good = recording.replay(1, steps.count, steps, trace or AttackTrace(DEVICE, ignore))
    return recording.block(block) if good else None


def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU, the steps that one would replay are made one by one, and nothing else is recorded."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(RecordedAscent, "record", lambda self, *, warm=False: None)
        monkeypatch.setattr(EdgeGradientEngine, "_run", EdgeGradientEngine.run_on_tape)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def dense(block: Block) -> Tensor:
    """The weight of every pair of the graph."""
    weight = block.flip.new_zeros(block.pairs.num_nodes, block.pairs.num_nodes)
    return weight.index_put((block.pairs.u, block.pairs.v), block.flip)


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "ChebNetII", "GAT"])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("everything", [False, True])
def test_where_pairs_stay_it_does_what_plain_steps_do(
    data: Data, everything: bool, greedy: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Scores one by one, or from a table of all.
    monkeypatch.setattr(recorded, "_TABLE", 16 if everything else 0)
    target, budget, steps = target_of(data, name, DTYPE), budget_of(data, greedy), steps_of(STEPS, None, greedy)
    size = 10**6 if everything else 3000
    block = sample_block(120, size, generator=generator(), nodes=budget.usable, dtype=DTYPE)
    watches = [AttackTrace(DEVICE, ignore) for _ in range(2)]
    bests = [Best(), Best()]
    recording = made(target, block, steps, capacity=7140, keep_best=True)
    found = replayed(recording, block, budget, steps, watches[0])
    assert found is not None
    bests[0].keep(*recording.best_block)
    expected = ascend(target, block, budget, steps, generator=generator(), trace=watches[1], best=bests[1])
    assert int((expected.flip > 0).sum()) >= 5
    torch.testing.assert_close(found.flip, expected.flip, rtol=CLOSE, atol=CLOSE)
    assert watches[0].trace == pytest.approx(watches[1].trace, abs=CLOSE)
    assert bests[0].block is not None
    # The plain steps also look at where they end.
    last = target.accuracy(target.engine("tanh_margin").logits(*expected.flipped))
    assert min(bests[0].accuracy, float(last)) == bests[1].accuracy
    accuracy = target.accuracy(target.engine("tanh_margin").logits(*bests[0].block.flipped))
    assert float(accuracy) == pytest.approx(bests[0].accuracy)


@pytest.mark.parametrize("loss", ["cross_entropy", "log_margin", "scaled_margin"])
def test_every_loss_can_be_recorded(data: Data, loss: str) -> None:
    target, budget, steps = target_of(data, dtype=DTYPE), budget_of(data, True), steps_of(STEPS, None, True, loss=loss)
    block = sample_block(120, 3000, generator=generator(), nodes=budget.usable, dtype=DTYPE)
    found = replayed(made(target, block, steps, capacity=7140), block, budget, steps)
    expected = ascend(target, block, budget, steps, generator=generator(), trace=AttackTrace(DEVICE, ignore))
    assert found is not None
    assert int((expected.flip > 0).sum()) >= 5
    torch.testing.assert_close(found.flip, expected.flip, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize(("greedy", "filled"), [(True, False), (False, False), (False, True)])
def test_where_pairs_are_drawn_a_step_is_a_plain_step_on_what_was_drawn(
    data: Data, greedy: bool, filled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE.type == "cuda":
        pytest.skip("looks at what a replay does not show")
    monkeypatch.setattr(recorded, "EARLY", 8 if filled else 7)
    target, budget, steps = target_of(data), budget_of(data, greedy), steps_of(8, 2000, greedy)
    block = sample_block(120, 2000, generator=generator(), nodes=budget.usable)
    drawn, draw = [], RecordedAscent._drawn

    def spy(self: RecordedAscent, size: int) -> tuple[Tensor, ep.propagation.Pairs, Tensor]:
        number, pairs, sign = draw(self, size)
        there = sign != 0
        drawn.append((self._block(number, self.flip, there), sign[there][number[there].argsort()]))
        return number, pairs, sign

    monkeypatch.setattr(RecordedAscent, "_drawn", spy)
    recording = made(target, block, steps)
    assert (recording.filled is not None) == filled
    found = replayed(recording, block, budget, steps)
    assert found is not None
    blocks = [one for one, _ in drawn] + [found]
    for step, ((one, sign), after) in enumerate(zip(drawn, blocks[1:], strict=True), start=1):
        assert bool((one.number.diff() > 0).all())
        assert one.number.numel() == pytest.approx(2000, abs=250)
        engine = target.engine("tanh_margin")
        assert torch.equal(sign, engine.sign(one.pairs, True))
        moved = one.flip + 400 / step * engine(*one.flipped).at(one.pairs)
        flip = project_local(moved, one.pairs, budget) if greedy else project_global(moved, budget.total)
        assert bool(flip.any())
        torch.testing.assert_close(dense(after) * (dense(after) > 0), dense(one.with_flip(flip)), rtol=1e-4, atol=1e-5)
    fresh = [set(one.number.tolist()) for one, _ in drawn]
    assert all(len(one & other) < 1000 for one, other in itertools.pairwise(fresh))


def test_every_pair_is_drawn_equally_often(data: Data) -> None:
    target, budget, size = target_of(data), Budget(0), 500
    block = sample_block(120, size, generator=generator())
    recording = RecordedAscent(target, block, steps_of(1, size, False), keep_best=False, capacity=16)
    recording.begin(block, budget, 0)
    times, rounds = torch.zeros(120 * 119 // 2, device=DEVICE), 4000
    for _ in range(rounds):
        number, _, sign = recording._drawn(size)
        times.index_add_(0, number, sign.abs())
    assert not bool(recording.hopeless)
    share = size / times.numel()
    expected, deviation = rounds * share, (rounds * share * (1 - share)) ** 0.5
    assert float(times.sum()) == pytest.approx(rounds * size, rel=0.01)
    assert float((times - expected).abs().max()) < 5.5 * deviation
    # A chi-square statistic of so many cells, within five of its standard deviations.
    statistic = float(((times - expected) / deviation).square().sum())
    assert abs(statistic - times.numel()) < 5 * (2 * times.numel()) ** 0.5


def test_more_flips_than_there_is_room_for_are_noticed(data: Data) -> None:
    target, budget, steps = target_of(data), Budget(200), steps_of(3, 2000, False)
    block = sample_block(120, 2000, generator=generator())
    small = made(target, block, steps, capacity=32)
    assert replayed(small, block, budget, steps) is None
    assert int(small.most) > 32
    large = made(target, block, steps, capacity=2048)
    assert replayed(large, block, budget, steps) is not None


@pytest.mark.parametrize("greedy", [False, True])
def test_values_that_are_not_finite_are_noticed(data: Data, greedy: bool) -> None:
    target, budget, steps = target_of(data), budget_of(data, greedy), steps_of(3, None, greedy, lr=float("nan"))
    block = sample_block(120, 3000, generator=generator(), nodes=budget.usable)
    recording = made(target, block, steps)
    assert replayed(recording, block, budget, steps) is None
    assert bool(recording.hopeless)


@pytest.mark.parametrize(
    "attack",
    [
        LRBCD(steps=12, block_size=3000, lr=1000.0),
        LRBCD(steps=12, block_size=10**6),
        PRBCD(steps=12, fine_tune_steps=6, block_size=2000, lr=1000.0),
        PGD(steps=12, lr=100.0),
    ],
)
def test_an_attack_by_recorded_steps(attack: LRBCD | PRBCD | PGD, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the budget, reproducible, no weaker than plain steps but for luck, and with no trace of earlier budgets."""
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_WORTH_RECORDING_ONCE", 5)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 64)
    runs, run = [], Recording.run

    def counted(self: Recording, *arguments: object, **named: object) -> Outcome:
        outcome: Outcome = run(self, *arguments, **named)  # type: ignore[arg-type]
        runs.append(outcome.block is not None)
        return outcome

    monkeypatch.setattr(Recording, "run", counted)
    target = target_of(data)
    local = 0.5 if isinstance(attack, LRBCD) else None
    few, many = Budget.from_epsilons(data, target.nodes, [0.05, 0.3], local=local)
    plain = attack(target.model, data, target.nodes, many, seed=0)
    assert bool(runs) == target.engine("tanh_margin").recordable
    target.engine("tanh_margin").recordable = True
    found = []
    for budget in (many, few, many):
        flips = attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE, ignore))
        budget.check(flips)
        found.append(flips)
    assert len(runs) >= 3
    assert runs[-1]
    assert torch.equal(found[0], found[2])
    assert found[1].size(1) <= few.total
    (badness,) = target.badness([found[0]], "tanh_margin")
    assert badness[0] <= plain.accuracy + 0.06
    assert badness[0] < plain.clean_accuracy


def test_first_steps_with_very_many_flips_get_more_room_than_the_others(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is that of plain steps, and there is a loss for every step."""
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 40)
    monkeypatch.setattr(recordings, "_PER_FLIP", 0)
    target, budget = target_of(data), budget_of(data, True)
    # After a careful first step nearly all pairs are flipped a little, and from then on the budget does not suffice.
    steps = Steps(10, "tanh_margin", lambda step: 0.02 if step == 1 else 1e4, greedy=True, size=10**6)
    block = sample_block(120, 10**6, generator=generator(), nodes=budget.usable)
    watches, found = [], []
    for recordable in (True, False):
        target.engine("tanh_margin").recordable = recordable
        watches.append(AttackTrace(DEVICE, ignore))
        found.append(ascend(target, block, budget, steps, generator=generator(), trace=watches[-1]))
    (recording,) = target.recordings.values()
    # The second step begins with all of them.
    assert recording.capacity[0] > 1000
    assert max(recording.capacity[1:]) < 300
    assert len(watches[0].trace) == len(watches[1].trace) == 10
    assert watches[0].trace == pytest.approx(watches[1].trace, abs=1e-3)
    assert int((found[0].flip > 0).sum()) > 10
    # Single precision, and learning rates that make much of rounding.
    assert float((found[0].flip - found[1].flip).abs().sum()) < 0.1 * budget.total


@pytest.mark.parametrize(
    "attack",
    [
        LRBCD(steps=12, block_size=3000, lr=1000.0),
        PRBCD(steps=12, block_size=2000),
        # About as many as a table of all scores pays for: whether there is one must not depend on room.
        PRBCD(steps=12, block_size=600),
    ],
)
def test_what_is_found_does_not_depend_on_what_was_found_before(
    attack: LRBCD | PRBCD, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by what was learned of room for flips, nor by tries that failed."""
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 8)
    monkeypatch.setattr(recordings, "_PER_FLIP", 0)
    nodes = target_of(data).nodes
    few, many = Budget.from_epsilons(data, nodes, [0.05, 0.5], local=0.5 if isinstance(attack, LRBCD) else None)
    found = []
    for budgets in ([many], [few, many, many]):
        target = target_of(data)
        target.engine("tanh_margin").recordable = True
        for budget in budgets:
            flips = attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE, ignore))
        found.append(flips)
    (recording,) = (one for (*_, draws, _, _, _, _), one in target.recordings.items() if draws)
    assert max(recording.capacity) > 16
    assert torch.equal(found[0], found[1])


def recorded_and_plain(target: Target, block: Block, budget: Budget, steps: Steps) -> list[tuple[Block, Best]]:
    found = []
    for recordable in (True, False):
        target.engine(steps.loss).recordable = recordable
        best, trace = Best(), AttackTrace(DEVICE, ignore)
        found.append((ascend(target, block, budget, steps, generator=generator(), trace=trace, best=best), best))
        assert ("projection" in trace.seconds) is not recordable
    return found


def test_the_best_block_of_any_part_is_found(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    target = target_of(data)
    # Two steps that raise the loss, and many back to where they began.
    steps = Steps(14, "tanh_margin", lambda step: 400.0 if step < 3 else -1e6, greedy=False, size=10**6)
    block = sample_block(120, 10**6, generator=generator())
    (_, recorded_best), (_, plain_best) = recorded_and_plain(target, block, Budget(60), steps)
    clean = float(target.accuracy(target.engine("tanh_margin").logits()))
    assert recorded_best.accuracy == pytest.approx(plain_best.accuracy)
    assert recorded_best.accuracy < clean - 0.05
    assert recorded_best.block is not None
    again = target.accuracy(target.engine("tanh_margin").logits(*recorded_best.block.flipped))
    assert float(again) == pytest.approx(recorded_best.accuracy)


def test_more_flips_than_half_a_block_are_cut_where_it_is_drawn_anew_and_only_there(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 16)
    monkeypatch.setattr(recordings, "_PER_FLIP", 0)
    target, starts, follow = target_of(data), [], RecordedAscent._start

    def spy(self: RecordedAscent, number: Tensor, flip: Tensor, seed: int) -> None:
        starts.append(int((flip > 0).sum()))
        follow(self, number, flip, seed)

    monkeypatch.setattr(RecordedAscent, "_start", spy)
    # So careful that the budget never bounds them.
    steps = Steps(10, "tanh_margin", lambda step: 0.02, greedy=False, size=600)
    block = sample_block(120, 600, generator=generator())
    (found, _), (plain, _) = recorded_and_plain(target, block, Budget(290), steps)
    assert max(starts) <= 300
    counts = [int((one.flip > 0).sum()) for one in (found, plain)]
    assert counts[0] > 300
    assert counts[0] == pytest.approx(counts[1], abs=60)


def test_a_smaller_budget_after_a_larger_one_is_kept(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts with different rooms hand the budget on."""
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 16)
    monkeypatch.setattr(recordings, "_PER_FLIP", 0)
    target = target_of(data)
    target.engine("tanh_margin").recordable = True
    # Nearly all pairs are flipped a little by the first step.
    steps = Steps(14, "tanh_margin", lambda step: 0.02 if step == 1 else 1e4, greedy=True, size=10**6)
    block = sample_block(120, 10**6, generator=generator())
    for total in (100, 100, 7):
        budget = Budget(total, torch.full((120,), 2, device=DEVICE))
        found = ascend(target, block, budget, steps, generator=generator(), trace=AttackTrace(DEVICE, ignore))
        assert total - 1 < float(found.flip.sum()) <= total + 1e-3
    (recording,) = target.recordings.values()
    assert len(recording.made) > 1


def test_what_room_cannot_mend_is_not_tried_with_more(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    target, made, init = target_of(data), [], RecordedAscent.__init__

    def counted(self: RecordedAscent, *arguments: object, **named: object) -> None:
        made.append(named["capacity"])
        init(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordedAscent, "__init__", counted)
    target.engine("tanh_margin").recordable = True
    steps = Steps(10, "tanh_margin", lambda step: float("nan"), greedy=True, size=3000)
    block = sample_block(120, 3000, generator=generator())
    with pytest.raises(ValueError, match="expected finite values"):
        ascend(target, block, Budget(10), steps, generator=generator(), trace=AttackTrace(DEVICE, ignore))
    assert len(made) == 1


def test_a_block_may_be_empty(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    target = target_of(data)
    target.engine("tanh_margin").recordable = True
    attack = LRBCD(steps=10, block_size=2, lr=1000.0)
    for seed in range(12):
        attack.find(target, Budget(1), generator=generator(seed), trace=AttackTrace(DEVICE, ignore))


def test_what_cannot_be_recorded_is_done_step_by_step(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a model that asks the host; and it is tried once only."""
    unrecorded(monkeypatch)
    tries = []

    def refuse(self: RecordedAscent, *, warm: bool = False) -> None:
        tries.append(self.capacity)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(RecordedAscent, "record", refuse)
    target, budget, found = target_of(data), budget_of(data, True), []
    for recordable in (True, True, False):
        target.engine("tanh_margin").recordable = recordable
        attack = LRBCD(steps=10, block_size=3000, lr=1000.0)
        found.append(attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE, ignore)))
    assert len(tries) == 1
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])


def test_each_run_has_its_own_local_budgets(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 64)
    target = target_of(data)
    target.engine("tanh_margin").recordable = True
    for most in (3, 1, 2):
        budget = Budget(60, torch.full((120,), most, device=DEVICE))
        attack = LRBCD(steps=10, block_size=3000, lr=1000.0)
        flips = attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE, ignore))
        assert int(budget.used(flips).max()) == most
    assert len(target.recordings) == 1


def test_flips_that_become_too_many_later_are_made_room_for(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 16)
    monkeypatch.setattr(recordings, "_PER_FLIP", 0)
    monkeypatch.setattr(recorded, "_LOOK_EVERY", 4)
    target, budget = target_of(data), Budget(100)
    target.engine("tanh_margin").recordable = True
    steps = Steps(12, "tanh_margin", lambda step: 1e-9 if step < 7 else 400.0, greedy=False, size=3000)
    block = sample_block(120, 3000, generator=generator())
    made, run = [], Recording.run

    def counted(self: Recording, *arguments: object, **named: object) -> Outcome:
        made.append(self.capacity[-2])
        return run(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Recording, "run", counted)
    for _ in range(2):
        trace = AttackTrace(DEVICE, ignore)
        ascend(target, block, budget, steps, generator=generator(), trace=trace)
        assert len(trace.trace) == 12
    # The part of the seventh step, at which flips become many.
    assert made[0] == 0
    assert made[-1] == made[-2] > 64


def test_prbcd_goes_on_with_a_whole_block(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 64)
    target, sizes = target_of(data), []
    target.engine("tanh_margin").recordable = True

    def spy(target: Target, block: Block, *arguments: object, **named: object) -> Block:
        sizes.append(block.number.numel())
        return ascend(target, block, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(prbcd, "ascend", spy)
    for keep_best in (False, True):
        attack = PRBCD(steps=12, fine_tune_steps=4, block_size=3000, lr=1000.0, keep_best=keep_best)
        attack.find(target, Budget(20), generator=generator(), trace=AttackTrace(DEVICE, ignore))
    assert len(target.recordings) == 2
    assert sizes == pytest.approx([3000] * 4, abs=300)


def test_recordings_go_with_their_target(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not when Python next looks for cycles: they hold much of a GPU's memory."""
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 64)
    target = target_of(data)
    target.engine("tanh_margin").recordable = True
    attack = LRBCD(steps=10, block_size=3000, lr=1000.0)
    attack.find(target, budget_of(data, True), generator=generator(), trace=AttackTrace(DEVICE, ignore))
    (recording,) = target.recordings.values()
    watched = weakref.ref(recording)
    del recording, target
    assert watched() is None


def test_budgets_of_large_graphs_can_be_counted() -> None:
    """A box for each node as large as the number of pairs would be more steps than 64 bits hold."""
    for nodes in (16_385, 23_171, 10**6):
        total, local = boxes(Budget(300), nodes, nodes * (nodes - 1) // 2, torch.device("cpu"))
        assert int(total) == 300 << 36
        assert bool((local == total).all())
    with pytest.raises(ValueError, match="expected a budget that can be counted, got 268435456 flips"):
        boxes(Budget(1 << 28), 10, 1 << 30, torch.device("cpu"))


def test_one_recording_over_a_dense_matrix_serves_all_budgets(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch)
    monkeypatch.setattr(recordings, "_LEAST_CAPACITY", 16)
    made_with: list[bool] = []
    first = RecordedAscent.__init__

    def noted(self: RecordedAscent, *given: Any, **named: Any) -> None:
        first(self, *given, **named)
        made_with.append(self.filled is not None)

    monkeypatch.setattr(RecordedAscent, "__init__", noted)
    for name, expected in (("GCN", [True]), ("GAT", [False, False, False])):
        target = target_of(data, name)
        target.engine("tanh_margin").recordable = True
        made_with.clear()
        for total in (4, 40, 160):
            block = sample_block(120, 10**6, generator=generator())
            steps = steps_of(8, None, False, lr=5.0)
            ascend(target, block, Budget(total), steps, generator=generator(), trace=AttackTrace(DEVICE, ignore))
        assert made_with[: len(expected)] == expected
        assert set(made_with) == {name == "GCN"}


def test_few_steps_and_many_have_recordings_of_their_own(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one over a dense matrix, which many flips fill, and which is there once; the other over a sparse one."""
    unrecorded(monkeypatch)
    target = target_of(data)
    target.engine("tanh_margin").recordable = True
    for count in (recorded.EARLY, recorded.EARLY + 1):
        attack = PRBCD(steps=count, fine_tune_steps=0, block_size=2000, keep_best=False)
        attack.find(target, Budget(20), generator=generator(), trace=AttackTrace(DEVICE, ignore))
    few, many = (list(one.made.values()) for one in target.recordings.values())
    assert {id(one.filled) for one in few} == {id(target.engine("tanh_margin").adjacency.dense_graph)}
    assert {one.filled for one in many} == {None}
