from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgeproof.report._html import json_block, tag

# Without characters that no parser keeps as they are.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(child=TEXT, value=TEXT)
def test_text_stays_text(parse: Callable[[str], Any], child: str, value: str) -> None:
    found = parse(tag("p", {"title": value}, child))
    assert found.tags == ["p"]
    assert found.text == child
    assert found.attributes == [("title", value)]


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=5))
def test_json_comes_back_and_holds_no_markup(value: object) -> None:
    block = json_block(value)
    assert json.loads(block) == value
    assert not set(block) & set("<>&\u2028\u2029")


def test_attributes_that_are_not_there_are_left_out() -> None:
    assert tag("p", {"hidden": True, "id": None, "class": False}) == "<p hidden></p>"
