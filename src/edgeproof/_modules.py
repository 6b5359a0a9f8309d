"""Helpers for ``torch.nn.Module`` objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch every submodule to evaluation mode, and restore each submodule's previous mode on exit."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def caching_layer(model: nn.Module) -> str | None:
    """Class name of the first layer with ``cached=True``, an option of some PyG layers; None if there is none."""
    return next((type(module).__name__ for module in model.modules() if getattr(module, "cached", False) is True), None)
