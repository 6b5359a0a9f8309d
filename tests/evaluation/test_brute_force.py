"""Comparison of the standard suite with exhaustive search on tiny graphs."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, combinations
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import edgeproof as ep
from edgeproof.attacks import ExactSearch, NodeSelection

# Cases 0 to 199 were used in the development of the local search.
CASES = range(10_000, 10_500)
FEW_STEPS = {
    "EvA": {"population": 20, "generations": 20},
    "GreedyRBCD": {"steps": 40},
    "LRBCD": {"steps": 40},
    "PGD": {"steps": 40},
    "PRBCD": {"steps": 40, "fine_tune_steps": 10},
}


def random_case(seed: int) -> tuple[ep.models.GraphModel, Data, Tensor, float, float | None]:
    """Return a model, a graph of 5 to 8 nodes that it is fitted to, target nodes, and a budget of 1 to 3 flips."""
    random = np.random.default_rng(seed)
    n = int(random.integers(5, 9))
    pairs = np.array(list(combinations(range(n), 2)))
    edges = pairs[random.random(len(pairs)) < random.uniform(0.2, 0.6)].T
    data = Data(
        x=torch.from_numpy(random.normal(size=(n, 4))).float(),
        edge_index=to_undirected(torch.from_numpy(edges.reshape(2, -1)), num_nodes=n),
        y=torch.from_numpy(np.concatenate([[0, 1, 2], random.integers(0, 3, n - 3)])),
    )
    name = ("GCN", "GPRGNN")[seed % 2]
    settings = {"hidden_channels": 8, **({"K": 3} if name == "GPRGNN" else {})}
    model = ep.models.build(name, 4, 3, settings, seed=seed).eval()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        ep.losses.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()
    nodes = torch.from_numpy(np.sort(random.permutation(n)[: int(random.integers(2, n + 1))]))
    incident = ep.Budget.from_epsilon(data, nodes, 1.0).total
    epsilon = int(random.integers(1, 4)) / max(1, incident)
    return model, data, nodes, epsilon, (None, 0.5, 1.0)[seed % 3]


def lowest_accuracy(model: ep.models.GraphModel, data: Data, nodes: Tensor, budget: ep.Budget) -> float:
    """Return the lowest accuracy over all feasible sets of flips, with an independent implementation on dense matrices."""
    n = data.num_nodes
    pairs = list(combinations(range(n), 2))
    sets = list(chain.from_iterable(combinations(range(len(pairs)), k) for k in range(budget.total + 1)))
    chosen = torch.zeros(len(sets), len(pairs), dtype=torch.float64)
    for i, members in enumerate(sets):
        chosen[i, list(members)] = 1
    ends = torch.zeros(len(pairs), n, dtype=torch.float64)
    for j, (u, v) in enumerate(pairs):
        ends[j, u] = ends[j, v] = 1
    if budget.local is not None:
        chosen = chosen[(chosen @ ends <= budget.local).all(dim=1)]
    clean = torch.zeros(n, n, dtype=torch.float64)
    clean[data.edge_index[0], data.edge_index[1]] = 1
    u, v = torch.tensor(pairs).T
    lowest = 1.0
    for part in chosen.split(512):
        flips = torch.zeros(len(part), n, n, dtype=torch.float64)
        flips[:, u, v] = part
        flips[:, v, u] = part
        logits = dense_logits(model, data.x.double(), (clean - flips).abs())
        correct = (logits.argmax(dim=2) == data.y)[:, nodes]
        lowest = min(lowest, float(correct.double().mean(dim=1).min()))
    return lowest


def dense_logits(model: ep.models.GraphModel, x: Tensor, adjacency: Tensor) -> Tensor:
    looped = adjacency + torch.eye(x.size(0), dtype=x.dtype)
    scale = looped.sum(dim=2).rsqrt()
    operator = scale[:, :, None] * looped * scale[:, None, :]
    parameters = {name: value.detach().double() for name, value in model.state_dict().items()}
    if isinstance(model, ep.models.GCN):
        hidden = operator @ (x @ parameters["weights.0"]) + parameters["biases.0"]
        return operator @ (hidden.relu() @ parameters["weights.1"]) + parameters["biases.1"]
    h = (x @ parameters["mlp.layers.0.weight"].T + parameters["mlp.layers.0.bias"]).relu()
    h = (h @ parameters["mlp.layers.1.weight"].T + parameters["mlp.layers.1.bias"]).expand(len(adjacency), -1, -1)
    out = parameters["gamma"][0] * h
    for gamma in parameters["gamma"][1:]:
        h = operator @ h
        out = out + gamma * h
    return out


def finds_optimum(seed: int) -> bool:
    # More threads slow down operations on tiny matrices.
    torch.set_num_threads(1)
    model, data, nodes, epsilon, local = random_case(seed)
    optimum = lowest_accuracy(model, data, nodes, ep.Budget.from_epsilon(data, nodes, epsilon, local=local))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        found = ep.evaluate(model, data, nodes, [epsilon], local=local)
    assert min(row.accuracy for row in found.rows) >= optimum - 1e-6, f"case {seed} is below the optimum"
    return found.accuracy(epsilon) <= optimum + 1e-6


def test_suite_finds_optimum() -> None:
    assert [seed for seed in CASES[:10] if not finds_optimum(seed)] == []


def test_attacks_by_exact_gains_find_optimum() -> None:
    """The attacks by exact gains alone, without those by gradients, in at most one miss of 25."""
    missed = []
    for seed in CASES[10:35]:
        model, data, nodes, epsilon, local = random_case(seed)
        budget = ep.Budget.from_epsilon(data, nodes, epsilon, local=local)
        optimum = lowest_accuracy(model, data, nodes, budget)
        found = ExactSearch(start=NodeSelection(), moves=60)(model, data, nodes, budget).accuracy
        assert found >= optimum - 1e-6, f"case {seed} is below the optimum"
        missed += [seed] if found > optimum + 1e-6 else []
    assert len(missed) <= 1, missed


@pytest.mark.slow
def test_suite_finds_optimum_in_nearly_all_cases() -> None:
    """The suite finds the optimum in at least 99 % of the cases and never reports an accuracy below it."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        found = pool.map(finds_optimum, CASES, chunksize=5)
        missed = [seed for seed, is_optimal in zip(CASES, found, strict=True) if not is_optimal]
    print(f"{len(missed)} of {len(CASES)} missed: {missed}")
    assert len(missed) <= 0.01 * len(CASES), f"missed the optimum in cases {missed}"


@pytest.mark.parametrize("seed", range(10))
def test_no_attack_reports_accuracy_below_optimum(seed: int) -> None:
    model, data, nodes, epsilon, local = random_case(1000 + seed)
    budget = ep.Budget.from_epsilon(data, nodes, epsilon, local=local)
    optimum = lowest_accuracy(model, data, nodes, budget)
    for name in ep.attacks.available():
        attack = ep.attacks.build(name, FEW_STEPS.get(name))
        assert attack(model, data, nodes, budget).accuracy >= optimum - 1e-6, name
