"""Options that several verbs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

Root = Annotated[
    Path | None,
    typer.Option(help="Folder with dataset archives; $EDGEPROOF_DATA and the user's cache are looked in after it."),
]
Device = Annotated[str, typer.Option(help="'auto' takes the GPU where there is one; or 'cpu', 'cuda', 'cuda:1'.")]
LogDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder to log every epoch of training to, for TensorBoard; needs pip install 'edgeproof\\[logging]'."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def parse_device(name: str, *, there: bool = True) -> torch.device:
    """The device that a user named; raises if there is none of that name, or this machine does not have it but should."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if there:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"expected a device of this machine, such as 'cpu', got {name!r}: {reason}") from error
    return device


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """``name=value`` texts as a dictionary; values are read as JSON where they can be, else kept as text.

    >>> parse_settings(["K=5", "init=ppr"])
    {'K': 5, 'init': 'ppr'}
    >>> parse_settings(["dropout=.5"])
    {'dropout': 0.5}
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"expected a setting as name=value, such as K=5, got {text!r}")
        if name in settings:
            raise ValueError(f"expected one value of {name}, got two, the second as {text!r}")
        settings[name] = _value(value)
    return settings


def _value(text: str) -> Any:
    # A number such as .5 is none in JSON.
    for read in (json.loads, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
