"""Models without edge gradients: attacks and evaluations from predictions alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import attacks, models
from edgeproof.attacks.suite import black_box
from edgeproof.evaluation import EvaluationWarning
from edgeproof.propagation import NoEdgeGradientError


class Counts(nn.Module):
    """Classes by the rounded mean of the neighbors' features, computed outside of autograd."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.no_grad():
            row, col = edge_index.cpu().numpy()
            sums = torch.eye(x.size(0), dtype=x.dtype).index_put_(
                (torch.from_numpy(col), torch.from_numpy(row)), x.new_ones(())
            )
            out: Tensor = self.linear((sums @ x / sums.sum(dim=1, keepdim=True)).mul(8).round())
            return out


@pytest.fixture
def data() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=60, p=0.1, q=0.03, seed=0)


@pytest.fixture
def model(data: Data) -> nn.Module:
    torch.manual_seed(0)
    return Counts(data.num_features)


def test_tier_of_each_kind_of_model(model: nn.Module, data: Data) -> None:
    torch.manual_seed(0)
    found = {network: models.tier_of(network, data) for network in (model, models.GCN(21, 2))}
    assert [each.tier for each in found.values()] == ["black_box", "propagate"]
    assert "has no edge gradients" in found[model].reason


def test_gradient_attack_raises_and_other_attacks_name_the_tier(model: nn.Module, data: Data) -> None:
    nodes, budget = torch.arange(30), ep.Budget(6)
    with pytest.raises(NoEdgeGradientError, match="Counts has no edge gradients: its forward takes no edge_weight"):
        attacks.LRBCD(steps=2)(model, data, nodes, budget)
    result = attacks.DICE()(model, data, nodes, budget)
    assert (result.tier, result.path) == ("black_box", "none")
    assert result.to_dict()["tier"] == "black_box"
    other = attacks.FGSM()(models.GCN(21, 2), data, nodes, budget)
    assert (other.tier, other.path) == ("propagate", "propagate")


def test_evaluation_runs_the_attacks_that_need_only_predictions(model: nn.Module, data: Data) -> None:
    scores = ep.evaluate(model, data, torch.arange(30), [0.05, 0.1], effort="quick")
    assert scores.tier == "black_box"
    assert "tier: black_box" in str(scores)
    names = [entry.name for entry in black_box("quick")]
    assert {name for name, _ in scores.results} == {*names, "transfer"}
    assert all(result.tier == "black_box" for result in scores.results.values())
    assert scores.accuracy(0.1) <= scores.clean_accuracy


def test_evaluation_of_a_list_raises_before_any_attack(model: nn.Module, data: Data) -> None:
    with pytest.raises(NoEdgeGradientError):
        ep.evaluate(model, data, torch.arange(30), [0.1], ["DICE", "PRBCD"])


@pytest.mark.filterwarnings("ignore::edgeproof.evaluation.EvaluationWarning")
def test_local_search_improves_random_flips_without_gradients(model: nn.Module, data: Data) -> None:
    nodes, budget = torch.arange(30), ep.Budget(4, torch.full((60,), 2))
    start = attacks.RandomFlips()
    search = attacks.LocalSearch(start=start, candidates=16, patience=4, swaps=8)
    assert (start.needs, search.needs, attacks.LocalSearch().needs) == ("predictions", "predictions", "gradients")
    results = [attack(model, data, nodes, budget, seed=0) for attack in (start, search, search)]
    assert results[1].accuracy < results[0].accuracy
    assert results[1].flips.equal(results[2].flips)


def test_zero_gradients_make_a_black_box(data: Data) -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.gcn = models.GCN(21, 2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            out: Tensor = self.gcn(x, edge_index, edge_weight)
            return out.detach()

    tier = models.tier_of(Detached(), data)
    assert tier.tier == "black_box"
    assert "zero at every edge" in tier.reason


def test_models_that_ignore_their_edges_are_still_refused(data: Data) -> None:
    class OwnGraph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gcn = models.GCN(21, 2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            out: Tensor = self.gcn(x, data.edge_index)
            return out

    with pytest.raises(ValueError, match="not along the edges passed to it"):
        ep.evaluate(OwnGraph(), data, torch.arange(30), [0.1], effort="quick")


def test_no_warning_about_vanishing_gradients(model: nn.Module, data: Data, recwarn: pytest.WarningsRecorder) -> None:
    ep.evaluate(model, data, torch.arange(30), [0.1], ["DICE"])
    assert not [
        each for each in recwarn if isinstance(each.message, EvaluationWarning) and each.message.code == "EP002"
    ]
