"""Tensor helpers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def fingerprint(tensors: Iterable[Tensor | None]) -> str:
    """Return a hash of values, shapes and dtypes; it does not depend on the device.

    >>> import torch
    >>> fingerprint([torch.arange(3)]) == fingerprint([torch.tensor([0, 1, 2])])
    True
    >>> fingerprint([torch.arange(3)]) == fingerprint([torch.arange(3).float()])
    False
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none;")
            continue
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)};".encode())
        parts: tuple[Tensor, ...] = (tensor,)
        if tensor.layout == torch.sparse_csr:
            digest.update(b"csr;")
            parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        for part in parts:
            digest.update(part.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def on_host(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU; copies from a GPU go through pinned memory, which is several times faster."""
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def sort_keys(keys: Tensor) -> Tensor:
    """Return sorted integers; on a CPU in little memory, because ``torch.sort`` also returns the order.

    >>> sort_keys(torch.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    """
    if keys.numel() < 2 or bool((keys[1:] >= keys[:-1]).all()):
        return keys
    if keys.device.type != "cpu":
        return keys.sort().values
    keys = keys.clone()
    keys.numpy().sort()
    return keys
