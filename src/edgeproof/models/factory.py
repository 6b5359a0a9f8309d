"""Users' own models by name: ``module:factory``."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from edgeproof._names import unknown_name

Factory = Callable[..., nn.Module]


def is_factory_name(name: str) -> bool:
    """Whether a model's name is that of a factory.

    >>> is_factory_name("my_module:build"), is_factory_name("GCN")
    (True, False)
    """
    return ":" in name


def load_factory(name: str) -> Factory:
    """Import the function given as ``module:factory``, from the current folder or an installed module.

    Raises:
        ImportError: If the module cannot be imported; the message has the file and line of the error.
        ValueError: If the name is invalid, or the module has no such function.
    """
    module_name, _, factory_name = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        raise ValueError(
            f"expected the name of a module, not of a file, got {name!r}: write {dotted}:{factory_name or 'build'}"
        )
    if not all(part.isidentifier() for part in (*module_name.split("."), factory_name)):
        raise ValueError(f"expected a model as module:factory, such as my_module:build, got {name!r}")
    # As `python -m` does: the current folder comes first.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        # A user's module may raise anything.
        raise ImportError(f"cannot import {module_name!r} of {name!r}: {_describe(error)}") from error
    finally:
        sys.path.remove("")
    factory = vars(module).get(factory_name)
    if not callable(factory):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
        raise unknown_name(f"function of {module_name}", factory_name, own)
    made: Factory = factory
    return made


def _describe(error: BaseException) -> str:
    """Return type, message and place of an error in a user's module."""
    if isinstance(error, (ImportError, SyntaxError)):
        # Their messages have the name of the module, or file and line.
        return f"{type(error).__name__}: {error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"


def build_own(
    name: str,
    in_channels: int,
    out_channels: int,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    factory: Factory | None = None,
) -> nn.Module:
    """Return a new model of a user's factory; its initial parameters depend on ``seed`` alone.

    Args:
        name: ``module:factory``. The factory is called as ``factory(in_channels, out_channels, **settings)``, or without
            arguments if it has no parameters.
        in_channels: Number of features per node.
        out_channels: Number of classes.
        settings: Further arguments of the factory.
        seed: Seed of the initial parameters. Default: torch's global generator.
        factory: The factory that ``name`` names; imported by default.

    Raises:
        ValueError: If the factory fails.
        TypeError: If it returns something else.
    """
    factory = load_factory(name) if factory is None else factory
    sizes = (in_channels, out_channels) if _has_parameters(factory) else ()
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return _call(name, factory, *sizes, settings=dict(settings or {}))


def build_trained(name: str) -> nn.Module:
    """Return the trained model of a user's factory, which is called without arguments.

    Raises:
        ValueError: If the factory needs arguments or fails.
        TypeError: If it returns something else.
    """
    factory = load_factory(name)
    needed = [key for key, value in _parameters(factory).items() if value.default is value.empty and _is_named(value)]
    if needed:
        raise ValueError(
            f"expected {name} to return a trained model without arguments, got a function of {', '.join(needed)}; for a model "
            f"of edgeproof train, pass --model with its file, and --factory {name}"
        )
    return _call(name, factory, settings={})


def _call(name: str, factory: Factory, *sizes: int, settings: dict[str, Any]) -> nn.Module:
    try:
        model = factory(*sizes, **settings)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected {name} to return a torch.nn.Module, got {type(model).__name__}")
    return model


def _has_parameters(factory: Factory) -> bool:
    return bool(_parameters(factory))


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(factory).parameters


def _is_named(parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes one argument, unlike ``*args`` and ``**kwargs``."""
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
