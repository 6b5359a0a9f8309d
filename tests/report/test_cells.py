"""One small run by hand, and what every table and card must then say, cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from edgeproof.report import Attacked, Certified, Filter, Outcomes, Row, Run, render

Parse = Callable[[str], Any]


def outcomes(keys: tuple[tuple[str, float], ...], *margins: list[float], flips: list[int]) -> Outcomes:
    """Five nodes, the last of which was wrong before."""
    return Outcomes(
        nodes=torch.arange(5),
        degree=torch.tensor([1, 2, 2, 9, 1]),
        labels=None,
        clean_margins=torch.tensor([1.0, 2.0, 3.0, 4.0, -1.0]),
        keys=keys,
        margins=torch.tensor(margins),
        flips=torch.tensor([flips] * len(keys)),
    )


# Attack A was run twice at 0.2; the second run left less, and is the one that counts.
FIRST = outcomes(
    (("A", 0.1), ("A", 0.2)), [-1.0, 2.0, 3.0, 4.0, -1.0], [-1.0, 2.0, 3.0, 4.0, -1.0], flips=[1, 0, 0, 0, 0]
)
SECOND = outcomes((("A", 0.2),), [-1.0, -1.0, -1.0, 4.0, -1.0], flips=[2, 2, 3, 0, 0])
RUN = Run(
    name="net",
    dataset="g",
    model={"name": "Net"},
    split={"test": 5},
    clean=0.8,
    attacked=(
        Attacked(
            local=0.5,
            count="incident",
            rows=(Row("A", 0.1, 0.6, 3, 3), Row("A", 0.2, 0.2, 7, 6), Row("B", 0.2, 0.4, 7, 7)),
            outcomes=(FIRST, SECOND),
            warnings=("the gradients vanish",),
            checked=True,
        ),
    ),
    certified=Certified(
        {(0, 0): 0.8, (0, 1): 0.6, (0, 2): 0.2, (1, 0): 0.4, (1, 1): 0.1, (1, 2): 0.0}, True, {"p_del": 0.4}, 0.0
    ),
)


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of a table, its head the first of them."""
    (found,) = re.findall(rf"<table[^>]*><caption><span>{re.escape(caption)}[^<]*</span></caption>(.*?)</table>", page)
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", found)]


def cards(page: str, parse: Parse) -> list[str]:
    return [parse(card).text for card in re.findall(r"<article.*?</article>", page)]


def charts(page: str) -> dict[str, Any]:
    (block,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page)
    return dict(json.loads(block))


def test_the_certificate_is_drawn_the_right_way_round() -> None:
    assert cells(render([RUN]), "Certified accuracy of net") == [
        ["added ↓ deleted →", "0", "1", "2"],
        ["0", "80", "60", "20"],
        ["1", "40", "10", "0"],
    ]


def test_a_certificate_that_fits_no_page_is_cut_and_says_so() -> None:
    wide = Certified({(a, d): 0.5 for a in range(2) for d in range(20)}, True, {}, 0.0)
    page = render([replace(RUN, certified=wide)])
    assert [len(row) for row in cells(page, "Certified accuracy of net")] == [1 + 17] * 3
    assert "cut, something is certified up to 1 added and up to 19 deleted" in page
    assert "; cut" not in render([RUN])


def test_filters_lie_over_the_frequencies_of_their_own_graph() -> None:
    runs = [
        replace(RUN, dataset=dataset, filter=Filter((1.0,), True, None, 0.5, density))
        for dataset, density in (("g", (0.25, 0.75)), ("h", (0.5, 0.5)))
    ]
    found = charts(render(runs))
    for number, (name, density) in enumerate((("net, g", [0.25, 0.75]), ("net, h", [0.5, 0.5]))):
        assert found[f"spectrum-{number}"]["under"] == density
        for chart in (f"gamma-{number}", f"spectrum-{number}"):
            assert [one["name"] for one in found[chart]["series"]] == [name]


def test_the_pages_own_command_comes_last(parse: Parse) -> None:
    page = render([replace(RUN, commands=("edgeproof evaluate", "edgeproof train x"))], command="edgeproof report runs")
    assert parse(page).text.index("edgeproof train x\nedgeproof evaluate\nedgeproof report runs") > 0


