"""Select the backend of each kernel call.

A backend is a module with ``name``, ``summary``, ``devices``, ``not_supported_reasons(tensors)`` and one function for each
operation below. :mod:`~edgeproof.kernels.reference` defines what the operations compute. A call uses the first backend
of :data:`BACKENDS` that returns no reasons for its deciding arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from torch import Tensor

from edgeproof._names import look_up
from edgeproof.kernels import numba_cpu, reference, triton_gpu

P = ParamSpec("P")
R = TypeVar("R")


class Backend(Protocol):
    """Module of kernels."""

    name: str
    summary: str
    devices: tuple[str, ...]

    def not_supported_reasons(self, tensors: Sequence[Tensor]) -> list[str]: ...


# Fastest first.
BACKENDS: tuple[Backend, ...] = (triton_gpu, numba_cpu, reference)

_forced: ContextVar[str | None] = ContextVar("forced", default=None)


@contextmanager
def using(backend: str | None) -> Iterator[None]:
    """Use a backend for all calls inside this block that do not name one; None changes nothing."""
    token = _forced.set(backend or _forced.get())
    try:
        yield
    finally:
        _forced.reset(token)


def check_name(backend: str | None) -> None:
    """Raise unless ``backend`` is None or the name of a backend."""
    if backend is not None:
        look_up("backend", backend, {candidate.name: candidate for candidate in BACKENDS})


def choose(tensors: Sequence[Tensor], backend: str | None = None) -> Backend:
    """Return the named backend, or else the first one that supports the tensors.

    Args:
        tensors: Tensors whose dtype and device decide.
        backend: Name of a backend; by default the one of :func:`using`, if any.

    Raises:
        ValueError: If the name is unknown, or no candidate supports the tensors.
    """
    backend = backend or _forced.get()
    check_name(backend)
    candidates = [candidate for candidate in BACKENDS if backend in (None, candidate.name)]
    for candidate in candidates:
        if _fits_devices(candidate, tensors) and not candidate.not_supported_reasons(tensors):
            return candidate
    refusals = [f"{candidate.name}: {'; '.join(candidate.not_supported_reasons(tensors))}" for candidate in candidates]
    inputs = ", ".join(f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}" for tensor in tensors)
    raise ValueError(f"no kernel backend supports {inputs} ({' | '.join(refusals)})")


def _fits_devices(backend: Backend, tensors: Sequence[Tensor]) -> bool:
    return not backend.devices or all(tensor.device.type in backend.devices for tensor in tensors)


class Operation(Generic[P, R]):
    """Kernel that calls the backend selected by some of its arguments.

    Args:
        reference: Function of :mod:`~edgeproof.kernels.reference` with the same name and arguments.
        deciding: Names of the tensor arguments whose dtype and device decide.
    """

    def __init__(self, reference: Callable[P, R], *deciding: str) -> None:
        parameters = list(inspect.signature(reference).parameters)
        self.__doc__ = reference.__doc__
        self.name = reference.__name__
        self._deciding = [(parameters.index(argument), argument) for argument in deciding]

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: Any, backend: str | None, **kwargs: Any) -> R: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        backend = kwargs.pop("backend", None)
        tensors = [args[i] if i < len(args) else kwargs[argument] for i, argument in self._deciding]
        return getattr(choose(tensors, backend), self.name)(*args, **kwargs)


spmm = Operation(reference.spmm, "weight", "x")
insert_pairs = Operation(reference.insert_pairs, "weight", "flip")
normalize = Operation(reference.normalize, "weight")
normalized_terms = Operation(reference.normalized_terms, "scale")
gathered_dot = Operation(reference.gathered_dot, "a", "b")
weighted_median = Operation(reference.weighted_median, "x", "values")
pair_scores = Operation(reference.pair_scores, "b", "h", "node")
table_at = Operation(reference.table_at, "table", "node")
pairs_above = Operation(reference.pairs_above, "b", "h", "node")
unrank_pairs = Operation(reference.unrank_pairs, "index")
merge = Operation(reference.merge, "few", "many")
compact = Operation(reference.compact, "flip")
bracket_threshold = Operation(reference.bracket_threshold, "values")
apply_threshold = Operation(reference.apply_threshold, "values")
take_largest = Operation(reference.take_largest, "p", "u", "v", "local")
sample_graphs = Operation(reference.sample_graphs, "index")
