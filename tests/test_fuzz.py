"""A few cases of every trial of ``make fuzz``, with fixed seeds."""

from __future__ import annotations

import pytest
from fuzz.damage import damaged_file
from fuzz.trial import Tally, run_case

TRIALS = {"damaged files": (damaged_file, 100)}


@pytest.mark.parametrize("name", TRIALS)
def test_trials_find_no_violation(name: str) -> None:
    trial, cases = TRIALS[name]
    tally = Tally()
    for number in range(cases):
        run_case(trial, (0, number), tally)
    assert not tally.violations
    assert tally.cases == cases
