"""Results as text, HTML, dictionaries and data frames."""

import html
import json
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT

import edgeproof as ep
from edgeproof._tables import Layout, TabularResult
from edgeproof.evaluation.result import Result, Score
from edgeproof.experiments.summary import SweepTable
from edgeproof.splits import Split

HOSTILE = "<script>alert('1')</script>"


@pytest.fixture(scope="module")
def results() -> dict[str, TabularResult]:
    """Return one result of every class, with a hostile name where a class has a name."""
    graph = ep.datasets.csbm("homophilous", num_nodes=120, p=0.08, q=0.01, K=4.0, seed=3)
    split: Split = ep.splits.inductive(graph, train_per_class=10, val_per_class=10, test_share=0.2)
    data, nodes = split.test.data, split.test.nodes
    model = ep.models.build("GPRGNN", data.num_features, 2, seed=0)
    history = ep.train(
        model, split, attack=ep.attacks.FGSM(), epsilon=0.1, self_training=True, max_epochs=3, progress=False
    )
    assert history.pseudo_labels is not None
    scores = ep.evaluate(model, data, nodes, [0.1, 0.2], ["FGSM", "DICE"])
    smoothing = ep.certificates.SparseSmoothing(0.001, 0.4)
    counts = smoothing.sample_counts(model, data, nodes, 500, 0, choosing_samples=10, progress=False)
    certificate = smoothing.certify_counts(counts, labels=data.y[nodes])
    one_hop = ep.models.build("OneHop", data.num_features, 2, seed=0)
    worst_case = ep.certificates.WorstCase().certify(one_hop, data, nodes, ep.Budget(3))
    filters = {HOSTILE: model, "MLP": ep.models.MLP(data.num_features, 2)}
    comparison = ep.analysis.compare(filters, data, results={HOSTILE: scores.worst[0.2]})
    coefficients = replace(ep.analysis.coefficients(model), model=HOSTILE)
    described = Data(x=data.x, edge_index=data.edge_index, y=data.y, class_names=[HOSTILE, "other"])
    return {
        "AttackResult": scores.worst[0.1],
        "Evaluation": replace(scores, warnings=(HOSTILE,)),
        "Certificate": certificate,
        "Certificate without labels": replace(certificate, labels=None),
        "Fragility": ep.evaluation.fragility(model, data, nodes[:2], max_flips=1, progress=False),
        "Explanation": ep.evaluation.explain(model, data, int(nodes[0]), max_flips=1),
        "WorstCaseCertificate": replace(worst_case, budgets=(replace(worst_case.budgets[0], name=HOSTILE),)),
        "History": replace(history, warning=HOSTILE),
        "PseudoLabels": replace(history.pseudo_labels, label_model=HOSTILE),
        "GraphDescription": ep.datasets.describe(described),
        "ModelCheck": ep.evaluation.check_model(model, data),
        "ModelTier": ep.models.tier_of(GAT(data.num_features, 4, 2, 2, v2=True), data),
        "Coefficients": coefficients,
        "Spectrum": ep.analysis.spectrum(coefficients, data),
        "AttackedDegrees": ep.analysis.attacked_degrees(scores.worst[0.2], data),
        "ModelComparison": comparison,
        "Result": Result("command", HOSTILE, {}, {}, {}, 0, (Score("test", "clean", 0.0, 0.5),)),
        "Split": split,
        "ClassCounts": counts,
        "Outcomes": ep.report.Outcomes.of(scores.results, data, nodes),
        "Run": ep.report.Run.of(HOSTILE, model, data, nodes, evaluation=scores, certificate=certificate, split=split),
        "SweepTable": SweepTable(("dataset", "clean"), ((HOSTILE, "81.0"),), 1),
    }


NAMES = [
    "AttackResult",
    "Evaluation",
    "Certificate",
    "Certificate without labels",
    "Fragility",
    "Explanation",
    "WorstCaseCertificate",
    "History",
    "PseudoLabels",
    "GraphDescription",
    "ModelCheck",
    "ModelTier",
    "Coefficients",
    "Spectrum",
    "AttackedDegrees",
    "ModelComparison",
    "Result",
    "Split",
    "ClassCounts",
    "Outcomes",
    "Run",
    "SweepTable",
]


