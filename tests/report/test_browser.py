"""The page in a real browser: Debian's Chromium, without a window."""

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
def page(pages_runs: list[Run], hostile: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write(pages_runs, out, title=hostile)
    return out


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """The page, opened from disk on a desk-sized screen; whatever a test does, the console stays empty."""
    resize(browser, 1200)
    scheme(browser, "light")
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def resize(browser: Any, width: int, *, mobile: bool = False) -> None:
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


def scheme(browser: Any, name: str) -> None:
    # What moves by itself would move away from under the pointer.
    wanted = {
        "features": [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
    }
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)


def find(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def choose(browser: Any, id_: str, text: str) -> None:
    Select(browser.find_element(By.ID, id_)).select_by_visible_text(text)


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    return list(browser.execute_script(script, selector))


def test_charts_are_drawn(opened: Any) -> None:
    # Two models at no budget and two budgets; two filters.
    assert len(find(opened, "#curve-0 .line")) == 2 + 2  # lines, and those of the legend
    assert len(find(opened, "#curve-0 .point")) == 6
    assert len(find(opened, "#curve-0 path.bar")) == 6
    assert len(find(opened, "#gamma-0 .point")) == 11
    assert len(find(opened, "#spectrum-0 rect.under")) == 41
    for name in ("degree", "margin", "class"):
        assert find(opened, f"#nodes-by-{name} rect.share")
    for one in find(opened, ".chart svg"):
        assert one.size["width"] > 20
        assert one.size["height"] > 5


def test_nothing_hostile_runs(opened: Any, hostile: str) -> None:
    assert opened.execute_script("return window.hacked") is None
    assert texts(opened, "title") == texts(opened, "h1") == [hostile]
    assert opened.execute_script("return document.images.length") == 0
    assert opened.execute_script("return document.scripts.length") == 2
    assert hostile in texts(opened, "#curve-0 .legend li")
    assert hostile in texts(opened, "#nodes-model option")


def test_the_policy_holds_against_what_would_get_in(browser: Any, page: Path) -> None:
    """Even markup that got into the page could neither run nor load anything."""
    broken = page.with_name("broken.html")
    attack = "<script>window.hacked=1</script><p id=late onclick='window.hacked=1'>x</p><img src='x.png'>"
    broken.write_text(page.read_text(encoding="utf-8").replace("<main", attack + "<main"), encoding="utf-8")
    browser.get(broken.as_uri())
    browser.find_element(By.ID, "late").click()
    assert browser.execute_script("return window.hacked") is None
    refused = browser.get_log("browser")
    assert len(refused) == 3
    assert all("Content Security Policy" in entry["message"] for entry in refused)


def test_the_attack_can_be_chosen(opened: Any) -> None:
    labels = "return [...document.querySelectorAll('#curve-0 .point')].map((one) => one.getAttribute('aria-label'))"
    before = opened.execute_script(labels)
    choose(opened, "curve-0-attack", "DICE")
    after = opened.execute_script(labels)
    assert len(after) == len(before) == 6
    assert after != before
    assert after[0] == before[0]  # clean
    assert "GPRGNN, ε = 0.05: " in after[1]


def test_rows_can_be_thinned_out(opened: Any) -> None:
    shown = "return [...document.querySelectorAll('#rows-0 tbody tr')].filter((row) => !row.hidden).length"
    assert opened.execute_script(shown) == 3 * 2 * 2
    choose(opened, "rows-0-0", "GPRGNN")
    assert opened.execute_script(shown) == 2 * 2 * 2
    choose(opened, "rows-0-1", "FGSM")
    choose(opened, "rows-0-2", "0.2")
    assert opened.execute_script(shown) == 2
    choose(opened, "rows-0-0", "all")
    assert opened.execute_script(shown) == 3


@pytest.mark.parametrize("press", [lambda one: one.click(), lambda one: one.send_keys(Keys.ENTER)])
def test_tables_sort(opened: Any, press: Callable[[Any], None]) -> None:
    column = "#rows-0 tbody td:nth-child(4)"
    heading = find(opened, "#rows-0 thead th:nth-child(4)")[0]
    for order in ("ascending", "descending"):
        press(heading.find_element(By.TAG_NAME, "button"))
        assert heading.get_attribute("aria-sort") == order
        values = [float(text.removesuffix(" %")) for text in texts(opened, column)]
        assert values == sorted(values, reverse=order == "descending")
    assert len(set(values)) > 2


def test_nodes_follow_the_menus(opened: Any, hostile: str) -> None:
    says = opened.find_element(By.ID, "nodes-says")
    assert "right before the attack fell" in says.text
    found = set()
    for model in ("GPRGNN, seed 0", "GPRGNN, seed 1", hostile):
        menu = Select(opened.find_element(By.ID, "nodes-model"))
        menu.select_by_index([one.get_attribute("textContent") for one in menu.options].index(model))
        for attack in ("worst case", "DICE"):
            choose(opened, "nodes-attack", attack)
            for budget in ("0.05", "0.2"):
                choose(opened, "nodes-budget", budget)
                fell = int(texts(opened, "#nodes-list summary")[0].split()[1])
                assert len(find(opened, "#nodes-list tbody tr")) == fell
                values = texts(opened, "#nodes-by-degree .value")
                assert sum(map(int, values)) == fell
                found.add((says.text, fell))
    assert len(found) > 6


def test_values_are_reached_by_keys(opened: Any) -> None:
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
    assert len(find(opened, stops)) == 1  # a chart is one stop, whatever it holds
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_values_show_under_the_pointer(opened: Any) -> None:
    mark = find(opened, "#gamma-0 .point")[0]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", mark)
    webdriver.ActionChains(opened).move_to_element(mark).perform()
    tip = find(opened, "#gamma-0 .tip")[0]
    assert tip.text.startswith("GPRGNN, steps k 0: ")


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_light_and_dark(opened: Any) -> None:
    colour = "return getComputedStyle(document.body)[arguments[0]]"
    found = {}
    for name in ("light", "dark"):
        scheme(opened, name)
        found[name] = [luminance(opened.execute_script(colour, one)) for one in ("backgroundColor", "color")]
    assert found["light"][0] > 0.9 > 0.2 > found["light"][1]
    assert found["dark"][0] < 0.2 < 0.8 < found["dark"][1]


@pytest.mark.parametrize("width", [320, 390, 768])
def test_small_screens_have_nothing_beyond_their_edge(opened: Any, width: int) -> None:
    resize(opened, width, mobile=True)
    opened.refresh()
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    # Charts fit, too, without being shrunk beyond reading.
    for one in find(opened, ".chart > svg"):
        assert one.size["width"] <= width
        assert int(one.get_attribute("width")) == pytest.approx(one.size["width"], abs=1)


def test_charts_follow_the_width(opened: Any) -> None:
    wide = find(opened, "#curve-0 > svg")[0].size["width"]
    resize(opened, 500)
    resized = "return document.querySelector('#curve-0 > svg').getAttribute('width') < 500"
    WebDriverWait(opened, 5).until(lambda driver: driver.execute_script(resized))
    assert find(opened, "#curve-0 > svg")[0].size["width"] < wide


def test_printing_opens_the_tables(opened: Any) -> None:
    closed = "return document.querySelectorAll('details:not([open])').length"
    assert opened.execute_script(closed) > 0
    printed = opened.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 10_000
    assert opened.execute_script(closed) == 0


def test_paper_needs_no_menus(opened: Any) -> None:
    choose(opened, "rows-0-0", "GPRGNN")
    choose(opened, "curve-0-attack", "DICE")
    choose(opened, "nodes-attack", "DICE")
    opened.execute_script("arguments[0].focus()", find(opened, "#curve-0 .point[tabindex='0']")[0])
    assert find(opened, "#curve-0 .tip")[0].is_displayed()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(row.is_displayed() for row in find(opened, "#rows-0 tbody tr"))
    assert not any(one.is_displayed() for one in find(opened, ".tip"))
    assert texts(opened, "figure:has(#curve-0) .chosen") == ["Attack: DICE. "]
    assert texts(opened, ".three .chosen") == ["GPRGNN, seed 0, DICE, ε = 0.2. "] * 3
    assert texts(opened, "#nodes-says")[0].startswith("GPRGNN, seed 0, DICE, ε = 0.2: ")
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_everything_has_a_name_for_those_who_cannot_see_it(opened: Any) -> None:
    unnamed = """return [...document.querySelectorAll("select, button, svg[role], .point, [role=region]")]
        .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim()
            || (one.labels && one.labels.length))).length"""
    assert opened.execute_script(unnamed) == 0
    assert not find(opened, "table:not(:has(caption))")
    assert not find(opened, "th:not([scope])")
    assert opened.execute_script("return document.documentElement.lang") == "en"
    levels = opened.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = opened.execute_script("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
