"""Options of ``edgeproof train`` derived from the fields of :class:`edgeproof.training.TrainConfig`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, NamedTuple, Optional, get_type_hints

import typer

_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
# Has a separate option, which also determines the split and the initial parameters.
_EXCLUDED = ("seed",)


class ConfigField(NamedTuple):
    """Field of :class:`~edgeproof.training.TrainConfig`.

    Args:
        name: Name.
        type: Type.
        default: Default.
        help: Description, from the metadata of the field.
    """

    name: str
    type: type
    default: Any
    help: str


@cache
def config_fields() -> tuple[ConfigField, ...]:
    """Read the fields of ``TrainConfig`` from its source file.

    Importing the class imports torch, which takes seconds; ``--help`` and completion should not.
    """
    source = (files("edgeproof") / "training" / "config.py").read_text(encoding="utf-8")
    (definition,) = (
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "TrainConfig"
    )
    return tuple(_parse_field(node) for node in definition.body if isinstance(node, ast.AnnAssign))


def _parse_field(node: ast.AnnAssign) -> ConfigField:
    assert isinstance(node.target, ast.Name)
    assert node.value is not None
    if isinstance(node.value, ast.Call):  # dataclasses.field(default=..., metadata={"help": ...})
        settings = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords}
        default, help_text = settings["default"], settings["metadata"]["help"]
    else:
        default, help_text = ast.literal_eval(node.value), ""
    return ConfigField(node.target.id, _TYPES[ast.unparse(node.annotation)], default, help_text)


def with_config_options(function: Callable[..., None]) -> Callable[..., None]:
    """Replace ``**settings`` of a command by one option per field of ``TrainConfig``, None if it is not given."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    for field in config_fields():
        if field.name in _EXCLUDED:
            continue
        option = typer.Option(
            help=f"{field.help} In preset paper: {field.default}.".strip().replace("[", "\\["),
            rich_help_panel="Training settings (default: those of the preset)",
        )
        annotation: Any = Annotated[Optional[field.type], option]  # noqa: UP045
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )
        hints[field.name] = annotation
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = hints
    return function
