"""Each architecture against an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev
from scipy.interpolate import BarycentricInterpolator
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP as PyGAPPNP
from torch_geometric.nn import GATConv, GCNConv

from edgeproof import models
from edgeproof.models import APPNP, GAT, GCN, GPRGNN, MLP, ChebNetII


@pytest.fixture
def double(graph: Data) -> Data:
    graph.x = graph.x.double()
    return graph


def symmetric_weights(data: Data) -> Tensor:
    row, col = data.edge_index
    matrix = torch.rand(7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (matrix + matrix.T)[row, col] / 2


def dense_matrix(data: Data, weight: Tensor, self_loops: bool) -> Tensor:
    matrix = torch.zeros(7, 7, dtype=torch.float64)
    matrix[data.edge_index[1], data.edge_index[0]] = weight
    if self_loops:
        matrix += torch.eye(7)
    degree = matrix.sum(dim=1)
    root = torch.where(degree > 0, degree**-0.5, 0.0)
    return root[:, None] * matrix * root


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_gcn_matches_pyg(num_layers: int, double: Data) -> None:
    torch.manual_seed(0)
    model = GCN(5, 3, hidden_channels=4, num_layers=num_layers).double().eval()
    for bias in model.biases:
        nn.init.normal_(bias)
    weight = symmetric_weights(double)
    h = double.x
    for layer in range(num_layers):
        conv = GCNConv(*model.weights[layer].shape).double()
        conv.lin.weight.data, conv.bias.data = model.weights[layer].data.T, model.biases[layer].data
        h = conv(h, double.edge_index, weight)
        h = h.relu() if layer < num_layers - 1 else h
    torch.testing.assert_close(model(double.x, double.edge_index, weight), h)


def test_mlp_matches_linear_layers(double: Data) -> None:
    model = MLP(5, 3, hidden_channels=4, num_layers=3).double().eval()
    first, second, third = model.layers
    expected = third(second(first(double.x).relu()).relu())
    torch.testing.assert_close(model(double.x, double.edge_index), expected)


def test_appnp_matches_pyg(double: Data) -> None:
    model = APPNP(5, 3, hidden_channels=4, K=7, alpha=0.3).double().eval()
    weight = symmetric_weights(double)
    expected = PyGAPPNP(K=7, alpha=0.3)(model.encode(double.x), double.edge_index, weight)
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


@pytest.mark.parametrize("heads", [1, 2])
def test_gat_matches_pyg(heads: int, double: Data) -> None:
    torch.manual_seed(0)
    model = GAT(5, 3, hidden_channels=4, num_layers=3, heads=heads).double().eval()
    h = double.x
    for layer, attention in enumerate(model.attentions):
        nn.init.normal_(attention.bias)
        count, width = attention.receiver.shape
        conv = GATConv(model.weights[layer].size(0), width, heads=count).double()
        conv.lin.weight.data = model.weights[layer].data.T
        conv.att_src.data, conv.att_dst.data = attention.sender.data[None], attention.receiver.data[None]
        conv.bias.data = attention.bias.data
        h = conv(h, double.edge_index)
        h = h.relu() if layer < 2 else h
    torch.testing.assert_close(model(double.x, double.edge_index), h)


def test_gat_edge_weight_is_additive_logarithm(double: Data) -> None:
    model = GAT(5, 3, num_layers=1).double().eval()
    weight = symmetric_weights(double)
    (attention,) = model.attentions
    h = double.x @ model.weights[0]
    receiver, sender = h @ attention.receiver[0], h @ attention.sender[0]
    matrix = torch.eye(7, dtype=torch.float64)
    matrix[double.edge_index[1], double.edge_index[0]] = weight
    scores = nn.functional.leaky_relu(receiver[:, None] + sender[None, :], 0.2) + matrix.log()
    expected = scores.softmax(dim=1) @ h + attention.bias
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


def test_gat_is_finite_for_large_scores(double: Data) -> None:
    model = GAT(5, 3, num_layers=1).double().eval()
    model.attentions[0].sender.data.mul_(1e5)
    assert model(double.x, double.edge_index).isfinite().all()


def test_gat_ignores_zero_weight_edge_with_large_score() -> None:
    model = GAT(2, 2, num_layers=1).double()
    model.attentions[0].sender.data.fill_(1e4)
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    model.weights[0].data = torch.eye(2, dtype=torch.float64)
    weight = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    logits = model(x, torch.tensor([[0, 1], [1, 0]]), weight)
    torch.testing.assert_close(logits, model(x, torch.empty(2, 0, dtype=torch.long)))
    logits.sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("init", ["random", "ppr", "sgc"])
@pytest.mark.parametrize("K", [1, 4, 10])
def test_gprgnn_matches_dense_polynomial(init: str, K: int, double: Data) -> None:
    model = GPRGNN(5, 3, hidden_channels=4, K=K, init=init).double().eval()
    weight = symmetric_weights(double)
    matrix = dense_matrix(double, weight, self_loops=True)
    expected = sum(
        gamma * torch.linalg.matrix_power(matrix, power) @ model.encode(double.x)
        for power, gamma in enumerate(model.gamma)
    )
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


def test_gprgnn_with_ppr_coefficients_matches_appnp(double: Data) -> None:
    appnp = APPNP(5, 3, hidden_channels=4, K=6, alpha=0.2).double().eval()
    gprgnn = GPRGNN(5, 3, hidden_channels=4, K=6, alpha=0.2, init="ppr").double().eval()
    gprgnn.mlp.load_state_dict(appnp.mlp.state_dict())
    # The coefficients are float32 values.
    torch.testing.assert_close(
        gprgnn(double.x, double.edge_index), appnp(double.x, double.edge_index), rtol=1e-6, atol=1e-6
    )


def test_gprgnn_random_init_is_normalized() -> None:
    torch.manual_seed(0)
    gammas = torch.stack([GPRGNN(1, 2, hidden_channels=1, init="random").gamma.detach() for _ in range(500)])
    torch.testing.assert_close(gammas.abs().sum(dim=1), torch.ones(500))
    assert abs(float(gammas.mean())) < 0.01
    assert 0.4 < float((gammas > 0).float().mean()) < 0.6


def test_unknown_init_raises() -> None:
    with pytest.raises(ValueError, match="unknown init 'PPR': did you mean 'ppr'"):
        GPRGNN(5, 3, init="PPR")


def test_gprgnn_init_seed_matches_released_scripts() -> None:
    """They draw the coefficients from NumPy's generator."""
    for seed, K in ((0, 10), (5, 4)):
        bound = (3 / (K + 1)) ** 0.5
        drawn = torch.from_numpy(np.random.RandomState(seed).uniform(-bound, bound, K + 1))
        for model in (
            GPRGNN(5, 3, K=K, init="random", init_seed=seed),
            models.build("GPRGNN", 5, 3, {"K": K, "init": "random", "init_seed": seed}, seed=7),
        ):
            torch.testing.assert_close(model.gamma.detach().double(), drawn / drawn.abs().sum(), rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="expected init_seed only with init='random'"):
        GPRGNN(5, 3, init="ppr", init_seed=0)
    for wrong in (-1, 1.5, True, 2**32):
        with pytest.raises(ValueError, match="expected init_seed to be an integer from 0 to 4294967295"):
            GPRGNN(5, 3, init="random", init_seed=wrong)  # type: ignore[arg-type]


