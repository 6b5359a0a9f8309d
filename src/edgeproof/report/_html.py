"""HTML elements with escaped text and attributes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import final

# Elements without a closing tag.
_VOID = frozenset({"meta", "rect", "line", "circle"})


@final
class Html(str):
    """Markup that is inserted unchanged. All other strings are escaped when they are inserted."""

    __slots__ = ()


def tag(name: str, attributes: Mapping[str, str | int | float | bool | None], *children: str) -> Html:
    """Return one element.

    Args:
        name: Name of the element.
        attributes: Attribute values, which are escaped. None and False omit the attribute, True writes its name only.
        children: Markup, or text, which is escaped.

    >>> tag("p", {"class": "note", "hidden": False}, "1 < 2", tag("b", {}, "</p>"))
    '<p class="note">1 &lt; 2<b>&lt;/p&gt;</b></p>'
    """
    markup = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        return Html(f"<{name}{markup}/>")
    return Html(f"<{name}{markup}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Concatenate markup and text; text is escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def json_block(value: object) -> Html:
    """Encode a value as JSON for a ``<script type="application/json">`` block, without any of ``<``, ``>`` and ``&``.

    >>> json_block({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
