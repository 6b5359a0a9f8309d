"""Save and load models as safetensors files with the settings in the header. Nothing is unpickled.

:func:`load` restores a model of the library from its file alone. Files of users' own models hold the parameters and the name of
the factory, which is never imported because a file names it: :func:`load_own` takes the name from its caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgeproof._version import __version__
from edgeproof.models.base import GraphModel
from edgeproof.models.factory import Factory, build_own
from edgeproof.models.registry import build, is_listed
from edgeproof.serialization import read_tensors, write_tensors

_FORMAT = 1


def save(model: nn.Module, path: str | Path) -> None:
    """Write a model of the library: its class, settings and parameters. The file is written atomically.

    >>> from edgeproof.models import GCN
    >>> path = getfixture("tmp_path") / "model.safetensors"
    >>> save(GCN(10, 4), path)
    >>> load(path)
    GCN(in_channels=10, out_channels=4, hidden_channels=64, num_layers=2, dropout=0.5)
    """
    if not isinstance(model, GraphModel) or not is_listed(model):
        raise TypeError(
            f"expected a model of edgeproof.models, got {type(model).__qualname__} of {type(model).__module__}: use "
            "safetensors.torch.save_model or edgeproof.models.save_own for your own models"
        )
    header = {
        "format": _FORMAT,
        "version": __version__,
        "model": type(model).__name__,
        "settings": model.settings,
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_tensors(path, tensors, header)


def load(path: str | Path) -> GraphModel:
    """Read a model written by :func:`save`, in evaluation mode and on the CPU.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged, has another format, or was written by a newer version of the library.
    """
    header, tensors = _read(path)
    if "factory" in header:
        name = header["factory"]
        raise ValueError(
            f"{path} has the parameters of a model of your own, which {name} builds: pass --factory {name}, or use "
            "edgeproof.models.load_own"
        )
    if not isinstance(header.get("format"), int) or "model" not in header:
        raise ValueError(f"expected a file written by edgeproof.save, got {path} without a model")
    if header["format"] > _FORMAT:
        raise ValueError(
            f"{path} was written by edgeproof {header.get('version')} in format {header['format']}; "
            f"edgeproof {__version__} reads up to format {_FORMAT}: upgrade edgeproof"
        )
    try:
        settings = dict(header["settings"])
        sizes = settings.pop("in_channels"), settings.pop("out_channels")
        if settings.get("num_layers", 1) > len(tensors):
            raise ValueError(f"{settings['num_layers']} layers in {len(tensors)} tensors")
        # On the meta device first: a header with wrong sizes must not allocate gigabytes.
        with torch.device("meta"):
            expected = build(header["model"], *sizes, settings).state_dict()
        _check_shapes(tensors, expected)
        model = build(header["model"], *sizes, settings)
        dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
        model.to(dtypes.pop() if len(dtypes) == 1 else torch.float32)
        model.load_state_dict(tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not contain a valid model: {error}") from error
    return model.eval()


def save_own(
    model: nn.Module,
    path: str | Path,
    factory: str,
    in_channels: int,
    out_channels: int,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write the parameters of a user's own model, and how to build it. The file is written atomically.

    Args:
        model: The model.
        path: File to write.
        factory: ``module:factory``; see :func:`edgeproof.models.build_own`.
        in_channels: Number of features per node.
        out_channels: Number of classes.
        settings: Further arguments of the factory.
    """
    header = {"factory": factory, "settings": dict(settings or {}), "sizes": [in_channels, out_channels]}
    # Parameters may share memory, which the format does not allow.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    write_tensors(path, tensors, header)


def load_own(path: str | Path, name: str, factory: Factory | None = None) -> nn.Module:
    """Read a model written by :func:`save_own`, in evaluation mode and on the CPU.

    Args:
        path: The file.
        name: ``module:factory``, which must be the one in the file.
        factory: The factory that ``name`` names; imported by default.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged or of another model, or its parameters do not fit the model that the factory builds.
    """
    header, tensors = _read(path)
    if header.get("factory") != name:
        found = header.get("factory") or f"edgeproof.models.{header.get('model', 'none')}"
        raise ValueError(f"expected parameters of {name}, got those of {found} in {path}")
    try:
        in_channels, out_channels = header["sizes"]
        model = build_own(name, in_channels, out_channels, header["settings"], seed=0, factory=factory)
        model.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"the parameters in {path} do not fit the model of {name}: {error}") from error
    return model.eval()


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a file; pickles, which ``torch.save`` writes, get their own error."""
    try:
        return read_tensors(path)
    except ValueError as error:
        with Path(path).open("rb") as file:
            start = file.read(4)
        if Path(path).suffix == ".py":
            raise ValueError(
                f"expected a model file, got {path}: write {Path(path).stem}:build, with its function"
            ) from error
        if start == b"PK\x03\x04" or start[:1] == b"\x80":
            raise ValueError(
                f"{path} is a pickle, as torch.save writes, and is never read: in my_module.py, write a function build() that "
                f"returns the model with load_state_dict(torch.load({str(path)!r}, weights_only=True)), and pass "
                "my_module:build"
            ) from error
        raise


def _check_shapes(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if tensors.keys() != expected.keys():
        differing = sorted(tensors.keys() ^ expected.keys())
        raise ValueError(f"its tensors do not match the model in its header: {', '.join(differing[:5])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(expected[name].shape)}")
