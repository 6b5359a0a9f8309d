"""Command groups that list their commands statically and import a command's module only to run it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from edgeproof._names import nearest_name
from edgeproof.cli._interrupts import CommandInterruptedError


class LazyCommand(NamedTuple):
    """Location of a command, and its line in the help of its group.

    Args:
        target: ``"module:attribute"`` of a function or a :class:`typer.Typer`.
        summary: One line of help.
    """

    target: str
    summary: str


class SuggestingCommand(TyperCommand):
    """Command that suggests the option that was probably meant instead of an unknown one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; the error for an unknown option suggests at most one."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Typer has its own copy of click's NoSuchOption in some versions.
            if not (hasattr(error, "option_name") and hasattr(error, "possibilities")):
                raise
            known = [name.lstrip("-") for parameter in self.params for name in parameter.opts if name.startswith("--")]
            near = nearest_name(str(error.option_name).lstrip("-"), known)
            hint = "" if "set" not in known else " Settings of models and attacks: --set name=value"
            hint = hint if near is None else f" Did you mean --{near}?"
            error.possibilities = None
            error.message = f"No such option: {error.option_name}.{hint}"  # type: ignore[attr-defined]
            raise


class LazyGroup(TyperGroup):
    """Command group whose commands are imported when they are run or completed.

    The group's own help, completion and suggestions for misspelt commands only need :attr:`lazy_commands`.
    """

    lazy_commands: dict[str, LazyCommand] = {}  # noqa: RUF012

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=command.summary) for name, command in self.lazy_commands.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the imported command instead of its placeholder."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None or command is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """Import a command."""
        module, _, attribute = self.lazy_commands[name].target.partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
            app.command(name, cls=SuggestingCommand)(target)
            target = app
        return typer.main.get_command(target)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interrupt becomes an exception that typer does not handle by itself."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise CommandInterruptedError(str(interrupt)) from interrupt


def lazy_app(name: str, help_text: str, commands: dict[str, LazyCommand], **settings: Any) -> typer.Typer:
    """Return an application of lazy commands."""
    return typer.Typer(
        name=name,
        help=help_text,
        cls=type("LazyGroup", (LazyGroup,), {"lazy_commands": commands}),
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        **{"no_args_is_help": True, **settings},
    )
