"""Number of threads of Numba kernels."""

from __future__ import annotations

import numba
import torch


def share_with_torch(maximum: int | None = None) -> None:
    """Limit Numba to the number of threads that torch may use.

    Args:
        maximum: Additional upper bound.
    """
    torch_threads = torch.get_num_threads()
    threads = torch_threads if maximum is None else min(maximum, torch_threads)
    numba.set_num_threads(min(threads, _numba_limit()))
    if torch.get_num_threads() != torch_threads:
        # Starting Numba's thread pool also sets the number of OpenMP threads, which torch shares.
        torch.set_num_threads(torch_threads)


def _numba_limit() -> int:
    """Return Numba's maximum; ``numba.get_num_threads`` would start the thread pool."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
