"""Griffe extension that converts reStructuredText docstrings to Markdown.

It converts ``:math:`` and ``.. math::``, references such as ``:class:`~a.b.C```, and examples that begin with ``>>>``. Sections
(Args, Returns, Raises) are left to mkdocstrings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

import griffe

Resolve = Callable[[str], "str | None"]

_ROLE = re.compile(r":(?P<role>class|func|meth|mod|data|attr|exc):`(?P<content>[^`]+)`")
_TITLED = re.compile(r"(?P<title>.+?)\s*<(?P<path>[^>]+)>", re.DOTALL)
_MATH = re.compile(r":math:`([^`]+)`")
_MATH_BLOCK = re.compile(
    r"^(?P<indent> *)\.\. math::\n(?P<body>(?:(?P=indent) +\S.*\n?|[ ]*\n(?=(?P=indent) +\S))+)", re.MULTILINE
)
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*\n?(?:(?P=indent)\S.*\n?)*", re.MULTILINE)


def to_markdown(text: str, resolve: Resolve) -> str:
    r"""Convert a docstring to Markdown.

    Args:
        text: Docstring without its common indentation.
        resolve: Function that returns the full path of a name in the scope of the docstring, or None.

    >>> to_markdown(":math:`x` as in :func:`~a.f`, see ``y``.", lambda name: name)
    '$`x`$ as in <autoref identifier="a.f" optional><code>f</code></autoref>, see ``y``.'
    """
    # Split off examples first, because their text must not be converted.
    parts, done = [], 0
    for example in _EXAMPLE.finditer(text):
        parts += [_prose(text[done : example.start()], resolve), _fence(example["indent"], "pycon", example[0])]
        done = example.end()
    return "".join([*parts, _prose(text[done:], resolve)])


def _prose(text: str, resolve: Resolve) -> str:
    text = _MATH_BLOCK.sub(lambda match: _fence(match["indent"], "math", _dedent(match["body"], match["indent"])), text)
    text = _MATH.sub(lambda match: f"$`{' '.join(match[1].split())}`$", text)
    return _ROLE.sub(lambda match: _reference(match["content"], resolve), text)


def _dedent(body: str, indent: str) -> str:
    return "".join(f"{indent}{line.strip()}\n" for line in body.splitlines() if line.strip())


def _fence(indent: str, language: str, body: str) -> str:
    return f"{indent}```{language}\n{body.rstrip()}\n{indent}```\n"


def _reference(content: str, resolve: Resolve) -> str:
    titled = _TITLED.fullmatch(content)
    if titled:
        title, name = titled["title"], titled["path"]
    else:
        name = content.removeprefix("~")
        title = name.rpartition(".")[2] if content.startswith("~") else name
    path = resolve(name)
    if path is None:
        return f"`{title}`"
    # Optional: a name without a page stays plain text.
    return f'<autoref identifier="{escape(path)}" optional><code>{escape(title)}</code></autoref>'


def _canonical(scope: griffe.Object, name: str) -> str | None:
    """Return the path where a member is defined; re-exported names link to it."""
    try:
        path: str = scope[name].canonical_path
    except (KeyError, griffe.AliasResolutionError):
        return None
    return path


def resolver(obj: griffe.Object) -> Resolve:
    """Return a function that resolves names in the docstring of ``obj``: full paths, or members of its scopes."""

    def resolve(name: str) -> str | None:
        scope: griffe.Object | None = obj
        while scope is not None:
            if name.partition(".")[0] in scope.members:
                return _canonical(scope, name)
            scope = scope.parent
        package, _, rest = name.partition(".")
        if package == obj.package.name and rest:
            return _canonical(obj.package, rest)
        return name if rest else None

    return resolve


class RestructuredText(griffe.Extension):
    """Griffe extension that converts every docstring of a loaded package."""

    def on_class(self, *, cls: griffe.Class, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Add the constructor of a named tuple, as Griffe does for dataclasses."""
        if not any(str(base) == "NamedTuple" for base in cls.bases) or "__init__" in cls.members:
            return
        keyword = griffe.ParameterKind.positional_or_keyword
        fields = [griffe.Parameter("self", kind=keyword)]
        for name, member in cls.members.items():
            if isinstance(member, griffe.Attribute) and member.annotation is not None:
                fields.append(griffe.Parameter(name, annotation=member.annotation, kind=keyword, default=member.value))
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*fields), parent=cls))

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value, resolver(obj))
