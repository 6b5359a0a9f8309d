"""Markup in which text cannot become anything but text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import final

# Elements that have no end.
_VOID = frozenset({"meta", "rect", "line"})


@final
class Html(str):
    """Markup, which stands in the page as it is. Every other text is escaped on its way in."""

    __slots__ = ()


def tag(name: str, attributes: Mapping[str, str | int | float | bool | None], *children: str) -> Html:
    """One element.

    Args:
        name: of the element.
        attributes: their values are escaped; those that are None or False are left out, True stands alone.
        children: markup, and text, which is escaped.

    >>> tag("p", {"class": "note", "hidden": False}, "1 < 2", tag("b", {}, "</p>"))
    '<p class="note">1 &lt; 2<b>&lt;/p&gt;</b></p>'
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        return Html(f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Several pieces as one."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def json_block(value: object) -> Html:
    """JSON for a data block: no text within it can end the block or begin another.

    >>> json_block({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
