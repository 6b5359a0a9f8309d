"""MkDocs hooks: formulas, searchable tables, and pages generated from other files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from site_math import MathExtension
from site_tables import data_script, with_tables

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Pages without a file in docs/.
GENERATED = ("index.md", "changelog.md", "reference/cli.md")

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_MOVED = {"CHANGELOG.md": "changelog.md"}
_EVERY_WARNING = "<!-- every warning -->"
_WARNING = re.compile(r"^## (?P<title>EP\d+.*?) \{ #(?P<anchor>\w+) \}$", re.MULTILINE)
_MARKUP = re.compile(r"\[bold\](.*?)\[/\]", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Enable formulas in pages and docstrings."""
    config.markdown_extensions.append(MathExtension())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the data of tables as scripts."""
    from mkdocs.structure.files import File

    contents = {
        "index.md": from_root((ROOT / "README.md").read_text(encoding="utf-8")),
        "changelog.md": from_root((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
        "reference/cli.md": command_line(),
    }
    assert set(contents) == set(GENERATED)
    for path, content in contents.items():
        files.append(File.generated(config, path, content=content))
    for file in [file for file in files if file.src_uri.endswith(".csv")]:
        script = data_script(file.src_uri, file.content_string)
        files.append(File.generated(config, f"{file.src_uri}.js", content=script))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the list of all warnings."""
    return with_warnings(markdown)


def with_warnings(text: str) -> str:
    """Return a page with links to all sections of docs/warnings.md in place of ``<!-- every warning -->``."""
    if _EVERY_WARNING not in text:
        return text
    titles = _WARNING.findall((ROOT / "docs" / "warnings.md").read_text(encoding="utf-8"))
    return text.replace(_EVERY_WARNING, "\n".join(f"- [{title}](warnings.md#{anchor})" for title, anchor in titles))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show CSV files as tables."""
    return with_tables(html, "/".join([".."] * page.file.src_uri.count("/")) or ".")


def from_root(text: str) -> str:
    """Convert a file of the repository root to a page of docs/ by adapting its links.

    >>> from_root("[a](docs/a.md), [log](CHANGELOG.md), [b](https://b.org)")
    '[a](a.md), [log](changelog.md), [b](https://b.org)'
    """

    def moved(match: re.Match[str]) -> str:
        target = match["target"]
        return f"]({_MOVED.get(target, target.removeprefix('docs/'))})"

    return _LINK.sub(moved, text)


def command_line() -> str:
    """Return the reference page of the command line, generated from the commands."""
    import typer

    from edgeproof.cli.app import SUMMARY, app

    lines = ["# Command line", "", SUMMARY, "", "`edgeproof COMMAND --help` prints the same in a terminal.", ""]
    for name, command in _commands("edgeproof", typer.main.get_command(app)):
        lines += [f"## {name}", "", plain(command.help or ""), ""]
        options = [option for option in command.params if option.name != "help"]
        if options:
            lines += ["| option | meaning | default |", "|---|---|---|", *map(_row, options), ""]
    return "\n".join(lines)


def _commands(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command of a group and its subgroups, with its full name."""
    for name in group.commands:
        command = group.load(name) if hasattr(group, "load") else group.commands[name]
        yield f"{prefix} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(f"{prefix} {name}", command)


def plain(help_text: str) -> str:
    """Convert Rich markup to Markdown.

    >>> plain("Try: [bold]edgeproof demo[/]")
    'Try: `edgeproof demo`'
    """
    return _MARKUP.sub(lambda match: f"`{' '.join(match[1].split())}`", help_text)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    default = option.default() if callable(option.default) else option.default
    if option.required:
        shown = "required"
    elif default is None or default is False or default == []:
        shown = ""
    else:
        values = default if isinstance(default, (list, tuple)) else [default]
        shown = ", ".join(f"`{value}`" for value in values)
    cells = [names, plain(option.help or ""), shown]
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
