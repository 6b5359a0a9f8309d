"""Files with a digest: tensors as safetensors with a JSON header, and JSON objects. Written atomically, never unpickled.

The digest is a SHA-256 hash of the whole content, so that a file that was damaged or edited is rejected instead of giving wrong
numbers. Files of edgeproof 0.1.0 have none: of these, only the structure is checked here, and values by each reader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from edgeproof._files import write_bytes
from edgeproof._memory import check_fits

# Layout of tensor files; since 2 they have a digest.
_LAYOUT = 2


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: Mapping[str, Any]) -> None:
    """Atomically write tensors and a JSON object to one file, with a digest.

    Raises:
        OSError: If the file cannot be written; a previous file is unchanged.
    """
    text = json.dumps({"layout": _LAYOUT, **header})
    # One entry, because the library writes several in random order.
    entry = "{" + _digest_entry(_tensor_digest(text, tensors)) + text.removeprefix("{")
    write_bytes(Path(path), save(tensors, metadata={"edgeproof": entry}))


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the JSON object and the tensors of a file of :func:`write_tensors`.

    The tensors are copies in memory, so later changes of the file have no effect on them. Files of layout 1 (edgeproof 0.1.0)
    have no digest, and damage of their values is not noticed here.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, does not match its digest, has none although its layout requires one, was not
            written by edgeproof, or is larger than the free memory.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    check_fits(path.stat().st_size, f"the content of {path}")
    content = path.read_bytes()
    try:
        # The library returns them in random order.
        tensors = dict(sorted(load(content).items()))
        text = _metadata(content).get("edgeproof", "null")
        header = json.loads(text)
    except (SafetensorError, ValueError, LookupError, AssertionError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path} is a safetensors file that edgeproof did not write: its header is missing")
    layout, digest = header.pop("layout", 1), header.pop("sha256", None)
    if layout not in (1, _LAYOUT):
        raise ValueError(f"expected a file of layout 1 to {_LAYOUT}, got layout {layout} in {path}: upgrade edgeproof")
    if layout == _LAYOUT and digest is None:
        raise ValueError(f"{path} is damaged: it has no digest")
    if digest is not None and digest != _tensor_digest(text.replace(_digest_entry(digest), "", 1), tensors):
        raise ValueError(f"{path} is damaged: its content does not match its digest")
    return header, tensors


def json_digest(entries: Mapping[str, Any]) -> str:
    """Return the digest of a JSON object, which depends neither on the order of its entries nor on white space.

    >>> json_digest({"a": 1, "b": (2, 3)}) == json_digest({"b": [2, 3], "a": 1})
    True
    """
    # Keys that are not strings become strings, and are then sorted as strings.
    content = json.loads(json.dumps(entries))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest_entry(digest: str) -> str:
    """Return the text that adds a digest to the beginning of a JSON object."""
    return f'"sha256": "{digest}", '


def _tensor_digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    """Return the text entries of a valid safetensors file: a little-endian length, a JSON object of that length, and data."""
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return dict(metadata)
