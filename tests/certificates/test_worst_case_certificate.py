"""The computed worst case against enumeration of all graphs, and against attacks."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import DICE, FGSM, LRBCD, PRBCD, GreedyRBCD, LocalSearch, RandomFlips
from edgeproof.budget import Budget
from edgeproof.certificates import WorstCase, WorstCaseCertificate
from edgeproof.graph import flip_pairs
from edgeproof.models import GCN, GPRGNN, BoundedInfluence, OneHop


def random_graph(n: int, seed: int, classes: int = 3) -> Data:
    generator = torch.Generator().manual_seed(seed)
    density = float(torch.rand((), generator=generator))
    upper = (torch.rand(n, n, generator=generator) < density).triu(1)
    return Data(
        x=torch.randn(n, 4, generator=generator).double(),
        edge_index=(upper | upper.T).nonzero().T.contiguous(),
        y=torch.randint(0, classes, (n,), generator=generator),
    )


def one_hop(seed: int, classes: int = 3, **settings: object) -> OneHop:
    """A model with large messages, so that many nodes can be misclassified."""
    torch.manual_seed(seed)
    model = OneHop(4, classes, hidden_channels=4, bound=0.5, relative=False, members=1, **settings).double().eval()  # type: ignore[arg-type]
    for parameter in model.message.parameters():
        parameter.data.mul_(4)
    return model


def margins_of_all_graphs(
    model: torch.nn.Module, data: Data, budget: Budget
) -> dict[tuple[tuple[int, int], ...], Tensor]:
    """Margins of all nodes by set of flips, for all sets within the budget."""
    pairs = list(combinations(range(data.num_nodes), 2))
    found = {}
    for size in range(min(budget.total, len(pairs)) + 1):
        for chosen in combinations(pairs, size):
            flips = torch.tensor(chosen, dtype=torch.long).view(-1, 2).T
            if budget.local is not None and bool((budget.used(flips) > budget.local).any()):
                continue
            logits = ep.models.predict(model, flip_pairs(data, flips))
            found[chosen] = ep.losses.margin(logits, data.y)
    return found


def check_against_enumeration(model: OneHop, data: Data, nodes: Tensor, budget: Budget) -> tuple[float, float, float]:
    """Compare a certificate with all graphs within the budget; return guaranteed, exact and attained accuracy."""
    certificate = WorstCase().certify(model, data, nodes, budget)
    (bound,) = certificate.budgets
    all_margins = margins_of_all_graphs(model, data, budget)
    exact = min(float((margins[nodes] > 1e-9).double().mean()) for margins in all_margins.values())
    assert bound.attained is not None
    assert bound.guaranteed <= exact + 1e-9
    assert exact <= bound.attained + 1e-9
    for position, node in enumerate(nodes.tolist()):
        # Flips at this node alone: those elsewhere have no effect on it.
        at_node = {
            flips: float(margins[node]) for flips, margins in all_margins.items() if all(node in pair for pair in flips)
        }
        needed = [len(flips) for flips, margin in at_node.items() if margin <= 1e-9]
        fewest, most = int(bound.fewest_flips[position]), int(bound.most_flips[position])
        if needed:
            assert fewest == min(needed)
        else:
            assert fewest > min(most, budget.total) or fewest == most + 1
        assert bool(bound.proven[position]) == (not needed)
    (tighter,) = WorstCase(collective="lp", attack=False).certify(model, data, nodes, budget).budgets
    assert bound.guaranteed <= tighter.guaranteed <= exact + 1e-9
    return tighter.guaranteed, exact, bound.attained


@pytest.mark.parametrize("seed", range(6))
def test_bounds_match_all_graphs_of_five_nodes(seed: int) -> None:
    """All 1,024 graphs of five nodes are within the budget of 10 flips."""
    data, model = random_graph(5, seed), one_hop(seed, least=1 + seed % 3, gates=seed % 2 == 1)
    nodes = torch.arange(5) if seed % 2 else torch.tensor([0, 3])
    check_against_enumeration(model, data, nodes, Budget(10))
    certificate = WorstCase().certify(model, data, nodes)
    margins = torch.stack(list(margins_of_all_graphs(model, data, Budget(10)).values()))[:, nodes]
    torch.testing.assert_close(certificate.any_edges_margin, margins.amin(dim=0), rtol=1e-4, atol=1e-4)
    assert bool((certificate.any_nodes_margin <= certificate.any_edges_margin).all())


@pytest.mark.parametrize("seed", range(3))
def test_bounds_match_all_perturbations_of_six_nodes(seed: int) -> None:
    data, model = random_graph(6, 10 + seed), one_hop(seed)
    check_against_enumeration(model, data, torch.arange(6), Budget(3))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6), total=st.integers(0, 3), has_local=st.booleans())
def test_bounds_enclose_the_exact_worst_case(seed: int, n: int, total: int, has_local: bool) -> None:
    data, generator = random_graph(n, seed), torch.Generator().manual_seed(seed + 1)
    local = torch.randint(0, 3, (n,), generator=generator) if has_local else None
    model = one_hop(seed, least=1 + seed % 2, gates=seed % 3 == 0)
    nodes = torch.randperm(n, generator=generator)[: 1 + seed % n]
    check_against_enumeration(model, data, nodes, Budget(total, local))


@pytest.fixture(scope="module")
def trained() -> tuple[OneHop, Data]:
    data = ep.datasets.csbm("homophilous", num_nodes=120, p=0.08, q=0.02, K=2.0, seed=1)
    split = ep.splits.inductive(data, train_per_class=15, val_per_class=10)
    model = ep.models.build("OneHop", data.num_features, 2, {"bound": 1.0, "members": 2, "hidden_channels": 16}, seed=0)
    ep.train(model, split, max_epochs=40, progress=False)
    assert isinstance(model, OneHop)
    return model, data


@pytest.mark.parametrize("local", [None, 0.5])
@pytest.mark.parametrize(
    "attack",
    [
        LRBCD(steps=20, block_size=3_000, samples=3),
        PRBCD(steps=20, fine_tune_steps=5, block_size=3_000, samples=3),
        GreedyRBCD(loss="log_margin", steps=20, block_size=3_000),
        FGSM(),
        DICE(),
        RandomFlips(),
        LocalSearch(start=GreedyRBCD(steps=5, block_size=3_000), patience=3, candidates=8, swaps=8),
    ],
    ids=repr,
)
def test_no_attack_goes_below_the_bound(
    attack: ep.attacks.Attack, local: float | None, trained: tuple[OneHop, Data]
) -> None:
    model, data = trained
    nodes = torch.arange(0, data.num_nodes, 2)
    budgets = Budget.from_epsilons(data, nodes, [0.02, 0.1, 0.3], local=local)
    certificate = WorstCase().certify(model, data, nodes, budgets)
    for bound, result in zip(certificate.budgets, attack(model, data, nodes, budgets), strict=True):
        # Accuracies of attacks are in single precision.
        assert bound.guaranteed <= result.accuracy + 1e-6
        assert not bool((bound.proven & (result.margins <= 0)).any())
        assert bound.attained is not None
        assert bound.guaranteed <= bound.attained <= certificate.clean_accuracy + 1e-9
        assert certificate.any_edges_accuracy <= bound.guaranteed + 1e-9


def test_attained_accuracy_is_that_of_the_flips(trained: tuple[OneHop, Data]) -> None:
    model, data = trained
    nodes = torch.arange(60)
    budget = Budget.from_epsilon(data, nodes, 0.2, local=0.5)
    (bound,) = WorstCase().certify(model, data, nodes, budget).budgets
    budget.check(bound.flips)
    logits = ep.models.predict(model, flip_pairs(data, bound.flips))[nodes]
    assert bound.attained == float(ep.losses.accuracy(logits.double(), data.y[nodes]))
    assert bound.attained < WorstCase().certify(model, data, nodes).clean_accuracy
    again = WorstCase().certify(model, data, nodes, budget).budgets[0]
    assert torch.equal(again.flips, bound.flips)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), added=st.integers(0, 3), deleted=st.integers(0, 3))
def test_separate_limits_match_enumeration(seed: int, added: int, deleted: int) -> None:
    data, model = random_graph(5, seed), one_hop(seed)
    found = WorstCase().worst_margins(model, data, torch.arange(5), added=added, deleted=deleted)
    for node in range(5):
        others = [other for other in range(5) if other != node]
        margins = []
        is_edge = torch.zeros(5, dtype=torch.bool)
        is_edge[data.edge_index[1, data.edge_index[0] == node]] = True
        for size in range(5):
            for chosen in combinations(others, size):
                num_deleted = int(is_edge[list(chosen)].sum())
                if num_deleted <= deleted and size - num_deleted <= added:
                    flips = torch.tensor([[node] * size, list(chosen)], dtype=torch.long)
                    logits = ep.models.predict(model, flip_pairs(data, flips))
                    margins.append(float(ep.losses.margin(logits, data.y)[node]))
        assert float(found[node]) == pytest.approx(min(margins), abs=1e-9)


@pytest.mark.parametrize("inner", [GCN(4, 3, hidden_channels=4), GPRGNN(4, 3, hidden_channels=4)])
def test_bounded_influence_holds_for_all_graphs(inner: torch.nn.Module) -> None:
    torch.manual_seed(0)
    model, data = BoundedInfluence(inner, 0.1).double().eval(), random_graph(5, 4)
    nodes = torch.arange(5)
    certificate = WorstCase().certify(model, data, nodes, [Budget(0), Budget(2)])
    margins = torch.stack(list(margins_of_all_graphs(model, data, Budget(10)).values()))
    assert not certificate.exact
    assert bool((certificate.any_edges_margin <= margins.amin(dim=0)).all())
    assert certificate.budgets[0].guaranteed == certificate.clean_accuracy
    assert certificate.budgets[1].guaranteed == certificate.any_edges_accuracy
    assert certificate.budgets[1].attained is None


def test_without_labels_predictions_are_certified(trained: tuple[OneHop, Data]) -> None:
    model, data = trained
    unlabelled = Data(x=data.x, edge_index=data.edge_index)
    certificate = WorstCase().certify(model, unlabelled, torch.arange(20), Budget(3))
    assert not certificate.has_labels
    assert certificate.clean_accuracy == 1.0
    assert torch.equal(certificate.classes, ep.models.predict(model, data)[:20].argmax(dim=1))


def test_certificate_survives_saving(trained: tuple[OneHop, Data], tmp_path: Path) -> None:
    model, data = trained
    certificate = WorstCase().certify(model, data, torch.arange(30), [Budget(2), Budget(4)])
    path = tmp_path / "certificate.safetensors"
    certificate.save(path)
    loaded = WorstCaseCertificate.load(path)
    assert loaded.to_dict() == certificate.to_dict()
    assert torch.equal(loaded.budgets[1].flips, certificate.budgets[1].flips)
    assert "guaranteed" in str(loaded)


def test_other_certificate_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ep.save(GCN(3, 2), path)
    with pytest.raises(ValueError, match="expected a certificate of WorstCase"):
        WorstCaseCertificate.load(path)


def test_models_without_bound_raise() -> None:
    data = random_graph(5, 0)
    with pytest.raises(
        TypeError, match=r"expected a model whose worst case can be computed.*got GCN: use SparseSmoothing"
    ):
        WorstCase().certify(GCN(4, 3).double(), data, [0, 1])
    with pytest.raises(TypeError, match=r"expected a one-hop model.*got BoundedInfluence"):
        WorstCase().worst_margins(BoundedInfluence(GCN(4, 3)).double(), data, [0], added=1, deleted=0)
    with pytest.raises(ValueError, match="expected labels from 0 to 1, the model's classes, got 2"):
        WorstCase().certify(one_hop(0, classes=2), random_graph(9, 0), list(range(9)))
    with pytest.raises(ValueError, match="tolerance"):
        WorstCase(tolerance=-1.0)
    with pytest.raises(ValueError, match=r"unknown collective bound 'lb'\. Known: count, lp"):
        WorstCase(collective="lb")
