from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgeproof.report._html import json_block, tag

# Without surrogates and control characters, which HTML parsers replace.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(child=TEXT, value=TEXT)
def test_tag_escapes_text_and_attributes(parse: Callable[[str], Any], child: str, value: str) -> None:
    parsed = parse(tag("p", {"title": value}, child))
    assert parsed.tags == ["p"]
    assert parsed.text == child
    assert parsed.attributes == [("title", value)]


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=5))
def test_json_block_round_trips_without_markup(value: object) -> None:
    block = json_block(value)
    assert json.loads(block) == value
    assert not set(block) & set("<>&\u2028\u2029")


def test_none_and_false_attributes_are_omitted() -> None:
    assert tag("p", {"hidden": True, "id": None, "class": False}) == "<p hidden></p>"
