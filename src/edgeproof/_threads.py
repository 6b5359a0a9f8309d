"""How many threads compiled loops take."""

from __future__ import annotations

import numba
import torch


def share_with_torch(most: int | None = None) -> None:
    """Let numba's loops have as many threads as torch, so that a process told to stay small does.

    Args:
        most: at most so many.
    """
    allowed = torch.get_num_threads()
    wanted = allowed if most is None else min(most, allowed)
    numba.set_num_threads(min(wanted, _most()))
    if torch.get_num_threads() != allowed:
        # Numba has just started its threads, and has set the number of OpenMP's, which are torch's, too.
        torch.set_num_threads(allowed)


def _most() -> int:
    """As many as numba may have; to ask numba itself would start them."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