def test_models_side_by_side() -> None:
    page = render([RUN, replace(RUN, name="other", clean=0.6, certified=None)])
    assert cells(page, "Certificates and filters") == [
        ["model", "certified, 1 added", "certified, 1 deleted", "γ₀", "heard from itself", "mean frequency"],
        ["net", "40.0 %", "60.0 %", "–", "–", "–"],
    ]
    head, first, second = cells(page, "Accuracy, clean and in the worst case")
    assert head == ["model", "clean", "worst, ε = 0.1", "worst, ε = 0.2"]
    assert [cell.partition(" (")[0] for cell in first] == ["net", "80.0 %", "60.0 %", "20.0 %"]
    assert [cell.partition(" (")[0] for cell in second] == ["other", "60.0 %", "60.0 %", "20.0 %"]


def test_the_card_is_about_the_largest_budget(parse: Parse) -> None:
    (card,) = cards(render([RUN]), parse)
    assert "80.0 %clean" in card
    assert "20.0 %worst case" in card
    assert "at ε = 0.2" in card
    assert "60.0 % certified against any one deleted edge" in card
    assert "⚠ 1 warning: see the self-checks" in card


def test_a_clean_accuracy_that_was_not_measured_is_not_made_up(parse: Parse) -> None:
    (card,) = cards(render([replace(RUN, clean=None)]), parse)
    assert "–clean" in card
    assert "20.0 %worst case" in card
    assert "80.0 %" not in card


def test_a_mean_is_of_the_runs_that_have_it(parse: Parse) -> None:
    (attacked,) = RUN.attacked
    short = replace(RUN, clean=0.4, attacked=(replace(attacked, rows=attacked.rows[:1], outcomes=()),))
    page = render([RUN, short, replace(RUN, name="other")])
    card, _ = cards(page, parse)
    assert "at ε = 0.1, mean of 2 runs" in card
    assert "60.0 %clean" in card
    assert "60.0 %worst case" in card
    row = cells(page, "Accuracy, clean and in the worst case")[1]
    assert row[1].startswith("60.0 % (")
    assert row[3].startswith("20.0 % (")
    assert row[3].endswith(", 1 of 2 runs")
    # Where no budget is shared the card says how many runs it speaks of, and is about these only.
    long = replace(short, attacked=(replace(attacked, rows=attacked.rows[1:], outcomes=()),))
    card, *_ = cards(render([replace(short, clean=0.9), long]), parse)
    assert "at ε = 0.2, 1 of 2 runs" in card
    assert "40.0 %clean" in card


def test_the_self_checks_are_told() -> None:
    assert "<li><strong>net: </strong>the gradients vanish</li>" in render([RUN])


def test_the_nodes_are_those_of_the_run_that_counts() -> None:
    found = {(view["attack"], view["epsilon"]): view for view in charts(render([RUN]))["nodes"]["runs"][0]["views"]}
    # B kept no nodes.
    assert set(found) == {("worst case", 0.1), ("worst case", 0.2), ("A", 0.1), ("A", 0.2)}
    assert [node for node, *_ in found["A", 0.2]["fallen"]] == [2, 1, 0]
    assert [node for node, *_ in found["A", 0.1]["fallen"]] == [0]
    # As many changes as edges are not more: of three, with 1, 2 and 2 edges and 2, 2 and 3 changes, two had more.
    assert "2 of them got more changed edges than they had edges" in found["A", 0.2]["says"]
    assert "0 of them got more changed edges than they had edges" in found["A", 0.1]["says"]


def test_limits_are_rounded_down() -> None:
    assert "more than 0.5 times its number of edges change, rounded down." in render([RUN])


@pytest.mark.parametrize(("attack", "lost", "flips"), [("A", "60.0 %", "6"), ("B", "40.0 %", "7")])
def test_every_attack_has_its_row(attack: str, lost: str, flips: str) -> None:
    rows = [row for row in cells(render([RUN]), "Every attack at every budget") if row[1:3] == [attack, "0.2"]]
    accuracy = {"A": "20.0 %", "B": "40.0 %"}[attack]
    assert rows == [["net", attack, "0.2", accuracy, lost, "7", flips, "–", "–"]]