def test_every_result_class_is_covered(results: dict[str, TabularResult]) -> None:
    # Tests may define further classes.
    classes = {kind for kind in TabularResult.__subclasses__() if kind.__module__.startswith("edgeproof")}
    assert classes == {type(result) for result in results.values()}
    assert list(results) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_print_shows_a_short_table(results: dict[str, TabularResult], name: str) -> None:
    lines = str(results[name]).splitlines()
    assert 1 <= len(lines) <= 20
    assert max(map(len, lines)) < 240
    assert "tensor(" not in str(results[name])
    assert len(repr(results[name])) < 6000
    assert "tensor(" not in repr(results[name])


@pytest.mark.parametrize("name", NAMES)
def test_to_dict_is_json(results: dict[str, TabularResult], name: str) -> None:
    values = results[name].to_dict()
    assert json.loads(json.dumps(values)).keys() == values.keys()


@pytest.mark.parametrize("name", NAMES)
def test_data_frame_has_the_rows_of_the_dictionary(results: dict[str, TabularResult], name: str) -> None:
    pytest.importorskip("pandas")
    frame, values = results[name].to_dataframe(), results[name].to_dict()
    rows = values.get("rows", [values])
    assert len(frame) == len(rows) > 0
    assert list(frame.columns) == list(rows[0])
    for column, expected in rows[0].items():
        value = frame[column].iloc[0]
        # Data frames have NaN for missing numbers.
        assert value == expected or (expected is None and value != value), column


@pytest.mark.parametrize("name", NAMES)
def test_html_is_well_formed_and_escaped(results: dict[str, TabularResult], name: str) -> None:
    class Checker(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.seen: set[str] = set()

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.open.append(tag)
            self.seen.add(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    checker, text = Checker(), results[name]._repr_html_()
    checker.feed(text)
    assert not checker.open
    assert checker.seen <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert "<script" not in text
    if HOSTILE in str(results[name]):
        assert html.escape(HOSTILE) in text


def test_names_reach_the_tables(results: dict[str, TabularResult]) -> None:
    shown = [name for name, result in results.items() if HOSTILE in str(result)]
    assert len(shown) == 11


def test_data_frame_without_pandas_names_the_package(
    results: dict[str, TabularResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_dataframe needs pandas: pip install pandas"):
        results["Evaluation"].to_dataframe()


def test_attack_rows_are_the_outcomes_of_nodes(results: dict[str, TabularResult]) -> None:
    result = results["AttackResult"]
    assert isinstance(result, ep.attacks.AttackResult)
    rows = result.to_dict()["rows"]
    assert [row["node"] for row in rows] == result.nodes.tolist()
    assert sum(row["margin"] > 0 for row in rows) / len(rows) == pytest.approx(result.accuracy)
    touched = torch.isin(result.flips, result.nodes).sum()
    assert sum(row["flips"] for row in rows) == int(touched)


def test_certificate_rows_are_certified_accuracies(results: dict[str, TabularResult]) -> None:
    certificate = results["Certificate"]
    assert isinstance(certificate, ep.certificates.Certificate)
    for row in certificate.to_dict()["rows"]:
        radii = row["r_add"], row["r_del"]
        assert row["accuracy"] == pytest.approx(certificate.accuracy(*radii))
        assert row["certified"] == pytest.approx(float(certificate.certified(*radii).double().mean()))


def test_layout_aligns_columns() -> None:
    layout = Layout("title", ("name", "a", "b"), [("x", "1", "22"), ("long name", "3.25", "4")], notes=["note"])
    assert layout.as_text().splitlines() == [
        "title",
        "name          a   b",
        "x             1  22",
        "long name  3.25   4",
        "note",
    ]


def test_budgets_and_views_print_no_tensors() -> None:
    graph = ep.datasets.csbm("homophilous", num_nodes=120, p=0.08, q=0.01, K=4.0, seed=3)
    budget = ep.Budget.from_epsilon(graph, [0, 1, 2], 0.5, local=0.5)
    assert budget.local is not None
    high = int(budget.local.max())
    assert str(budget) == f"budget of {budget.total} flips, 0 to {high} at each of 120 nodes"
    assert str(ep.Budget(2000)) == "budget of 2,000 flips"
    assert "tensor" not in str(ep.splits.provided(graph, test_on_val=True).test)
