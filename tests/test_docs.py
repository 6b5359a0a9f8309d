"""Every Python block of the README and the docs runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3


def test_the_readme_shows_the_table_of_the_page() -> None:
    page = (ROOT / "docs" / "clean-accuracy.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 19
    assert "\n".join(table) in (ROOT / "README.md").read_text(encoding="utf-8")
