"""Searchable tables of the documentation: data, and behaviour in headless Chromium."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import site_tables
from markdown import Markdown
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
CELLS = "reproduction.csv"


def lines_of(name: str) -> list[list[str]]:
    return list(csv.reader((DOCS / name).read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.csv")), ids=lambda path: path.name)
def test_data_script_has_the_cells_of_the_csv_file(path: Path) -> None:
    script = site_tables.data_script(path.name, path.read_text(encoding="utf-8"))
    name, _, data = script.removeprefix("edgeproofTable(").removesuffix(");\n").partition(", ")
    assert json.loads(name) == path.stem
    lines = json.loads(data)
    assert lines == lines_of(path.relative_to(DOCS).as_posix())
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.csv")), ids=lambda path: path.name)
def test_every_csv_file_is_shown_on_a_page(path: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    assert any(site_tables.with_tables(Markdown().convert(page)).count(f'data-table="{path.stem}"') for page in pages)


def test_script_tags_stay_within_the_site() -> None:
    page = site_tables.with_tables('<p><a href="../a.csv">A</a></p>', "..")
    assert '<script src="../tables.js"></script>\n<script src="../a.csv.js"></script>' in page
    for unchanged in ('<p>See <a href="a.csv">A</a>.</p>', '<p><a href="https://b.org/a.csv">A</a></p>'):
        assert site_tables.with_tables(unchanged) == unchanged


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Page with the table of all numbers, opened from disk."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(DOCS / site_tables.SCRIPT, folder)
    text = (DOCS / CELLS).read_text(encoding="utf-8")
    (folder / f"{CELLS}.js").write_text(site_tables.data_script(CELLS, text), encoding="utf-8")
    body = site_tables.with_tables(f'<p><a href="{CELLS}">All numbers as CSV</a></p>')
    path = folder / "page.html"
    path.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>T</title>{body}', encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium: on Debian, apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def shown(browser: Any) -> list[list[str]]:
    script = "return [...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((c) => c.textContent))"
    return list(browser.execute_script(script))


def search(browser: Any, text: str) -> list[list[str]]:
    field = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.DELETE, text)
    return shown(browser)


def test_table_shows_every_cell_and_search_filters_rows(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    titles, *lines = lines_of(CELLS)
    heads = browser.find_elements(By.CSS_SELECTOR, "thead th")
    assert [head.text for head in heads] == titles
    assert shown(browser) == lines
    # Words may be in different columns and in either case.
    found = search(browser, "gprgnn cora_ml LRBCD")
    expected = [
        line for line in lines if all(word in " ".join(line).lower() for word in ("gprgnn", "cora_ml", "lrbcd"))
    ]
    assert 0 < len(expected) < len(lines)
    assert found == expected
    assert browser.find_element(By.TAG_NAME, "output").text == f"{len(expected):,} of {len(lines):,} rows"
    assert search(browser, "nosuchmodel") == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize(("column", "is_number"), [(6, True), (2, False)])
def test_headings_sort_rows_with_missing_values_last(browser: Any, page: Path, column: int, is_number: bool) -> None:
    browser.get(page.as_uri())
    button = browser.find_elements(By.CSS_SELECTOR, "thead th button")[column]
    for order in ("ascending", "descending"):
        button.click()
        head = browser.find_elements(By.CSS_SELECTOR, "thead th")[column]
        assert head.get_attribute("aria-sort") == order
        texts = [row[column] for row in shown(browser)]
        present = [text for text in texts if text != "-"]
        assert texts == [*present, *["-"] * (len(texts) - len(present))]
        values = [float(text.split()[0]) for text in present] if is_number else [text.lower() for text in present]
        assert values == sorted(values, reverse=order == "descending")
        assert len(set(values)) > 3
    assert len(browser.find_elements(By.CSS_SELECTOR, "[aria-sort]")) == 1


def test_address_sets_the_search_and_controls_have_names(browser: Any, page: Path) -> None:
    browser.get(f"{page.as_uri()}?q=app_smooth")
    found = shown(browser)
    assert found == [line for line in lines_of(CELLS) if "app_smooth" in line[0]]
    for name in ("input", "button", "[role=region]"):
        assert all(element.accessible_name for element in browser.find_elements(By.CSS_SELECTOR, name))
    link = browser.find_element(By.LINK_TEXT, "All numbers as CSV")
    assert link.get_attribute("href") == page.with_name(CELLS).as_uri()
