"""Models on disk: tensors in safetensors, everything else in its JSON header. Loading executes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from edgeproof._files import replacing
from edgeproof._version import __version__
from edgeproof.models import GraphModel, build, is_listed

_FORMAT = 1


def save(model: nn.Module, path: str | Path) -> None:
    """Write a model of the library: its class, settings and parameters.

    The file appears whole or not at all.

    >>> from edgeproof.models import GCN
    >>> path = getfixture("tmp_path") / "model.safetensors"
    >>> save(GCN(10, 4), path)
    >>> load(path)
    GCN(in_channels=10, out_channels=4, hidden_channels=64, num_layers=2, dropout=0.5)
    """
    if not isinstance(model, GraphModel) or not is_listed(model):
        raise TypeError(
            f"expected a model of edgeproof.models, got {type(model).__qualname__} of {type(model).__module__}; to keep a "
            "model of your own, use safetensors.torch.save_model"
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
    """Read a model that :func:`save` wrote, in evaluation mode and on the CPU.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, foreign, or written by a newer version of the library.
    """
    header, tensors = read_tensors(path)
    if not isinstance(header.get("format"), int) or "model" not in header:
        raise ValueError(f"{path} holds no model: it is no file of edgeproof.save")
    if header["format"] > _FORMAT:
        raise ValueError(
            f"{path} was written by edgeproof {header.get('version')} in format {header['format']}; "
            f"this is edgeproof {__version__}, which reads up to format {_FORMAT}: upgrade it"
        )
    try:
        settings = dict(header["settings"])
        sizes = settings.pop("in_channels"), settings.pop("out_channels")
        if settings.get("num_layers", 1) > len(tensors):
            raise ValueError(f"{settings['num_layers']} layers in {len(tensors)} tensors")
        # Without memory first: a header that lies about its sizes must not get gigabytes allocated.
        with torch.device("meta"):
            expected = build(header["model"], *sizes, settings).state_dict()
        _check_shapes(tensors, expected)
        model = build(header["model"], *sizes, settings)
        dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
        model.to(dtypes.pop() if len(dtypes) == 1 else torch.float32)
        model.load_state_dict(tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not describe a model: {error}") from error
    return model.eval()


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: object) -> None:
    """Tensors and a JSON value in one file, which appears whole or not at all."""
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, metadata={"edgeproof": json.dumps(header)})


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What :func:`write_tensors` wrote: the JSON object and the tensors."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata.get("edgeproof", "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or no safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path} is a safetensors file, but not one of edgeproof's")
    return header, tensors


def _check_shapes(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if tensors.keys() != expected.keys():
        odd = sorted(tensors.keys() ^ expected.keys())
        raise ValueError(f"its tensors are not those of the model it names: {', '.join(odd[:5])}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected {list(expected[name].shape)}")
