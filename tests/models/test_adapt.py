"""Models that are called in other ways: found automatically, or refused with a message that shows what to write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.models import adapt, predict, tier_of


class Base(nn.Module):
    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(21, 2) if layer is None else layer


class TakesData(Base):
    def forward(self, data: Data) -> Tensor:
        out: Tensor = self.conv(data.x, data.edge_index)
        return out


class TakesDataWithWeights(Base):
    def __init__(self) -> None:
        super().__init__(pyg.SSGConv(21, 2, alpha=0.2))

    def forward(self, data: Data) -> Tensor:
        out: Tensor = self.conv(data.x, data.edge_index, data.edge_weight + 0.0)
        return out


class ReturnsTuple(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.conv(x, edge_index)


class ReturnsDict(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
        logits = self.conv(x, edge_index)
        return {"probabilities": logits.softmax(dim=1), "logits": logits}


class Output(NamedTuple):
    hidden: Tensor
    loss: None
    classes: Tensor


class ReturnsNamedTuple(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Output:
        return Output(x, None, self.conv(x, edge_index))


class OtherNames(Base):
    def forward(self, edges: Tensor, features: Tensor) -> Tensor:
        out: Tensor = self.conv(features, edges)
        return out


class KeywordOnly(Base):
    def forward(self, *, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


class WeightLast(Base):
    def __init__(self) -> None:
        super().__init__(pyg.SSGConv(21, 2, alpha=0.2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_weight: Any = None) -> Tensor:
        out: Tensor = self.conv(x, edge_index, edge_weight)
        return out


class RequiresWeight(Base):
    def __init__(self) -> None:
        super().__init__(pyg.GCNConv(21, 2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index, edge_weight)
        return out


class RequiresBatch(Base):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index) + batch[:, None]
        return out


class Lit(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(21, 2)

    def forward(self, batch: Data) -> Tensor:
        out: Tensor = self.conv(batch.x, batch.edge_index)
        return out


class LitAroundModel(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = pyg.models.GCN(21, 4, 2, 2)

    def training_step(self, data: Data) -> Tensor:
        return nn.functional.cross_entropy(self.model(data.x, data.edge_index), data.y)


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script: nn.Module = torch.jit.script(pyg.GCNConv(21, 2))
        return script


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "forward(data)": (TakesData, "propagate"),
    "forward(data), with weights": (TakesDataWithWeights, "autograd"),
    "tuple": (ReturnsTuple, "propagate"),
    "dict": (ReturnsDict, "propagate"),
    "named tuple": (ReturnsNamedTuple, "propagate"),
    "names and order": (OtherNames, "propagate"),
    "keyword-only": (KeywordOnly, "propagate"),
    "weight not third": (WeightLast, "autograd"),
    "required weight": (RequiresWeight, "propagate"),
    "required batch": (RequiresBatch, "propagate"),
    "Lightning, forward(batch)": (Lit, "propagate"),
    "Lightning, without forward": (LitAroundModel, "propagate"),
    "torch.compile": (lambda: torch.compile(pyg.models.GAT(21, 4, 2, 2)), "propagate"),  # type: ignore[dict-item, return-value]
    "torch.compile of forward(data)": (lambda: torch.compile(TakesData()), "propagate"),  # type: ignore[dict-item, return-value]
    "torch.jit": (scripted, "autograd"),
}


@pytest.fixture(scope="module")
def split() -> ep.splits.Split:
    data = ep.datasets.csbm("homophilous", num_nodes=120, p=0.1, q=0.02, seed=0)
    return ep.splits.inductive(data, seed=0, train_per_class=10, val_per_class=10, test_share=0.3)


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]()


@pytest.mark.parametrize("name", MODELS)
def test_adapted_models_run_everywhere(name: str, split: ep.splits.Split) -> None:
    model, data, nodes = make(name), split.test.data, split.test.nodes
    assert predict(model, data).shape == (data.num_nodes, 2)
    assert tier_of(model, data).tier == MODELS[name][1]
    check = ep.evaluation.check_model(model, data)
    assert check.ok, check.problems
    assert check.tier == MODELS[name][1]
    budget = ep.Budget(6)
    result = ep.attacks.PRBCD(steps=3, fine_tune_steps=0, block_size=500)(model, data, nodes, budget)
    assert result.tier == MODELS[name][1]
    assert result.accuracy == float(ep.losses.accuracy(predict(model, result.data)[nodes], data.y[nodes]))
    certificate = ep.certificates.SparseSmoothing(p_add=0.01, p_del=0.5).certify(
        model, data, nodes, samples=20, choosing_samples=10, progress=False
    )
    assert certificate.prediction.numel() == nodes.numel()


@pytest.mark.parametrize(
    "name", ["forward(data)", "dict", "required weight", "Lightning, without forward", "torch.jit"]
)
@pytest.mark.filterwarnings("ignore::edgeproof.training.TrainingWarning")
def test_training_an_adapted_model_trains_the_model(name: str, split: ep.splits.Split) -> None:
    model = make(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attack = ep.attacks.LRBCD(steps=2, block_size=500)
    ep.train(model, split, attack=attack, epsilon=0.1, max_epochs=3, preset="paper", progress=False)
    assert any(not torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_evaluation_of_an_adapted_model(split: ep.splits.Split) -> None:
    scores = ep.evaluate(make("tuple"), split.test.data, split.test.nodes, [0.1], ["FGSM", "DICE"])
    assert scores.tier == "propagate"
    assert scores.accuracy(0.1) <= scores.clean_accuracy


def test_models_called_directly_are_returned_unchanged(split: ep.splits.Split) -> None:
    for model in (pyg.models.GCN(21, 4, 2, 2), ep.models.GCN(21, 2), pyg.GATConv(21, 2), TakesNothing()):
        assert adapt(model, split.test.data) is model


def test_adapter_shares_parameters_and_names_the_model(split: ep.splits.Split) -> None:
    model = make("forward(data)").eval()
    adapted = adapt(model, split.test.data)
    assert type(adapted).__name__ == "TakesData"
    assert {id(p) for p in adapted.parameters()} == {id(p) for p in model.parameters()}
    assert not adapted.training
    torch.testing.assert_close(adapted(split.test.data.x, split.test.data.edge_index), model(split.test.data))


class TakesNothing(nn.Module):
    def forward(self) -> None:
        raise NotImplementedError


class RequiresAttributes(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        raise NotImplementedError


class ReadsEncodings(Base):
    def forward(self, data: Data) -> Tensor:
        out: Tensor = self.conv(data.x + data.pe, data.edge_index)
        return out


class TwoOutputs(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.conv(x, edge_index)
        return logits, logits + 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RequiresAttributes(), r"RequiresAttributes\.forward requires edge_attr, which edgeproof cannot provide: wrap"),
        (ReadsEncodings(), r"ReadsEncodings called as model\(data\) raised AttributeError: .* wrap it in a module"),
        (TwoOutputs(), r"expected logits .* from TwoOutputs, got tuple with 0: torch.float32 of shape .* wrap"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_unclear_calls_raise_with_advice(model: nn.Module, message: str, split: ep.splits.Split) -> None:
    data, nodes = split.test.data, split.test.nodes
    for use in (
        lambda: predict(model, data),
        lambda: ep.evaluate(model, data, nodes, [0.1], ["DICE"]),
        lambda: ep.train(model, split, progress=False),
    ):
        with pytest.raises(ValueError, match=message):
            use()
    assert not ep.evaluation.check_model(model, data).ok


def test_adapting_fills_no_cache(split: ep.splits.Split) -> None:
    class Caches(Base):
        cache: Tensor | None = None

        def forward(self, data: Data) -> Tensor:
            self.cache = data.edge_index
            out: Tensor = self.conv(data.x, data.edge_index)
            return out

    model = Caches()
    adapt(model, split.test.data)
    assert model.cache is None
