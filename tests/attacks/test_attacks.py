"""Every attack on every model: budget, perturbed graph, determinism and strength. A new attack adds a row to ATTACKS."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN as PyGGCN
from torch_geometric.nn import SSGConv

import edgeproof as ep
from edgeproof.attacks import (
    DICE,
    FGSM,
    LRBCD,
    PGD,
    PRBCD,
    Attack,
    EvA,
    ExactGain,
    ExactSearch,
    FixedFlips,
    GreedyRBCD,
    LocalSearch,
    NodeSelection,
    QueryGain,
    RandomFlips,
)
from edgeproof.attacks.base import AttackTrace, Target
from edgeproof.attacks.node_selection import Options, select
from edgeproof.attacks.rbcd import Best, ascend, initial_block
from edgeproof.budget import Budget, BudgetExceededError
from edgeproof.propagation import EdgeGradientEngine

ATTACKS: list[Attack] = [
    PGD(steps=8, samples=3),
    PRBCD(steps=8, fine_tune_steps=4, block_size=2_000, samples=3),
    LRBCD(steps=8, block_size=2_000, samples=3),
    FGSM(),
    FGSM(loss="log_margin"),
    GreedyRBCD(steps=4, block_size=2_000),
    LocalSearch(start=GreedyRBCD(steps=4, block_size=2_000), patience=2, candidates=4, swaps=3),
    ExactGain(candidates=200, refresh=3, batch=20),
    NodeSelection(candidates=200),
    ExactSearch(start=ExactGain(candidates=100), candidates=100, moves=8, refresh=5),
    QueryGain(candidates=12, batch=6, refresh=3, rounds=2),
    EvA(population=6, generations=3),
    DICE(),
    RandomFlips(),
]
USING_GRADIENTS = ATTACKS[:10]
MODELS = [
    "APPNP",
    "BoundedInfluence",
    "ChebNetII",
    "GAT",
    "GCN",
    "GPRGNN",
    "GRAND",
    "MLP",
    "OneHop",
    "PyG",
    "SSGConv",
    "SoftMedianGDC",
]


class UserModel(nn.Module):
    """User's module around a PyG model."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.net(x, edge_index, edge_weight)
        return out


def build(name: str, data: Data) -> nn.Module:
    classes = ep.num_classes(data)
    if name in ("PyG", "SSGConv"):
        torch.manual_seed(0)
        # The library has propagation rules for the layers of the first, but not for SSGConv.
        return UserModel(
            PyGGCN(data.num_features, 8, 2, classes)
            if name == "PyG"
            else SSGConv(data.num_features, classes, alpha=0.2)
        )
    return ep.models.build(name, data.num_features, classes, {"hidden_channels": 8}, seed=0)


def check_result(result: ep.attacks.AttackResult, data: Data, nodes: Tensor, model: nn.Module) -> None:
    """Check that the flips keep the budget, the graph differs in exactly these flips, and the reported numbers are correct."""
    result.budget.check(result.flips)
    ep.check_data(result.data)
    assert result.data.get("edge_weight") is None
    dense = torch.zeros(2, data.num_nodes, data.num_nodes)
    dense[0][data.edge_index[0], data.edge_index[1]] = 1
    dense[1][result.data.edge_index[0], result.data.edge_index[1]] = 1
    assert torch.equal((dense[0] != dense[1]).triu().nonzero().T, result.flips)
    torch.testing.assert_close(result.data.x, data.x)
    logits = ep.models.predict(model, result.data)[nodes]
    assert result.accuracy == float(ep.losses.accuracy(logits, data.y[nodes]))
    torch.testing.assert_close(result.margins, ep.losses.margin(logits, data.y[nodes]))
    assert len(result.trace) <= result.attack.num_steps(result.budget)
    assert all(seconds >= 0 for seconds in result.seconds.values())


