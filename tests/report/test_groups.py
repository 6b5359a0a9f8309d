from __future__ import annotations

import math
from dataclasses import replace

import pytest

from edgeproof.report import AttackRow, AttackTable, CertificateSummary, Filter, Run, ThreatModel
from edgeproof.report.groups import WORST, group, wilson

LOCAL = ThreatModel("0.5", "incident")


def make(
    name: str = "net",
    *,
    seed: int = 0,
    dataset: str = "g",
    model: str = "GCN",
    worst: float = 0.5,
    parameters: int | None = None,
) -> Run:
    rows = (AttackRow("A", 0.1, worst + 0.1), AttackRow("B", 0.1, worst), AttackRow("A", 0.2, worst + 0.05))
    return Run(
        name=name,
        dataset=dataset,
        model={"name": model, "settings": {}, "parameters": parameters, "fingerprint": f"{name}{seed}{dataset}"},
        split={"test": 100},
        training={"seed": seed, "seconds": 1.5 * seed, "lr": 0.1},
        seed=seed,
        clean=0.9,
        attacks=(AttackTable(0.5, "incident", rows),),
    )


def test_group_averages_seeds_with_standard_error() -> None:
    (model_group,) = group([make(seed=0, worst=0.4), make(seed=1, worst=0.6)])
    estimate = model_group.accuracy(LOCAL, WORST, 0.1)
    assert estimate is not None
    # The standard deviation of 0.4 and 0.6 is 0.1 √2, over √2 runs.
    assert estimate == pytest.approx((0.5, 0.4, 0.6, 2))


def test_single_run_has_wilson_interval() -> None:
    (model_group,) = group([make()])
    estimate = model_group.accuracy(LOCAL, "A", 0.1)
    assert estimate is not None
    # Definition (Wilson, 1927): |p - fraction| = z √(p (1 - p) / n) at both ends.
    for end in (estimate.low, estimate.high):
        assert abs(end - 0.6) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / 100))


def test_worst_case_includes_smaller_budgets() -> None:
    (model_group,) = group([make()])
    worst = model_group.accuracy(LOCAL, WORST, 0.2)
    assert worst is not None
    assert worst.mean == 0.5


def test_missing_accuracy_is_none() -> None:
    (model_group,) = group([make()])
    assert model_group.accuracy(LOCAL, "B", 0.2) is None
    assert model_group.accuracy(ThreatModel("None", "incident"), WORST, 0.1) is None
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
def test_group_names_are_unique(runs: list[Run], names: list[str]) -> None:
    assert [each.name for each in group(runs)] == names


def test_group_averages_filters_and_certificates() -> None:
    values = [((1.0,), {(0, 0): 1.0, (0, 1): 0.5}), ((0.5, -0.5), {(0, 0): 0.5})]
    runs = [
        Run(
            **{
                **make(seed=seed).__dict__,
                "filter": Filter(gamma, True, 0.2 + seed, 0.4, (0.5, 0.5)),
                "certificate": CertificateSummary(fractions, True, {"alpha": 0.05}, 0.0),
            }
        )
        for seed, (gamma, fractions) in enumerate(values)
    ]
    (model_group,) = group(runs)
    assert model_group.filter is not None
    assert model_group.filter.gamma == (0.75, -0.25)
    assert model_group.filter.own_share == pytest.approx(0.7)
    assert model_group.certificate is not None
    assert model_group.certificate.fractions == {(0, 0): 0.75}


def test_group_rejects_certificates_with_different_settings() -> None:
    runs = [
        replace(make(seed=seed), certificate=CertificateSummary({(0, 0): 1.0}, labelled, {"p_del": noise}, 0.0))
        for seed, (noise, labelled) in enumerate(((0.4, True), (0.6, True), (0.4, False)))
    ]
    for other in runs[1:]:
        with pytest.raises(ValueError, match="expected certificates of net with the same settings"):
            group([runs[0], other])
    assert group([runs[0], make(seed=1)])[0].certificate == runs[0].certificate


def test_largest_epsilon_prefers_budgets_shared_by_all_runs() -> None:
    rows = (AttackRow("A", 0.1, 0.7), AttackRow("A", 0.4, 0.1))
    other = replace(make(seed=1), clean=0.7, attacks=(AttackTable(0.5, "incident", rows),))
    (model_group,) = group([make(seed=0), other])
    assert model_group.largest_epsilon(LOCAL) == 0.1
    estimate = model_group.accuracy(LOCAL, WORST, 0.4)
    assert estimate is not None
    assert (estimate.mean, estimate.runs) == (0.1, 1)
    assert model_group.attacked_at(LOCAL, 0.4).runs == (other,)
    (disjoint,) = group([make(seed=0), replace(other, attacks=(AttackTable(0.5, "incident", rows[1:]),))])
    assert disjoint.largest_epsilon(LOCAL) == 0.4
