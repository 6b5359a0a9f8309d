"""Random attacks: budgets, against an independent count; accuracies, against dense matrices and all sets of flips."""

from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from fuzz.trial import Violation

Array = np.ndarray[Any, Any]

# Graphs of at most this many nodes are attacked by trying all sets of at most three flips, too.
_TINY, _MAX_FLIPS = 6, 3
_LARGEST = 40
_STEPS = {
    "EvA": {"population": 10, "generations": 5},
    "GreedyRBCD": {"steps": 5},
    "LRBCD": {"steps": 5},
    "PGD": {"steps": 5},
    "PRBCD": {"steps": 5, "fine_tune_steps": 2},
}
# Margins of the library, in single precision, differ from those here by less.
_ROUNDING = 1e-3


def attacked_graph(random: np.random.Generator, folder: Path) -> str:
    """Attack a random model on a random graph and check the result.

    Returns:
        Attack, and whether its result was compared with all sets of flips.

    Raises:
        Violation: If the flips exceed the budget or violate the constraints, the accuracy is not that of the perturbed graph or
            below the optimum, or the same call gives other flips.
    """
    is_tiny = bool(random.random() < 0.5)
    data = _graph(random, int(random.integers(3, 1 + (_TINY if is_tiny else _LARGEST))))
    model = _model(random)
    nodes = torch.from_numpy(random.permutation(data.num_nodes)[: int(random.integers(1, data.num_nodes + 1))])
    most = _MAX_FLIPS if is_tiny else 3 * data.num_nodes
    local = torch.from_numpy(random.integers(0, 4, data.num_nodes)) if random.random() < 0.5 else None
    budget = ep.Budget(int(random.integers(0, most + 1)), local)
    allowed = (None, None, "additions", "deletions")[int(random.integers(4))]
    name = ep.attacks.available()[int(random.integers(len(ep.attacks.available())))]
    attack, seed = ep.attacks.build(name, _STEPS.get(name)), int(random.integers(1 << 32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results = [attack(model, data, nodes, budget, allowed=allowed, seed=seed) for _ in range(2)]
    flips = results[0].flips
    if not torch.equal(flips, results[1].flips):
        raise Violation(f"{name}: other flips with the same seed")
    adjacency = _dense(data)
    _check_budget(name, flips.numpy(), adjacency, budget, allowed)
    _check_accuracy(name, results[0], model, data, adjacency)
    if not is_tiny:
        return f"{name}: within the budget"
    lowest = _lowest_accuracy(model, data, nodes, adjacency, budget, allowed)
    if results[0].accuracy < lowest - 1e-6:
        raise Violation(f"{name}: accuracy {results[0].accuracy} below the optimum {lowest}")
    return f"{name}: within the budget, not below the optimum of all flips"


def _graph(random: np.random.Generator, num_nodes: int) -> Data:
    upper = np.triu(random.random((num_nodes, num_nodes)) < random.uniform(0, 0.7), k=1)
    labels = np.concatenate([[0, 1, 2], random.integers(0, 3, num_nodes - 3)])
    return Data(
        x=torch.from_numpy(random.normal(size=(num_nodes, 4))).float(),
        edge_index=torch.from_numpy(np.argwhere(upper | upper.T).T.copy()),
        y=torch.from_numpy(random.permutation(labels)),
    )


def _model(random: np.random.Generator) -> ep.models.GraphModel:
    name, settings = [("GCN", {}), ("GPRGNN", {"K": 3}), ("APPNP", {"K": 3}), ("MLP", {})][int(random.integers(4))]
    return ep.models.build(name, 4, 3, {"hidden_channels": 8, **settings}, seed=int(random.integers(1 << 32))).eval()


def _dense(data: Data) -> Array:
    adjacency = np.zeros((data.num_nodes, data.num_nodes), dtype=bool)
    adjacency[tuple(data.edge_index.numpy())] = True
    return adjacency


def _check_budget(name: str, flips: Array, adjacency: Array, budget: ep.Budget, allowed: str | None) -> None:
    pairs = {(min(pair), max(pair)) for pair in flips.T.tolist()}
    if len(pairs) < flips.shape[1] or any(u == v for u, v in pairs):
        raise Violation(f"{name}: repeated pairs or self-loops among {flips.T.tolist()}")
    if len(pairs) > budget.total:
        raise Violation(f"{name}: {len(pairs)} flips exceed the budget of {budget.total}")
    at_node = np.bincount(flips.reshape(-1), minlength=len(adjacency))
    if budget.local is not None and (at_node > budget.local.numpy()).any():
        raise Violation(f"{name}: {at_node.tolist()} flips exceed the local budgets {budget.local.tolist()}")
    edges = {bool(adjacency[pair]) for pair in pairs}
    if (allowed == "additions" and True in edges) or (allowed == "deletions" and False in edges):
        raise Violation(f"{name}: flips that are not {allowed}")


def _check_accuracy(
    name: str, result: ep.attacks.AttackResult, model: ep.models.GraphModel, data: Data, adjacency: Array
) -> None:
    flipped = adjacency.copy()
    u, v = result.flips.numpy()
    flipped[u, v] = flipped[v, u] = ~flipped[u, v]
    if not (_dense(result.data) == flipped).all():
        raise Violation(f"{name}: the graph of the result is not the graph with its flips")
    margins = _margins(model, data, flipped[None])[0, result.nodes.numpy()]
    lowest, highest = float((margins > _ROUNDING).mean()), float((margins >= -_ROUNDING).mean())
    if not lowest - 1e-6 <= result.accuracy <= highest + 1e-6:
        raise Violation(f"{name}: accuracy {result.accuracy} instead of {lowest} to {highest}")


def _lowest_accuracy(
    model: ep.models.GraphModel,
    data: Data,
    nodes: Tensor,
    adjacency: Array,
    budget: ep.Budget,
    allowed: str | None,
) -> float:
    """Return a lower bound on the accuracy over all feasible sets of flips: margins that may be rounding count as errors."""
    pairs = [
        pair
        for pair in combinations(range(len(adjacency)), 2)
        if allowed is None or bool(adjacency[pair]) == (allowed == "deletions")
    ]
    graphs = []
    for size in range(min(budget.total, len(pairs)) + 1):
        for chosen in combinations(pairs, size):
            ends = np.bincount(np.array(chosen, dtype=np.int64).reshape(-1), minlength=len(adjacency))
            if budget.local is not None and (ends > budget.local.numpy()).any():
                continue
            flipped = adjacency.copy()
            for u, v in chosen:
                flipped[u, v] = flipped[v, u] = not flipped[u, v]
            graphs.append(flipped)
    return float((_margins(model, data, np.stack(graphs))[:, nodes.numpy()] > _ROUNDING).mean(axis=1).min())


def _margins(model: ep.models.GraphModel, data: Data, adjacency: Array) -> Array:
    """Return the margins of all nodes on several graphs, in double precision on dense matrices."""
    logits, labels = _dense_logits(model, data.x.double().numpy(), adjacency), data.y.numpy()
    every = np.arange(len(labels))
    true = logits[:, every, labels].copy()
    logits[:, every, labels] = -np.inf
    margins: Array = true - logits.max(axis=2)
    return margins


def _dense_logits(model: ep.models.GraphModel, x: Array, adjacency: Array) -> Any:
    looped = adjacency.astype(float) + np.eye(adjacency.shape[1])
    scale = looped.sum(axis=2) ** -0.5
    operator = scale[:, :, None] * looped * scale[:, None, :]
    p: dict[str, Any] = {name: value.double().numpy() for name, value in model.state_dict().items()}
    if isinstance(model, ep.models.GCN):
        hidden = np.maximum(operator @ (x @ p["weights.0"]) + p["biases.0"], 0)
        return operator @ (hidden @ p["weights.1"]) + p["biases.1"]
    layers = "layers" if isinstance(model, ep.models.MLP) else "mlp.layers"
    h = np.maximum(x @ p[f"{layers}.0.weight"].T + p[f"{layers}.0.bias"], 0)
    h = h @ p[f"{layers}.1.weight"].T + p[f"{layers}.1.bias"]
    h = np.broadcast_to(h, (len(adjacency), *h.shape))
    if isinstance(model, ep.models.MLP):
        return h.copy()
    if isinstance(model, ep.models.APPNP):
        z = h
        for _ in range(model.K):
            z = (1 - model.alpha) * operator @ z + model.alpha * h
        return z
    out = p["gamma"][0] * h
    for gamma in p["gamma"][1:]:
        h = operator @ h
        out = out + gamma * h
    return out
