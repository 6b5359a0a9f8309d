"""Report page in headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from edgeproof.report import Run, write

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium: on Debian, apt install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(page_runs: list[Run], hostile: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write(page_runs, out, title=hostile)
    return out


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """Page opened from disk in a wide window; the test fails if the console has messages afterwards."""
    resize(browser, 1200)
    set_color_scheme(browser, "light")
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def resize(browser: Any, width: int, *, mobile: bool = False) -> None:
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


def set_color_scheme(browser: Any, name: str) -> None:
    # Smooth scrolling would move elements away from the pointer.
    media = {
        "features": [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
    }
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def find(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def choose(browser: Any, id_: str, text: str) -> None:
    Select(browser.find_element(By.ID, id_)).select_by_visible_text(text)


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)"
    return list(browser.execute_script(script, selector))


def test_charts_are_drawn(opened: Any) -> None:
    # Two models at three budgets (0 included); one filter with 11 coefficients.
    assert len(find(opened, "#curve-0 .line")) == 2 + 2  # lines and legend entries
    assert len(find(opened, "#curve-0 .point")) == 6
    assert len(find(opened, "#curve-0 path.bar")) == 6
    assert len(find(opened, "#gamma-0 .point")) == 11
    assert len(find(opened, "#spectrum-0 rect.background")) == 41
    for name in ("degree", "margin", "class"):
        assert find(opened, f"#nodes-by-{name} rect.fraction")
    for chart in find(opened, ".chart svg"):
        assert chart.size["width"] > 20
        assert chart.size["height"] > 5


def test_hostile_names_do_not_run(opened: Any, hostile: str) -> None:
    assert opened.execute_script("return window.hacked") is None
    assert texts(opened, "title") == texts(opened, "h1") == [hostile]
    assert opened.execute_script("return document.images.length") == 0
    assert opened.execute_script("return document.scripts.length") == 2
    assert hostile in texts(opened, "#curve-0 .legend li")
    assert hostile in texts(opened, "#nodes-model option")


def test_content_security_policy_blocks_injected_markup(browser: Any, page: Path) -> None:
    injected = page.with_name("injected.html")
    markup = "<script>window.hacked=1</script><p id=late onclick='window.hacked=1'>x</p><img src='x.png'>"
    injected.write_text(page.read_text(encoding="utf-8").replace("<main", markup + "<main"), encoding="utf-8")
    browser.get(injected.as_uri())
    browser.find_element(By.ID, "late").click()
    assert browser.execute_script("return window.hacked") is None
    violations = browser.get_log("browser")
    assert len(violations) == 3
    assert all("Content Security Policy" in entry["message"] for entry in violations)


def test_attack_menu_changes_the_curves(opened: Any) -> None:
    labels = "return [...document.querySelectorAll('#curve-0 .point')].map((point) => point.getAttribute('aria-label'))"
    before = opened.execute_script(labels)
    choose(opened, "curve-0-attack", "DICE")
    after = opened.execute_script(labels)
    assert len(after) == len(before) == 6
    assert after != before
    assert after[0] == before[0]  # clean
    assert "GPRGNN, ε = 0.05: " in after[1]


def test_menus_filter_table_rows(opened: Any) -> None:
    shown = "return [...document.querySelectorAll('#rows-0 tbody tr')].filter((row) => !row.hidden).length"
    assert opened.execute_script(shown) == 3 * 2 * 2
    choose(opened, "rows-0-0", "GPRGNN")
    assert opened.execute_script(shown) == 2 * 2 * 2
    choose(opened, "rows-0-1", "FGSM")
    choose(opened, "rows-0-2", "0.2")
    assert opened.execute_script(shown) == 2
    choose(opened, "rows-0-0", "all")
    assert opened.execute_script(shown) == 3


@pytest.mark.parametrize("press", [lambda button: button.click(), lambda button: button.send_keys(Keys.ENTER)])
def test_headings_sort_tables(opened: Any, press: Callable[[Any], None]) -> None:
    column = "#rows-0 tbody td:nth-child(4)"
    heading = find(opened, "#rows-0 thead th:nth-child(4)")[0]
    for order in ("ascending", "descending"):
        press(heading.find_element(By.TAG_NAME, "button"))
        assert heading.get_attribute("aria-sort") == order
        values = [float(text.removesuffix(" %")) for text in texts(opened, column)]
        assert values == sorted(values, reverse=order == "descending")
    assert len(set(values)) > 2


def test_node_charts_follow_the_menus(opened: Any, hostile: str) -> None:
    summary = opened.find_element(By.ID, "nodes-summary")
    assert "are misclassified under attack" in summary.text
    seen = set()
    for model in ("GPRGNN, seed 0", "GPRGNN, seed 1", hostile):
        menu = Select(opened.find_element(By.ID, "nodes-model"))
        menu.select_by_index([option.get_attribute("textContent") for option in menu.options].index(model))
        for attack in ("worst case", "DICE"):
            choose(opened, "nodes-attack", attack)
            for budget in ("0.05", "0.2"):
                choose(opened, "nodes-budget", budget)
                misclassified = int(texts(opened, "#nodes-list summary")[0].split()[0])
                assert len(find(opened, "#nodes-list tbody tr")) == misclassified
                values = texts(opened, "#nodes-by-degree .value")
                assert sum(map(int, values)) == misclassified
                seen.add((summary.text, misclassified))
    assert len(seen) > 6


def test_arrow_keys_move_between_values(opened: Any) -> None:
    stops = "#curve-0 .point[tabindex='0']"
    first = find(opened, stops)[0]
    opened.execute_script("arguments[0].focus()", first)
    tip = find(opened, "#curve-0 .tip")[0]
    assert "clean" in tip.text
    active = opened.switch_to.active_element
    active.send_keys(Keys.ARROW_RIGHT)
    assert "ε = 0.05" in tip.text
    opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert "ε = 0.05" in tip.text
    assert "GPRGNN" not in tip.text
    assert len(find(opened, stops)) == 1  # a chart is one tab stop
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_tooltip_shows_the_value_under_the_pointer(opened: Any) -> None:
    mark = find(opened, "#gamma-0 .point")[0]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", mark)
    webdriver.ActionChains(opened).move_to_element(mark).perform()
    tip = find(opened, "#gamma-0 .tip")[0]
    assert tip.text.startswith("GPRGNN, step k 0: ")


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_page_follows_light_and_dark_color_scheme(opened: Any) -> None:
    colour = "return getComputedStyle(document.body)[arguments[0]]"
    luminances = {}
    for name in ("light", "dark"):
        set_color_scheme(opened, name)
        luminances[name] = [luminance(opened.execute_script(colour, key)) for key in ("backgroundColor", "color")]
    assert luminances["light"][0] > 0.9 > 0.2 > luminances["light"][1]
    assert luminances["dark"][0] < 0.2 < 0.8 < luminances["dark"][1]


@pytest.mark.parametrize("width", [320, 390, 768])
def test_page_fits_small_screens(opened: Any, width: int) -> None:
    resize(opened, width, mobile=True)
    opened.refresh()
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    # Charts are drawn at the available width, not scaled down.
    for chart in find(opened, ".chart > svg"):
        assert chart.size["width"] <= width
        assert int(chart.get_attribute("width")) == pytest.approx(chart.size["width"], abs=1)


def test_charts_are_redrawn_on_resize(opened: Any) -> None:
    wide = find(opened, "#curve-0 > svg")[0].size["width"]
    resize(opened, 500)
    resized = "return document.querySelector('#curve-0 > svg').getAttribute('width') < 500"
    WebDriverWait(opened, 5).until(lambda driver: driver.execute_script(resized))
    assert find(opened, "#curve-0 > svg")[0].size["width"] < wide


def test_printing_opens_details(opened: Any) -> None:
    closed = "return document.querySelectorAll('details:not([open])').length"
    assert opened.execute_script(closed) > 0
    printed = opened.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 10_000
    assert opened.execute_script(closed) == 0


def test_print_shows_all_rows_and_the_menu_selection(opened: Any) -> None:
    choose(opened, "rows-0-0", "GPRGNN")
    choose(opened, "curve-0-attack", "DICE")
    choose(opened, "nodes-attack", "DICE")
    opened.execute_script("arguments[0].focus()", find(opened, "#curve-0 .point[tabindex='0']")[0])
    assert find(opened, "#curve-0 .tip")[0].is_displayed()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(row.is_displayed() for row in find(opened, "#rows-0 tbody tr"))
    assert not any(tip.is_displayed() for tip in find(opened, ".tip"))
    assert texts(opened, "figure:has(#curve-0) .selection") == ["Attack: DICE. "]
    assert texts(opened, ".three .selection") == ["GPRGNN, seed 0, DICE, ε = 0.2. "] * 3
    assert texts(opened, "#nodes-summary")[0].startswith("GPRGNN, seed 0, DICE, ε = 0.2: ")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_elements_have_accessible_names(opened: Any) -> None:
    unnamed = """return [...document.querySelectorAll("select, button, svg[role], .point, [role=region]")]
        .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim()
            || (element.labels && element.labels.length))).length"""
    assert opened.execute_script(unnamed) == 0
    assert not find(opened, "table:not(:has(caption))")
    assert not find(opened, "th:not([scope])")
    assert opened.execute_script("return document.documentElement.lang") == "en"
    levels = opened.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map((heading) => +heading.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = opened.execute_script("return [...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
