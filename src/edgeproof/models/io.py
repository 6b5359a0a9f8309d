"""Save and load models of the library, as safetensors files with the settings in the header. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from edgeproof._version import __version__
from edgeproof.models.base import GraphModel
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
            "safetensors.torch.save_model for your own models"
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
    header, tensors = read_tensors(path)
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


def _check_shapes(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if tensors.keys() != expected.keys():
        differing = sorted(tensors.keys() ^ expected.keys())
        raise ValueError(f"its tensors do not match the model in its header: {', '.join(differing[:5])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(expected[name].shape)}")
