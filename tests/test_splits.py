from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.splits import Split, inductive, provided, transductive


def ids(split: Split, stage: str) -> set[int]:
    view = getattr(split, stage)
    return set(view.ids[view.nodes].tolist())


def edges(data: Data, node_ids: torch.Tensor) -> set[tuple[int, int]]:
    return {(int(node_ids[u]), int(node_ids[v])) for u, v in data.edge_index.T.tolist()}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    train=st.integers(1, 25),
    val=st.integers(1, 25),
    share=st.floats(0.01, 0.3),
    rule=st.sampled_from(["released", "released_gprgnn_training"]),
)
def test_inductive_split_is_disjoint_stratified_and_leak_free(
    seed: int, train: int, val: int, share: float, rule: str
) -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, seed=3)
    split = inductive(data, seed, train_per_class=train, val_per_class=val, test_share=share, rule=rule)
    parts = {stage: ids(split, stage) for stage in ("train", "val", "test")}
    parts["unlabeled"] = set(split.train.ids[split.train.unlabeled].tolist())

    # The parts are disjoint and cover all nodes.
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 200
    for label in (0, 1):
        of_label = set((data.y == label).nonzero().flatten().tolist())
        assert len(parts["train"] & of_label) == train
        assert len(parts["val"] & of_label) == val
        assert len(parts["test"] & of_label) == int(np.ceil(share * len(of_label)))
    # Each view is the induced subgraph of its stage, without nodes of later stages.
    assert set(split.train.ids.tolist()) == parts["train"] | parts["unlabeled"]
    assert set(split.val.ids.tolist()) == parts["train"] | parts["unlabeled"] | parts["val"]
    all_edges = edges(data, torch.arange(200))
    for view in (split.train, split.val, split.test):
        present = set(view.ids.tolist())
        assert edges(view.data, view.ids) == {(u, v) for u, v in all_edges if u in present and v in present}
        assert torch.equal(view.data.x, data.x[view.ids])
        assert torch.equal(view.data.y, data.y[view.ids])
        ep.check_data(view.data)


def test_unlabelled_nodes_are_only_used_without_labels(sbm: Data) -> None:
    sbm.y[::5] = -1
    for split in (inductive(sbm), transductive(sbm)):
        for view in (split.train, split.val, split.test):
            assert bool((view.data.y[view.nodes] >= 0).all())
        unlabeled = split.train.ids[split.train.unlabeled]
        assert bool(torch.isin(torch.arange(0, 200, 5), unlabeled).all())
    part = torch.arange(200) % 3
    for number, name in enumerate(("training", "validation", "test")):
        data = sbm.clone()
        data.y = torch.where(part == number, sbm.y, sbm.y.clamp(min=0))
        data.train_mask, data.val_mask, data.test_mask = part == 0, part == 1, part == 2
        with pytest.raises(ValueError, match=f"expected labelled {name} nodes, got 1[34] with label -1"):
            provided(data)


def test_splits_are_deterministic_given_seed(sbm: Data) -> None:
    assert inductive(sbm, 4).fingerprint == inductive(sbm, 4).fingerprint
    assert inductive(sbm, 4).fingerprint != inductive(sbm, 5).fingerprint
    assert torch.equal(inductive(sbm, 4).test.nodes, inductive(sbm, 4).test.nodes)


def test_released_rules_reproduce_the_released_code(sbm: Data) -> None:
    """Compare with a step-by-step reimplementation."""
    for rule, num_draws in (("released", 0), ("released_gprgnn_training", 11)):
        split = inductive(sbm, 5, rule=rule)
        random = np.random.RandomState(5)
        for _ in range(num_draws):
            random.uniform()
        train, val, test = [], [], []
        for label in (0, 1):
            members = np.flatnonzero(sbm.y.numpy() == label)
            shuffled = members[random.permutation(len(members))]
            train += list(shuffled[:20])
            val += list(shuffled[20:40])
            test += list(shuffled[40 : 40 + int(np.ceil(0.1 * len(members)))])
        for stage, part in (("train", train), ("val", val), ("test", test)):
            view = getattr(split, stage)
            assert view.ids[view.nodes].tolist() == np.array(part)[random.permutation(len(part))].tolist()


def test_transductive_views_share_the_whole_graph(sbm: Data) -> None:
    split = transductive(sbm, 2)
    assert (len(ids(split, "train")), len(ids(split, "val")), len(ids(split, "test"))) == (40, 40, 120)
    assert not ids(split, "train") & ids(split, "val")
    assert ids(split, "train") | ids(split, "val") | ids(split, "test") == set(range(200))
    assert split.train.unlabeled.numel() == 160
    for view in (split.train, split.val, split.test):
        assert torch.equal(view.data.edge_index, sbm.edge_index)


