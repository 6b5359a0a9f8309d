"""Run random trials for a given time, print their counts, and exit with status 1 if a property does not hold.

``python -m fuzz --minutes 10 --seed 0 --out results/fuzz/trial.json``, with ``tools`` on the path: ``make fuzz``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from edgeproof._files import check_writable, write_text
from edgeproof.evaluation.result import describe_environment
from edgeproof.serialization import json_digest
from fuzz.attacks import attacked_graph
from fuzz.certificates import enumerated_certificate
from fuzz.damage import damaged_file
from fuzz.inputs import bad_argument, hostile_name
from fuzz.kills import killed_command
from fuzz.trial import Tally, Trial, run_case


class Kind(NamedTuple):
    """Kind of trial.

    Args:
        trial: Runs one case.
        share: Relative part of the time.
        property: What is tested, for the table.
    """

    trial: Trial
    share: float
    property: str


KINDS: Mapping[str, Kind] = {
    "attacks": Kind(
        attacked_graph, 5, "budget, determinism and accuracy of every attack; on tiny graphs, all sets of flips"
    ),
    "certificates": Kind(enumerated_certificate, 2, "certified radii, against all graphs of up to 8 pairs"),
    "kills": Kind(
        killed_command, 12, "commands killed or interrupted, then resumed to the result of an uninterrupted run"
    ),
    "damage": Kind(damaged_file, 4, "damaged files of nine kinds are rejected or read unchanged"),
    "inputs": Kind(bad_argument, 2, "bad arguments give an error with a message"),
    "names": Kind(hostile_name, 1, "names of files and models with control characters, HTML and Unicode"),
}


def run_trials(names: list[str], seconds: float, seed: int, tallies: dict[str, Tally]) -> None:
    """Run cases until the time is over, the kinds in proportion to their shares; an interrupt ends them early.

    Args:
        names: Kinds.
        seconds: Run time.
        seed: Seed; case ``i`` of kind ``k`` has the seed ``(seed, k, i)``, whatever else runs.
        tallies: Receives the counts.
    """
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        name = min(names, key=lambda name: tallies[name].seconds / KINDS[name].share)
        run_case(KINDS[name].trial, (seed, list(KINDS).index(name), tallies[name].cases), tallies[name])


def table(record: Mapping[str, Any]) -> str:
    """Return the counts of a record as a Markdown table."""
    lines = ["| trial | property | cases | violations |", "|---|---|---:|---:|"]
    for name, counts in record["kinds"].items():
        lines.append(f"| {name} | {KINDS[name].property} | {counts['cases']:,} | {len(counts['violations'])} |")
    return "\n".join(lines)


def make_record(command: str, seed: int, seconds: float, tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """Return the content of a stored run, with a digest."""
    record = {
        "command": command,
        "seed": seed,
        "seconds": round(seconds, 1),
        "environment": describe_environment(),
        "kinds": {
            name: {
                "cases": tally.cases,
                "seconds": round(tally.seconds, 1),
                "outcomes": dict(sorted(tally.outcomes.items())),
                "violations": tally.violations,
            }
            for name, tally in tallies.items()
        },
    }
    return {**record, "digest": json_digest(record)}


def main(arguments: list[str]) -> int:
    """Parse the command line and run the trials."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="run time (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases (default: 0)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of trials (default: all)")
    parser.add_argument("--out", type=Path, help="JSON file of the counts")
    options = parser.parse_args(arguments)
    if options.out is not None:
        check_writable(options.out)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    tallies = {name: Tally() for name in dict.fromkeys(options.kinds)}
    start = time.perf_counter()
    try:
        run_trials(list(tallies), 60 * options.minutes, options.seed, tallies)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    command = shlex.join(["python", "-m", "fuzz", *arguments])
    record = make_record(command, options.seed, time.perf_counter() - start, tallies)
    print(table(record))
    for name, tally in tallies.items():
        for violation in tally.violations:
            print(f"\n{name}, {violation}", file=sys.stderr)
    if options.out is not None:
        write_text(options.out, json.dumps(record, indent=1) + "\n")
    return int(any(tally.violations for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
