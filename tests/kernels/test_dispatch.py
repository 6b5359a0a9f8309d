"""The table of operations and the choice of a backend."""

from __future__ import annotations

import inspect

import pytest
import torch

from edgeproof.kernels import dispatch, numba_cpu, reference
from edgeproof.kernels.dispatch import BACKENDS, Backend, Operation

OPERATIONS = sorted(name for name, value in vars(dispatch).items() if isinstance(value, Operation))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_every_backend_accepts_the_arguments_of_the_reference(backend: Backend, operation: str) -> None:
    expected = inspect.signature(getattr(reference, operation)).parameters.values()
    accepted = inspect.signature(getattr(backend, operation)).parameters
    assert [(p.name, p.kind, p.default) for p in expected] == [
        (p.name, p.kind, p.default) for p in accepted.values() if p.name in {p.name for p in expected}
    ]
    extra = [p for name, p in accepted.items() if name not in {p.name for p in expected}]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in extra)


def test_operations_have_the_name_of_their_reference() -> None:
    for name in OPERATIONS:
        operation = getattr(dispatch, name)
        assert operation.name == name
        assert operation.__doc__ == getattr(reference, name).__doc__


def test_deciding_arguments_may_be_positional_or_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, rows = torch.ones(2, 3), torch.ones(2, 3), torch.arange(2)
    decided: list[list[torch.Tensor]] = []
    monkeypatch.setattr(dispatch, "choose", lambda tensors, backend: decided.append(tensors) or reference)
    dispatch.gathered_dot(a, b, rows, rows)
    dispatch.gathered_dot(a, b=b, left=rows, right=rows, backend="reference")
    for tensors in decided:
        assert [id(tensor) for tensor in tensors] == [id(a), id(b)]
    assert len(decided) == 2


def test_operation_with_unknown_deciding_argument_raises() -> None:
    with pytest.raises(ValueError, match="not in list"):
        Operation(reference.spmm, "wieght")


def test_using_applies_to_calls_that_name_no_backend() -> None:
    x = [torch.ones(1)]
    assert dispatch.choose(x) is numba_cpu
    with dispatch.using("reference"):
        assert dispatch.choose(x) is reference
        assert dispatch.choose(x, "numba") is numba_cpu
        with dispatch.using(None):
            assert dispatch.choose(x) is reference
        with dispatch.using("numba"):
            assert dispatch.choose(x) is numba_cpu
        assert dispatch.choose(x) is reference
    assert dispatch.choose(x) is numba_cpu


def test_error_lists_shapes_dtypes_and_every_reason() -> None:
    a, rows = torch.ones(2, 3, dtype=torch.float16), torch.arange(2)
    with pytest.raises(ValueError, match=r"no kernel backend supports \[2, 3\] torch\.float16 on cpu") as error:
        dispatch.gathered_dot(a, a, rows, rows)
    for reason in (
        "triton: needs float32 or float64, got torch.float16",
        "numba: needs float32 or float64, got torch.float16",
        "reference: needs float32 or float64, got torch.float16",
    ):
        assert reason in str(error.value)
    with pytest.raises(ValueError, match="needs a CUDA GPU, got cpu") as error:
        dispatch.gathered_dot(a.float(), a.float(), rows, rows, backend="triton")
    assert "numba" not in str(error.value)
    with pytest.raises(ValueError, match="unknown backend 'nubma': did you mean 'numba'"):
        dispatch.gathered_dot(a, a, rows, rows, backend="nubma")


def test_reasons_name_the_missing_requirement() -> None:
    for backend in BACKENDS:
        assert "needs float32 or float64, got torch.float16" in backend.not_supported_reasons([torch.ones(1).half()])
    x = torch.ones(1)
    assert numba_cpu.not_supported_reasons([x]) == reference.not_supported_reasons([x]) == []
    assert numba_cpu.not_supported_reasons([x.to("meta")]) == ["needs the CPU, got meta"]
    assert "needs a CUDA GPU, got cpu" in BACKENDS[0].not_supported_reasons([x])