@pytest.fixture(scope="module")
def small() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=60, p=0.12, q=0.03, K=4.0, seed=3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_attack_keeps_budget_and_is_deterministic(attack: Attack, name: str, small: Data) -> None:
    model = build(name, small)
    nodes = torch.arange(0, small.num_nodes, 3)
    budgets = [
        Budget.from_epsilon(small, nodes, 0.15),
        Budget.from_epsilon(small, nodes, 0.15, local=0.5),
        Budget.from_epsilon(small, nodes, 0.0),
        Budget(9, torch.zeros(small.num_nodes, dtype=torch.long)),
    ]
    results = attack(model, small, nodes, budgets, seed=1)
    for result in results:
        check_result(result, small, nodes, model)
    assert [result.flips.size(1) for result in results[2:]] == [0, 0]
    if attack in USING_GRADIENTS:
        assert all(result.accuracy <= result.clean_accuracy for result in results)
        assert results[0].path == ("autograd" if name == "SSGConv" else "propagate")
    repeated = attack(model, small, nodes, budgets[0], seed=1)
    assert torch.equal(repeated.flips, results[0].flips)
    assert repeated.trace == results[0].trace


@settings(max_examples=40, deadline=None)
@pytest.mark.filterwarnings("ignore:EP007")
@given(
    seed=st.integers(0, 10_000),
    attack=st.sampled_from(ATTACKS),
    model=st.sampled_from(["GCN", "GPRGNN", "GAT"]),
    total=st.integers(0, 60),
    has_local=st.booleans(),
)
def test_attacks_keep_budgets_on_random_graphs(
    seed: int, attack: Attack, model: str, total: int, has_local: bool
) -> None:
    """Empty to complete graphs of two to ten nodes; budgets from 0 to more than the number of pairs."""
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(2, 11, (), generator=generator))
    density = float(torch.rand((), generator=generator)) * 1.4 - 0.2
    upper = (torch.rand(n, n, generator=generator) < density).triu(1)
    data = Data(
        x=torch.randn(n, 3, generator=generator),
        edge_index=(upper | upper.T).nonzero().T.contiguous(),
        y=torch.arange(n) % 2,
    )
    nodes = torch.randperm(n, generator=generator)[: int(torch.randint(1, n + 1, (), generator=generator))]
    local = torch.randint(0, 4, (n,), generator=generator) if has_local else None
    network = ep.models.build(model, 3, 2, {"hidden_channels": 4}, seed=seed)
    attack = replace(attack, block_size=200) if hasattr(attack, "block_size") else attack
    result = attack(network, data, nodes, Budget(total, local), seed=seed)
    check_result(result, data, nodes, network)


