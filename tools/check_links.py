"""Check the links of a built site offline: files and anchors must exist.

python tools/check_links.py site

``mkdocs build --strict`` checks links between Markdown pages. This also checks pages that hooks and docstrings generate,
images, scripts and style sheets. Addresses of other hosts are not opened.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Served for unknown addresses, with links from the root of the host.
_SKIPPED = {"404.html"}


class _Page(HTMLParser):
    """Anchors and links of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


@cache
def _parsed(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(site: Path) -> list[str]:
    """Return a description of each link of a site whose file or anchor does not exist.

    Args:
        site: Folder of the built site.
    """
    site, found = site.resolve(), []
    for path in sorted(site.rglob("*.html")):
        if path.name in _SKIPPED:
            continue
        for link in _parsed(path).links:
            reason = _problem(link, path, site)
            if reason:
                found.append(f"{path.relative_to(site).as_posix()}: {link}: {reason}")
    return found


def _problem(link: str, page: Path, site: Path) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(site):
        return "leaves the site"
    if not target.is_file():
        return "no such file"
    # Browsers treat "#" and "#top" as the top of the page.
    anchor = unquote(parts.fragment)
    if anchor not in ("", "top") and target.suffix == ".html" and anchor not in _parsed(target).anchors:
        return "no such anchor"
    return ""


def main(arguments: list[str]) -> int:
    """Print the broken links of the site in a folder; return the exit status."""
    (folder,) = arguments
    found = broken_links(Path(folder))
    print("\n".join(found) or f"{folder}: all links exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
