"""Every Python block of the README and the docs runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    page.relative_to(ROOT).as_posix(): re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}


@pytest.mark.parametrize("page", [name for name, blocks in PAGES.items() if blocks])
def test_the_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for number, block in enumerate(PAGES[page]):
        exec(compile(block, f"{page}, block {number}", "exec", dont_inherit=True), names)


def test_there_are_blocks() -> None:
    assert sum(map(len, PAGES.values())) >= 8


def test_the_readme_shows_the_table_of_the_page() -> None:
    page = (ROOT / "docs" / "clean-accuracy.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 19
    assert "\n".join(table) in (ROOT / "README.md").read_text(encoding="utf-8")
