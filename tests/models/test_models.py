"""Properties of every model of the library."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.models import GraphModel
from edgeproof.propagation import Adjacency

GRAPH_MODELS = [name for name in ep.models.available() if name != "MLP"]


def build(name: str, seed: int = 0) -> GraphModel:
    model = ep.models.build(name, 5, 3, {"hidden_channels": 8}, seed=seed).eval()
    if name == "ChebNetII":
        # The initial filter is the identity, which ignores the edges.
        model.gamma.data.uniform_(0.1, 1.0, generator=torch.Generator().manual_seed(seed))
    return model


def weights_for(data: Data, seed: int = 0) -> torch.Tensor:
    """Symmetric weights between 0.1 and 1."""
    row, col = data.edge_index
    matrix = torch.rand(7, 7, generator=torch.Generator().manual_seed(seed)) * 0.9 + 0.1
    return (matrix + matrix.T)[row, col] / 2


@pytest.mark.parametrize("name", ep.models.available())
class TestEveryModel:
    def test_output_shape(self, name: str, graph: Data) -> None:
        assert build(name)(graph.x, graph.edge_index).shape == (7, 3)

    def test_adjacency_equals_edge_list(self, name: str, graph: Data) -> None:
        model = build(name)
        torch.testing.assert_close(model(graph.x, Adjacency.from_data(graph)), model(graph.x, graph.edge_index))

    def test_unit_weights_equal_no_weights(self, name: str, graph: Data) -> None:
        model = build(name)
        assert torch.equal(model(graph.x, graph.edge_index, torch.ones(10)), model(graph.x, graph.edge_index))

    def test_zero_weight_equals_no_edge(self, name: str, graph: Data) -> None:
        model = build(name).double()
        x = graph.x.double()
        kept = torch.ones(10, dtype=torch.float64)
        row, col = graph.edge_index
        kept[((row == 0) & (col == 1)) | ((row == 1) & (col == 0))] = 0
        without = model(x, graph.edge_index[:, kept > 0])
        torch.testing.assert_close(model(x, graph.edge_index, kept), without)

    def test_invariant_to_edge_order(self, name: str, graph: Data) -> None:
        model = build(name)
        order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(model(graph.x, graph.edge_index[:, order]), model(graph.x, graph.edge_index))

    def test_equivariant_to_node_permutation(self, name: str, graph: Data) -> None:
        model = build(name).double()
        order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
        inverse = order.argsort()
        permuted = model(graph.x[order].double(), inverse[graph.edge_index])
        torch.testing.assert_close(permuted, model(graph.x.double(), graph.edge_index)[order])

    def test_graph_without_edges(self, name: str, graph: Data) -> None:
        logits = build(name)(graph.x, torch.empty(2, 0, dtype=torch.long))
        assert logits.shape == (7, 3)
        assert logits.isfinite().all()

    def test_passes_gradcheck_in_features_and_weights(self, name: str, graph: Data) -> None:
        model = build(name).double()
        x = graph.x.double().requires_grad_()
        weight = weights_for(graph).double().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, w: model(x, graph.edge_index, w), (x, weight))

    def test_every_parameter_has_gradient_and_group(self, name: str, graph: Data) -> None:
        model = build(name)
        (model(graph.x, graph.edge_index) ** 2).sum().backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name
        grouped = [parameter for group in model.parameter_groups() for parameter in group["params"]]
        assert {id(parameter) for parameter in grouped} == {id(parameter) for parameter in model.parameters()}
        assert len(grouped) == len(list(model.parameters()))

    def test_dropout_applies_in_training_only(self, name: str, graph: Data) -> None:
        model = build(name)
        assert torch.equal(model(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
        model.train()
        outputs = [model(graph.x, graph.edge_index) for _ in range(8)]
        assert any(not torch.equal(outputs[0], output) for output in outputs[1:])

    def test_adjacency_used_in_inference_mode_is_differentiable(self, name: str, graph: Data) -> None:
        model, adjacency = build(name), Adjacency.from_data(graph)
        with torch.inference_mode():
            model(graph.x, adjacency)
        model(graph.x, adjacency).sum().backward()

    def test_seed_determines_parameters(self, name: str) -> None:
        state = torch.get_rng_state()
        first, same, different = build(name, 1).state_dict(), build(name, 1).state_dict(), build(name, 2).state_dict()
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(first[key], same[key]) for key in first)
        assert any(not torch.equal(first[key], different[key]) for key in first)

    def test_settings_rebuild_the_architecture(self, name: str) -> None:
        model = build(name)
        settings = dict(model.settings)
        sizes = settings.pop("in_channels"), settings.pop("out_channels")
        assert repr(ep.models.build(name, *sizes, settings)) == repr(model)

    def test_wrong_feature_width_raises(self, name: str, graph: Data) -> None:
        with pytest.raises(ValueError, match=r"features x of shape \[nodes, 5\], got \[7, 4\]"):
            build(name)(graph.x[:, :4], graph.edge_index)

    def test_invalid_settings_raise(self, name: str) -> None:
        with pytest.raises(ValueError, match="hidden_channels to be an integer >= 1, got 0"):
            ep.models.build(name, 5, 3, {"hidden_channels": 0})
        with pytest.raises(ValueError, match=r"0 <= dropout < 1, got 1\.0"):
            ep.models.build(name, 5, 3, {"dropout": 1.0})
        with pytest.raises(ValueError, match=f"unknown setting of {name} 'dropuot': did you mean 'dropout'"):
            ep.models.build(name, 5, 3, {"dropuot": 0.5})


@pytest.mark.parametrize("name", GRAPH_MODELS)
def test_graph_models_depend_on_neighbors(name: str, graph: Data) -> None:
    model = build(name)
    changed = graph.x.clone()
    changed[0] += 1
    difference = (model(changed, graph.edge_index) - model(graph.x, graph.edge_index)).abs().sum(dim=1)
    assert difference[1] > 0
    assert torch.equal(difference[4:], torch.zeros(3))


def test_settings_of_wrong_type_raise() -> None:
    with pytest.raises(ValueError, match="0 <= dropout < 1, got 'abc'"):
        ep.models.build("GCN", 5, 3, {"dropout": "abc"})
    with pytest.raises(ValueError, match="unknown init 5"):
        ep.models.build("GPRGNN", 5, 3, {"init": 5})


def test_unknown_model_suggests_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown model 'gprgnn': did you mean 'GPRGNN'"):
        ep.models.build("gprgnn", 5, 3)


def test_predict_checks_graph(graph: Data) -> None:
    graph.edge_index = graph.edge_index[:, :1]
    with pytest.raises(ValueError, match="undirected"):
        ep.models.predict(build("GCN"), graph)


def test_predict_restores_mode(graph: Data) -> None:
    model = build("GCN").train()
    logits = ep.models.predict(model, graph)
    assert model.training
    assert not logits.requires_grad
    assert torch.equal(logits, model.eval()(graph.x, graph.edge_index))
