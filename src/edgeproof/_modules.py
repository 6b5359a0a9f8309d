"""What the library expects of a model, asked before it is called."""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import is_lazy


def check_module(model: object) -> None:
    """Raise unless ``model`` is a module that can be copied and counted on to stay the same from call to call.

    Raises:
        TypeError: if it is no torch module.
        ValueError: if it has parameters without a size.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module, got {type(model).__name__}")
    if any(is_lazy(tensor) for tensor in [*model.parameters(), *model.buffers()]):
        raise ValueError(
            f"{type(model).__name__} has parameters without a size, which its first call would draw: call it once first"
        )


def check_forgets(model: object) -> None:
    """Raise for a model that answers every graph with the first one it saw, and for what :func:`check_module` refuses.

    Whatever looks at a model on more than one graph calls this first: it would not find out later.
    """
    check_module(model)
    assert isinstance(model, nn.Module)
    layer = caching_layer(model)
    if layer is not None:
        raise ValueError(
            f"{type(model).__name__} has a layer {layer} with cached=True, which answers every graph with the first one "
            "it saw: build it with cached=False"
        )


def caching_layer(model: nn.Module) -> str | None:
    """The name of a layer that keeps what it computed from the first graph, as some of PyG's can be told to."""
    return next((type(module).__name__ for module in model.modules() if getattr(module, "cached", False) is True), None)
