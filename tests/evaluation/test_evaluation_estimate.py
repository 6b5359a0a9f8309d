"""Estimate of the remaining time, and the text of the progress bar."""

from __future__ import annotations

import pytest

import edgeproof as ep
from edgeproof.attacks import PRBCD, GreedyRBCD
from edgeproof.evaluation.estimate import Meter, progress_text, remaining_seconds, total_work
from edgeproof.evaluation.plan import Step

STEPS = [
    Step("attack", "PRBCD", PRBCD(steps=80, fine_tune_steps=20)),
    Step("attack", "GreedyRBCD", GreedyRBCD(steps=10)),
    Step("attack", "GreedyRBCD", GreedyRBCD(steps=10), seed=1),
]
BUDGETS = [ep.Budget(50), ep.Budget(100)]


def test_remaining_seconds_use_rates_of_the_same_attack_first() -> None:
    assert remaining_seconds({}, {"PRBCD": 10.0}) is None
    assert remaining_seconds({"PRBCD": (0.0, 1.0)}, {"PRBCD": 10.0}) is None
    measured = {"PRBCD": (10.0, 1.0), "FGSM": (10.0, 5.0)}
    assert remaining_seconds(measured, {"FGSM": 20.0}) == pytest.approx(10.0)
    assert remaining_seconds(measured, {"transfer": 20.0}) == pytest.approx(6.0)
    assert remaining_seconds(measured, {}) == 0


def test_text_names_attack_and_remaining_time() -> None:
    assert progress_text(3, 7, "LRBCD", 240.0) == "attack 3 of 7 (LRBCD), about 4 min left"
    assert progress_text(1, 7, "LRBCD", None) == "attack 1 of 7 (LRBCD)"


def test_meter_shows_all_attacks_and_budgets_as_one_total() -> None:
    shown: list[tuple[float, str]] = []
    meter = Meter(STEPS, BUDGETS, lambda done, text: shown.append((done, text)))
    assert total_work(STEPS, BUDGETS) == 200 + 20 + 20
    meter.start_step(0)
    assert shown[-1] == (0, "attack 1 of 3 (PRBCD)")
    meter.inner()(50, "")
    assert shown[-1][0] == 50
    meter.finish_search(100, 60.0)
    meter.finish_search(100, 60.0)
    # The average rate, 0.6 s per unit of work, holds for the attack that has not run yet.
    assert shown[-1] == (200, "attack 1 of 3 (PRBCD), about 24 s left")
    meter.start_step(1)
    meter.finish_search(10, 300.0)
    assert shown[-1] == (210, "attack 2 of 3 (GreedyRBCD), about 15 min left")
    meter.finish_search(10, 300.0)
    meter.start_step(2)
    meter.finish_search(10, 300.0)
    meter.finish_search(10, 300.0)
    assert shown[-1] == (240, "attack 3 of 3 (GreedyRBCD), about 0 s left")
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
