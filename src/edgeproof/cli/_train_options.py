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
        default: Value in the preset ``"default"``.
        paper: Value in the preset ``"paper"``.
        help: Description, from the metadata of the field.
    """

    name: str
    type: type
    default: Any
    paper: Any
    help: str

    @property
    def defaults(self) -> str:
        """Values in the presets as text."""
        paper = "" if self.paper == self.default else f" (preset paper: {self.paper})"
        return f"Default: {self.default}{paper}."


@cache
def config_fields() -> tuple[ConfigField, ...]:
    """Read the fields of ``TrainConfig`` from its source file.

    Importing the class imports torch, which takes seconds; ``--help`` and completion should not.
    """
    source = (files("edgeproof") / "training" / "config.py").read_text(encoding="utf-8")
    body = ast.parse(source).body
    (definition,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == "TrainConfig")
    (presets,) = (
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PRESETS"
    )
    assert isinstance(presets, ast.Dict)
    changed = _settings_of_preset(presets, "default")
    return tuple(_parse_field(node, changed) for node in definition.body if isinstance(node, ast.AnnAssign))


def _settings_of_preset(presets: ast.Dict, name: str) -> dict[str, Any]:
    """Return the arguments of ``TrainConfig`` in a preset."""
    names = [key.value for key in presets.keys if isinstance(key, ast.Constant)]
    calls = [node for node in ast.walk(presets.values[names.index(name)]) if isinstance(node, ast.Call)]
    (config,) = (call for call in calls if ast.unparse(call.func) == "TrainConfig")
    return {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in config.keywords}


def _parse_field(node: ast.AnnAssign, changed: dict[str, Any]) -> ConfigField:
    assert isinstance(node.target, ast.Name)
    assert node.value is not None
    if isinstance(node.value, ast.Call):  # dataclasses.field(default=..., metadata={"help": ...})
        settings = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords}
        paper, help_text = settings["default"], settings["metadata"]["help"]
    else:
        paper, help_text = ast.literal_eval(node.value), ""
    name = node.target.id
    return ConfigField(name, _TYPES[ast.unparse(node.annotation)], changed.get(name, paper), paper, help_text)


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
            help=f"{field.help} {field.defaults}".strip().replace("[", "\\["),
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
