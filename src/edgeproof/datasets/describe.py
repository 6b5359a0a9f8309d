"""Statistics of a graph, and signs of trouble."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._features import column_means, is_sparse
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.datasets.simplify import EdgeCounts, Fixes, count_problems, simplify
from edgeproof.graph import UNKNOWN, degree, num_edges

# Splits draw 20 training and 20 validation nodes of each class, and one test node.
_SMALLEST_CLASS = 41
# Standard deviations of the scales of features above which gradients are dominated by few features.
_LARGE_SCALE = 1000.0
_LOW_HOMOPHILY = 0.1
# Fraction of nodes above which a sign of trouble is worth mentioning.
_SHARE = 0.05
# A feature that determines at least this fraction of the labels may be the label itself.
_LEAK = 0.99


@dataclass(frozen=True)
class GraphDescription(TabularResult):
    """Result of :func:`describe`.

    Args:
        nodes: Number of nodes.
        edges: Number of undirected edges.
        features: Number of features.
        classes: Number of nodes of each class, by name or number.
        unlabelled: Number of nodes without a label.
        homophily: Fraction of edges between labelled nodes that are within a class; NaN without such edges.
        mean_degree: Mean number of neighbors.
        max_degree: Largest number of neighbors.
        isolated: Number of nodes without neighbors.
        components: Number of connected components.
        largest_component: Number of nodes in the largest component.
        density: Fraction of features other than 0.
        feature_range: Smallest and largest feature.
        is_sparse: Whether the features are a sparse tensor.
        splits: Names of the masks.
        changed: Edges that a simple undirected graph does not have; the other numbers are of the simple graph.
        trouble: Signs of trouble, each with what to do.
    """

    nodes: int
    edges: int
    features: int
    classes: dict[str, int]
    unlabelled: int
    homophily: float
    mean_degree: float
    max_degree: int
    isolated: int
    components: int
    largest_component: int
    density: float
    feature_range: tuple[float, float]
    is_sparse: bool
    splits: tuple[str, ...]
    changed: EdgeCounts
    trouble: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Name and text of each statistic."""
        classes = ", ".join(f"{name}: {count:,}" for name, count in list(self.classes.items())[:10])
        more = ", ..." if len(self.classes) > 10 else ""
        low, high = self.feature_range
        return [
            ("nodes", f"{self.nodes:,}"),
            ("edges", f"{self.edges:,}"),
            ("degree", f"mean {self.mean_degree:.1f}, largest {self.max_degree:,}"),
            ("isolated nodes", f"{self.isolated:,}"),
            ("components", f"{self.components:,}, the largest of {self.largest_component:,} nodes"),
            ("classes", f"{len(self.classes)} ({classes}{more})" if self.classes else "no labels"),
            ("unlabelled nodes", f"{self.unlabelled:,}"),
            ("homophily", f"{self.homophily:.3f}"),
            ("features", f"{self.features:,}, {self.density:.1%} other than 0, from {low:g} to {high:g}"),
            ("stored as", "sparse tensor" if self.is_sparse else "dense tensor"),
            ("splits", ", ".join(self.splits) or "none"),
        ]

    def to_dict(self) -> Record:
        """Return all entries as numbers, text, lists and dictionaries."""
        return self.summary()

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return asdict(self)

    def _records(self) -> list[Record]:
        return [self.summary()]

    def _layout(self) -> Layout:
        return Layout("", (), self.rows, left=2, notes=[f"trouble: {text}" for text in self.trouble])


def describe(data: Data) -> GraphDescription:
    """Return statistics of a graph and signs of trouble.

    Args:
        data: Graph; its edges may be directed, weighted, repeated or self-loops. Statistics are those of the graph without.

    >>> from edgeproof import datasets
    >>> description = describe(datasets.load("csbm"))
    >>> description.edges, round(description.homophily, 2), description.trouble
    (1883, 0.19, ())
    """
    data = copy(data).cpu()
    found = count_problems(data)
    simple, _ = simplify(data, Fixes(True, True, True, True))
    y = torch.full((simple.x.size(0),), UNKNOWN) if simple.y is None else simple.y
    degrees, (row, col) = degree(simple), simple.edge_index
    known = (y[row] != UNKNOWN) & (y[col] != UNKNOWN)
    n = simple.x.size(0)
    adjacency = sp.csr_matrix((np.ones(row.numel(), dtype=np.int8), (row.numpy(), col.numpy())), shape=(n, n))
    components, component = connected_components(adjacency, directed=False)
    values = simple.x.values() if is_sparse(simple.x) else simple.x
    low, high = (float(end(values)) if values.numel() else 0.0 for end in (torch.min, torch.max))
    if is_sparse(simple.x) and values.numel() < simple.x.numel():
        low, high = min(low, 0.0), max(high, 0.0)
    homophily = float((y[row] == y[col])[known].double().mean())
    return GraphDescription(
        nodes=n,
        edges=num_edges(simple),
        features=simple.x.size(1),
        classes=_class_sizes(simple, y),
        unlabelled=int((y == UNKNOWN).sum()),
        homophily=homophily,
        mean_degree=float(degrees.double().mean()),
        max_degree=int(degrees.max()),
        isolated=int((degrees == 0).sum()),
        components=int(components),
        largest_component=int(np.bincount(component).max()),
        density=float(column_means(simple.x)[1].double().mean()),
        feature_range=(low, high),
        is_sparse=is_sparse(simple.x),
        splits=tuple(name for name in ("train_mask", "val_mask", "test_mask") if name in simple),
        changed=found,
        trouble=(
            *(f"{what}; pass --{fix.replace('_', '-')}" for what, fix in found.problems),
            *_trouble_of_nodes(degrees, component, y, homophily),
            *_trouble_of_features(simple.x, y),
        ),
    )


