"""Every attack, every model: budgets, graphs, determinism, strength. A new attack adds a row."""

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
from torch_geometric.nn import LEConv

import edgeproof as ep
from edgeproof.attacks import (
    DICE,
    FGSM,
    LRBCD,
    PGD,
    PRBCD,
    Attack,
    FixedFlips,
    GreedyRBCD,
    LocalSearch,
    RandomFlips,
)
from edgeproof.attacks.steps import Steps
from edgeproof.attacks.target import Target
from edgeproof.attacks.trace import AttackTrace
from edgeproof.budget import Budget, BudgetExceededError

ATTACKS: list[Attack] = [
    PGD(steps=8, samples=3),
    PRBCD(steps=8, fine_tune_steps=4, block_size=2_000, samples=3),
    LRBCD(steps=8, block_size=2_000, samples=3),
    FGSM(),
    FGSM(loss="log_margin"),
    GreedyRBCD(steps=4, block_size=2_000),
    LocalSearch(start=GreedyRBCD(steps=4, block_size=2_000), patience=2, candidates=4, swaps=3),
    DICE(),
    RandomFlips(),
]
USING_GRADIENTS = ATTACKS[:7]
MODELS = ["APPNP", "ChebNetII", "GAT", "GCN", "GPRGNN", "GRAND", "MLP", "PyG", "LEConv", "SoftMedianGDC"]


