"""A few cases of every trial of ``make fuzz``, with fixed seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fuzz.__main__ import KINDS, main, make_record, run_trials, table
from fuzz.trial import Tally, Violation, run_case

from edgeproof.serialization import json_digest

ROOT = Path(__file__).resolve().parent.parent
CASES = {"attacks": 12, "certificates": 60, "damage": 100, "inputs": 150, "names": 6}


@pytest.mark.parametrize("name", CASES)
def test_trials_find_no_violation(name: str) -> None:
    tally = Tally()
    for number in range(CASES[name]):
        run_case(KINDS[name].trial, (0, number), tally)
    assert not tally.violations
    assert tally.cases == CASES[name]


@pytest.mark.slow
def test_killed_commands_resume() -> None:
    tally = Tally()
    for number in range(12):
        run_case(KINDS["kills"].trial, (0, number), tally)
    assert not tally.violations


def fails(random: np.random.Generator, folder: Path) -> str:
    (folder / "file").touch()
    if random.random() < 0.5:
        raise Violation("a property")
    raise KeyError("unexpected")


def test_violations_and_unexpected_errors_are_counted_with_their_seeds() -> None:
    tally = Tally()
    for number in range(20):
        run_case(fails, (5, 1, number), tally)
    assert tally.cases == len(tally.violations) == 20
    assert {line.partition(":")[0] for line in tally.violations} == {f"seed [5, 1, {number}]" for number in range(20)}
    assert any("a property" in line for line in tally.violations)
    assert any("KeyError: 'unexpected'" in line for line in tally.violations)


def test_a_run_depends_on_its_seed_alone_and_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = {"certificates": Tally()}
    run_trials(["certificates"], 0.5, 3, tally)
    again = Tally()
    for number in range(tally["certificates"].cases):
        run_case(KINDS["certificates"].trial, (3, 1, number), again)
    assert again.outcomes == tally["certificates"].outcomes
    out = tmp_path / "record.json"
    assert main(["--minutes", "0.005", "--seed", "3", "--kinds", "certificates", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert record["command"] == f"python -m fuzz --minutes 0.005 --seed 3 --kinds certificates --out {out}"
    assert record["kinds"]["certificates"]["cases"] > 0
    assert table(record) in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--kinds", "nothing"])


def test_violations_are_in_the_record() -> None:
    tally = Tally()
    run_case(fails, (0,), tally)
    record = make_record("python -m fuzz", 0, 1.0, {"certificates": tally})
    assert record["kinds"]["certificates"]["violations"] == tally.violations
    assert record.pop("digest") == json_digest(record)


def test_stored_run_found_no_violation_and_is_that_of_the_documentation() -> None:
    record = json.loads((ROOT / "results/fuzz/trial.json").read_text())
    assert record.pop("digest") == json_digest(record)
    assert list(record["kinds"]) == list(KINDS)
    assert record["seconds"] >= 600
    assert not any(counts["violations"] for counts in record["kinds"].values())
    page = (ROOT / "docs/integrity.md").read_text(encoding="utf-8")
    assert table(record) in page
    assert record["command"] in page
