"""Tiers of models and layers, and the command that shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.models import expected_seconds, tier_of

# Runs a command: exit status, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def data() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=80, p=0.1, q=0.03, seed=0)


class ThreeTiers(nn.Module):
    """One layer of every tier; the last one is called only for graphs without edges."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.fast, self.slow, self.last = pyg.GCNConv(21, 4), pyg.GATv2Conv(4, 4), last

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.slow(self.fast(x, edge_index).relu(), edge_index)
        out: Tensor = self.last(h, edge_index)
        return out


def test_tier_of_every_layer_and_reasons(data: Data) -> None:
    torch.manual_seed(0)
    found = tier_of(ThreeTiers(pyg.SAGEConv(4, 2, aggr="median")), data)
    assert found.tier == "black_box"
    assert [(layer.name, layer.layer, layer.tier) for layer in found.layers] == [
        ("fast", "GCNConv", "propagate"),
        ("slow", "GATv2Conv", "autograd"),
        ("last", "SAGEConv", "black_box"),
    ]
    assert "cannot be weighted" in found.layers[2].reason
    assert found.advice.startswith("replace SAGEConv (last), or give forward an edge_weight")
    better = tier_of(ThreeTiers(pyg.SAGEConv(4, 2)), data)
    assert better.tier == "autograd"
    assert better.advice.startswith("replace GATv2Conv (slow) by a layer of tier 'propagate'")
    assert "tier: autograd" in str(better)


def test_layer_that_is_not_called_has_no_tier(data: Data) -> None:
    class Unused(ThreeTiers):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.fast(x, edge_index)[:, :2]

    found = tier_of(Unused(pyg.SAGEConv(4, 2)), data)
    assert [layer.tier for layer in found.layers] == ["propagate", None, "propagate"]


def test_fast_model_needs_no_advice(data: Data) -> None:
    found = tier_of(pyg.models.GIN(21, 8, 2, 2), data)
    assert (found.tier, found.reason, found.advice) == ("propagate", "", "")
    assert len(found.layers) == 2


def test_expected_seconds_have_a_step_only_with_gradients(data: Data) -> None:
    assert list(expected_seconds(pyg.models.GCN(21, 4, 2, 2), data)) == [
        "one prediction",
        "one attack step on 3,160 pairs",
    ]
    assert list(expected_seconds(pyg.models.GraphSAGE(21, 4, 2, 2, aggr="median"), data)) == ["one prediction"]


MODULE = """
from torch import nn
from torch_geometric.nn import models


class Net(nn.Module):
    def __init__(self, aggr):
        super().__init__()
        self.sage = models.GraphSAGE(21, 4, 2, 2, aggr=aggr)

    def forward(self, data):
        return {"logits": self.sage(data.x, data.edge_index), "features": data.x}


class Noisy(Net):
    def forward(self, data):
        logits = super().forward(data)["logits"]
        return logits + logits.new_empty(logits.shape).normal_()


def fast(): return Net("mean")
def slow(): return Net("max")
def opaque(): return Net("median")
def noisy(): return Noisy("mean")
"""


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("fast", ["tier: propagate", "LRBCD of 400 steps: about", "called as model(data)['logits']"]),
        ("slow", ["tier: autograd", "for a faster tier: replace SAGEConv (sage.convs.0)", "LRBCD of 400 steps"]),
        ("opaque", ["tier: black_box", "give forward an edge_weight", "one prediction: "]),
    ],
)
def test_command_shows_tier_time_and_advice(
    factory: str, expected: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"module_{factory}.py").write_text(MODULE, encoding="utf-8")
    status, out, err = run("check-model", f"module_{factory}:{factory}", "--dataset", "csbm")
    assert status == 0, err
    text = " ".join((out + err).split())
    for part in expected:
        assert part in text


def test_command_fails_for_models_that_attacks_cannot_be_trusted_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("module_noisy.py").write_text(MODULE, encoding="utf-8")
    status, _, err = run("check-model", "module_noisy:noisy", "--dataset", "csbm")
    assert status == 1
    assert "two runs on the same graph give different logits" in err
    status, _, err = run("check-model", "nothing", "--dataset", "csbm")
    assert status == 1
    assert "expected a model file of edgeproof train, or module:factory" in err
