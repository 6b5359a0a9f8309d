from __future__ import annotations

import math
from dataclasses import replace

import pytest

from edgeproof.report import Attacked, Certified, Filter, Row, Run
from edgeproof.report.groups import WORST, group, wilson

KIND = ("0.5", "incident")


def make(
    name: str = "net",
    *,
    seed: int = 0,
    dataset: str = "g",
    model: str = "GCN",
    worst: float = 0.5,
    parameters: int | None = None,
) -> Run:
    rows = (Row("A", 0.1, worst + 0.1), Row("B", 0.1, worst), Row("A", 0.2, worst + 0.05))
    return Run(
        name=name,
        dataset=dataset,
        model={"name": model, "settings": {}, "parameters": parameters, "fingerprint": f"{name}{seed}{dataset}"},
        split={"test": 100},
        training={"seed": seed, "seconds": 1.5 * seed, "lr": 0.1},
        seed=seed,
        clean=0.9,
        attacked=(Attacked(0.5, "incident", rows),),
    )


def test_seeds_of_one_model_become_a_mean_with_its_standard_error() -> None:
    (found,) = group([make(seed=0, worst=0.4), make(seed=1, worst=0.6)])
    estimate = found.accuracy(KIND, WORST, 0.1)
    assert estimate is not None
    # The standard deviation of 0.4 and 0.6 is 0.1 √2, over √2 runs.
    assert estimate == pytest.approx((0.5, 0.4, 0.6, 2))


def test_a_single_run_has_the_interval_of_its_nodes() -> None:
    (found,) = group([make()])
    estimate = found.accuracy(KIND, "A", 0.1)
    assert estimate is not None
    # Wilson 1927, written as in its definition: |p - share| = z √(p (1 - p) / n) at both ends.
    for end in (estimate.low, estimate.high):
        assert abs(end - 0.6) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / 100))


def test_what_a_smaller_budget_did_counts_for_a_larger_one() -> None:
    (found,) = group([make()])
    worst = found.accuracy(KIND, WORST, 0.2)
    assert worst is not None
    assert worst.mean == 0.5


def test_what_was_not_measured_is_none() -> None:
    (found,) = group([make()])
    assert found.accuracy(KIND, "B", 0.2) is None
    assert found.accuracy(("None", "incident"), WORST, 0.1) is None
    assert wilson(0.3, None) == (0.3, 0.3, 0.3, 1)


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([make(seed=0), make(seed=1)], ["net"]),
        ([make(), make("other")], ["net", "other"]),
        ([make(), make(model="GAT")], ["net, GCN", "net, GAT"]),
        ([make(parameters=1), make(seed=1, parameters=1)], ["net"]),
        ([make(parameters=1), make(seed=1, parameters=2)], ["net (1)", "net (2)"]),
        ([make(), make(dataset="h")], ["net, g", "net, h"]),
        ([make(), make(dataset="h"), make(model="GAT")], ["net (1)", "net (2)", "net (3)"]),
    ],
)
def test_every_group_has_a_name_of_its_own(runs: list[Run], names: list[str]) -> None:
    assert [found.name for found in group(runs)] == names


def test_filters_and_certificates_are_averaged() -> None:
    ways = [((1.0,), {(0, 0): 1.0, (0, 1): 0.5}), ((0.5, -0.5), {(0, 0): 0.5})]
    runs = [
        Run(
            **{
                **make(seed=seed).__dict__,
                "filter": Filter(gamma, True, 0.2 + seed, 0.4, (0.5, 0.5)),
                "certified": Certified(shares, True, {"alpha": 0.05}, 0.0),
            }
        )
        for seed, (gamma, shares) in enumerate(ways)
    ]
    (found,) = group(runs)
    assert found.filter is not None
    assert found.filter.gamma == (0.75, -0.25)
    assert found.filter.own_share == pytest.approx(0.7)
    assert found.certified is not None
    assert found.certified.shares == {(0, 0): 0.75}


def test_certificates_of_different_noise_are_not_averaged() -> None:
    runs = [
        replace(make(seed=seed), certified=Certified({(0, 0): 1.0}, labelled, {"p_del": noise}, 0.0))
        for seed, (noise, labelled) in enumerate(((0.4, True), (0.6, True), (0.4, False)))
    ]
    for other in runs[1:]:
        with pytest.raises(ValueError, match="expected certificates of net with the same settings"):
            group([runs[0], other])
    assert group([runs[0], make(seed=1)])[0].certified == runs[0].certified


def test_budgets_that_not_all_runs_have() -> None:
    rows = (Row("A", 0.1, 0.7), Row("A", 0.4, 0.1))
    other = replace(make(seed=1), clean=0.7, attacked=(Attacked(0.5, "incident", rows),))
    (found,) = group([make(seed=0), other])
    assert found.largest(KIND) == 0.1
    least = found.accuracy(KIND, WORST, 0.4)
    assert least is not None
    assert (least.mean, least.runs) == (0.1, 1)
    assert found.at(KIND, 0.4).runs == (other,)
    (apart,) = group([make(seed=0), replace(other, attacked=(Attacked(0.5, "incident", rows[1:]),))])
    assert apart.largest(KIND) == 0.4
