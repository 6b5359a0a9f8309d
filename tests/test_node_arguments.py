"""Nodes as ids or masks, as tensors, arrays and lists, in every public function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._checks import node_ids
from edgeproof.propagation.edge_gradient import EdgeGradientEngine

IDS = [1, 3, 4]
NUM_NODES = 6

FORMS: dict[str, Any] = {
    "list": IDS,
    "tuple": tuple(IDS),
    "array": np.array(IDS),
    "int32 array": np.array(IDS, dtype=np.int32),
    "unsigned array": np.array(IDS, dtype=np.uint64),
    "reversed view": np.array(IDS[::-1])[::-1],
    "int32 tensor": torch.tensor(IDS, dtype=torch.int32),
    "mask tensor": torch.tensor([node in IDS for node in range(NUM_NODES)]),
    "mask array": np.array([node in IDS for node in range(NUM_NODES)]),
    "mask list": [node in IDS for node in range(NUM_NODES)],
}


@pytest.fixture
def data() -> Data:
    row, col = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]])
    edge_index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])
    x = torch.randn(NUM_NODES, 3, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=edge_index, y=torch.tensor([0, 1, 0, 1, 1, 0]))


@pytest.mark.parametrize("form", FORMS)
def test_node_ids_accepts_ids_and_masks(data: Data, form: str) -> None:
    ids = node_ids(FORMS[form], data)
    assert ids.dtype == torch.long
    assert ids.tolist() == IDS


def test_node_ids_keeps_the_order_of_ids(data: Data) -> None:
    assert node_ids(np.array([4, 0, 2]), data).tolist() == [4, 0, 2]
    assert node_ids(range(2, 5), data).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "expected at least one node in nodes, got none"),
        (torch.zeros(NUM_NODES, dtype=torch.bool), "expected at least one node in nodes, got none"),
        ([True, False], "mask with one entry for each of 6 nodes, got 2 entries"),
        (np.ones(7, dtype=bool), "mask with one entry for each of 6 nodes, got 7 entries"),
        ([1, 1, 2], "expected distinct nodes, got 1 repeated"),
        ([0, 6], "expected nodes between 0 and 5, got 6"),
        (np.array([-1]), "expected nodes between 0 and 5, got -1"),
        ([0.0, 1.0], "integer node ids, or a boolean mask, got list of float64"),
        (torch.tensor([1.0]), r"integer node ids, or a boolean mask, got torch.float32 of shape \[1\]"),
        (torch.tensor([[1, 2]]), r"got torch.int64 of shape \[1, 2\]"),
        (3, r"got torch.int64 of shape \[\]"),
        (torch.ones(NUM_NODES, dtype=torch.uint8), r"uint8, which may mean either: convert it with nodes.bool\(\)"),
        (np.ones(NUM_NODES, dtype=np.uint8), "uint8, which may mean either"),
        ([[1], [2, 3]], "integer node ids, or a boolean mask, got list"),
        (["1", "2"], "integer node ids, or a boolean mask, got list"),
        ({1, 2}, "integer node ids, or a boolean mask, got set"),
        (None, "integer node ids, or a boolean mask, got None"),
    ],
)
def test_node_ids_rejects_other_nodes(data: Data, nodes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_ids(nodes, data)


def test_node_ids_rejects_unlabelled_nodes(data: Data) -> None:
    data.y[3] = -1
    with pytest.raises(ValueError, match="expected labelled nodes, got 1 with label -1, such as node 3"):
        node_ids(IDS, data, labelled=True)


def _edge_gradient(model: torch.nn.Module, data: Data, nodes: Any) -> Any:
    gradient = EdgeGradientEngine(model, data, nodes)()
    return gradient.loss, gradient.top(3, among=nodes).pairs


def _report(model: torch.nn.Module, data: Data, nodes: Any) -> Any:
    scores = ep.evaluate(model, data, nodes, [0.5], ["FGSM"])
    return ep.report.Run.of("GCN", model, data, nodes, evaluation=scores, dataset="graph").attacks[0].outcomes[0].nodes


FUNCTIONS: dict[str, Callable[[torch.nn.Module, Data, Any], Any]] = {
    "Budget.from_epsilon": lambda model, data, nodes: ep.Budget.from_epsilon(data, nodes, 0.5).total,
    "Budget.from_epsilons": lambda model, data, nodes: ep.Budget.from_epsilons(data, nodes, [0.5])[0].total,
    "attack": lambda model, data, nodes: ep.attacks.FGSM()(model, data, nodes, ep.Budget(2)).flips,
    "evaluate": lambda model, data, nodes: ep.evaluate(model, data, nodes, [0.5], ["FGSM"]).worst[0.5].nodes,
    "clean_accuracy": ep.evaluation.clean_accuracy,
    "majority": lambda model, data, nodes: ep.evaluation.majority(data, nodes, torch.tensor([1, 1, 0])),
    "certify": lambda model, data, nodes: (
        ep.certificates.SparseSmoothing().certify(model, data, nodes, 200, choosing_samples=5, progress=False).grid
    ),
    "predict": lambda model, data, nodes: ep.certificates.SparseSmoothing().predict(
        model, data, nodes, 20, progress=False
    ),
    "sample_counts": lambda model, data, nodes: (
        ep.certificates.SparseSmoothing().sample_counts(model, data, nodes, 20, choosing_samples=5).bounding
    ),
    "sample_part": lambda model, data, nodes: (
        ep.certificates.SparseSmoothing().sample_part(model, data, nodes, 0, 2, 20, choosing_samples=5).bounding
    ),
    "run_fingerprint": lambda model, data, nodes: ep.certificates.SparseSmoothing().run_fingerprint(model, data, nodes)[
        0
    ]["logits"],
    "worst_case": lambda model, data, nodes: (
        ep.certificates.WorstCase().certify(ep.models.build("OneHop", 3, 2, seed=0), data, nodes, ep.Budget(2)).margin
    ),
    "worst_margins": lambda model, data, nodes: ep.certificates.WorstCase().worst_margins(
        ep.models.build("OneHop", 3, 2, seed=0), data, nodes, added=1, deleted=1
    ),
    "edge gradient": _edge_gradient,
    "report": _report,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_public_functions_accept_masks_lists_and_arrays(data: Data, function: str) -> None:
    model = ep.models.build("GCN", 3, 2, seed=0).eval()
    expected = FUNCTIONS[function](model, data, torch.tensor(IDS))
    for form in ("list", "array", "mask tensor", "mask array", "mask list"):
        torch.testing.assert_close(FUNCTIONS[function](model, data, FORMS[form]), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="mask with one entry for each of 6 nodes, got 5 entries"):
        FUNCTIONS[function](model, data, [True] * 5)


def test_diffusion_accepts_masks_lists_and_arrays(data: Data) -> None:
    coefficients = ep.analysis.Coefficients.of([1.0, 0.5], self_loops=True)
    rows = ep.analysis.diffusion(coefficients, data, torch.tensor(IDS))
    influence = ep.analysis.self_influence(rows, torch.tensor(IDS))
    for form in ("list", "array", "mask list"):
        torch.testing.assert_close(ep.analysis.diffusion(coefficients, data, FORMS[form]), rows)
        assert ep.analysis.self_influence(rows, FORMS[form]) == influence
