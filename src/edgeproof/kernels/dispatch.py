"""Which kernels serve which inputs.

A backend is a module with ``name``, ``summary``, ``not_supported_reasons(tensors)`` and the kernels of
:class:`Backend`; what they compute, :mod:`~edgeproof.kernels.reference` defines.
The first backend without a reason against the inputs at hand serves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor

from edgeproof._names import look_up
from edgeproof.kernels import numba_cpu, reference, triton_gpu


class Backend(Protocol):
    """What a module of kernels offers."""

    name: str
    summary: str

    def not_supported_reasons(self, tensors: Sequence[Tensor]) -> list[str]: ...

    def spmm(self, rowptr: Tensor, col: Tensor, weight: Tensor, x: Tensor, longest: int | None = None) -> Tensor: ...

    def insert_pairs(
        self,
        rowptr: Tensor,
        col: Tensor,
        key: Tensor,
        weight: Tensor,
        diagonal: Tensor,
        u: Tensor,
        v: Tensor,
        flip: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...

    def normalize(
        self,
        rowptr: Tensor,
        col: Tensor,
        weight: Tensor,
        diagonal: Tensor,
        *,
        self_loops: bool,
        longest: int | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def normalized_terms(
        self, b: Sequence[Tensor], h: Sequence[Tensor], out: Sequence[Tensor], grad_x: Sequence[Tensor], scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def gathered_dot(self, a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor: ...

    def weighted_median(self, x: Tensor, values: Tensor, index: Tensor) -> Tensor: ...

    def pairs_above(
        self, b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int
    ) -> tuple[Tensor, int]: ...

    def merge(self, few: Tensor, many: Tensor) -> tuple[Tensor, Tensor]: ...

    def bracket_threshold(self, values: Tensor, thresholds: Tensor, budget: Tensor) -> tuple[Tensor, Tensor]: ...

    def apply_threshold(
        self, values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float
    ) -> Tensor: ...

    def take_largest(
        self, p: Tensor, u: Tensor, v: Tensor, total: Tensor, local: Tensor, unit: int, *, whole: bool
    ) -> tuple[Tensor, Tensor]: ...

    def compact(
        self, there: Tensor, number: Tensor, flip: Tensor, kept_number: Tensor, kept_flip: Tensor
    ) -> Tensor: ...

    def unrank_pairs(self, number: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]: ...

    def pair_scores(self, b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor: ...

    def table_at(self, table: Tensor, node: Tensor, u: Tensor, v: Tensor) -> Tensor: ...


# Fastest first.
BACKENDS: tuple[Backend, ...] = (triton_gpu, numba_cpu, reference)


_forced: ContextVar[str | None] = ContextVar("forced", default=None)


@contextmanager
def using(backend: str | None) -> Iterator[None]:
    """Within this block, the backend named serves every call that names none itself."""
    token = _forced.set(backend or _forced.get())
    try:
        yield
    finally:
        _forced.reset(token)


def check_name(backend: str | None) -> None:
    """Raise unless there is a backend of that name."""
    if backend is not None:
        look_up("backend", backend, {candidate.name: candidate for candidate in BACKENDS})


def choose(tensors: Sequence[Tensor], backend: str | None = None) -> Backend:
    """The backend for these inputs: the one named, here or by :func:`using`, or else the first that can."""
    backend = backend or _forced.get()
    check_name(backend)
    candidates = [candidate for candidate in BACKENDS if backend in (None, candidate.name)]
    refusals = []
    for candidate in candidates:
        reasons = candidate.not_supported_reasons(tensors)
        if not reasons:
            return candidate
        refusals.append(f"{candidate.name}: {'; '.join(reasons)}")
    inputs = ", ".join(f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}" for tensor in tensors)
    raise ValueError(f"no kernel backend can serve {inputs} ({' | '.join(refusals)})")


def spmm(
    rowptr: Tensor, col: Tensor, weight: Tensor, x: Tensor, *, longest: int | None = None, backend: str | None = None
) -> Tensor:
    """Sparse-dense product, by the backend chosen."""
    return choose((weight, x), backend).spmm(rowptr, col, weight, x, longest)


def insert_pairs(
    rowptr: Tensor,
    col: Tensor,
    key: Tensor,
    weight: Tensor,
    diagonal: Tensor,
    u: Tensor,
    v: Tensor,
    flip: Tensor,
    *,
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A sparse matrix with pairs flipped in part, by the backend chosen."""
    return choose((weight, flip), backend).insert_pairs(rowptr, col, key, weight, diagonal, u, v, flip)


