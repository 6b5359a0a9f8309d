"""Recorded attack steps against plain ones; on a GPU as CUDA graphs, elsewhere in the same fixed-size buffers, run directly."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import LRBCD, PGD, PRBCD, Block, project_global, project_local, sample_block
from edgeproof.attacks._recorded_steps import RecordedSteps, record_cuda_graph
from edgeproof.attacks._recording import RecordingOptions
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.attacks.blocks import MIN_WEIGHT
from edgeproof.attacks.projections import fixed_point_budget
from edgeproof.attacks.rbcd import Best, Steps, ascend
from edgeproof.budget import Budget

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# GPU kernels for the greedy projection support float32 only; there, rounding times the learning rate grows from step to step.
DTYPE, STEPS, CLOSE = (torch.float64, 6, 1e-9) if DEVICE.type == "cpu" else (torch.float32, 1, 1e-4)
NUM_PAIRS = 120 * 119 // 2


def run_directly(
    run: Callable[[], None], device: torch.device, generator: torch.Generator, warm: bool
) -> Callable[[], None]:
    """Replace the recording of a CUDA graph on a CPU."""
    return run


RECORDER = record_cuda_graph if DEVICE.type == "cuda" else run_directly


def recording_options(**changes: Any) -> RecordingOptions:
    return RecordingOptions(**{"recorder": RECORDER, **changes})


@pytest.fixture
def data() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=120, p=0.1, q=0.02, seed=3).to(DEVICE)


def target_of(
    data: Data, name: str = "GPRGNN", dtype: torch.dtype = torch.float32, recording: RecordingOptions | None = None
) -> Target:
    """Return a target with a trained model, because an untrained one hardly depends on the edges."""
    model = ep.models.build(name, 21, 2, seed=0).to(DEVICE)
    split = ep.splits.inductive(data, train_per_class=20, val_per_class=10)
    ep.train(model, split, max_epochs=40, progress=False)
    nodes = torch.arange(0, 120, 3, device=DEVICE)
    exact = Data(x=data.x.to(dtype), edge_index=data.edge_index, y=data.y)
    return Target(model.to(dtype).eval(), exact, nodes, data.y[nodes], recording=recording)


def without_recording(target: Target) -> Target:
    target = replace(target, recording=None)
    target.engine("tanh_margin").recordable = False
    return target


def budget_of(data: Data, local: bool) -> Budget:
    return Budget.from_epsilon(data, torch.arange(120, device=DEVICE), 0.1, local=0.3 if local else None)


def steps_of(count: int, block_size: int | None, greedy: bool, lr: float = 400.0, loss: str = "tanh_margin") -> Steps:
    return Steps(count, loss, lambda step: lr / step, greedy, block_size)


def recorded_steps(
    target: Target, block: Block, steps: Steps, capacity: int = 1024, keep_best: bool = False, **changes: Any
) -> RecordedSteps:
    recorded = RecordedSteps(target, block, steps, recording_options(**changes), keep_best=keep_best, capacity=capacity)
    recorded.record(RECORDER)
    return recorded


def replay_all(
    recorded: RecordedSteps, block: Block, budget: Budget, steps: Steps, trace: AttackTrace | None = None
) -> Block | None:
    """Run all steps with one capacity; None after a failure."""
    recorded.begin(block, budget, 0)
    succeeded = recorded.replay(1, steps.count, steps, trace or AttackTrace(DEVICE))
    return recorded.block(block) if succeeded else None


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def dense(pairs: ep.propagation.Pairs, flip: Tensor) -> Tensor:
    """Return the weight of every pair of the graph as a matrix."""
    weight = flip.new_zeros(pairs.num_nodes, pairs.num_nodes)
    return weight.index_put((pairs.u, pairs.v), flip)


def was_recorded(seconds: dict[str, float]) -> bool:
    assert ("recorded steps" in seconds) != ("projection" in seconds)
    return "recorded steps" in seconds


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "ChebNetII", "GAT"])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("all_pairs", [False, True])
def test_recorded_steps_on_fixed_pairs_match_plain_steps(data: Data, all_pairs: bool, greedy: bool, name: str) -> None:
    target, budget, steps = target_of(data, name, DTYPE), budget_of(data, greedy), steps_of(STEPS, None, greedy)
    size = 10**6 if all_pairs else 3000
    block = sample_block(120, size, generator=generator(), nodes=budget.usable, dtype=DTYPE)
    recorded_trace, plain_trace = AttackTrace(DEVICE), AttackTrace(DEVICE)
    recorded_best, plain_best = Best(), Best()
    # Scores from a table of all pairs, or pair by pair.
    table_ratio = 16 if all_pairs else 0
    recorded = recorded_steps(target, block, steps, capacity=NUM_PAIRS, keep_best=True, table_ratio=table_ratio)
    assert recorded.from_table == all_pairs
    result = replay_all(recorded, block, budget, steps, recorded_trace)
    assert result is not None
    recorded_best.update(*recorded.best_block)
    expected = ascend(target, block, budget, steps, generator=generator(), trace=plain_trace, best=plain_best)
    assert int((expected.flip > 0).sum()) >= 5
    torch.testing.assert_close(result.flip, expected.flip, rtol=CLOSE, atol=CLOSE)
    assert recorded_trace.trace == pytest.approx(plain_trace.trace, abs=CLOSE)
    assert recorded_best.block is not None
    # The plain loop also evaluates the last block.
    last = target.accuracy(target.engine("tanh_margin").logits(*expected.flipped))
    assert min(recorded_best.accuracy, float(last)) == plain_best.accuracy
    accuracy = target.accuracy(target.engine("tanh_margin").logits(*recorded_best.block.flipped))
    assert float(accuracy) == pytest.approx(recorded_best.accuracy)


@pytest.mark.parametrize("loss", ["cross_entropy", "log_margin", "scaled_margin"])
def test_every_loss_can_be_recorded(data: Data, loss: str) -> None:
    target, budget, steps = target_of(data, dtype=DTYPE), budget_of(data, True), steps_of(STEPS, None, True, loss=loss)
    block = sample_block(120, 3000, generator=generator(), nodes=budget.usable, dtype=DTYPE)
    result = replay_all(recorded_steps(target, block, steps, capacity=NUM_PAIRS), block, budget, steps)
    expected = ascend(target, block, budget, steps, generator=generator(), trace=AttackTrace(DEVICE))
    assert result is not None
    assert int((expected.flip > 0).sum()) >= 5
    torch.testing.assert_close(result.flip, expected.flip, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize(("greedy", "uses_dense"), [(True, False), (False, False), (False, True)])
def test_recorded_step_with_resampling_matches_plain_step_on_same_block(
    data: Data, greedy: bool, uses_dense: bool
) -> None:
    if DEVICE.type == "cuda":
        pytest.skip("the tolerances hold on a CPU only")
    target, budget = target_of(data), budget_of(data, greedy)
    steps = replace(steps_of(8, 2000, greedy), keep_block=True)
    block = sample_block(120, 2000, generator=generator(), nodes=budget.usable)
    recorded = recorded_steps(target, block, steps, early_steps=8 if uses_dense else 7)
    assert (recorded.dense is not None) == uses_dense
    recorded.begin(block, budget, 0)
    engine, drawn = target.engine("tanh_margin"), []
    for step in range(1, steps.count + 1):
        # Weights before the step, in the order of the slots: flipped pairs first, then new ones.
        before = torch.cat([recorded.weight, recorded.weight.new_zeros(recorded.flip.numel() - recorded.capacity)])
        assert recorded.replay(step, step, steps, AttackTrace(DEVICE))
        assert recorded.last is not None
        number, sign = recorded.last
        is_pair = sign != 0
        number, order = number[is_pair].sort()
        sign, weight = sign[is_pair][order], before[is_pair][order]
        after = recorded.block(block)
        pairs = after.pairs
        assert bool((number.diff() > 0).all())
        assert number.numel() == pytest.approx(2000, abs=250)
        assert torch.equal(sign, engine.sign(pairs, True))
        drawn.append(Block(number, pairs, weight, budget.usable))
        updated = weight + 400 / step * engine(*drawn[-1].flipped).at(pairs)
        flip = project_local(updated, pairs, budget) if greedy else project_global(updated, budget.total)
        assert bool(flip.any())
        torch.testing.assert_close(dense(after.pairs, after.flip), dense(pairs, flip), rtol=1e-4, atol=1e-5)
        # The buffers of the next step hold exactly the flipped pairs.
        is_flipped = recorded.weight > 0
        kept, order = recorded.number[is_flipped].sort()
        assert torch.equal(kept, after.number[after.flip > MIN_WEIGHT])
        assert torch.equal(recorded.weight[is_flipped][order], after.flipped[1])
    fresh = [set(each.number.tolist()) for each in drawn]
    assert all(len(left & right) < 1000 for left, right in itertools.pairwise(fresh))


def test_recorded_resampling_draws_all_pairs_equally_often(data: Data) -> None:
    target, budget, size = target_of(data), Budget(0), 500
    block = sample_block(120, size, generator=generator())
    steps = steps_of(1, size, False)
    recorded = RecordedSteps(target, block, steps, recording_options(), keep_best=False, capacity=16)
    recorded.begin(block, budget, 0)
    counts, rounds = torch.zeros(NUM_PAIRS, device=DEVICE), 4000
    for _ in range(rounds):
        number, _, sign = recorded.resample(size)
        counts.index_add_(0, number, sign.abs())
    assert not bool(recorded.invalid)
    q = size / NUM_PAIRS
    expected, deviation = rounds * q, (rounds * q * (1 - q)) ** 0.5
    assert float(counts.sum()) == pytest.approx(rounds * size, rel=0.01)
    assert float((counts - expected).abs().max()) < 5.5 * deviation
    # A chi-square statistic over all pairs, within five of its standard deviations.
    statistic = float(((counts - expected) / deviation).square().sum())
    assert abs(statistic - NUM_PAIRS) < 5 * (2 * NUM_PAIRS) ** 0.5


def test_more_flips_than_the_capacity_are_detected(data: Data) -> None:
    target, budget, steps = target_of(data), Budget(200), steps_of(3, 2000, False)
    block = sample_block(120, 2000, generator=generator())
    small = recorded_steps(target, block, steps, capacity=32)
    assert replay_all(small, block, budget, steps) is None
    assert int(small.max_flips) > 32
    large = recorded_steps(target, block, steps, capacity=2048)
    assert replay_all(large, block, budget, steps) is not None


@pytest.mark.parametrize("greedy", [False, True])
def test_non_finite_values_are_detected(data: Data, greedy: bool) -> None:
    target, budget, steps = target_of(data), budget_of(data, greedy), steps_of(3, None, greedy, lr=float("nan"))
    block = sample_block(120, 3000, generator=generator(), nodes=budget.usable)
    recorded = recorded_steps(target, block, steps)
    assert replay_all(recorded, block, budget, steps) is None
    assert bool(recorded.invalid)


@pytest.mark.parametrize(
    "attack",
    [
        LRBCD(steps=12, block_size=3000, lr=1000.0),
        LRBCD(steps=12, block_size=10**6),
        PRBCD(steps=12, fine_tune_steps=6, block_size=2000, lr=1000.0),
        PGD(steps=12, lr=100.0),
    ],
)
def test_recorded_attack_is_deterministic_and_as_strong_as_plain(attack: LRBCD | PRBCD | PGD, data: Data) -> None:
    """The result keeps the budget and does not depend on the budgets of earlier runs."""
    target = target_of(data, recording=recording_options(min_steps_once=5, min_capacity=64))
    local = 0.5 if isinstance(attack, LRBCD) else None
    few, many = Budget.from_epsilons(data, target.nodes, [0.05, 0.3], local=local)
    plain = attack(target.model, data, target.nodes, many, seed=0)
    assert ("recorded steps" in plain.seconds) == target.engine("tanh_margin").recordable
    results = []
    for budget in (many, few, many):
        trace = AttackTrace(DEVICE)
        flips = attack.find(target, budget, generator=generator(), trace=trace)
        budget.check(flips)
        assert was_recorded(trace.seconds)
        results.append(flips)
    assert torch.equal(results[0], results[2])
    assert results[1].size(1) <= few.total
    ((accuracy, _),) = target.score([results[0]], "tanh_margin")
    assert accuracy <= plain.accuracy + 0.06
    assert accuracy < plain.clean_accuracy


def test_first_steps_with_many_flips_get_a_larger_capacity(data: Data) -> None:
    """The result and the number of losses are those of plain steps."""
    target = target_of(data, recording=recording_options(min_capacity=40, capacity_per_flip=0))
    budget = budget_of(data, True)
    # After a small first step nearly all pairs have a small weight; from then on the budget is binding.
    steps = Steps(10, "tanh_margin", lambda step: 0.02 if step == 1 else 1e4, greedy=True, block_size=10**6)
    block = sample_block(120, 10**6, generator=generator(), nodes=budget.usable)
    traces, results = [], []
    for each in (target, without_recording(target)):
        traces.append(AttackTrace(DEVICE))
        results.append(ascend(each, block, budget, steps, generator=generator(), trace=traces[-1]))
    assert [was_recorded(trace.seconds) for trace in traces] == [True, False]
    (recording,) = target.recordings.values()
    # The second step starts with nearly all pairs flipped.
    assert recording.capacity[0] > 1000
    assert max(recording.capacity[1:]) < 300
    assert len(traces[0].trace) == len(traces[1].trace) == 10
    assert traces[0].trace == pytest.approx(traces[1].trace, abs=1e-3)
    assert int((results[0].flip > 0).sum()) > 10
    # Float32, and learning rates that amplify rounding errors.
    assert float((results[0].flip - results[1].flip).abs().sum()) < 0.1 * budget.total


@pytest.mark.parametrize(
    "attack",
    [
        LRBCD(steps=12, block_size=3000, lr=1000.0),
        PRBCD(steps=12, block_size=2000),
        # Near the threshold for a table of all scores: the choice must not depend on the capacity.
        PRBCD(steps=12, block_size=600),
    ],
)
def test_recorded_result_does_not_depend_on_earlier_runs(attack: LRBCD | PRBCD, data: Data) -> None:
    """Neither learned capacities nor failed attempts influence the result."""
    options = recording_options(min_capacity=8, capacity_per_flip=0)
    nodes = target_of(data).nodes
    few, many = Budget.from_epsilons(data, nodes, [0.05, 0.5], local=0.5 if isinstance(attack, LRBCD) else None)
    results = []
    for budgets in ([many], [few, many, many]):
        target = target_of(data, recording=options)
        for budget in budgets:
            flips = attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE))
        results.append(flips)
    (recording,) = (each for (*_, resamples, _, _, _, _), each in target.recordings.items() if resamples)
    assert max(recording.capacity) > 16
    assert torch.equal(results[0], results[1])


def recorded_and_plain(target: Target, block: Block, budget: Budget, steps: Steps) -> list[tuple[Block, Best]]:
    results = []
    for each, recorded in ((target, True), (without_recording(target), False)):
        best, trace = Best(), AttackTrace(DEVICE)
        last = ascend(each, block, budget, steps, generator=generator(), trace=trace, best=best)
        assert was_recorded(trace.seconds) is recorded
        results.append((last, best))
    return results


def test_best_block_of_any_part_is_returned(data: Data) -> None:
    target = target_of(data, recording=recording_options())
    # Two steps raise the loss, and many lead back to the start.
    steps = Steps(14, "tanh_margin", lambda step: 400.0 if step < 3 else -1e6, greedy=False, block_size=10**6)
    block = sample_block(120, 10**6, generator=generator())
    (_, recorded_best), (_, plain_best) = recorded_and_plain(target, block, Budget(60), steps)
    clean = float(target.accuracy(target.engine("tanh_margin").logits()))
    assert recorded_best.accuracy == pytest.approx(plain_best.accuracy)
    assert recorded_best.accuracy < clean - 0.05
    assert recorded_best.block is not None
    accuracy = target.accuracy(target.engine("tanh_margin").logits(*recorded_best.block.flipped))
    assert float(accuracy) == pytest.approx(recorded_best.accuracy)


def test_only_resampled_blocks_are_truncated_to_half_of_their_flips(data: Data) -> None:
    target = target_of(data, recording=recording_options(min_capacity=16, capacity_per_flip=0))
    # Steps so small that the budget is never reached.
    steps = Steps(10, "tanh_margin", lambda step: 0.02, greedy=False, block_size=600)
    block = sample_block(120, 600, generator=generator())
    (result, _), (plain, _) = recorded_and_plain(target, block, Budget(290), steps)
    (recording,) = target.recordings.values()
    # Every step starts from the flips that fit the capacity.
    assert max(recording.by_capacity) == 300
    assert all(int((recorded.weight > 0).sum()) <= 300 for recorded in recording.by_capacity.values())
    counts = [int((each.flip > 0).sum()) for each in (result, plain)]
    assert counts[0] > 300
    assert counts[0] == pytest.approx(counts[1], abs=60)


def test_smaller_budget_after_a_larger_one_is_kept(data: Data) -> None:
    """The budget is passed on between parts with different capacities."""
    target = target_of(data, recording=recording_options(min_capacity=16, capacity_per_flip=0))
    # After the first step nearly all pairs have a small weight.
    steps = Steps(14, "tanh_margin", lambda step: 0.02 if step == 1 else 1e4, greedy=True, block_size=10**6)
    block = sample_block(120, 10**6, generator=generator())
    for total in (100, 100, 7):
        budget = Budget(total, torch.full((120,), 2, device=DEVICE))
        result = ascend(target, block, budget, steps, generator=generator(), trace=AttackTrace(DEVICE))
        assert total - 1 < float(result.flip.sum()) <= total + 1e-3
    (recording,) = target.recordings.values()
    assert len(recording.by_capacity) > 1


def test_non_finite_values_are_not_retried_with_more_capacity(data: Data) -> None:
    num_recorded = 0

    def counting_recorder(*arguments: Any) -> Callable[[], None]:
        nonlocal num_recorded
        num_recorded += 1
        return RECORDER(*arguments)

    target = target_of(data, recording=recording_options(recorder=counting_recorder))
    steps = Steps(10, "tanh_margin", lambda step: float("nan"), greedy=True, block_size=3000)
    block = sample_block(120, 3000, generator=generator())
    with pytest.raises(ValueError, match="expected finite values"):
        ascend(target, block, Budget(10), steps, generator=generator(), trace=AttackTrace(DEVICE))
    assert num_recorded == 1


def test_recorded_blocks_may_be_empty(data: Data) -> None:
    target = target_of(data, recording=recording_options())
    attack = LRBCD(steps=10, block_size=2, lr=1000.0)
    for seed in range(12):
        attack.find(target, Budget(1), generator=generator(seed), trace=AttackTrace(DEVICE))


def test_attack_falls_back_to_plain_steps_if_recording_fails(data: Data) -> None:
    """Recording fails as for a model that needs a host-device sync, and is attempted only once."""
    num_attempts = 0

    def failing_recorder(*arguments: Any) -> Callable[[], None]:
        nonlocal num_attempts
        num_attempts += 1
        raise RuntimeError("operation not permitted when stream is capturing")

    target, budget = target_of(data, recording=recording_options(recorder=failing_recorder)), budget_of(data, True)
    attack, results = LRBCD(steps=10, block_size=3000, lr=1000.0), []
    for each in (target, target, without_recording(target)):
        results.append(attack.find(each, budget, generator=generator(), trace=AttackTrace(DEVICE)))
    assert num_attempts == 1
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[2])


def test_each_recorded_run_keeps_its_own_local_budgets(data: Data) -> None:
    target = target_of(data, recording=recording_options(min_capacity=64))
    for local in (3, 1, 2):
        budget = Budget(60, torch.full((120,), local, device=DEVICE))
        attack = LRBCD(steps=10, block_size=3000, lr=1000.0)
        flips = attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE))
        assert int(budget.used(flips).max()) == local
    assert len(target.recordings) == 1


def test_capacity_grows_if_flips_become_too_many_later(data: Data) -> None:
    target = target_of(data, recording=recording_options(min_capacity=16, capacity_per_flip=0, check_every=4))
    budget = Budget(100)
    steps = Steps(12, "tanh_margin", lambda step: 1e-9 if step < 7 else 400.0, greedy=False, block_size=3000)
    block = sample_block(120, 3000, generator=generator())
    capacities = []
    for _ in range(2):
        trace = AttackTrace(DEVICE)
        ascend(target, block, budget, steps, generator=generator(), trace=trace)
        assert was_recorded(trace.seconds)
        assert len(trace.trace) == 12
        (recording,) = target.recordings.values()
        # The part of the seventh step, at which flips become many.
        capacities.append(recording.capacity[-2])
    # The first run starts with a capacity of 32; the second needs no further attempt.
    assert capacities[0] == capacities[1] > 64


def test_prbcd_fine_tunes_a_whole_block(data: Data) -> None:
    target, sizes, budget = target_of(data, recording=recording_options(min_capacity=64)), [], Budget(20)
    for keep_best in (False, True):
        attack = PRBCD(steps=12, fine_tune_steps=4, block_size=3000, lr=1000.0, keep_best=keep_best)
        resampling, fine_tuning = attack.stages(120, budget)
        assert fine_tuning.keep_block
        block, best = sample_block(120, 3000, generator=generator()), Best()
        last = ascend(
            target,
            block,
            budget,
            resampling,
            generator=generator(),
            trace=AttackTrace(DEVICE),
            best=best if keep_best else None,
        )
        sizes += [each.number.numel() for each in (block, last, best.block) if each is not None]
        attack.find(target, budget, generator=generator(), trace=AttackTrace(DEVICE))
    assert len(target.recordings) == 2
    assert sizes == pytest.approx([3000] * 5, abs=300)


def test_recordings_are_freed_with_their_target(data: Data) -> None:
    """Recordings hold much GPU memory, so they must not wait for the garbage collector."""
    target = target_of(data, recording=recording_options(min_capacity=64))
    attack = LRBCD(steps=10, block_size=3000, lr=1000.0)
    attack.find(target, budget_of(data, True), generator=generator(), trace=AttackTrace(DEVICE))
    (recording,) = target.recordings.values()
    reference = weakref.ref(recording)
    del recording, target
    assert reference() is None


def test_fixed_point_budget_fits_int64_on_large_graphs() -> None:
    """The budget, not the number of pairs, limits the fixed-point sums."""
    for nodes in (16_385, 23_171, 10**6):
        total, local = fixed_point_budget(Budget(300), nodes, nodes * (nodes - 1) // 2, torch.device("cpu"))
        assert int(total) == 300 << 36
        assert bool((local == total).all())
    with pytest.raises(ValueError, match="expected a budget that fits 64-bit fixed-point sums, got 268435456 flips"):
        fixed_point_budget(Budget(1 << 28), 10, 1 << 30, torch.device("cpu"))


@pytest.mark.parametrize(("name", "uses_dense"), [("GCN", True), ("GAT", False)])
def test_recording_with_dense_matrix_serves_all_budgets(data: Data, name: str, uses_dense: bool) -> None:
    target = target_of(data, name, recording=recording_options(min_capacity=16))
    recorded: list[RecordedSteps] = []
    for total in (4, 40, 160):
        block = sample_block(120, 10**6, generator=generator())
        steps = steps_of(8, None, False, lr=5.0)
        ascend(target, block, Budget(total), steps, generator=generator(), trace=AttackTrace(DEVICE))
        (recording,) = target.recordings.values()
        recorded += [each for each in recording.by_capacity.values() if each not in recorded]
    assert len(recorded) == 1 if uses_dense else len(recorded) >= 3
    assert {each.dense is not None for each in recorded} == {uses_dense}


def test_few_and_many_steps_have_separate_recordings(data: Data) -> None:
    """Few steps run over a (shared) dense matrix, many over a sparse one."""
    options = recording_options()
    target = target_of(data, recording=options)
    for count in (options.early_steps, options.early_steps + 1):
        attack = PRBCD(steps=count, fine_tune_steps=0, block_size=2000, keep_best=False)
        attack.find(target, Budget(20), generator=generator(), trace=AttackTrace(DEVICE))
    few, many = (list(recording.by_capacity.values()) for recording in target.recordings.values())
    assert {id(recorded.dense) for recorded in few} == {id(target.engine("tanh_margin").adjacency.dense_graph)}
    assert {recorded.dense for recorded in many} == {None}