def cheb_model(K: int) -> ChebNetII:
    model = ChebNetII(5, 3, hidden_channels=4, K=K)
    nn.init.normal_(model.gamma, mean=0.3)
    return model.double().eval()


@pytest.mark.parametrize("K", [1, 2, 5, 10])
def test_chebnet2_interpolates_its_filter(K: int, double: Data) -> None:
    """The filter is the polynomial through ReLU(gamma) at the Chebyshev nodes, applied to the eigenvalues."""
    torch.manual_seed(0)
    model = cheb_model(K)
    weight = symmetric_weights(double)
    laplacian = -dense_matrix(double, weight, self_loops=False)
    eigenvalues, eigenvectors = torch.linalg.eigh(laplacian)
    nodes = np.cos((K - np.arange(K + 1) + 0.5) / (K + 1) * np.pi)
    response = BarycentricInterpolator(nodes, model.gamma.detach().relu().numpy())(eigenvalues.numpy())
    expected = eigenvectors @ torch.diag(torch.from_numpy(response)) @ eigenvectors.T @ model.encode(double.x)
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


@pytest.mark.parametrize("K", [1, 2, 5, 10])
def test_chebnet2_equals_its_monomial_expansion(K: int, double: Data) -> None:
    torch.manual_seed(0)
    model = cheb_model(K)
    weight = symmetric_weights(double)
    monomials = chebyshev.cheb2poly(model.coefficients().detach().numpy())
    laplacian = -dense_matrix(double, weight, self_loops=False)
    expected = sum(
        float(value) * torch.linalg.matrix_power(laplacian, power) @ model.encode(double.x)
        for power, value in enumerate(monomials)
    )
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)


def test_chebnet2_is_initialized_as_identity(double: Data) -> None:
    model = ChebNetII(5, 3).eval()
    x = double.x.float()
    torch.testing.assert_close(model(x, double.edge_index), model.encode(x), rtol=1e-5, atol=1e-5)