def test_gradient_attacks_beat_random_flips_on_trained_model(sbm: Data, split: ep.splits.Split) -> None:
    model = ep.models.build("GCN", sbm.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    data, nodes = split.test.data, split.test.nodes
    # Without local budgets, the first choices of LR-BCD spend the global budget and are never replaced.
    budget = Budget.from_epsilon(data, nodes, 0.2, local=0.5)
    random = [RandomFlips()(model, data, nodes, budget, seed=seed).accuracy for seed in range(10)]
    for attack in (PGD(steps=40), PRBCD(steps=40, fine_tune_steps=10), LRBCD(steps=40), FGSM(), GreedyRBCD(steps=20)):
        assert attack(model, data, nodes, budget).accuracy < sum(random) / 10 - 0.03, attack


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GAT", "SSGConv"])
def test_exact_gain_of_one_flip_is_optimal(name: str, small: Data) -> None:
    model, nodes = build(name, small), torch.arange(20)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    pairs = torch.combinations(torch.arange(small.num_nodes)).T
    logits = EdgeGradientEngine(model, small, nodes, labels=labels).logits_of([pair[:, None] for pair in pairs.T])
    lowest = min(float((z[:, nodes].argmax(dim=2) == labels).double().mean(dim=1).min()) for z in logits)
    result = ExactGain()(model, small, nodes, Budget(1), labels=labels)
    assert result.accuracy == pytest.approx(lowest)
    assert result.queries >= pairs.size(1)


def test_exact_gain_is_stronger_than_gradients(sbm: Data, split: ep.splits.Split) -> None:
    model = ep.models.build("GCN", sbm.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    data, nodes = split.test.data, split.test.nodes
    for local in (None, 0.5):
        budget = Budget.from_epsilon(data, nodes, 0.1, local=local)
        exact, predicted = (attack(model, data, nodes, budget) for attack in (ExactGain(), FGSM(loss="log_margin")))
        assert exact.accuracy <= predicted.accuracy
        # A flip is made only if it misclassifies a node or brings one closer to it.
        assert list(exact.trace) == sorted(exact.trace, reverse=True)


def test_node_selection_counts_shared_flips_once_and_respects_budgets() -> None:
    budget = Budget(3, torch.tensor([1, 1, 2, 3, 3, 3]))
    flips = torch.tensor([[0, 1, 2, 0], [3, 4, 5, 1]])
    # Flip 3 alone serves targets 0 and 1; target 2 needs flips 1 and 2; target 3 needs flips 2 and 0.
    options = Options(flips, [[0], [1], [3], [1, 2], [2, 0]], [[0], [1], [0, 1], [2], [3]])
    # With flip 3, nodes 0 and 1 have no budget left: two targets. With flips 0, 1 and 2: all four targets.
    assert select(options, budget, 4).tolist() == [0, 1, 2]
    assert select(options, Budget(1, budget.local), 4).tolist() == [3]
    assert select(options, Budget(2), 4).numel() <= 2


def test_exact_search_improves_weak_start_within_local_budgets(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(30)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    for local in (None, 0.5):
        budget = Budget.from_epsilon(small, nodes, 0.1, local=local)
        start = RandomFlips()(model, small, nodes, budget, labels=labels)
        search = ExactSearch(start=FixedFlips(flips=start.flips), moves=60)
        found = search(model, small, nodes, budget, labels=labels)
        exact = ExactGain()(model, small, nodes, budget, labels=labels)
        assert found.accuracy < start.accuracy
        assert found.accuracy <= exact.accuracy + 0.1


def test_eva_improves_with_generations_and_counts_queries(small: Data) -> None:
    model, nodes, budget = build("GCN", small), torch.arange(30), Budget(10)
    short, long = (EvA(population=20, generations=k)(model, small, nodes, budget, seed=2) for k in (1, 30))
    assert long.accuracy < short.accuracy <= long.clean_accuracy
    # The best set survives, so the lowest accuracy of the population never rises.
    assert list(long.trace) == sorted(long.trace, reverse=True)
    assert long.accuracy == pytest.approx(long.trace[-1])
    # The search ends early if a set misclassifies all nodes.
    for result in (short, long):
        assert result.queries == 20 + (len(result.trace) - 1) * 18
    assert all(min(u, v) < 30 for u, v in long.flips.T.tolist())


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GAT"])
def test_fgsm_flips_pair_of_largest_gradient_unless_accuracy_rises(name: str, small: Data) -> None:
    model, nodes = build(name, small), torch.arange(20)
    pairs = torch.combinations(torch.arange(small.num_nodes)).T
    gradient = ep.propagation.EdgeGradientEngine(model, small, nodes)().at(pairs)
    best = FixedFlips(flips=pairs[:, gradient.argmax()][:, None])(model, small, nodes, Budget(1))
    expected = best.flips if best.accuracy <= best.clean_accuracy else best.flips[:, :0]
    assert torch.equal(FGSM()(model, small, nodes, Budget(1)).flips, expected)


def test_dice_removes_edges_within_and_adds_edges_between_classes(small: Data) -> None:
    nodes = torch.arange(20)
    result = DICE(add_ratio=0.5)(build("GCN", small), small, nodes, Budget(16))
    edges = {(int(u), int(v)) for u, v in small.edge_index.T}
    removed = [pair for pair in result.flips.T.tolist() if tuple(pair) in edges]
    added = [pair for pair in result.flips.T.tolist() if tuple(pair) not in edges]
    assert len(removed) == len(added) == 8
    assert all(small.y[u] == small.y[v] for u, v in removed)
    assert all(small.y[u] != small.y[v] for u, v in added)
    assert all(u < 20 for u, _ in result.flips.T.tolist())
    only_added = DICE(add_ratio=1.0)(build("GCN", small), small, nodes, Budget(16))
    assert not any(tuple(pair) in edges for pair in only_added.flips.T.tolist())


def test_labels_argument_replaces_labels_of_data(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(30)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    result = GreedyRBCD(loss="log_margin")(model, small, nodes, Budget(10), labels=labels)
    assert result.clean_accuracy == 1.0
    assert result.accuracy < 1.0
    assert int((result.margins > 0).sum()) == round(result.accuracy * 30)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**20])
@pytest.mark.parametrize("attack", ATTACKS[:3], ids=repr)
def test_scaled_margin_is_invariant_to_logit_scale(attack: Attack, scale: float, small: Data) -> None:
    """Scaling by powers of two changes neither predictions nor, with this loss, any step of the attack."""
    model, nodes = build("GPRGNN", small).eval(), torch.arange(30)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        ep.losses.cross_entropy(model(small.x, small.edge_index), small.y).backward()
        optimizer.step()
    scaled = deepcopy(model)
    with torch.no_grad():
        scaled.get_parameter("gamma").mul_(scale)
    budget = Budget.from_epsilon(small, nodes, 0.15, local=0.5)
    scale_free = replace(attack, steps=40, loss="scaled_margin")
    on_original, on_scaled = (scale_free(each, small, nodes, budget) for each in (model, scaled))
    assert torch.equal(on_original.flips, on_scaled.flips)
    with_tanh_margin = replace(attack, steps=40)(scaled, small, nodes, budget)
    assert on_scaled.accuracy < with_tanh_margin.accuracy


def test_for_training_returns_settings_of_paper() -> None:
    assert LRBCD().for_training() == LRBCD(steps=20, block_size=1_000_000, lr=2000.0)
    assert PRBCD().for_training() == PRBCD(steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False)
    assert PGD().for_training() == PGD(steps=10)
    assert GreedyRBCD().for_training() == GreedyRBCD(steps=20, block_size=1_000_000)
    assert DICE().for_training() == DICE()


def test_attack_that_exceeds_budget_raises(small: Data) -> None:
    class OverBudget(Attack):
        def num_steps(self, budget: Budget) -> int:
            return 0

        def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
            return torch.tensor([[0, 1, 2], [1, 2, 3]])

    with pytest.raises(BudgetExceededError, match="the budget is 2 flips in total, got 3"):
        OverBudget()(build("GCN", small), small, torch.arange(5), Budget(2))


def test_fixed_flips_transfer_to_another_model(small: Data) -> None:
    nodes = torch.arange(20)
    source = FGSM()(build("GCN", small), small, nodes, Budget(5))
    transferred = FixedFlips(flips=source.flips, origin="GCN")(build("GPRGNN", small), small, nodes, Budget(5))
    assert torch.equal(transferred.flips, source.flips)
    with pytest.raises(BudgetExceededError):
        FixedFlips(flips=source.flips)(build("GPRGNN", small), small, nodes, Budget(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PRBCD(steps=0), "steps to be an integer >= 1, got 0"),
        (lambda: LRBCD(block_size=1), "block_size to be an integer >= 2"),
        (lambda: PGD(lr=float("nan")), "lr to be a finite number > 0"),
        (lambda: FGSM(loss="tanh"), "did you mean 'tanh_margin'"),
        (lambda: GreedyRBCD(steps=1.5), "steps to be an integer >= 1, got 1.5"),
        (lambda: LocalSearch(swaps=True), "swaps to be an integer >= 1, got True"),
        (lambda: PRBCD(keep_best=1), "keep_best to be True or False, got 1"),
        (lambda: ExactGain(refresh=0), "refresh to be an integer >= 1, got 0"),
        (lambda: NodeSelection(max_flips=0), "max_flips to be an integer >= 1, got 0"),
        (lambda: ExactSearch(moves=0), "moves to be an integer >= 1, got 0"),
        (lambda: EvA(population=1), "population to be an integer >= 2, got 1"),
        (lambda: EvA(elite=1.5), "elite"),
        (lambda: DICE(add_ratio=2), "0 <= add_ratio <= 1"),
        (lambda: ep.attacks.build("PRBC"), "did you mean 'PRBCD'"),
        (lambda: ep.attacks.build("PRBCD", {"step": 3}), "unknown setting of PRBCD 'step': did you mean 'steps'"),
    ],
)
def test_invalid_settings_raise(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


class TupleOutput(nn.Module):
    """Returns a tuple instead of logits."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return x, x


def test_invalid_calls_raise_before_the_search(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(5)
    attack = RandomFlips()
    with pytest.raises(TypeError, match=r"expected an edgeproof\.Budget, got int"):
        attack(model, small, nodes, [3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least one budget"):
        attack(model, small, nodes, [])
    with pytest.raises(ValueError, match="local budgets for the 60 nodes of the graph, got 3"):
        attack(model, small, nodes, Budget(1, torch.tensor([1, 1, 1])))
    with pytest.raises(ValueError, match="at least one node"):
        attack(model, small, nodes[:0], Budget(1))
    with pytest.raises(ValueError, match="one int64 label per node"):
        attack(model, small, nodes, Budget(1), labels=torch.tensor([0, 1]))
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        attack(len, small, nodes, Budget(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected logits of shape \[60, classes\] from TupleOutput, got tuple"):
        attack(TupleOutput(), small, nodes, Budget(1))
    with pytest.raises(ValueError, match="did you mean 'numba'"):
        attack(model, small, nodes, Budget(1), backend="numbe")
    with pytest.raises(ValueError, match="block_size >= twice the budget of 30 flips, got 20"):
        PRBCD(block_size=20)(model, small, nodes, Budget(30))
    broken = build("GCN", small)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="expected finite logits from GCN"):
        attack(broken, small, nodes, Budget(1))
    bad = small.clone()
    bad.x[3, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN or Inf"):
        attack(model, bad, nodes, Budget(1))


def test_pgd_raises_on_graphs_with_too_many_pairs() -> None:
    n = 16_400
    data = Data(x=torch.zeros(n, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.arange(n) % 2)
    model = build("GCN", data)
    with pytest.raises(ValueError, match=r"at most 134,217,728 pairs of nodes, .* got 134,471,800: use PRBCD or LRBCD"):
        PGD(steps=1)(model, data, torch.arange(5), Budget(1))


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_huge_budgets_do_not_overflow(attack: Attack, backend: str, small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(20)
    huge = torch.full((small.num_nodes,), 2**40)
    result = attack(model, small, nodes, Budget(10, huge), backend=backend)
    assert torch.equal(result.flips, attack(model, small, nodes, Budget(10, huge // 2**34), backend=backend).flips)
    if type(attack) in (RandomFlips, DICE):
        assert attack(model, small, nodes, Budget(2**40), backend=backend).flips.size(1) > 100


class NaNAtIsolatedNodes(nn.Module):
    """Returns NaN logits at nodes without neighbors."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        degree = x.new_zeros(x.size(0)).index_add(0, edge_index[1], weight)
        return torch.stack([degree / degree, 0 * degree], dim=1)


def test_non_finite_logits_count_as_misclassified(graph: Data) -> None:
    connected = Data(x=graph.x[:6], edge_index=graph.edge_index, y=torch.tensor([0, 0, 0, 0, 0, 1]))
    result = FixedFlips(flips=torch.tensor([[4], [5]]))(NaNAtIsolatedNodes(), connected, torch.tensor([4]), Budget(1))
    assert (result.clean_accuracy, result.accuracy) == (1.0, 0.0)


class GloballyCentered(ep.models.GCN):
    """Subtracts a mean over all nodes, so graphs in one batch would influence each other."""

    def diffuse(self, h: Tensor, adjacency: ep.propagation.Adjacency) -> Tensor:
        out = super().diffuse(h, adjacency)
        return out - out.square().mean(dim=0)


class NodeBias(ep.models.GCN):
    """Has a bias per node, so it cannot run on a batch of graphs."""

    def diffuse(self, h: Tensor, adjacency: ep.propagation.Adjacency) -> Tensor:
        return super().diffuse(h, adjacency) + torch.linspace(-1, 1, 60)[:, None]


@pytest.mark.parametrize("model_class", [GloballyCentered, NodeBias])
def test_models_that_cannot_be_batched_are_evaluated_graph_by_graph(
    model_class: type[ep.models.GCN], small: Data
) -> None:
    torch.manual_seed(0)
    model = model_class(21, 2, hidden_channels=8).eval()
    nodes = torch.arange(20)
    target = Target(model, small, nodes, small.y[nodes])
    candidates = [torch.tensor([[0, 3], [9, 50]]), torch.tensor([[7], [8]]), torch.empty(2, 0, dtype=torch.long)]
    expected = [FixedFlips(flips=flips)(model, small, nodes, Budget(2)).accuracy for flips in candidates]
    assert [accuracy for accuracy, _ in target.score(candidates, "tanh_margin")] == expected
    batched = torch.cat(list(target.engine("tanh_margin").logits_of(candidates)))
    for flips, logits in zip(candidates, batched, strict=True):
        torch.testing.assert_close(logits, ep.models.predict(model, ep.graph.flip_pairs(small, flips)))


def test_labels_beyond_the_number_of_classes_raise(small: Data) -> None:
    with pytest.raises(ValueError, match="labels between 0 and 1, the model's classes, got 7"):
        FGSM()(build("GCN", small), small, torch.arange(2), Budget(1), labels=torch.tensor([0, 7]))


def test_local_search_improves_its_start(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(30)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    gains = []
    for seed in range(3):
        start = RandomFlips()(model, small, nodes, Budget(6), labels=labels, seed=seed)
        search = LocalSearch(start=RandomFlips(), swaps=6)
        improved = search(model, small, nodes, Budget(6), labels=labels, seed=seed)
        assert improved.accuracy <= start.accuracy
        gains.append(start.accuracy - improved.accuracy)
    assert sum(gains) >= 0.3


def test_dice_never_flips_pairs_of_unlabelled_nodes(small: Data) -> None:
    labelled = torch.arange(small.num_nodes) % 3 > 0
    data = Data(x=small.x, edge_index=small.edge_index, y=torch.where(labelled, small.y, -1))
    nodes = labelled.nonzero().flatten()
    for ratio in (0.0, 0.5, 1.0):
        flips = DICE(add_ratio=ratio)(build("GCN", data), data, nodes, Budget(12)).flips
        assert flips.numel()
        assert bool(labelled[flips].all())


def test_dice_spends_budget_with_few_labelled_nodes() -> None:
    data = ep.datasets.load("csbm")
    nodes = torch.arange(0, data.num_nodes, 25)
    data.y = torch.full_like(data.y, -1).index_copy_(0, nodes, data.y[nodes])
    result = DICE(add_ratio=1.0)(build("GCN", data), data, nodes, Budget(100))
    assert result.flips.size(1) == 100
    assert bool((data.y[result.flips] >= 0).all())


def test_dice_uses_labels_argument(small: Data) -> None:
    nodes = torch.arange(small.num_nodes)
    labels = nodes % 2
    flips = DICE(add_ratio=0.5)(build("GCN", small), small, nodes, Budget(16), labels=labels).flips
    edges = {(int(u), int(v)) for u, v in small.edge_index.T}
    for u, v in flips.T.tolist():
        assert bool(labels[u] == labels[v]) == ((u, v) in edges)


def test_prbcd_scales_learning_rate_to_problem(small: Data) -> None:
    resampling, fine_tuning = PRBCD(block_size=100, lr=50).stages(small.num_nodes, Budget(12))
    scaled = 50 * math.log2(60 * 59 / 2 / 100) * 12 / (2 * 60)
    rates = [resampling.learning_rate(1), resampling.learning_rate(4)]
    rates += [fine_tuning.learning_rate(1), fine_tuning.learning_rate(4)]
    assert rates == pytest.approx([scaled, scaled, scaled, scaled / 2])


@pytest.mark.parametrize("fine_tune_steps", [0, 3])
def test_prbcd_chooses_flips_from_block_of_lowest_accuracy(fine_tune_steps: int, small: Data) -> None:
    """The best block, not the last one, is fine-tuned and discretized."""
    model, nodes, budget = build("GCN", small), torch.arange(0, 60, 2), Budget(12)
    attack = PRBCD(steps=6, fine_tune_steps=fine_tune_steps, block_size=200, samples=1)
    num_restored = 0
    for seed in range(10):
        target = Target(model, small, nodes, small.y[nodes])
        generator, trace, best = torch.Generator().manual_seed(seed), AttackTrace(target.device), Best()
        block = initial_block(target, budget, 200, None, generator=generator)
        for steps in attack.stages(60, budget):
            block = ascend(target, block, budget, steps, generator=generator, trace=trace, best=best)
            assert best.block is not None
            num_restored += best.block is not block
            block = best.block
        pairs, p = block.flipped
        largest = pairs.both[:, ep.attacks.discretize(p, pairs, budget)]
        result = attack(model, small, nodes, budget, seed=seed)
        assert torch.equal(result.flips, ep.propagation.Pairs.of(target.strongest([largest], attack.loss), 60).both)
        assert result.trace == trace.trace
    assert num_restored >= 5