def test_provided_splits_use_the_masks(sbm: Data) -> None:
    fold = torch.arange(200) % 5
    sbm.train_mask = torch.stack([fold == 0, fold == 1], dim=1)
    sbm.val_mask = torch.stack([fold == 1, fold == 2], dim=1)
    sbm.test_mask = torch.stack([fold == 2, fold == 3], dim=1)
    split = provided(sbm, 1)
    assert [ids(split, stage) for stage in ("train", "val", "test")] == [
        set((fold == part).nonzero().flatten().tolist()) for part in (1, 2, 3)
    ]
    assert split.train.unlabeled.numel() == 80
    assert not ids(split, "test") & set(split.val.ids.tolist())
    with pytest.raises(ValueError, match="split index between 0 and 1, got 2"):
        provided(sbm, 2)
    sbm.val_mask = sbm.test_mask
    with pytest.raises(ValueError, match="40 nodes in both val and test"):
        provided(sbm)


def test_missing_test_mask_requires_test_on_val(sbm: Data) -> None:
    with pytest.raises(ValueError, match="expected data with test_mask, got None; test_on_val=True"):
        provided(sbm)
    split = provided(sbm, test_on_val=True)
    assert ids(split, "test") == ids(split, "val")
    assert "tested on val" in split.rule


def test_split_to_device(split: Split) -> None:
    moved = split.to("cpu")
    assert moved.fingerprint == split.fingerprint
    assert moved.train.data is not split.train.data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_per_class": 0}, "train_per_class to be an integer >= 1, got 0"),
        ({"train_per_class": 2.5}, "train_per_class to be an integer >= 1, got 2.5"),
        ({"test_share": 0.0}, "0 < test_share < 1"),
        ({"test_share": 1.0}, "0 < test_share < 1"),
        ({"train_per_class": 90}, r"nodes of each class \(90 training, 20 validation"),
        ({"rule": "relesed"}, "unknown rule 'relesed': did you mean 'released'"),
    ],
)
def test_invalid_split_arguments_raise(sbm: Data, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inductive(sbm, **options)  # type: ignore[arg-type]


def test_invalid_masks_raise(sbm: Data) -> None:
    sbm.test_mask = torch.ones(200)
    with pytest.raises(ValueError, match="boolean test_mask"):
        provided(sbm)
    sbm.test_mask = torch.zeros(200, dtype=torch.bool)
    with pytest.raises(ValueError, match="at least one test node"):
        provided(sbm)
    with pytest.raises(ValueError, match="'inductive' or 'transductive', got 'deductive'"):
        provided(sbm, setting="deductive")


def test_leakage_of_released_gprgnn_splits_on_citeseer(real_data: Path) -> None:
    """Most test nodes of the released GPRGNN evaluation were in its training or validation graph."""
    data = ep.datasets.load("citeseer", real_data)
    for seed in (0, 1, 5):
        tested = ids(inductive(data, seed), "test")
        trained = inductive(data, seed, rule="released_gprgnn_training")
        unlabeled = set(trained.train.ids[trained.train.unlabeled].tolist())
        share = {
            name: len(tested & part) / len(tested)
            for name, part in {"unlabeled": unlabeled, "val": ids(trained, "val"), "test": ids(trained, "test")}.items()
        }
        assert len(tested) == 214
        assert 0.535 <= share["unlabeled"] <= 0.585
        assert 0.205 <= share["test"] <= 0.275


def test_strict_protocol_has_no_leaks(sbm: Data) -> None:
    strict = ep.splits.by_protocol(sbm, 3, model="GPRGNN")
    assert strict.fingerprint == ep.splits.inductive(sbm, 3).fingerprint
    strict.check_unseen()
    assert strict.num_seen == 0
    released = ep.splits.by_protocol(sbm, 3, model="GPRGNN", protocol="as_released")
    trained = ep.splits.inductive(sbm, 3, rule="released_gprgnn_training")
    assert torch.equal(released.train.ids, trained.train.ids)
    assert torch.equal(released.val.ids[released.val.nodes], trained.val.ids[trained.val.nodes])
    assert torch.equal(released.test.nodes, strict.test.nodes)
    seen = set(trained.train.ids.tolist()) | set(trained.val.ids.tolist())
    assert released.num_seen == len(seen & set(strict.test.nodes.tolist())) > 0
    with pytest.raises(ep.splits.LeakError, match=f"got {released.num_seen} of {released.test.nodes.numel()}"):
        released.check_unseen()
    with pytest.raises(ep.splits.LeakError):
        ep.splits.transductive(sbm).check_unseen()
    for name in ("GCN", "APPNP", "ChebNetII", "GAT"):
        same = ep.splits.by_protocol(sbm, 3, model=name, protocol="as_released")
        assert same.fingerprint == strict.fingerprint
    with pytest.raises(ValueError, match="unknown protocol 'strikt': did you mean 'strict'"):
        ep.splits.by_protocol(sbm, model="GCN", protocol="strikt")


def test_by_protocol_respects_per_class(sbm: Data) -> None:
    for protocol in ("strict", "as_released"):
        split = ep.splits.by_protocol(sbm, 3, model="GPRGNN", protocol=protocol, per_class=5)
        assert split.train.nodes.numel() == split.val.nodes.numel() == 5 * int(sbm.y.max() + 1)


def test_strict_protocol_raises_on_leak(sbm: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ep.splits.transductive(sbm, 3)
    monkeypatch.setattr("edgeproof.splits.inductive", lambda *_, **__: whole)
    with pytest.raises(ep.splits.LeakError):
        ep.splits.by_protocol(sbm, 3, model="GCN")