def normalize(
    rowptr: Tensor,
    col: Tensor,
    weight: Tensor,
    diagonal: Tensor,
    *,
    self_loops: bool,
    longest: int | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Symmetric normalisation of a sparse matrix, by the backend chosen."""
    chosen = choose((weight,), backend)
    return chosen.normalize(rowptr, col, weight, diagonal, self_loops=self_loops, longest=longest)


def normalized_terms(
    b: Sequence[Tensor],
    h: Sequence[Tensor],
    out: Sequence[Tensor],
    grad_x: Sequence[Tensor],
    scale: Tensor,
    *,
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What the gradient of a normalised matrix is made from, by the backend chosen."""
    return choose((scale,), backend).normalized_terms(b, h, out, grad_x, scale)


def gathered_dot(a: Tensor, b: Tensor, left: Tensor, right: Tensor, *, backend: str | None = None) -> Tensor:
    """Dot products of gathered rows, by the backend chosen."""
    return choose((a, b), backend).gathered_dot(a, b, left, right)


def weighted_median(x: Tensor, values: Tensor, index: Tensor, *, backend: str | None = None) -> Tensor:
    """Whose value is the weighted median of each row's neighbours, by the backend chosen."""
    return choose((x, values), backend).weighted_median(x, values, index)


def pair_scores(b: Tensor, h: Tensor, node: Tensor, u: Tensor, v: Tensor, *, backend: str | None = None) -> Tensor:
    """The bilinear form of each pair, by the backend chosen."""
    return choose((b, h, node), backend).pair_scores(b, h, node, u, v)


def table_at(table: Tensor, node: Tensor, u: Tensor, v: Tensor, *, backend: str | None = None) -> Tensor:
    """The bilinear form of each pair from a table, by the backend chosen."""
    return choose((table, node), backend).table_at(table, node, u, v)


def compact(
    there: Tensor,
    number: Tensor,
    flip: Tensor,
    kept_number: Tensor,
    kept_flip: Tensor,
    *,
    backend: str | None = None,
) -> Tensor:
    """Gather the items that are there, by the backend chosen."""
    return choose((flip,), backend).compact(there, number, flip, kept_number, kept_flip)


def unrank_pairs(number: Tensor, num_nodes: int, *, backend: str | None = None) -> tuple[Tensor, Tensor]:
    """The two ends of the pairs with these numbers, by the backend chosen."""
    return choose((number,), backend).unrank_pairs(number, num_nodes)


def pairs_above(
    b: Tensor, h: Tensor, node: Tensor, threshold: Tensor, capacity: int, *, backend: str | None = None
) -> tuple[Tensor, int]:
    """Keys of all pairs whose score may exceed a threshold, and how many there are, by the backend chosen."""
    return choose((b, h, node), backend).pairs_above(b, h, node, threshold, capacity)


def bracket_threshold(
    values: Tensor, thresholds: Tensor, budget: Tensor, *, backend: str | None = None
) -> tuple[Tensor, Tensor]:
    """Between which thresholds what lies above them, at most 1 of each value, falls to the budget, by the backend chosen."""
    return choose((values,), backend).bracket_threshold(values, thresholds, budget)


def apply_threshold(
    values: Tensor, ends: Tensor, budget: Tensor, largest: Tensor, large: float, *, backend: str | None = None
) -> Tensor:
    """The values less a threshold between two, by the backend chosen."""
    return choose((values,), backend).apply_threshold(values, ends, budget, largest, large)


def merge(few: Tensor, many: Tensor, *, backend: str | None = None) -> tuple[Tensor, Tensor]:
    """The union of two ascending lists, and where the first one's numbers stand in it, by the backend chosen."""
    return choose((few, many), backend).merge(few, many)


def take_largest(
    p: Tensor,
    u: Tensor,
    v: Tensor,
    total: Tensor,
    local: Tensor,
    unit: int,
    *,
    whole: bool,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Which of the values fit into a common box and one at each end, row by row, by the backend chosen."""
    return choose((p, u, v, local), backend).take_largest(p, u, v, total, local, unit, whole=whole)
