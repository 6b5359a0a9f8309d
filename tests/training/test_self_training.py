"""Pseudo-labels: who votes, what comes out, and what is done with it."""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof import losses
from edgeproof.splits import Split
from edgeproof.training import LabelWarning, TrainConfig, pseudo_labels, self_training
from edgeproof.training.checkpoint import Checkpoint, RunState
from edgeproof.training.self_training import another
from edgeproof.training.stage import Stage

SHORT: dict[str, Any] = {"max_epochs": 60, "patience": 60, "progress": False}


def build(name: str = "GCN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {"hidden_channels": 8}, seed=seed)


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_labels_confidence_and_accuracy(setting: str, sbm: Data) -> None:
    split = getattr(ep.splits, setting)(sbm, seed=0)
    model = build()
    before = [parameter.clone() for parameter in model.parameters()]
    found = pseudo_labels(model, split, **SHORT)
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    train = split.train
    assert found.labels.shape == found.confidence.shape == (train.data.num_nodes,)
    assert torch.equal(found.labels[train.nodes], train.data.y[train.nodes])
    assert bool((found.confidence[train.nodes] == 1).all())
    at_others = found.confidence[train.unlabeled]
    assert bool(((at_others >= 0.5) & (at_others < 1)).all())
    expected = float((found.labels[train.unlabeled] == train.data.y[train.unlabeled]).double().mean())
    assert found.accuracy == expected > 0.8
    # The model that answered is that of the seed, trained with cross-entropy and without weight decay.
    labeller = another(model, seed=1_000_000)
    history = ep.train(
        labeller,
        split,
        loss="cross_entropy",
        weight_decay=0.0,
        warmup_epochs=0,
        separate_warmup=False,
        seed=1_000_000,
        **SHORT,
    )
    logits = ep.models.predict(labeller, train.data)
    assert torch.equal(found.labels[train.unlabeled], logits.argmax(dim=1)[train.unlabeled])
    assert torch.allclose(at_others, logits.softmax(dim=1).amax(dim=1)[train.unlabeled])
    assert found.histories == (history,)
    on_val = ep.models.predict(labeller, split.val.data)[split.val.nodes]
    assert found.val_accuracy == float(losses.accuracy(on_val, split.val.data.y[split.val.nodes]))
    assert "1 of 1 models" in repr(found)


@pytest.mark.parametrize("every", [1, 2])
def test_labels_of_unlabelled_nodes_need_not_be_known(every: int, split: Split) -> None:
    """Nothing but the accuracy at these nodes depends on them."""
    graph, unlabeled = split.train.data.clone(), split.train.unlabeled
    graph.y[unlabeled[::every]] = -1
    blind = replace(split, train=replace(split.train, data=graph))
    one, two = (pseudo_labels(build(), parts, **SHORT) for parts in (split, blind))
    assert torch.equal(one.labels, two.labels)
    if every == 1:
        assert two.accuracy is None
        assert "unknown at unlabelled nodes" in repr(two)
    else:
        left = unlabeled[1::2]
        assert two.accuracy == float((two.labels[left] == graph.y[left]).double().mean())
    for stage, nodes in (("train", split.train.nodes), ("val", split.val.nodes)):
        view = getattr(split, stage)
        wrong = replace(view, data=view.data.clone())
        wrong.data.y[nodes[3]] = -1
        with pytest.raises(ValueError, match=f"labelled nodes, got 1 with label -1, such as node {int(nodes[3])}"):
            ep.train(build(), replace(split, **{stage: wrong}), **SHORT)
    threat = {"attack": ep.attacks.LRBCD(steps=2, block_size=100), "epsilon": 0.1}
    histories = [ep.train(build(seed=5), parts, self_training=True, **threat, **SHORT) for parts in (split, blind)]
    assert histories[0].epochs == histories[1].epochs
    assert histories[1].summary()["label_accuracy"] == two.accuracy


def test_labelling_that_was_interrupted_goes_on(split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, file = pseudo_labels(build(), split, **SHORT), tmp_path / "run.checkpoint"
    save, steps, objective = Checkpoint.save, [], Stage.objective

    def interrupted(self: Checkpoint, state: RunState, *rest: Any) -> None:
        save(self, state, *rest)
        raise KeyboardInterrupt

    def counted(self: Stage, *arguments: Any) -> Any:
        steps.append(self)
        return objective(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pseudo_labels(build(), split, checkpoint=file, checkpoint_every=40, **SHORT)
    monkeypatch.setattr(Stage, "objective", counted)
    again = pseudo_labels(build(), split, checkpoint=file, checkpoint_every=40, **SHORT)
    assert len(steps) == 20
    assert torch.equal(again.labels, whole.labels)
    assert torch.equal(again.confidence, whole.confidence)
    ep.training.remove_checkpoints(file)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="expected checkpoint_every to be a whole number >= 1, got 0"):
        pseudo_labels(build(), split, checkpoint=file, checkpoint_every=0, **SHORT)


def test_models_that_label_have_coefficients_of_their_own(split: Split) -> None:
    model = ep.models.build("GPRGNN", 21, 2, {"init_seed": 3}, seed=0)
    assert isinstance(model, ep.models.GPRGNN)
    others = [another(model, seed) for seed in (1, 2)]
    gammas = [model.gamma, *(one.gamma for one in others)]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(gammas, 2))


def test_the_final_model_is_trained_on_all_nodes_of_the_training_graph(split: Split) -> None:
    """As clean training would be, were the pseudo-labels true."""
    found = pseudo_labels(build(), split, **SHORT)
    everyone = torch.arange(split.train.data.num_nodes)
    data = Data(x=split.train.data.x, edge_index=split.train.data.edge_index, y=found.labels)
    believed = replace(split, train=replace(split.train, data=data, nodes=everyone, unlabeled=everyone[:0]))
    one, two, three = build(seed=5), build(seed=5), build(seed=5)
    # A warm-up of its own would have the labelled nodes alone, which differ.
    options = {**SHORT, "separate_warmup": False}
    history = ep.train(one, split, self_training=found, **options)
    expected = ep.train(two, believed, **options)
    assert history.epochs == expected.epochs
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    # The switch does the same in one go.
    switched = ep.train(three, split, self_training=True, **options)
    assert switched.epochs == history.epochs
    assert switched.pseudo_labels is not None
    assert torch.equal(switched.pseudo_labels.labels, found.labels)
    assert switched.summary()["label_accuracy"] == found.accuracy


def test_another_kind_of_model_may_label(split: Split) -> None:
    labeller = build("APPNP", seed=3)
    before = [parameter.clone() for parameter in labeller.parameters()]
    found = pseudo_labels(labeller, split, **SHORT)
    own = pseudo_labels(build(), split, **SHORT)
    assert not torch.equal(found.confidence, own.confidence)
    assert found.labeller.startswith("APPNP(")
    assert own.labeller.startswith("GCN(")
    one, two = build(seed=5), build(seed=5)
    history = ep.train(one, split, self_training=labeller, **SHORT)
    assert all(torch.equal(a, b) for a, b in zip(before, labeller.parameters(), strict=True))
    expected = ep.train(two, split, self_training=found, **SHORT)
    assert history.epochs == expected.epochs
    assert history.pseudo_labels is not None
    assert torch.equal(history.pseudo_labels.labels, found.labels)
    assert history.summary()["labeller"] == found.labeller


def test_a_labeller_that_does_not_fit_is_refused_before_anything_is_trained(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_training, "run_epochs", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(ValueError, match="expected model and features of one type"):
        ep.train(build(), split, self_training=build().double(), **SHORT)
    with pytest.raises(ValueError, match="expected logits of shape"):
        ep.train(build(), split, self_training=ep.models.build("GCN", 21, 1), **SHORT)
    with pytest.raises(ValueError, match="expected label models with the 2 classes of the model, got 5 from GCN"):
        ep.train(build(), split, self_training=ep.models.build("GCN", 21, 5), **SHORT)
    # Enough for the labelled nodes, not for all that will have labels.
    everyone = torch.arange(split.train.data.num_nodes)
    sizes = [
        2 * ep.Budget.from_epsilon(view.data, nodes, 0.15).total
        for view, nodes in ((split.train, everyone), (split.train, split.train.nodes), (split.val, split.val.nodes))
    ]
    assert sizes[0] > max(sizes[1:]) + 1
    threat: dict[str, Any] = {"attack": ep.attacks.LRBCD(block_size=sizes[0] - 1), "epsilon": 0.15}
    with pytest.raises(ValueError, match="expected block_size >= twice the budget"):
        ep.train(build(), split, self_training=build("APPNP"), **threat, **SHORT)


def test_models_that_failed_have_no_vote(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = self_training.run_epochs
    trained: list[nn.Module] = []

    def failing(model: nn.Module, *arguments: Any, **options: Any) -> ep.training.History:
        history = fit(model, *arguments, **options)
        if len(trained) == 2:
            with torch.no_grad():
                for parameter in list(model.parameters())[-2:]:
                    parameter.neg_()
        trained.append(model)
        return history

    monkeypatch.setattr(self_training, "run_epochs", failing)
    found = pseudo_labels(build("MLP"), split, label_models=3, **SHORT)
    assert found.voters == (0, 1)
    mean = torch.stack([ep.models.predict(trained[index], split.train.data).softmax(dim=1) for index in (0, 1)]).mean(0)
    confidence, labels = mean[split.train.unlabeled].max(dim=1)
    assert torch.equal(found.labels[split.train.unlabeled], labels)
    assert torch.equal(found.confidence[split.train.unlabeled], confidence)
    assert len({history.config.seed for history in found.histories}) == 3
    # Validated together, not one by one.
    answers = torch.stack([ep.models.predict(trained[index], split.val.data).softmax(dim=1) for index in (0, 1)]).mean(
        0
    )
    nodes = split.val.nodes
    assert found.val_accuracy == float(losses.accuracy(answers[nodes], split.val.data.y[nodes]))


def test_label_models_have_settings_of_their_own(split: Split) -> None:
    found = pseudo_labels(
        build(),
        split,
        label_models=2,
        label_weight_decay=0.3,
        averaging=0.9,
        warm_start=True,
        min_epochs=30,
        validate_every=7,
        loss="tanh_margin",
        **SHORT,
    )
    for index, history in enumerate(found.histories):
        config = history.config
        assert (config.loss, config.weight_decay, config.averaging, config.warmup_epochs) == (
            "cross_entropy",
            0.3,
            0.0,
            0,
        )
        assert not config.warm_start
        assert (config.min_epochs, config.validate_every) == (0, 1)
        assert config.seed == 1_000_000 + index


@pytest.mark.parametrize(("lead", "voters"), [(0.05, (0, 1)), (0.15, (0,))])
def test_ten_points_behind_the_best_there_is_no_vote(
    lead: float, voters: tuple[int, ...], split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.8, 0.8 - lead, 0.8, 0.8, 0.8])
    monkeypatch.setattr(losses, "accuracy", lambda *_: torch.tensor(next(accuracies, 0.8)))
    monkeypatch.setattr(self_training, "run_epochs", lambda *_, **__: None)
    assert (
        self_training.vote(
            build(), split, TrainConfig(label_models=2), checkpoint=None, checkpoint_every=1, show=False
        ).voters
        == voters
    )


def test_labels_no_better_than_chance_come_with_a_warning(split: Split) -> None:
    with pytest.warns(LabelWarning, match="little better than a constant answer") as caught:
        found = pseudo_labels(build(), split, max_epochs=1, lr=0.0, progress=False)
    assert found.doubt == str(caught[0].message)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pseudo_labels(build(), split, **SHORT)


@pytest.mark.parametrize(("accuracy", "doubted"), [(0.89, True), (0.91, False)])
def test_where_one_answer_is_right_most_often_half_of_the_rest_is_enough(
    accuracy: float, doubted: bool, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant answer has 80 %, and no model could be right one and a half times as often."""
    data, nodes = split.val.data.clone(), split.val.nodes
    data.y = data.y.index_fill(0, nodes, 0).index_fill(0, nodes[: nodes.numel() // 5], 1)
    monkeypatch.setattr(losses, "accuracy", lambda *_: torch.tensor(accuracy))
    monkeypatch.setattr(self_training, "run_epochs", lambda *_, **__: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        skewed = replace(split, val=replace(split.val, data=data))
        self_training.vote(build(), skewed, TrainConfig(), checkpoint=None, checkpoint_every=1, show=False)
    assert [one.category for one in caught] == [LabelWarning] * doubted


def test_the_largest_seed_has_label_models_too(split: Split) -> None:
    found = pseudo_labels(build(), split, seed=2**32 - 1, **SHORT)
    assert found.histories[0].config.seed == 999_999


def test_without_unlabelled_nodes_there_is_no_self_training() -> None:
    split = ep.splits.provided(ep.datasets.csbm(), test_on_val=True)
    with pytest.raises(ValueError, match="expected unlabelled training nodes for self-training, got none"):
        ep.train(build(), split, self_training=True, **SHORT)


def test_labels_of_another_split_are_refused(sbm: Data, split: Split) -> None:
    found = pseudo_labels(build(), split, **SHORT)
    other = ep.splits.inductive(sbm, seed=1, train_per_class=10, val_per_class=20, test_share=0.3)
    with pytest.raises(ValueError, match=r"expected pseudo-labels of the \d+ training nodes"):
        ep.train(build(), other, self_training=found, **SHORT)
    wrong = replace(found, labels=1 - found.labels)
    with pytest.raises(ValueError, match="they disagree with its known labels"):
        ep.train(build(), split, self_training=wrong, **SHORT)


def test_labels_that_are_no_classes_are_refused(split: Split) -> None:
    found, (node, *_) = pseudo_labels(build(), split, **SHORT), split.train.unlabeled
    for odd in (-1, 2):
        wrong = replace(found, labels=found.labels.index_fill(0, node, odd))
        with pytest.raises(
            ValueError, match=f"expected pseudo-labels from 0 to 1, the classes of the model, got {odd}"
        ):
            ep.train(build(), split, self_training=wrong, **SHORT)
    with pytest.raises(TypeError, match=r"expected pseudo-labels as int64, got torch.float32"):
        ep.train(build(), split, self_training=replace(found, labels=found.labels.float()), **SHORT)


def test_another_model_of_the_same_kind() -> None:
    model = build("GPRGNN").double()
    one, two, three = another(model, 1), another(model, 1), another(model, 2)
    assert repr(one) == repr(model)
    assert next(one.parameters()).dtype == torch.float64
    state = torch.get_rng_state()
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
        assert not torch.equal(value, three.state_dict()[name]) or value.abs().max() == 0
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(0)
    theirs = PyGGCN(21, 8, 2, 2)
    again = another(theirs, 1)
    weights = [(a, b) for a, b in zip(theirs.parameters(), again.parameters(), strict=True) if a.dim() > 1]
    assert all(not torch.equal(a, b) for a, b in weights)


def test_parts_that_cannot_be_reset_are_named() -> None:
    class Wrapper(nn.Module):
        def __init__(self, *, own: bool) -> None:
            super().__init__()
            self.inner, self.last = build("GPRGNN"), nn.Linear(2, 2)
            if own:
                self.scale = nn.Parameter(torch.ones(2))
                self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Wrapper(own=False)
        again = another(model, 1)
    assert isinstance(again, Wrapper)
    assert not torch.equal(again.inner.gamma, model.inner.gamma)
    assert not torch.equal(again.last.weight, model.last.weight)
    with pytest.warns(LabelWarning, match="^scale of Wrapper keep their values"):
        another(Wrapper(own=True), 1)


def test_what_is_frozen_stays_as_it_was() -> None:
    """Somebody has trained it before; with the running means of a part that is frozen as a whole."""
    own = build("GPRGNN")
    assert isinstance(own, ep.models.GPRGNN)
    own.gamma.requires_grad_(False)
    trained = nn.Sequential(nn.Linear(21, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).requires_grad_(False)
    trained(torch.randn(9, 21))

    class FromTheTop(nn.Sequential):
        def reset_parameters(self) -> None:
            for part in self.modules():
                if part is not self and hasattr(part, "reset_parameters"):
                    part.reset_parameters()

    parent = FromTheTop(copy.deepcopy(trained), nn.Linear(4, 2))
    inside = another(parent, 1)
    for name, value in parent.state_dict().items():
        assert torch.equal(inside.state_dict()[name], value) == name.startswith("0."), name
    theirs = nn.Sequential(trained, nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2), own)
    theirs[1](torch.randn(9, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, alone = another(theirs, 1), another(own, 1)
    assert isinstance(again, nn.Sequential)
    for name, value in trained.state_dict().items():
        assert torch.equal(again[0].state_dict()[name], value), name
    assert not torch.equal(again[1].running_mean, theirs[1].running_mean)
    assert not torch.equal(again[2].weight, theirs[2].weight)
    for model in (again[3], alone):
        assert isinstance(model, ep.models.GPRGNN)
        assert torch.equal(model.gamma, own.gamma)
        assert not torch.equal(model.mlp.layers[0].weight, own.mlp.layers[0].weight)
    flags = [parameter.requires_grad for parameter in theirs.parameters()]
    assert [parameter.requires_grad for parameter in again.parameters()] == flags


def test_the_papers_settings_of_label_models() -> None:
    assert (TrainConfig().label_models, TrainConfig().label_weight_decay) == (1, 0.0)


def test_hidden_labels_have_no_say(sbm: Data) -> None:
    """Neither in the labels nor in who votes."""
    found = []
    for lies in (False, True):
        split = ep.splits.inductive(sbm, seed=0)
        if lies:
            for view in (split.train, split.val):
                hidden = torch.ones(view.data.num_nodes, dtype=torch.bool)
                hidden[view.nodes] = False
                view.data.y = torch.where(hidden, 1 - view.data.y, view.data.y)
        found.append(pseudo_labels(build(), split, label_models=3, **{**SHORT, "max_epochs": 15, "patience": 15}))
    one, two = found
    assert torch.equal(one.labels, two.labels)
    assert torch.equal(one.confidence, two.confidence)
    assert (one.voters, one.val_accuracy) == (two.voters, two.val_accuracy)
    assert one.accuracy == pytest.approx(1 - two.accuracy)


@pytest.mark.parametrize(("self_training", "who"), [(True, "label model 1 of 2, before"), (False, "the warm-up: ")])
def test_it_is_said_which_model_failed(self_training: bool, who: str, sbm: Data) -> None:
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    split = ep.splits.inductive(sbm, seed=0)
    with pytest.raises(FloatingPointError, match=f"^{who}.*no longer finite"):
        ep.train(model, split, self_training=self_training, label_models=2, lr=1e30, **SHORT)
    if self_training:
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
