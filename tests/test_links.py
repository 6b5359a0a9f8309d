"""Checker of the links of the documentation site."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_links import broken_links, main


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("page.html", ""),
        ("page.html#title", ""),
        ("page.html?q=a#title", ""),
        ("#own", ""),
        ("#", ""),
        ("folder/", ""),
        ("a%20b.png", ""),
        ("https://example.org/nowhere", ""),
        ("mailto:a@b.org", ""),
        ("nowhere.html", "no such file"),
        ("page.html#nowhere", "no such anchor"),
        ("#nowhere", "no such anchor"),
        ("empty/", "no such file"),
        ("../outside.html", "leaves the site"),
    ],
)
@pytest.mark.parametrize("attribute", ["href", "src"])
def test_broken_links_are_found(tmp_path: Path, link: str, reason: str, attribute: str) -> None:
    site = tmp_path / "site"
    for folder in ("folder", "empty"):
        (site / folder).mkdir(parents=True)
    (tmp_path / "outside.html").write_text("", encoding="utf-8")
    (site / "a b.png").write_bytes(b"")
    (site / "page.html").write_text('<h1 id="title">Title</h1>', encoding="utf-8")
    (site / "folder" / "index.html").write_text('<a href="../page.html#title">up</a>', encoding="utf-8")
    (site / "index.html").write_text(f'<h1 id="own">Own</h1><a {attribute}="{link}">x</a>', encoding="utf-8")
    assert broken_links(site) == ([f"index.html: {link}: {reason}"] if reason else [])
    assert main([str(site)]) == bool(reason)
