"""Who is trained on, who is watched for early stopping, who is tested, and which graph each of them sees.

In the **inductive** setting the training graph holds the labelled and unlabelled training nodes only; the validation
graph adds the validation nodes, the test graph is whole. In the **transductive** setting all three are the whole
graph, test nodes included: a model may then memorise its predictions on the clean graph, and look robust.
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

from edgeproof._checks import check_data, check_nodes
from edgeproof._names import look_up, unknown_name
from edgeproof._tensors import fingerprint
from edgeproof.graph import UNKNOWN

Array = np.ndarray[Any, Any]

# Numbers that the released code had drawn from NumPy's generator before it drew the split. Its training script
# creates the model first, and GPRGNN with K = 10 draws its 11 coefficients there; every other model draws from
# torch. Its attack and certificate scripts draw the split at once.
RULES = {"released": 0, "released_gprgnn_training": 11}

# Which split a model is trained and which it is evaluated on; see :func:`by_protocol`.
PROTOCOLS = ("strict", "as_released")


@dataclass(frozen=True, eq=False)
class View:
    """One stage's part of a split.

    Its tensors may be those of the graph it was made from, or of another stage: change none of them in place.

    Args:
        data: the graph that this stage may see, its nodes numbered from 0.
        nodes: the nodes that count at this stage, in this numbering.
        unlabeled: nodes present without a label (training stage only).
        ids: the id of each node of ``data`` in the whole graph.
    """

    data: Data
    nodes: Tensor
    unlabeled: Tensor
    ids: Tensor

    def to(self, device: torch.device | str) -> View:
        """The same view with its graph and indices on another device."""
        return View(self.data.clone().to(device), self.nodes.to(device), self.unlabeled.to(device), self.ids.to(device))


@dataclass(frozen=True, eq=False)
class Split:
    """A split of one graph's nodes, with the rule and seed that made it.

    Args:
        train: labelled (``nodes``) and unlabelled training nodes, in the graph that training sees.
        val: validation nodes, in the graph that early stopping sees.
        test: test nodes, in the whole graph.
        setting: ``"inductive"`` or ``"transductive"``.
        rule: how the nodes were drawn.
        seed: what they were drawn with; none for splits that came with the data.
    """

    train: View
    val: View
    test: View
    setting: str
    rule: str
    seed: int | None

    def to(self, device: torch.device | str) -> Split:
        """The same split on another device."""
        return replace(self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))

    @property
    def fingerprint(self) -> str:
        """A hash of all graphs, labels and indices: equal only for the same split of the same graph."""
        views = (self.train, self.val, self.test)
        return fingerprint(
            tensor
            for view in views
            for tensor in (view.data.x, view.data.edge_index, view.data.y, view.nodes, view.unlabeled)
        )

    @property
    def num_seen(self) -> int:
        """How many test nodes are in the training or the validation graph."""
        seen = torch.cat([self.train.ids, self.val.ids])
        return int(torch.isin(self.test.ids[self.test.nodes], seen).sum())

    def check_unseen(self) -> None:
        """Raise :class:`LeakError` if a test node is in the training or the validation graph."""
        if self.num_seen:
            raise LeakError(
                f"expected test nodes that no training or validation graph holds, got {self.num_seen} of "
                f"{self.test.nodes.numel()} that one does, in {self}"
            )

    def __repr__(self) -> str:
        sizes = f"train={self.train.nodes.numel()} (+{self.train.unlabeled.numel()} unlabeled)"
        sizes += f", val={self.val.nodes.numel()}, test={self.test.nodes.numel()}"
        return f"Split({self.setting}, {sizes}, rule={self.rule!r}, seed={self.seed})"


class LeakError(ValueError):
    """Test nodes have been seen in training, so that accuracy on them may be memory."""


def inductive(
    data: Data,
    seed: int = 0,
    *,
    train_per_class: int = 20,
    val_per_class: int = 20,
    test_share: float = 0.1,
    rule: str = "released",
) -> Split:
    """Training, validation and test nodes per class; the training graph never sees the latter two.

    A node whose class is not known, with label -1, is an unlabelled training node.

    Args:
        data: the whole graph.
        seed: same seed, same split.
        train_per_class: labelled training nodes of each class.
        val_per_class: validation nodes of each class.
        test_share: share of each class that is tested, rounded up; all other nodes are unlabelled training nodes.
        rule: ``"released"`` draws as the paper's released attack scripts do, so splits are those of the paper.
            ``"released_gprgnn_training"`` draws as its training script did for GPRGNN, which is a *different* split:
            trained on one and evaluated on the other, most test nodes have been seen. For comparison only.

    >>> from edgeproof import datasets
    >>> inductive(datasets.load("csbm"), seed=1)
    Split(inductive, train=40 (+803 unlabeled), val=40, test=99, rule='released', seed=1)
    """
    if not 0 < test_share < 1:
        raise ValueError(f"expected 0 < test_share < 1, got {test_share}")
    train, val, test = _draw(data, seed, train_per_class, val_per_class, rule, test_share)
    unlabeled = _complement(data, train, val, test)
    return _build(data, train, unlabeled, val, test, setting="inductive", rule=rule, seed=seed)


def by_protocol(data: Data, seed: int = 0, *, model: str, protocol: str = "strict", per_class: int = 20) -> Split:
    """The inductive split of the paper's experiments, by one of two protocols.

    - ``"strict"``: test nodes are in no training or validation graph, which is checked. Figures to draw conclusions from.
    - ``"as_released"``: as the released scripts do it. Their training script creates the model before it draws the split, and
      GPRGNN's initial coefficients come from the same generator; their attack script draws the split at once. So GPRGNN, and
      it alone, is evaluated on another split than it was trained on: about three quarters of its test nodes have been in its
      training or validation graph. Figures to compare with the printed ones.

    Args:
        data: the whole graph.
        seed: same seed, same split.
        model: the name of the model that will be trained.
        protocol: which of the two.
        per_class: labelled nodes of each class, and as many to validate on.

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
    drawn = partial(inductive, data, seed, train_per_class=per_class, val_per_class=per_class)
    split = drawn()
    if protocol == "as_released" and model == "GPRGNN":
        trained = drawn(rule="released_gprgnn_training")
        return replace(trained, test=split.test, rule="as_released")
    split.check_unseen()
    return split