class Own(nn.Module):
    """A user's model: PyG's, as it is."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.net(x, edge_index, edge_weight)
        return out


def build(name: str, data: Data) -> nn.Module:
    classes = ep.num_classes(data)
    if name in ("PyG", "LEConv"):
        torch.manual_seed(0)
        # Of the two, only the first's layers are known to the library.
        return Own(PyGGCN(data.num_features, 8, 2, classes) if name == "PyG" else LEConv(data.num_features, classes))
    return ep.models.build(name, data.num_features, classes, {"hidden_channels": 8}, seed=0)


def check_result(result: ep.attacks.AttackResult, data: Data, nodes: Tensor, model: nn.Module) -> None:
    """Within the budget; an undirected, unweighted graph without loops that differs in these flips; true figures."""
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
def test_every_attack_on_every_model(attack: Attack, name: str, small: Data) -> None:
    """With and without local budgets, in one call; twice, to the same flips."""
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
        assert results[0].path == ("autograd" if name == "LEConv" else "propagate")
    again = attack(model, small, nodes, budgets[0], seed=1)
    assert torch.equal(again.flips, results[0].flips)
    assert again.trace == results[0].trace


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    attack=st.sampled_from(ATTACKS),
    model=st.sampled_from(["GCN", "GPRGNN", "GAT"]),
    total=st.integers(0, 60),
    has_local=st.booleans(),
)
def test_budgets_hold_on_any_graph(seed: int, attack: Attack, model: str, total: int, has_local: bool) -> None:
    """From empty to complete graphs of two to ten nodes, and budgets from nothing to more than there are pairs."""
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(2, 11, (), generator=generator))
    share = float(torch.rand((), generator=generator)) * 1.4 - 0.2
    upper = (torch.rand(n, n, generator=generator) < share).triu(1)
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


def test_attacks_beat_random_flips(sbm: Data, split: ep.splits.Split) -> None:
    """On a trained model each attack that uses gradients beats the mean of ten random ones clearly."""
    model = ep.models.build("GCN", sbm.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    data, nodes = split.test.data, split.test.nodes
    # Local budgets are what LR-BCD is for: without them its early choices take all there is, and stay.
    budget = Budget.from_epsilon(data, nodes, 0.2, local=0.5)
    random = [RandomFlips()(model, data, nodes, budget, seed=seed).accuracy for seed in range(10)]
    for attack in (PGD(steps=40), PRBCD(steps=40, fine_tune_steps=10), LRBCD(steps=40), FGSM(), GreedyRBCD(steps=20)):
        assert attack(model, data, nodes, budget).accuracy < sum(random) / 10 - 0.03, attack


@pytest.mark.parametrize("name", ["GCN", "GPRGNN", "GAT"])
def test_fgsm_flips_the_best_pair_by_gradient(name: str, small: Data) -> None:
    """Unless the model does better for it: then the best on the way is to change nothing."""
    model, nodes = build(name, small), torch.arange(20)
    pairs = torch.combinations(torch.arange(small.num_nodes)).T
    gradient = ep.propagation.EdgeGradientEngine(model, small, nodes)().at(pairs)
    best = FixedFlips(flips=pairs[:, gradient.argmax()][:, None])(model, small, nodes, Budget(1))
    expected = best.flips if best.accuracy <= best.clean_accuracy else best.flips[:, :0]
    assert torch.equal(FGSM()(model, small, nodes, Budget(1)).flips, expected)


def test_dice_deletes_within_and_connects_between_classes(small: Data) -> None:
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


def test_pseudo_labels_are_attacked_instead_of_labels(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(30)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    result = GreedyRBCD(loss="log_margin")(model, small, nodes, Budget(10), labels=labels)
    assert result.clean_accuracy == 1.0
    assert result.accuracy < 1.0
    assert int((result.margins > 0).sum()) == round(result.accuracy * 30)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**20])
@pytest.mark.parametrize("attack", ATTACKS[:3], ids=repr)
def test_no_scale_of_logits_hides_a_model_from_the_scaled_margin(attack: Attack, scale: float, small: Data) -> None:
    """Powers of two leave predictions and, with this loss, every step of the attack as they are."""
    model, nodes = build("GPRGNN", small).eval(), torch.arange(30)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        ep.losses.cross_entropy(model(small.x, small.edge_index), small.y).backward()
        optimizer.step()
    hidden = deepcopy(model)
    with torch.no_grad():
        hidden.get_parameter("gamma").mul_(scale)
    budget = Budget.from_epsilon(small, nodes, 0.15, local=0.5)
    aware = replace(attack, steps=40, loss="scaled_margin")
    seen, found = (aware(one, small, nodes, budget) for one in (model, hidden))
    assert torch.equal(seen.flips, found.flips)
    misled = replace(attack, steps=40)(hidden, small, nodes, budget)
    assert found.accuracy < misled.accuracy


def test_training_settings_are_the_papers() -> None:
    assert LRBCD().for_training() == LRBCD(steps=20, block_size=1_000_000, lr=2000.0)
    assert PRBCD().for_training() == PRBCD(steps=20, fine_tune_steps=0, block_size=1_000_000, keep_best=False)
    assert PGD().for_training() == PGD(steps=10)
    assert GreedyRBCD().for_training() == GreedyRBCD(steps=20, block_size=1_000_000)
    assert DICE().for_training() == DICE()


def test_a_dishonest_attack_is_caught(small: Data) -> None:
    class Greedy(Attack):
        def num_steps(self, budget: Budget) -> int:
            return 0

        def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
            return torch.tensor([[0, 1, 2], [1, 2, 3]])

    with pytest.raises(BudgetExceededError, match="the budget is 2 flips in total, got 3"):
        Greedy()(build("GCN", small), small, torch.arange(5), Budget(2))


def test_flips_of_one_model_can_be_tried_on_another(small: Data) -> None:
    nodes = torch.arange(20)
    found = FGSM()(build("GCN", small), small, nodes, Budget(5))
    carried = FixedFlips(flips=found.flips, origin="GCN")(build("GPRGNN", small), small, nodes, Budget(5))
    assert torch.equal(carried.flips, found.flips)
    with pytest.raises(BudgetExceededError):
        FixedFlips(flips=found.flips)(build("GPRGNN", small), small, nodes, Budget(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PRBCD(steps=0), "steps to be a whole number >= 1, got 0"),
        (lambda: LRBCD(block_size=1), "block_size to be a whole number >= 2"),
        (lambda: PGD(lr=float("nan")), "lr to be a finite number > 0"),
        (lambda: FGSM(loss="tanh"), "did you mean 'tanh_margin'"),
        (lambda: GreedyRBCD(steps=1.5), "whole number"),
        (lambda: DICE(add_ratio=2), "0 <= add_ratio <= 1"),
        (lambda: ep.attacks.build("PRBC"), "did you mean 'PRBCD'"),
        (lambda: ep.attacks.build("PRBCD", {"step": 3}), "unknown setting of PRBCD 'step': did you mean 'steps'"),
    ],
)
def test_bad_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


class Pair(nn.Module):
    """Returns more than logits."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return x, x


