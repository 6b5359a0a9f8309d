"""Random trials and their counts."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

# Runs one random case in an empty folder and returns its outcome; raises Violation if a property does not hold.
Trial = Callable[[np.random.Generator, Path], str]


class Violation(Exception):
    """Property of the library that does not hold for a case."""


@dataclass
class Tally:
    """Counts of one trial.

    Args:
        outcomes: Number of cases by outcome.
        violations: Seed and message of each violation.
        seconds: Run time.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """Number of cases."""
        return self.outcomes.total() + len(self.violations)


def run_case(trial: Trial, seed: tuple[int, ...], tally: Tally) -> None:
    """Run one case of a trial and count it. An unexpected exception counts as a violation."""
    folder, start = Path(tempfile.mkdtemp(prefix="edgeproof-fuzz-")), time.perf_counter()
    try:
        tally.outcomes[trial(np.random.default_rng(seed), folder)] += 1
    except Violation as violation:
        tally.violations.append(f"seed {list(seed)}: {violation}")
    except Exception:
        tally.violations.append(f"seed {list(seed)}: {traceback.format_exc()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        tally.seconds += time.perf_counter() - start
