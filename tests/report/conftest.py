"""Runs and HTML parser shared by the report tests."""

from __future__ import annotations

import warnings
from html.parser import HTMLParser

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import edgeproof as ep
from edgeproof.report import Run

# Markup that breaks out of text, attributes, scripts or JSON if it is not escaped.
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&amp;\u2028{{7*7}}$title"


class Net(nn.Module):
    """User model of PyG layers."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(channels, 8), GCNConv(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.first(x, edge_index, edge_weight).relu()
        logits: Tensor = self.second(hidden, edge_index, edge_weight)
        return logits


class ParsedPage(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="session")
def parse() -> type[ParsedPage]:
    return ParsedPage


@pytest.fixture(scope="session")
def hostile() -> str:
    return HOSTILE


@pytest.fixture(scope="session")
def page_runs() -> list[Run]:
    """Two certified seeds of a GPRGNN, and a user model with hostile names."""
    data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)
    split = ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)
    graph, nodes = split.test.data, split.test.nodes
    runs = []
    for seed in (0, 1):
        model = ep.models.build("GPRGNN", data.num_features, 2, ep.models.PAPER_SETTINGS["GPRGNN"], seed=seed)
        history = ep.train(model, split, preset="paper", seed=seed, max_epochs=20, progress=False)
        scores = ep.evaluate(model, graph, nodes, [0.05, 0.2], ["FGSM", "DICE"], local=0.5)
        certificate = ep.certificates.SparseSmoothing(0.01, 0.4).certify(
            model, graph, nodes, samples=400, choosing_samples=50, progress=False
        )
        runs.append(
            Run.of(
                "GPRGNN",
                model,
                graph,
                nodes,
                evaluation=scores,
                certificate=certificate,
                history=history,
                split=split,
                dataset=HOSTILE,
                seed=seed,
                command="edgeproof evaluate",
            )
        )
    torch.manual_seed(0)
    user_model = Net(data.num_features, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        scores = ep.evaluate(user_model, graph, nodes, [0.05, 0.2], ["FGSM", "DICE"], local=0.5)
    runs.append(Run.of(HOSTILE, user_model, graph, nodes, evaluation=scores, dataset=HOSTILE, command=HOSTILE))
    return runs
