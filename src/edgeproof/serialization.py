"""Tensor files: safetensors with a JSON header, written atomically and read without unpickling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from edgeproof._files import replacing


def write_tensors(path: str | Path, tensors: dict[str, Tensor], header: object) -> None:
    """Atomically write tensors and a JSON value to one file."""
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, metadata={"edgeproof": json.dumps(header)})


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the JSON object and the tensors of a file of :func:`write_tensors`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged or was not written by edgeproof.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata.get("edgeproof", "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path} is a safetensors file that edgeproof did not write: its header is missing")
    return header, tensors
