"""Interrupted and killed evaluations: resumed ones have the same result, bit for bit."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import edgeproof as ep
from edgeproof.attacks import DICE, FGSM, PRBCD, Attack, ExactGain
from edgeproof.attacks.base import Target
from edgeproof.attacks.suite import Entry
from edgeproof.evaluation import Evaluation
from edgeproof.evaluation.checkpoint import num_finished
from edgeproof.splits import Split

pytestmark = pytest.mark.filterwarnings("ignore::edgeproof.evaluation.EvaluationWarning")

ATTACKS = (DICE(), PRBCD(steps=3, fine_tune_steps=1, block_size=500), FGSM(loss="log_margin"))


@dataclass(frozen=True, kw_only=True)
class Interrupted(Attack):
    """Attack that is interrupted, as by Ctrl-C, in its second search."""

    searches: list[None]

    def __repr__(self) -> str:
        return "Interrupted()"

    def num_steps(self, budget: ep.Budget) -> int:
        return 0

    def run(self, target: Target, budget: ep.Budget, *, generator: torch.Generator, trace: Any) -> Tensor:
        self.searches.append(None)
        if len(self.searches) == 2:
            raise KeyboardInterrupt
        return FGSM(loss="log_margin").run(target, budget, generator=generator, trace=trace)


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = [Entry("PRBCD", ATTACKS[1], seeds=(0, 1)), Entry("FGSM", ATTACKS[2])]
    plan = sys.modules["edgeproof.evaluation.plan"]
    monkeypatch.setattr(plan, "standard", lambda *_: suite)
    monkeypatch.setattr(plan, "exact", lambda *_: [Entry("ExactGain", ExactGain(candidates=500))])


def evaluate(split: Split, path: Path | None, attacks: Any = ATTACKS, **changes: Any) -> Evaluation:
    arguments = {"epsilons": [0.1, 0.05], "attacks": attacks, "seed": 2, "checkpoint": path, **changes}
    model = arguments.pop("model", None) or ep.models.build("GCN", 21, 2, seed=0)
    return ep.evaluate(model, split.test.data, split.test.nodes, **arguments)


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert [row._replace(seconds=0) for row in one.rows] == [row._replace(seconds=0) for row in other.rows]
    assert one.baselines == other.baselines
    for key, result in one.results.items():
        same = other.results[key]
        assert torch.equal(result.flips, same.flips)
        assert torch.equal(result.margins, same.margins)
        assert torch.equal(result.data.edge_index, same.data.edge_index)
        assert (result.trace, result.path, result.seed, result.accuracy) == (
            same.trace,
            same.path,
            same.seed,
            same.accuracy,
        )
        assert repr(result.attack) == repr(same.attack)
    for epsilon, result in one.worst.items():
        assert torch.equal(result.flips, other.worst[epsilon].flips)


def test_keyboard_interrupt_keeps_finished_searches_and_resumes(split: Split, tmp_path: Path) -> None:
    path, searches = tmp_path / "evaluation.checkpoint", list[None]()
    attacks = [*ATTACKS, Interrupted(searches=searches)]
    with pytest.raises(KeyboardInterrupt):
        evaluate(split, path, attacks, baselines=split)
    assert num_finished(path) == 7
    resumed = evaluate(split, path, attacks, baselines=split)
    # The interrupted search ran twice, all others once.
    assert len(searches) == 3
    assert num_finished(path) == 8
    assert_same(resumed, evaluate(split, None, [*ATTACKS, Interrupted(searches=[None] * 5)], baselines=split))


def interrupt_after(model: torch.nn.Module, calls: int) -> None:
    """Raise ``KeyboardInterrupt`` in the given forward pass of the model."""
    left = iter(range(calls))

    def hook(*_: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    model.register_forward_pre_hook(hook)


def test_repeatedly_interrupted_standard_suite_gives_the_same_result(
    split: Split, tmp_path: Path, small_suite: None
) -> None:
    path, interrupts, finished = tmp_path / "evaluation.checkpoint", 0, None
    while finished is None:
        model = ep.models.build("GCN", 21, 2, seed=0)
        # Every finished search is evaluated again.
        interrupt_after(model, 18 + num_finished(path))
        before = num_finished(path)
        try:
            finished = evaluate(split, path, "standard", model=model)
        except KeyboardInterrupt:
            interrupts += 1
            assert num_finished(path) > before
    assert interrupts >= 2
    assert {row.attack for row in finished.rows} == {
        *("PRBCD", "FGSM", "transfer", "local search", "ExactGain", "exact search"),
    }
    assert_same(finished, evaluate(split, None, "standard"))


def test_finished_evaluation_is_read_from_its_checkpoint(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.checkpoint"
    first = evaluate(split, path)
    contents = path.read_bytes()
    second = evaluate(split, path)
    assert path.read_bytes() == contents
    assert_same(first, second)
    assert [row.seconds for row in first.rows] == [row.seconds for row in second.rows]


SCRIPT = """
import sys
import edgeproof as ep
from edgeproof.attacks import ExactGain, LRBCD