def transductive(
    data: Data, seed: int = 0, *, train_per_class: int = 20, val_per_class: int = 20, rule: str = "released"
) -> Split:
    """Labelled training and validation nodes per class; all others are test nodes, and all graphs are the whole one.

    A node whose class is not known, with label -1, is unlabelled, and no test node.

    Robustness measured in this setting can be mere memory of the clean graph: see the module's text.

    Args:
        data: the whole graph.
        seed: same seed, same split.
        train_per_class: labelled training nodes of each class.
        val_per_class: validation nodes of each class.
        rule: as for :func:`inductive`.

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
    """The split that came with the data, as ``train_mask``, ``val_mask`` and ``test_mask``.

    Args:
        data: the whole graph; nodes in no mask are unlabelled training nodes.
        index: which split, where there are several.
        setting: which graph each stage sees, ``"inductive"`` or ``"transductive"``.
        test_on_val: for data without a test mask, evaluate on the validation nodes, as the paper does on its cSBM
            graphs. Early stopping has then seen them.

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
    for one, other, overlap in (("train", "val", train & val), ("train", "test", train & test)):
        if overlap.any():
            raise ValueError(f"expected disjoint masks, got {int(overlap.sum())} nodes in both {one} and {other}")
    if not test_on_val and (val & test).any():
        raise ValueError(f"expected disjoint masks, got {int((val & test).sum())} nodes in both val and test")
    unlabeled = ~(train | val | test) if setting == "inductive" else ~train
    chosen = (mask.nonzero().flatten().cpu().numpy() for mask in (train, unlabeled, val, test))
    return _build(data, *chosen, setting=setting, rule=rule, seed=None)


def _draw(
    data: Data, seed: int, train_per_class: int, val_per_class: int, rule: str, test_share: float
) -> tuple[Array, Array, Array]:
    """Training, validation and test nodes, drawn class by class, each list shuffled at the end."""
    check_data(data)
    if not all(isinstance(count, int) and count >= 1 for count in (train_per_class, val_per_class)):
        raise ValueError(
            "expected at least 1 node per class, a whole number, got "
            f"train_per_class={train_per_class}, val_per_class={val_per_class}"
        )
    draws_before = look_up("rule", rule, RULES)
    # The released code uses NumPy's legacy generator; its stream is frozen, so these splits are too.
    random = np.random.RandomState(seed)
    random.uniform(size=draws_before)
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
        for part, chosen in zip(parts, np.split(nodes, ends)[:3], strict=True):
            part.append(chosen)
    train, val, test = (random.permutation(np.concatenate(part)) for part in parts)
    return train, val, test


def _build(
    data: Data, train: Array, unlabeled: Array, val: Array, test: Array, *, setting: str, rule: str, seed: int | None
) -> Split:
    for name, nodes in (("training", train), ("validation", val), ("test", test)):
        if nodes.size == 0:
            raise ValueError(f"expected at least one {name} node, got none")
        check_nodes(torch.from_numpy(nodes).to(data.x.device), data, what=f"{name} nodes", labelled=True)
    nothing = np.empty(0, dtype=np.int64)
    everyone = np.arange(data.x.size(0))
    seen_in_training = np.concatenate([train, unlabeled]) if setting == "inductive" else everyone
    seen_in_validation = np.concatenate([seen_in_training, val]) if setting == "inductive" else everyone
    return Split(
        train=_view(data, seen_in_training, train, unlabeled),
        val=_view(data, seen_in_validation, val, nothing),
        test=_view(data, everyone, test, nothing),
        setting=setting,
        rule=rule,
        seed=seed,
    )


def _view(data: Data, seen: Array, nodes: Array, unlabeled: Array) -> View:
    """The graph induced by the nodes seen, in their old order, and the nodes of interest in its numbering."""
    device = data.x.device
    present = np.zeros(data.x.size(0), dtype=bool)
    present[seen] = True
    position = np.cumsum(present) - 1
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    return View(
        data=graph if present.all() else graph.subgraph(torch.from_numpy(present).to(device)),
        nodes=torch.from_numpy(position[nodes]).to(device),
        unlabeled=torch.from_numpy(position[unlabeled]).to(device),
        ids=torch.from_numpy(np.flatnonzero(present)).to(device),
    )


def _complement(data: Data, *parts: Array) -> Array:
    return np.setdiff1d(np.arange(data.x.size(0)), np.concatenate(parts))


def _mask(data: Data, name: str, index: int) -> Tensor:
    mask = data.get(name)
    if mask is None:
        hint = "; test_on_val=True (--test-on-val) evaluates on the validation nodes" if name == "test_mask" else ""
        raise ValueError(f"expected data with {name}, got none{hint}")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.size(0) != data.x.size(0):
        raise ValueError(f"expected a boolean {name} with one row per node")
    columns = mask[:, None] if mask.dim() == 1 else mask
    if not 0 <= index < columns.size(1):
        raise ValueError(f"expected a split index between 0 and {columns.size(1) - 1}, got {index}")
    return columns[:, index]
