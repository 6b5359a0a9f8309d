"""Training, validation and test splits, with the graph that each stage uses.

In the **inductive** setting the training graph contains only the labelled and unlabelled training nodes; the validation graph
adds the validation nodes, and the test graph is the whole graph. In the **transductive** setting all three are the whole
graph, test nodes included: a model can then memorize its predictions on the clean graph and appear robust.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgeproof._catalog import PROTOCOLS as PROTOCOLS
from edgeproof._checks import check_data, check_int, check_nodes, check_seed, is_number
from edgeproof._features import take_nodes
from edgeproof._names import look_up, unknown_name
from edgeproof._tables import Layout, Record, TabularResult
from edgeproof._tensors import fingerprint
from edgeproof.graph import UNKNOWN, num_edges

Array = np.ndarray[Any, Any]

# Numbers that the released code draws from NumPy's generator before the split. Its training script creates the model first, and
# GPRGNN with K = 10 draws 11 coefficients; all other models use torch's generator. Its other scripts draw the split first.
RULES = {"released": 0, "released_gprgnn_training": 11}


@dataclass(frozen=True, eq=False)
class View:
    """Graph and nodes of one stage of a split.

    Tensors may be shared with the original graph and other stages: do not modify them in place.

    Args:
        data: Graph of this stage, its nodes numbered from 0.
        nodes: Node ids for the loss or accuracy of this stage, in this numbering.
        unlabeled: Ids of the other training nodes, used without their labels (training stage only).
        ids: Id in the whole graph of each node of ``data``.
    """

    data: Data
    nodes: Tensor
    unlabeled: Tensor
    ids: Tensor

    def __repr__(self) -> str:
        return f"View({self.data!r}, {self.nodes.numel()} nodes, {self.unlabeled.numel()} unlabeled)"

    def to(self, device: torch.device | str) -> View:
        """Return the view on another device."""
        return View(self.data.clone().to(device), self.nodes.to(device), self.unlabeled.to(device), self.ids.to(device))


@dataclass(frozen=True, eq=False)
class Split(TabularResult):
    """Training, validation and test views of one graph, with the rule and seed that made them.

    Args:
        train: Labelled (``nodes``) and unlabelled training nodes in the training graph.
        val: Validation nodes in the graph for early stopping.
        test: Test nodes in the whole graph.
        setting: ``"inductive"`` or ``"transductive"``.
        rule: Sampling rule.
        seed: Seed of the sampling; None for splits provided with the data.
    """

    train: View
    val: View
    test: View
    setting: str
    rule: str
    seed: int | None

    def to(self, device: torch.device | str) -> Split:
        """Return the split on another device."""
        return replace(self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))

    @property
    def fingerprint(self) -> str:
        """Hash of all graphs, labels and indices; equal only for the same split of the same graph."""
        views = (self.train, self.val, self.test)
        return fingerprint(
            tensor
            for view in views
            for tensor in (view.data.x, view.data.edge_index, view.data.y, view.nodes, view.unlabeled)
        )

    @property
    def num_seen(self) -> int:
        """Number of test nodes in the training or validation graph."""
        seen = torch.cat([self.train.ids, self.val.ids])
        return int(torch.isin(self.test.ids[self.test.nodes], seen).sum())

    def check_unseen(self) -> None:
        """Raise :class:`LeakError` if a test node is in the training or validation graph."""
        if self.num_seen:
            raise LeakError(
                f"expected no test nodes in the training and validation graphs, got {self.num_seen} of "
                f"{self.test.nodes.numel()} in {self!r}"
            )

    def __repr__(self) -> str:
        sizes = f"train={self.train.nodes.numel()} (+{self.train.unlabeled.numel()} unlabeled)"
        sizes += f", val={self.val.nodes.numel()}, test={self.test.nodes.numel()}"
        return f"Split({self.setting}, {sizes}, rule={self.rule!r}, seed={self.seed})"

    def summary(self) -> Record:
        """Return setting, rule, seed and fingerprint."""
        return {"setting": self.setting, "rule": self.rule, "seed": self.seed, "fingerprint": self.fingerprint}

    def _records(self) -> list[Record]:
        return [
            {
                "part": part,
                "nodes": view.nodes.numel(),
                "unlabeled": view.unlabeled.numel(),
                "graph_nodes": view.data.x.size(0),
                "graph_edges": num_edges(view.data),
            }
            for part, view in (("train", self.train), ("val", self.val), ("test", self.test))
        ]

    def _layout(self) -> Layout:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return Layout(
            title=f"{self.setting} split, rule {self.rule}{seed}",
            header=("part", "nodes", "unlabelled", "nodes of its graph", "edges"),
            lines=[[str(row["part"]), *(f"{row[name]:,}" for name in list(row)[1:])] for row in self._records()],
        )


class LeakError(ValueError):
    """Test nodes occur in training or validation graphs, so their accuracy may be memorized."""


def inductive(
    data: Data,
    seed: int = 0,
    *,
    train_per_class: int = 20,
    val_per_class: int = 20,
    test_share: float = 0.1,
    rule: str = "released",
) -> Split:
    """Sample training, validation and test nodes per class; training graphs contain no validation or test nodes.

    Nodes with the label -1 are unlabelled training nodes.

    Args:
        data: Whole graph.
        seed: Seed of the sampling.
        train_per_class: Number of labelled training nodes per class.
        val_per_class: Number of validation nodes per class.
        test_share: Fraction of each class used as test nodes, rounded up; all other nodes are unlabelled training nodes.
        rule: ``"released"`` reproduces the splits of the paper's released attack scripts. ``"released_gprgnn_training"``
            reproduces those of its training script for GPRGNN, which *differ*: for a model trained on one and evaluated on the
            other, most test nodes were in the training graph. Use it for comparison only.

    >>> from edgeproof import datasets
    >>> inductive(datasets.load("csbm"), seed=1)
    Split(inductive, train=40 (+803 unlabeled), val=40, test=99, rule='released', seed=1)
    """
    if not is_number(test_share) or not 0 < test_share < 1:
        raise ValueError(f"expected 0 < test_share < 1, got {test_share!r}")
    train, val, test = _draw(data, seed, train_per_class, val_per_class, rule, test_share)
    unlabeled = _complement(data, train, val, test)
    return _build(data, train, unlabeled, val, test, setting="inductive", rule=rule, seed=seed)


def by_protocol(data: Data, seed: int = 0, *, model: str, protocol: str = "strict", per_class: int = 20) -> Split:
    """Return the inductive split of the paper's experiments.

    - ``"strict"``: no test node is in a training or validation graph, which is checked. Use it to draw conclusions.
    - ``"as_released"``: the released scripts' splits. Their training script creates the model before it draws the split, and
      GPRGNN draws its initial coefficients from the same generator; their attack script draws the split first. So GPRGNN, and
      only GPRGNN, is evaluated on a different split: about three quarters of its test nodes were in its training or validation
      graph. Use it to compare with the paper's numbers.

    Args:
        data: Whole graph.
        seed: Seed of the sampling.
        model: Name of the model to train.
        protocol: ``"strict"`` or ``"as_released"``.
        per_class: Number of training nodes, and number of validation nodes, per class.

    >>> from edgeproof import datasets
    >>> data = datasets.load("csbm")
    >>> by_protocol(data, model="GPRGNN").num_seen
    0
    >>> by_protocol(data, model="GPRGNN", protocol="as_released").num_seen > 50
    True
    >>> by_protocol(data, model="GCN", protocol="as_released").num_seen
    0
    """
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    sample = partial(inductive, data, seed, train_per_class=per_class, val_per_class=per_class)
    split = sample()
    if protocol == "as_released" and model == "GPRGNN":
        trained = sample(rule="released_gprgnn_training")
        return replace(trained, test=split.test, rule="as_released")
    split.check_unseen()
    return split


def transductive(
    data: Data, seed: int = 0, *, train_per_class: int = 20, val_per_class: int = 20, rule: str = "released"
) -> Split:
    """Sample training and validation nodes per class; all other labelled nodes are test nodes, and all views share one graph.

    Nodes with the label -1 are unlabelled and never test nodes. Robustness in this setting can be memorization of the clean
    graph; see the module documentation.

    Args:
        data: Whole graph.
        seed: Seed of the sampling.
        train_per_class: Number of labelled training nodes per class.
        val_per_class: Number of validation nodes per class.
        rule: See :func:`inductive`.

    >>> from edgeproof import datasets
    >>> transductive(datasets.load("csbm"))
    Split(transductive, train=40 (+942 unlabeled), val=40, test=902, rule='released', seed=0)
    """
    train, val, _ = _draw(data, seed, train_per_class, val_per_class, rule, test_share=0.0)
    unlabeled = _complement(data, train)
    test = _complement(data, train, val)
    test = test[(data.y.cpu().numpy() != UNKNOWN)[test]]
    return _build(data, train, unlabeled, val, test, setting="transductive", rule=rule, seed=seed)


def provided(data: Data, index: int = 0, *, setting: str = "inductive", test_on_val: bool = False) -> Split:
    """Return the split given by ``train_mask``, ``val_mask`` and ``test_mask`` of the data.

    Args:
        data: Whole graph; nodes in no mask are unlabelled training nodes.
        index: Index of the split, if the masks have several columns.
        setting: ``"inductive"`` or ``"transductive"``.
        test_on_val: Evaluate on the validation nodes if there is no test mask, as the paper does on its cSBM graphs. Early
            stopping uses the same nodes.

    >>> from edgeproof import datasets
    >>> provided(datasets.csbm(), test_on_val=True)
    Split(inductive, train=800 (+0 unlabeled), val=200, test=200, rule='provided[0], tested on val', seed=None)
    """
    check_data(data)
    if setting not in ("inductive", "transductive"):
        raise ValueError(f"expected setting 'inductive' or 'transductive', got {setting!r}")
    train, val = _mask(data, "train_mask", index), _mask(data, "val_mask", index)
    rule = f"provided[{index}]"
    if test_on_val:
        test, rule = val, f"{rule}, tested on val"
    else:
        test = _mask(data, "test_mask", index)
    overlaps = {"train and val": train & val, "train and test": train & test}
    if not test_on_val:
        overlaps["val and test"] = val & test
    for names, overlap in overlaps.items():
        if overlap.any():
            raise ValueError(f"expected disjoint masks, got {int(overlap.sum())} nodes in both {names}")
    unlabeled = ~(train | val | test) if setting == "inductive" else ~train
    indices = (mask.nonzero().flatten().cpu().numpy() for mask in (train, unlabeled, val, test))
    return _build(data, *indices, setting=setting, rule=rule, seed=None)


def _draw(
    data: Data, seed: int, train_per_class: int, val_per_class: int, rule: str, test_share: float
) -> tuple[Array, Array, Array]:
    """Sample training, validation and test nodes class by class, and shuffle each list at the end."""
    check_data(data)
    check_int(1, train_per_class=train_per_class, val_per_class=val_per_class)
    seed = check_seed(seed)
    num_draws = look_up("rule", rule, RULES)
    # The released code uses NumPy's legacy generator, whose stream never changes.
    random = np.random.RandomState(seed)
    random.uniform(size=num_draws)
    labels = data.y.cpu().numpy()
    parts: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for label in range(labels.max() + 1):
        nodes = random.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum([train_per_class, val_per_class, ceil(test_share * nodes.size)])
        if ends[-1] > nodes.size:
            raise ValueError(
                f"expected at least {ends[-1]} nodes of each class ({train_per_class} training, {val_per_class} "
                f"validation, {ceil(test_share * nodes.size)} test), got {nodes.size} of class {label}"
            )
        for part, sampled in zip(parts, np.split(nodes, ends)[:3], strict=True):
            part.append(sampled)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test


def _build(
    data: Data, train: Array, unlabeled: Array, val: Array, test: Array, *, setting: str, rule: str, seed: int | None
) -> Split:
    for name, nodes in (("training", train), ("validation", val), ("test", test)):
        if nodes.size == 0:
            raise ValueError(f"expected at least one {name} node, got none")
        check_nodes(torch.from_numpy(nodes).to(data.x.device), data, what=f"{name} nodes", labelled=True)
    empty = np.empty(0, dtype=np.int64)
    all_nodes = np.arange(data.x.size(0))
    train_graph_nodes = np.concatenate([train, unlabeled]) if setting == "inductive" else all_nodes
    val_graph_nodes = np.concatenate([train_graph_nodes, val]) if setting == "inductive" else all_nodes
    return Split(
        train=_view(data, train_graph_nodes, train, unlabeled),
        val=_view(data, val_graph_nodes, val, empty),
        test=_view(data, all_nodes, test, empty),
        setting=setting,
        rule=rule,
        seed=seed,
    )


def _view(data: Data, graph_nodes: Array, nodes: Array, unlabeled: Array) -> View:
    """Return the subgraph induced by ``graph_nodes``, in their original order, with ids in its numbering."""
    device = data.x.device
    present = np.zeros(data.x.size(0), dtype=bool)
    present[graph_nodes] = True
    position = np.cumsum(present) - 1
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    return View(
        data=graph if present.all() else take_nodes(graph, torch.from_numpy(present).to(device)),
        nodes=torch.from_numpy(position[nodes]).to(device),
        unlabeled=torch.from_numpy(position[unlabeled]).to(device),
        ids=torch.from_numpy(np.flatnonzero(present)).to(device),
    )


def _complement(data: Data, *parts: Array) -> Array:
    return np.setdiff1d(np.arange(data.x.size(0)), np.concatenate(parts))


def _mask(data: Data, name: str, index: int) -> Tensor:
    mask = data.get(name)
    if mask is None:
        hint = "test_on_val=True (--test-on-val) evaluates on the validation nodes" if name == "test_mask" else ""
        hint = f"; {hint or '--masks FILE takes masks from a file'}"
        raise ValueError(f"expected data with {name}, got None{hint}")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.size(0) != data.x.size(0):
        raise ValueError(f"expected a boolean {name} with one row per node")
    columns = mask[:, None] if mask.dim() == 1 else mask
    if not 0 <= index < columns.size(1):
        raise ValueError(f"expected a split index between 0 and {columns.size(1) - 1}, got {index}")
    return columns[:, index]