def test_chebnet2_applies_propagation_dropout(double: Data) -> None:
    model = ChebNetII(5, 3, dropout=0.0, propagation_dropout=0.5).train()
    encoded = torch.stack([model.encode(double.x.float()) for _ in range(200)])
    assert 0.4 < float((encoded == 0).float().mean()) < 0.6


def test_chebnet2_filter_has_its_own_learning_rate() -> None:
    model = ChebNetII(5, 3, filter_lr=0.5, filter_weight_decay=0.25)
    _, filter_group = model.parameter_groups()
    assert filter_group == {"params": [model.gamma], "lr": 0.5, "weight_decay": 0.25}


def test_gat_width_must_be_divisible_by_heads() -> None:
    with pytest.raises(ValueError, match="divisible by heads, got 64 / 3"):
        GAT(5, 3, heads=3)


@pytest.mark.parametrize(("least", "gates", "members"), [(1, False, 1), (3, False, 2), (2, True, 1)])
def test_one_hop_matches_its_equation(least: int, gates: bool, members: int, double: Data) -> None:
    torch.manual_seed(0)
    settings = {"hidden_channels": 4, "least": least, "gates": gates, "members": members}
    model = models.OneHop(5, 3, bound=0.7, **settings).double().eval()  # type: ignore[arg-type]
    model.scale = torch.linspace(0.5, 2.0, members, dtype=torch.float64)
    weight = symmetric_weights(double)
    matrix = dense_matrix(double, weight, self_loops=False)
    matrix[double.edge_index[1], double.edge_index[0]] = weight
    degree = matrix.sum(dim=1).clamp(min=least)
    expected = torch.zeros(7, 3, dtype=torch.float64)
    for own, message, scale in zip(model.own, model.message, model.scale, strict=True):
        h = message.encode(double.x)  # type: ignore[operator]
        sent, received = 0.7 * scale * h[:, :3].tanh(), torch.ones(7, 1, dtype=torch.float64)
        if gates:
            sent, received = sent * h[:, 3:4].sigmoid(), h[:, 4:5].sigmoid()
        own_logits = own.encode(double.x)  # type: ignore[operator]
        expected += (own_logits + received * (matrix @ sent) / degree[:, None]) / members
    torch.testing.assert_close(model(double.x, double.edge_index, weight), expected)
    no_edges = model(double.x, double.edge_index[:, :0])
    assert float((model(double.x, double.edge_index) - no_edges).abs().max()) <= model.influence


def test_one_hop_with_gates_has_one_member() -> None:
    with pytest.raises(ValueError, match="expected gates=False with several members, got members=4"):
        models.OneHop(5, 3, gates=True)


def test_bounded_influence_matches_its_equation(double: Data) -> None:
    torch.manual_seed(0)
    inner = GCN(5, 3, hidden_channels=4)
    model = models.BoundedInfluence(inner, 0.2).double().eval()
    graph_logits = inner(double.x, double.edge_index)
    own = model.own.encode(double.x)  # type: ignore[operator]
    torch.testing.assert_close(model(double.x, double.edge_index), own + 0.2 * (graph_logits / 0.2).tanh())


@pytest.mark.parametrize("takes_weight", [True, False])
def test_bounded_influence_of_a_users_module(takes_weight: bool, double: Data) -> None:
    class Degrees(nn.Module):
        in_channels, out_channels = 5, 3

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 3)

        def sums(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
            return torch.zeros(7, 3, dtype=x.dtype).index_add(
                0, edge_index[1], weight[:, None] * self.linear(x)[edge_index[0]]
            )

    class Weighted(Degrees):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.sums(x, edge_index, edge_weight)

    class Unweighted(Degrees):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.sums(x, edge_index, torch.ones(edge_index.size(1), dtype=x.dtype))

    torch.manual_seed(0)
    inner = (Weighted() if takes_weight else Unweighted()).double()
    own = nn.Linear(5, 3).double()
    model = models.BoundedInfluence(inner, 0.5, own=own).double().eval()
    sums = inner.sums(double.x, double.edge_index, torch.ones(10, dtype=torch.float64))
    expected = own(double.x) + 0.5 * (sums / 0.5).tanh()
    torch.testing.assert_close(model(double.x, double.edge_index), expected)
    half = torch.full((10,), 0.5, dtype=torch.float64)
    if takes_weight:
        halved = own(double.x) + 0.5 * (sums / 2 / 0.5).tanh()
        torch.testing.assert_close(model(double.x, double.edge_index, half), halved)
    else:
        with pytest.raises(
            ValueError, match="expected weights of 0 and 1 only, because Unweighted takes no edge_weight"
        ):
            model(double.x, double.edge_index, half)
    with pytest.raises(
        ValueError, match="expected a model with the attributes in_channels and out_channels, got Linear"
    ):
        models.BoundedInfluence(nn.Linear(5, 3))
