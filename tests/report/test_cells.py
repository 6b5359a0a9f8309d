"""Tables, cards and charts of one small run, compared cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from edgeproof.report import AttackRow, AttackTable, CertificateSummary, Filter, Outcomes, Run, render

Parse = Callable[[str], Any]


def outcomes(keys: tuple[tuple[str, float], ...], *margins: list[float], flips: list[int]) -> Outcomes:
    """Return outcomes of five nodes; the last one is misclassified in the clean graph."""
    return Outcomes(
        nodes=torch.arange(5),
        degree=torch.tensor([1, 2, 2, 9, 1]),
        labels=None,
        clean_margins=torch.tensor([1.0, 2.0, 3.0, 4.0, -1.0]),
        keys=keys,
        margins=torch.tensor(margins),
        flips=torch.tensor([flips] * len(keys)),
    )


# Attack A was run twice at 0.2. The second run has the lower accuracy, which the table keeps.
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
    attacks=(
        AttackTable(
            local=0.5,
            count="incident",
            rows=(AttackRow("A", 0.1, 0.6, 3, 3), AttackRow("A", 0.2, 0.2, 7, 6), AttackRow("B", 0.2, 0.4, 7, 7)),
            outcomes=(FIRST, SECOND),
            warnings=("the gradients vanish",),
            checked=True,
        ),
    ),
    certificate=CertificateSummary(
        {(0, 0): 0.8, (0, 1): 0.6, (0, 2): 0.2, (1, 0): 0.4, (1, 1): 0.1, (1, 2): 0.0}, True, {"p_del": 0.4}, 0.0
    ),
)


def cells(page: str, caption: str) -> list[list[str]]:
    """Return the rows of a table, including its head."""
    (content,) = re.findall(
        rf"<table[^>]*><caption><span>{re.escape(caption)}[^<]*</span></caption>(.*?)</table>", page
    )
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", content)]


def cards(page: str, parse: Parse) -> list[str]:
    return [parse(card).text for card in re.findall(r"<article.*?</article>", page)]


def charts(page: str) -> dict[str, Any]:
    (block,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page)
    return dict(json.loads(block))


def test_heatmap_has_added_edges_as_rows_and_deleted_as_columns() -> None:
    assert cells(render([RUN]), "Certified accuracy of net") == [
        ["added ↓ deleted →", "0", "1", "2"],
        ["0", "80", "60", "20"],
        ["1", "40", "10", "0"],
    ]


def test_large_certificate_is_cut_with_a_note() -> None:
    wide = CertificateSummary({(a, d): 0.5 for a in range(2) for d in range(20)}, True, {}, 0.0)
    page = render([replace(RUN, certificate=wide)])
    assert [len(row) for row in cells(page, "Certified accuracy of net")] == [1 + 17] * 3
    assert "; cut: non-zero up to 1 added and 19 deleted edges" in page
    assert "; cut" not in render([RUN])


def test_spectrum_background_is_that_of_the_same_graph() -> None:
    runs = [
        replace(RUN, dataset=dataset, filter=Filter((1.0,), True, None, 0.5, density))
        for dataset, density in (("g", (0.25, 0.75)), ("h", (0.5, 0.5)))
    ]
    drawn = charts(render(runs))
    for number, (name, density) in enumerate((("net, g", [0.25, 0.75]), ("net, h", [0.5, 0.5]))):
        assert drawn[f"spectrum-{number}"]["background"] == density
        for chart in (f"gamma-{number}", f"spectrum-{number}"):
            assert [line["name"] for line in drawn[chart]["series"]] == [name]


def test_report_command_comes_last(parse: Parse) -> None:
    page = render([replace(RUN, commands=("edgeproof evaluate", "edgeproof train x"))], command="edgeproof report runs")
    assert parse(page).text.index("edgeproof train x\nedgeproof evaluate\nedgeproof report runs") > 0


def test_model_comparison_tables() -> None:
    page = render([RUN, replace(RUN, name="other", clean=0.6, certificate=None)])
    assert cells(page, "Certificates and filters") == [
        ["model", "certified, 1 added", "certified, 1 deleted", "γ₀", "weight of the node itself", "mean frequency"],
        ["net", "40.0 %", "60.0 %", "–", "–", "–"],
    ]
    head, first, second = cells(page, "Clean and worst-case accuracy")
    assert head == ["model", "clean", "worst, ε = 0.1", "worst, ε = 0.2"]
    assert [cell.partition(" (")[0] for cell in first] == ["net", "80.0 %", "60.0 %", "20.0 %"]
    assert [cell.partition(" (")[0] for cell in second] == ["other", "60.0 %", "60.0 %", "20.0 %"]


def test_card_shows_the_largest_budget(parse: Parse) -> None:
    (card,) = cards(render([RUN]), parse)
    assert "80.0 %clean" in card
    assert "20.0 %worst case" in card
    assert "at ε = 0.2" in card
    assert "60.0 % certified against the deletion of any one edge" in card
    assert "⚠ 1 warning: see the attack results" in card


def test_missing_clean_accuracy_is_a_dash(parse: Parse) -> None:
    (card,) = cards(render([replace(RUN, clean=None)]), parse)
    assert "–clean" in card
    assert "20.0 %worst case" in card
    assert "80.0 %" not in card


def test_means_are_over_the_runs_with_the_value(parse: Parse) -> None:
    (attack_table,) = RUN.attacks
    short = replace(RUN, clean=0.4, attacks=(replace(attack_table, rows=attack_table.rows[:1], outcomes=()),))
    page = render([RUN, short, replace(RUN, name="other")])
    card, _ = cards(page, parse)
    assert "at ε = 0.1, mean of 2 runs" in card
    assert "60.0 %clean" in card
    assert "60.0 %worst case" in card
    row = cells(page, "Clean and worst-case accuracy")[1]
    assert row[1].startswith("60.0 % (")
    assert row[3].startswith("20.0 % (")
    assert row[3].endswith(", 1 of 2 runs")
    # Without a shared budget, the card shows the runs with the largest one and their number.
    long = replace(short, attacks=(replace(attack_table, rows=attack_table.rows[1:], outcomes=()),))
    card, *_ = cards(render([replace(short, clean=0.9), long]), parse)
    assert "at ε = 0.2, 1 of 2 runs" in card
    assert "40.0 %clean" in card


def test_self_check_warnings_are_listed() -> None:
    assert "<li><strong>net: </strong>the gradients vanish</li>" in render([RUN])


def test_views_show_the_outcomes_of_the_kept_run() -> None:
    views = {(view["attack"], view["epsilon"]): view for view in charts(render([RUN]))["nodes"]["runs"][0]["views"]}
    # B has no per-node outcomes.
    assert set(views) == {("worst case", 0.1), ("worst case", 0.2), ("A", 0.1), ("A", 0.2)}
    assert [node for node, *_ in views["A", 0.2]["misclassified"]] == [2, 1, 0]
    assert [node for node, *_ in views["A", 0.1]["misclassified"]] == [0]
    # Of three nodes with 1, 2, 2 edges and 2, 2, 3 flips, two have more flips than edges.
    assert "2 of them have more edge flips than edges" in views["A", 0.2]["summary"]
    assert "0 of them have more edge flips than edges" in views["A", 0.1]["summary"]


def test_threat_model_states_local_budget() -> None:
    assert "edge flips at a node are at most 0.5 times its degree, rounded down." in render([RUN])


@pytest.mark.parametrize(("attack", "drop", "flips"), [("A", "60.0 %", "6"), ("B", "40.0 %", "7")])
def test_attack_table_has_one_row_per_attack(attack: str, drop: str, flips: str) -> None:
    rows = [row for row in cells(render([RUN]), "Every attack at every budget") if row[1:3] == [attack, "0.2"]]
    accuracy = {"A": "20.0 %", "B": "40.0 %"}[attack]
    assert rows == [["net", attack, "0.2", accuracy, drop, "7", flips, "–", "–"]]