def _class_sizes(data: Data, y: Tensor) -> dict[str, int]:
    counts = torch.bincount(y[y != UNKNOWN]).tolist()
    names = data.get("class_names") or [str(number) for number in range(len(counts))]
    return dict(zip(names, counts, strict=True))


def _trouble_of_nodes(degrees: Tensor, component: np.ndarray[Any, Any], y: Tensor, homophily: float) -> list[str]:
    n, trouble = degrees.numel(), []
    isolated, outside = int((degrees == 0).sum()), n - int(np.bincount(component).max())
    if isolated > _SHARE * n:
        trouble.append(
            f"{isolated:,} nodes ({isolated / n:.0%}) have no neighbors; no attack on edges within a budget of them"
        )
    if outside > _SHARE * n:
        trouble.append(
            f"{outside:,} nodes ({outside / n:.0%}) are outside the largest component, which is used by default"
        )
    if not bool((y != UNKNOWN).any()):
        return [*trouble, "no labels; models cannot be trained or attacked without"]
    sizes = torch.bincount(y[y != UNKNOWN])
    if int(sizes.min()) < _SMALLEST_CLASS:
        small = int((sizes < _SMALLEST_CLASS).sum())
        trouble.append(
            f"{small} classes have fewer than {_SMALLEST_CLASS} nodes, the smallest {int(sizes.min())}; sampled splits need "
            "20 training, 20 validation and a test node per class: merge classes or provide splits"
        )
    if homophily < _LOW_HOMOPHILY:
        trouble.append(f"homophily of {homophily:.2f}; GNNs that smooth over neighbors may do worse than an MLP")
    return trouble


def _trouble_of_features(x: Tensor, y: Tensor) -> list[str]:
    n, trouble = x.size(0), []
    values = x.values() if is_sparse(x) else x
    if not bool(values.isfinite().all()):
        return [f"{int((~values.isfinite()).sum()):,} features are NaN or infinite; replace them"]
    mean_square, density = column_means(x)
    scale = mean_square.sqrt()
    empty = int((scale == 0).sum())
    if empty:
        trouble.append(f"{empty:,} features are 0 at all nodes; remove them")
    used = scale[(scale > 0) & (density > 0.5)]
    if used.numel() and float(used.max()) > _LARGE_SCALE * float(used.min()):
        trouble.append(
            f"scales of features from {float(used.min()):.2g} to {float(used.max()):.2g}; standardize them, or train with the "
            "default preset, which does"
        )
    constant = int(_is_constant(x).sum()) - empty
    if constant > 0:
        trouble.append(f"{constant:,} features have one value at all nodes; remove them")
    repeated = n - _num_distinct_rows(x)
    if repeated > _SHARE * n:
        trouble.append(
            f"{repeated:,} nodes ({repeated / n:.0%}) have the features of another; duplicates leak across splits"
        )
    leaks = _leaking_features(x, y)
    if leaks:
        trouble.append(
            f"feature {', '.join(map(str, leaks[:3]))} alone gives the label at {_LEAK:.0%} of the nodes or more; it may "
            "contain the label"
        )
    return trouble


def _is_constant(x: Tensor) -> Tensor:
    """Return which features have one value at all nodes."""
    if not is_sparse(x):
        return (x == x[:1]).all(dim=0)
    # Of rows with an entry in each: only columns stored everywhere can be constant and not 0.
    mean_square, density = column_means(x)
    column = torch.zeros(x.size(1), dtype=torch.float64).index_add(0, x.col_indices(), x.values().double())
    variance = mean_square - (column / x.size(0)).square()
    return (density == 0) | ((density == 1) & (variance.abs() <= 1e-12 * mean_square))


def _num_distinct_rows(x: Tensor) -> int:
    """Return the number of distinct rows, by hash."""
    if not is_sparse(x):
        rows = np.ascontiguousarray(x.numpy())
        return len({hash(row.tobytes()) for row in rows})
    col, values = x.col_indices().numpy(), x.values().numpy()
    spans = pairwise(x.crow_indices().tolist())
    return len({hash((col[start:end].tobytes(), values[start:end].tobytes())) for start, end in spans})


def _leaking_features(x: Tensor, y: Tensor) -> list[int]:
    """Return features with few distinct values, each of which (nearly) determines the class.

    Features with a different value at every node, such as ids, are not among them.
    """
    known = y != UNKNOWN
    classes = int(y.max()) + 1 if bool(known.any()) else 0
    if is_sparse(x) or classes < 2:
        return []
    found = []
    labels, labelled = y[known], x[known]
    for number, column in enumerate(labelled.T):
        # Most features of citation graphs are 0 nearly everywhere: a sample of nodes suffices.
        if column[:1000].unique().numel() > 4 * classes:
            continue
        unique, value = column.unique(return_inverse=True)
        if not 2 <= unique.numel() <= 4 * classes:
            continue
        table = torch.zeros(unique.numel(), classes).index_put(
            (value, labels), torch.ones(value.numel()), accumulate=True
        )
        majority = float(torch.bincount(labels).max()) / labels.numel()
        if float(table.amax(dim=1).sum()) / labels.numel() >= max(_LEAK, majority + (1 - majority) / 2):
            found.append(number)
    return found
