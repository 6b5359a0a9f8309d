"""Warning codes and their documentation."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from edgeproof._warnings import DOCS_URL, TITLES, EdgeproofWarning, warn, with_code

PAGE = Path(__file__).resolve().parent.parent / "docs" / "warnings.md"


def test_every_code_has_a_section_and_every_section_a_code() -> None:
    sections = re.findall(r"^## (EP\d{3}): (.*) \{ #(\w+) \}$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(code, title) for code, title, _ in sections] == list(TITLES.items())
    assert [anchor for *_, anchor in sections] == [code.lower() for code in TITLES]
    assert len(re.findall(r"^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == len(TITLES)


def test_every_section_has_meaning_causes_and_advice() -> None:
    _, *sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        items = re.findall(r"^- \*\*(.*?):\*\*", section, re.MULTILINE)
        assert items == ["Meaning", "Likely causes", "What to do"], section


def test_warning_has_code_message_and_link() -> None:
    with pytest.warns(EdgeproofWarning, match=r"^EP001: two passes differ \(.*warnings\.html#ep001\)$") as caught:
        warn("EP001", "two passes differ")
    assert caught[0].message.code == "EP001"  # type: ignore[union-attr]
    assert caught[0].filename == __file__
    assert DOCS_URL in str(caught[0].message)


def test_unknown_code_raises() -> None:
    with pytest.raises(KeyError, match="EP999"):
        with_code("EP999", "message")


def test_warnings_can_be_filtered_by_code() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="EP005")
        warn("EP005", "ignored")
        with pytest.raises(EdgeproofWarning):
            warn("EP001", "raised")