data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)
split = ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)
model = ep.models.build("GCN", 21, 2, seed=0)
attacks = [LRBCD(steps=steps, block_size=1000) for steps in range(100, 300, 50)]
ep.evaluate(model, split.test.data, split.test.nodes, [0.1, 0.05], attacks, local=0.5, checkpoint=sys.argv[1])
"""


def test_killed_evaluation_resumes_to_the_same_result(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.checkpoint"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and num_finished(path) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert 2 <= num_finished(path) < 8
    attacks = [ep.attacks.LRBCD(steps=steps, block_size=1000) for steps in range(100, 300, 50)]
    resumed = evaluate(split, path, attacks, local=0.5, seed=0)
    assert_same(resumed, evaluate(split, None, attacks, local=0.5, seed=0))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"seed": 3}, "seed"),
        ({"epsilons": [0.1]}, "budgets"),
        ({"local": 0.5}, "budgets"),
        ({"constraints": ep.Constraints("additions")}, "constraints"),
        ({"attacks": ATTACKS[:2]}, "attacks"),
        ({"attacks": "standard", "effort": "quick"}, "attacks"),
        ({"model": ep.models.build("GCN", 21, 2, seed=1)}, "model"),
        ({"model": ep.models.build("GPRGNN", 21, 2, seed=0)}, "model"),
    ],
)
def test_checkpoint_of_another_evaluation_raises(
    split: Split, tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    path = tmp_path / "evaluation.checkpoint"
    evaluate(split, path)
    contents = path.read_bytes()
    with pytest.raises(ValueError, match=f"belongs to another evaluation, with {key} .*choose another checkpoint"):
        evaluate(split, path, **changes)
    assert path.read_bytes() == contents


def test_checkpoint_of_other_flips_given_to_fixed_flips_raises(split: Split, tmp_path: Path) -> None:
    path, (one, other) = tmp_path / "evaluation.checkpoint", torch.tensor([[[0], [1]], [[0], [2]]])
    evaluate(split, path, [ep.attacks.FixedFlips(flips=one)])
    with pytest.raises(ValueError, match="with attacks"):
        evaluate(split, path, [ep.attacks.FixedFlips(flips=other)])


def test_damaged_checkpoints_are_one_line_errors(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.checkpoint"
    evaluate(split, path)
    contents = path.read_bytes()
    # Every part of the file: sizes, header, flips and traces.
    positions = [*range(0, len(contents), max(1, len(contents) // 60)), len(contents) - 1]
    damaged = [contents[:k] + bytes([contents[k] ^ 1]) + contents[k + 1 :] for k in positions]
    damaged += [contents[:length] for length in (0, 4, 100, len(contents) - 1)] + [b"nonsense"]
    for version in damaged:
        path.write_bytes(version)
        with pytest.raises(ValueError, match=r"damaged|did not write|not an evaluation checkpoint") as caught:
            evaluate(split, path)
        assert "\n" not in str(caught.value)
        assert "delete it to start again" in str(caught.value).lower()


def test_unwritable_checkpoint_raises_before_any_attack(split: Split, tmp_path: Path) -> None:
    searches = list[None]()
    with pytest.raises(ValueError, match="expected a file to write, got the folder"):
        evaluate(split, tmp_path, [Interrupted(searches=searches)])
    assert not searches
