"""What figures need to know of a trained model besides its accuracy, as numbers that fit into a small file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from edgeproof.analysis import Coefficients, attacked_degrees, coefficients, diffusion, spectrum
from edgeproof.attacks import AttackResult
from edgeproof.models import GraphModel

# Bins of [0, 2] for the density of frequencies; an odd number keeps the many at 1 within one bin.
BINS = 41


def filter_of(model: GraphModel | Coefficients, graph: Data) -> dict[str, Any]:
    """A model's learned coefficients, and how frequent each frequency is in the graph that it answers."""
    found = coefficients(model)
    seen = spectrum(found, graph)
    return {
        "gamma": found.gamma.tolist(),
        "self_loops": found.self_loops,
        "density": [round(share, 6) for share in seen.histogram(BINS).tolist()],
        "mean_frequency": seen.mean_frequency,
    }


def diffusion_of(model: GraphModel | Coefficients, graph: Data) -> dict[str, Any]:
    """How strongly nodes of a small graph hear each other, and the graph itself, so that it can be drawn from this alone."""
    return {
        "matrix": [[round(entry, 5) for entry in row] for row in diffusion(model, graph).tolist()],
        "edges": [pair for pair in graph.edge_index.T.tolist() if pair[0] < pair[1]],
        "classes": graph.y.tolist(),
    }


def degrees_of(results: Sequence[AttackResult], epsilons: Sequence[float], graph: Data) -> dict[str, Any]:
    """For each budget, how many nodes of each degree, with each number of adversarial edges at them, fell and stand."""
    return {"nodes": [[epsilon, _counted(one, graph)] for epsilon, one in zip(epsilons, results, strict=True)]}


def _counted(result: AttackResult, graph: Data) -> list[list[int]]:
    """Lines of degree, adversarial edges, nodes that fell, nodes that stand."""
    nodes = attacked_degrees(result, graph)
    pairs = torch.stack([nodes.degree, nodes.flips], dim=1)
    fell, stands = (Counter(map(tuple, pairs[which].tolist())) for which in (nodes.misclassified, nodes.robust))
    return [[*pair, fell[pair], stands[pair]] for pair in sorted({*fell, *stands})]