def test_bad_calls_are_refused_before_any_work(small: Data) -> None:
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
    with pytest.raises(ValueError, match=r"expected logits of shape \[60, classes\] from Pair, got tuple"):
        attack(Pair(), small, nodes, Budget(1))
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


def test_pgd_refuses_graphs_that_are_too_large(small: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeproof.attacks.pgd._MOST_PAIRS", 1000)
    with pytest.raises(ValueError, match="use PRBCD or LRBCD"):
        PGD(steps=1)(build("GCN", small), small, torch.arange(5), Budget(1))


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_enormous_budgets_are_no_obstacle(attack: Attack, backend: str, small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(20)
    enormous = torch.full((small.num_nodes,), 2**40)
    some = attack(model, small, nodes, Budget(10, enormous), backend=backend)
    assert torch.equal(some.flips, attack(model, small, nodes, Budget(10, enormous // 2**34), backend=backend).flips)
    if type(attack) in (RandomFlips, DICE):
        everything = attack(model, small, nodes, Budget(2**40), backend=backend)
        assert everything.flips.size(1) > 100


class Fragile(nn.Module):
    """No number at nodes without neighbours."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        degree = x.new_zeros(x.size(0)).index_add(0, edge_index[1], weight)
        return torch.stack([degree / degree, 0 * degree], dim=1)


def test_answers_that_are_no_numbers_are_wrong(graph: Data) -> None:
    connected = Data(x=graph.x[:6], edge_index=graph.edge_index, y=torch.tensor([0, 0, 0, 0, 0, 1]))
    result = FixedFlips(flips=torch.tensor([[4], [5]]))(Fragile(), connected, torch.tensor([4]), Budget(1))
    assert (result.clean_accuracy, result.accuracy) == (1.0, 0.0)


class Across(ep.models.GCN):
    """Subtracts the mean over all nodes: copies of a graph side by side would disturb each other."""

    def diffuse(self, h: Tensor, adjacency: ep.propagation.Adjacency) -> Tensor:
        out = super().diffuse(h, adjacency)
        return out - out.square().mean(dim=0)


class Placed(ep.models.GCN):
    """Has a bias for every node, so it cannot run on copies at all."""

    def diffuse(self, h: Tensor, adjacency: ep.propagation.Adjacency) -> Tensor:
        return super().diffuse(h, adjacency) + torch.linspace(-1, 1, 60)[:, None]


@pytest.mark.parametrize("kind", [Across, Placed])
def test_models_that_cannot_be_copied_are_judged_one_at_a_time(kind: type[ep.models.GCN], small: Data) -> None:
    torch.manual_seed(0)
    model = kind(21, 2, hidden_channels=8).eval()
    nodes = torch.arange(20)
    target = Target(model, small, nodes, small.y[nodes])
    sets = [torch.tensor([[0, 3], [9, 50]]), torch.tensor([[7], [8]]), torch.empty(2, 0, dtype=torch.long)]
    expected = [FixedFlips(flips=flips)(model, small, nodes, Budget(2)).accuracy for flips in sets]
    assert [accuracy for accuracy, _ in target.badness(sets, "tanh_margin")] == expected
    logits = torch.cat(list(target.engine("tanh_margin").logits_of(sets)))
    for flips, found in zip(sets, logits, strict=True):
        torch.testing.assert_close(found, ep.models.predict(model, ep.graph.flip_pairs(small, flips)))


def test_labels_beyond_the_classes_are_refused(small: Data) -> None:
    with pytest.raises(ValueError, match="labels between 0 and 1, the model's classes, got 7"):
        FGSM()(build("GCN", small), small, torch.arange(2), Budget(1), labels=torch.tensor([0, 7]))


def test_local_search_improves_on_its_start_and_never_falls_behind(small: Data) -> None:
    model, nodes = build("GCN", small), torch.arange(30)
    labels = ep.models.predict(model, small)[nodes].argmax(dim=1)
    gains = []
    for seed in range(3):
        start = RandomFlips()(model, small, nodes, Budget(6), labels=labels, seed=seed)
        search = LocalSearch(start=RandomFlips(), swaps=6)
        found = search(model, small, nodes, Budget(6), labels=labels, seed=seed)
        assert found.accuracy <= start.accuracy
        gains.append(start.accuracy - found.accuracy)
    assert sum(gains) >= 0.3


def test_dice_leaves_nodes_of_unknown_class_alone(small: Data) -> None:
    known = torch.arange(small.num_nodes) % 3 > 0
    data = Data(x=small.x, edge_index=small.edge_index, y=torch.where(known, small.y, -1))
    nodes = known.nonzero().flatten()
    for ratio in (0.0, 0.5, 1.0):
        flips = DICE(add_ratio=ratio)(build("GCN", data), data, nodes, Budget(12)).flips
        assert flips.numel()
        assert bool(known[flips].all())


def test_dice_spends_its_budget_where_few_classes_are_known() -> None:
    data = ep.datasets.load("csbm")
    nodes = torch.arange(0, data.num_nodes, 25)
    data.y = torch.full_like(data.y, -1).index_copy_(0, nodes, data.y[nodes])
    result = DICE(add_ratio=1.0)(build("GCN", data), data, nodes, Budget(100))
    assert result.flips.size(1) == 100
    assert bool((data.y[result.flips] >= 0).all())


def test_dice_goes_by_the_labels_given(small: Data) -> None:
    nodes = torch.arange(small.num_nodes)
    labels = nodes % 2
    flips = DICE(add_ratio=0.5)(build("GCN", small), small, nodes, Budget(16), labels=labels).flips
    edges = {(int(u), int(v)) for u, v in small.edge_index.T}
    for u, v in flips.T.tolist():
        assert bool(labels[u] == labels[v]) == ((u, v) in edges)


def test_the_learning_rate_of_prbcd_is_scaled_to_the_problem(small: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []

    def ascend(target: Target, block: ep.attacks.Block, budget: Budget, steps: Steps, **_: object) -> ep.attacks.Block:
        rates.extend([steps.learning_rate(1), steps.learning_rate(4)])
        return block

    monkeypatch.setattr("edgeproof.attacks.prbcd.ascend", ascend)
    PRBCD(block_size=100, lr=50)(build("GCN", small), small, torch.arange(20), Budget(12))
    scaled = 50 * math.log2(60 * 59 / 2 / 100) * 12 / (2 * 60)
    assert rates == pytest.approx([scaled, scaled, scaled, scaled / 2])


def test_prbcd_goes_back_to_the_best_block(small: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes last: the flips are chosen from the block of lowest accuracy."""
    model, nodes = build("GCN", small), torch.arange(20)
    blocks = []

    def ascend(target: Target, block: ep.attacks.Block, *_: object, **settings: object) -> ep.attacks.Block:
        best = settings["best"]
        chosen = block.with_flip(torch.zeros_like(block.flip).index_fill(0, torch.tensor([3, 5]), 1.0))
        best.keep(chosen, torch.tensor(0.1))  # type: ignore[attr-defined]
        best.keep(block, torch.tensor(0.2))  # type: ignore[attr-defined]
        blocks.append(chosen)
        return block

    monkeypatch.setattr("edgeproof.attacks.prbcd.ascend", ascend)
    monkeypatch.setattr("edgeproof.attacks.prbcd.choose", lambda target, block, *_, **__: block.flipped[0].both)
    result = PRBCD(block_size=100)(model, small, nodes, Budget(12))
    assert torch.equal(result.flips, blocks[0].flipped[0].both)
