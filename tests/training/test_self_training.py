"""Self-training: label models, votes, pseudo-labels, warnings and errors."""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from instrumented_models import counting, untrainable
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof import losses
from edgeproof.models import PAPER_SETTINGS
from edgeproof.splits import Split
from edgeproof.training import LabelWarning, TrainConfig, pseudo_labels
from edgeproof.training.self_training import beats_constant, reinitialized_copy, select_voters

SHORT: dict[str, Any] = {"preset": "paper", "max_epochs": 60, "patience": 60, "progress": False}


def build(name: str = "GCN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {**PAPER_SETTINGS.get(name, {}), "hidden_channels": 8}, seed=seed)


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_labels_confidence_and_accuracy(setting: str, sbm: Data) -> None:
    split = getattr(ep.splits, setting)(sbm, seed=0)
    model = build()
    before = [parameter.clone() for parameter in model.parameters()]
    found = pseudo_labels(model, split, **SHORT)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    train = split.train
    assert found.labels.shape == found.confidence.shape == (train.data.num_nodes,)
    assert torch.equal(found.labels[train.nodes], train.data.y[train.nodes])
    assert bool((found.confidence[train.nodes] == 1).all())
    at_others = found.confidence[train.unlabeled]
    assert bool(((at_others >= 0.5) & (at_others < 1)).all())
    expected = float((found.labels[train.unlabeled] == train.data.y[train.unlabeled]).double().mean())
    assert found.accuracy == expected > 0.8
    # The label model is trained with cross-entropy and without weight decay.
    label_model = reinitialized_copy(model, seed=1_000_000)
    history = ep.train(
        label_model,
        split,
        loss="cross_entropy",
        weight_decay=0.0,
        warmup_epochs=0,
        separate_warmup=False,
        seed=1_000_000,
        **SHORT,
    )
    logits = ep.models.predict(label_model, train.data)
    assert torch.equal(found.labels[train.unlabeled], logits.argmax(dim=1)[train.unlabeled])
    assert torch.allclose(at_others, logits.softmax(dim=1).amax(dim=1)[train.unlabeled])
    assert found.histories == (history,)
    on_val = ep.models.predict(label_model, split.val.data)[split.val.nodes]
    assert found.val_accuracy == float(losses.accuracy(on_val, split.val.data.y[split.val.nodes]))
    assert "1 of 1 models" in repr(found)


@pytest.mark.parametrize("every", [1, 2])
def test_unknown_labels_change_only_reported_accuracy(every: int, split: Split) -> None:
    short = {**SHORT, "max_epochs": 20}
    graph, unlabeled = split.train.data.clone(), split.train.unlabeled
    graph.y[unlabeled[::every]] = -1
    blind = replace(split, train=replace(split.train, data=graph))
    expected, found = (pseudo_labels(build(), parts, **short) for parts in (split, blind))
    assert torch.equal(expected.labels, found.labels)
    if every == 1:
        assert found.accuracy is None
        assert "unknown at unlabelled nodes" in repr(found)
    else:
        known = unlabeled[1::2]
        assert found.accuracy == float((found.labels[known] == graph.y[known]).double().mean())
    for stage, nodes in (("train", split.train.nodes), ("val", split.val.nodes)):
        view = getattr(split, stage)
        wrong = replace(view, data=view.data.clone())
        wrong.data.y[nodes[3]] = -1
        with pytest.raises(ValueError, match=f"labelled nodes, got 1 with label -1, such as node {int(nodes[3])}"):
            ep.train(build(), replace(split, **{stage: wrong}), **short)
    threat = {"attack": ep.attacks.LRBCD(steps=2, block_size=100), "epsilon": 0.1}
    histories = [ep.train(build(seed=5), parts, self_training=True, **threat, **short) for parts in (split, blind)]
    assert histories[0].epochs == histories[1].epochs
    assert histories[1].summary()["label_accuracy"] == found.accuracy


def test_interrupted_label_model_resumes(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    interrupted, whole, resumed = (
        counting("GCN", interrupt_at=step)(21, 2, hidden_channels=8) for step in (40, None, None)
    )
    expected = pseudo_labels(whole, split, **SHORT)
    with pytest.raises(KeyboardInterrupt):
        pseudo_labels(interrupted, split, checkpoint=path, checkpoint_every=40, **SHORT)
    found = pseudo_labels(resumed, split, checkpoint=path, checkpoint_every=40, **SHORT)
    assert resumed.steps == 20  # type: ignore[attr-defined]
    assert torch.equal(found.labels, expected.labels)
    assert torch.equal(found.confidence, expected.confidence)
    ep.training.remove_checkpoints(path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="expected checkpoint_every to be an integer >= 1, got 0"):
        pseudo_labels(build(), split, checkpoint=path, checkpoint_every=0, **SHORT)


def test_label_models_have_different_initial_coefficients(split: Split) -> None:
    model = ep.models.build("GPRGNN", 21, 2, {"init": "random", "init_seed": 3}, seed=0)
    assert isinstance(model, ep.models.GPRGNN)
    gammas = [model.gamma, *(reinitialized_copy(model, seed).gamma for seed in (1, 2))]
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(gammas, 2))


def test_final_model_is_trained_on_all_nodes(split: Split) -> None:
    """The result equals clean training with the pseudo-labels as true labels."""
    found = pseudo_labels(build(), split, **SHORT)
    all_nodes = torch.arange(split.train.data.num_nodes)
    data = Data(x=split.train.data.x, edge_index=split.train.data.edge_index, y=found.labels)
    relabelled = replace(split, train=replace(split.train, data=data, nodes=all_nodes, unlabeled=all_nodes[:0]))
    model, reference = build(seed=5), build(seed=5)
    # A separate warm-up uses the labelled nodes only, which differ.
    options = {**SHORT, "separate_warmup": False}
    history = ep.train(model, split, self_training=found, **options)
    expected = ep.train(reference, relabelled, **options)
    assert history.epochs == expected.epochs
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters(), strict=True))
    switched = ep.train(build(seed=5), split, self_training=True, **options)
    assert switched.epochs == history.epochs
    assert switched.pseudo_labels is not None
    assert torch.equal(switched.pseudo_labels.labels, found.labels)
    assert switched.summary()["label_accuracy"] == found.accuracy


def test_label_models_of_another_architecture(split: Split) -> None:
    label_model = build("APPNP", seed=3)
    before = [parameter.clone() for parameter in label_model.parameters()]
    found = pseudo_labels(label_model, split, **SHORT)
    own = pseudo_labels(build(), split, **SHORT)
    assert not torch.equal(found.confidence, own.confidence)
    assert found.label_model.startswith("APPNP(")
    assert own.label_model.startswith("GCN(")
    history = ep.train(build(seed=5), split, self_training=label_model, **SHORT)
    assert all(torch.equal(a, b) for a, b in zip(before, label_model.parameters(), strict=True))
    expected = ep.train(build(seed=5), split, self_training=found, **SHORT)
    assert history.epochs == expected.epochs
    assert history.pseudo_labels is not None
    assert torch.equal(history.pseudo_labels.labels, found.labels)
    assert history.summary()["label_model"] == found.label_model


def test_unsuitable_label_model_raises_before_training(split: Split) -> None:
    label_model = untrainable("GCN")
    with pytest.raises(ValueError, match="expected model and features of one dtype"):
        ep.train(build(), split, self_training=label_model(21, 2).double(), **SHORT)
    with pytest.raises(ValueError, match="expected logits of shape"):
        ep.train(build(), split, self_training=label_model(21, 1), **SHORT)
    with pytest.raises(
        ValueError, match="expected label models with the 2 classes of the model, got 5 from Untrainable"
    ):
        ep.train(build(), split, self_training=label_model(21, 5), **SHORT)
    # A block large enough for the budget of the labelled nodes and too small for that of all nodes.
    all_nodes = torch.arange(split.train.data.num_nodes)
    sizes = [
        2 * ep.Budget.from_epsilon(view.data, nodes, 0.15).total
        for view, nodes in ((split.train, all_nodes), (split.train, split.train.nodes), (split.val, split.val.nodes))
    ]
    assert sizes[0] > max(sizes[1:]) + 1
    threat: dict[str, Any] = {"attack": ep.attacks.LRBCD(block_size=sizes[0] - 1), "epsilon": 0.15}
    with pytest.raises(ValueError, match="expected block_size >= twice the budget"):
        ep.train(build(), split, self_training=untrainable("APPNP")(21, 2), **threat, **SHORT)


def test_failed_label_models_do_not_vote(split: Split) -> None:
    class FailingMLP(nn.Module):
        """MLP of which the third copy predicts the wrong class in evaluation mode."""

        copies = 0

        def __init__(self) -> None:
            super().__init__()
            self.mlp = build("MLP")
            self.register_buffer("sign", torch.ones(()))

        def reset_parameters(self) -> None:
            FailingMLP.copies += 1
            self.sign.fill_(-1 if FailingMLP.copies == 3 else 1)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            logits: Tensor = self.mlp(x, edge_index)
            return logits if self.training else self.sign * logits

    found = pseudo_labels(FailingMLP(), split, label_models=3, **SHORT)
    assert found.voters == (0, 1)
    assert len({history.config.seed for history in found.histories}) == 3

    voters = [reinitialized_copy(build("MLP"), 1_000_000 + index) for index in (0, 1)]
    options = {"loss": "cross_entropy", "weight_decay": 0.0, "warmup_epochs": 0, **SHORT}
    for index, voter in enumerate(voters):
        history = ep.train(voter, split, seed=1_000_000 + index, **options)
        assert history.epochs == found.histories[index].epochs

    def mean_probabilities(view: ep.splits.View) -> Tensor:
        return torch.stack([ep.models.predict(voter, view.data).softmax(dim=1) for voter in voters]).mean(0)

    confidence, labels = mean_probabilities(split.train)[split.train.unlabeled].max(dim=1)
    assert torch.equal(found.labels[split.train.unlabeled], labels)
    assert torch.equal(found.confidence[split.train.unlabeled], confidence)
    # The validation accuracy is that of the mean prediction.
    nodes = split.val.nodes
    accuracy = losses.accuracy(mean_probabilities(split.val)[nodes], split.val.data.y[nodes])
    assert found.val_accuracy == float(accuracy)


def test_settings_of_label_models(split: Split) -> None:
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


@pytest.mark.parametrize(("gap", "voters"), [(0.05, (0, 1)), (0.15, (0,))])
def test_models_ten_points_below_the_best_do_not_vote(gap: float, voters: tuple[int, ...]) -> None:
    assert select_voters([0.8, 0.8 - gap]) == voters


def test_labels_hardly_better_than_constant_prediction_give_warning(split: Split) -> None:
    with pytest.warns(LabelWarning, match="^EP101: .*hardly better than a constant prediction") as caught:
        found = pseudo_labels(build(), split, preset="paper", max_epochs=1, lr=0.0, progress=False)
    assert found.warning == str(caught[0].message)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pseudo_labels(build(), split, **SHORT).warning is None


@pytest.mark.parametrize(
    ("accuracy", "constant_accuracy", "expected"),
    [(0.74, 0.5, False), (0.76, 0.5, True), (0.89, 0.8, False), (0.91, 0.8, True)],
)
def test_label_models_are_compared_with_constant_prediction(
    accuracy: float, constant_accuracy: float, expected: bool
) -> None:
    """If a constant prediction has 80 % accuracy, a factor of 1.5 is impossible; half of its errors must be corrected
    instead."""
    assert beats_constant(accuracy, constant_accuracy) is expected


def test_largest_seed_has_label_models(split: Split) -> None:
    found = pseudo_labels(build(), split, seed=2**32 - 1, **SHORT)
    assert found.histories[0].config.seed == 999_999


def test_split_without_unlabelled_nodes_raises() -> None:
    split = ep.splits.provided(ep.datasets.csbm(), test_on_val=True)
    with pytest.raises(ValueError, match="expected unlabelled training nodes for self-training, got none"):
        ep.train(build(), split, self_training=True, **SHORT)


def test_pseudo_labels_of_another_split_raise(sbm: Data, split: Split) -> None:
    found = pseudo_labels(build(), split, **SHORT)
    other = ep.splits.inductive(sbm, seed=1, train_per_class=10, val_per_class=20, test_share=0.3)
    with pytest.raises(ValueError, match=r"expected pseudo-labels of the \d+ training nodes"):
        ep.train(build(), other, self_training=found, **SHORT)
    wrong = replace(found, labels=1 - found.labels)
    with pytest.raises(ValueError, match="that differ from its known labels"):
        ep.train(build(), split, self_training=wrong, **SHORT)


def test_pseudo_labels_out_of_range_raise(split: Split) -> None:
    found, (node, *_) = pseudo_labels(build(), split, **SHORT), split.train.unlabeled
    for invalid in (-1, 2):
        wrong = replace(found, labels=found.labels.index_fill(0, node, invalid))
        with pytest.raises(
            ValueError, match=f"expected pseudo-labels from 0 to 1, the classes of the model, got {invalid}"
        ):
            ep.train(build(), split, self_training=wrong, **SHORT)
    with pytest.raises(TypeError, match=r"expected pseudo-labels as int64, got torch.float32"):
        ep.train(build(), split, self_training=replace(found, labels=found.labels.float()), **SHORT)


def test_reinitialized_copy_has_new_parameters() -> None:
    model = build("GPRGNN").double()
    state = torch.get_rng_state()
    copies = [reinitialized_copy(model, seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert repr(copies[0]) == repr(model)
    assert next(copies[0].parameters()).dtype == torch.float64
    first, same_seed, other_seed = (module.state_dict() for module in copies)
    for name, value in first.items():
        assert torch.equal(value, same_seed[name])
        assert not torch.equal(value, other_seed[name]) or value.abs().max() == 0
    torch.manual_seed(0)
    pyg_model = PyGGCN(21, 8, 2, 2)
    pyg_copy = reinitialized_copy(pyg_model, 1)
    weights = [(a, b) for a, b in zip(pyg_model.parameters(), pyg_copy.parameters(), strict=True) if a.dim() > 1]
    assert all(not torch.equal(a, b) for a, b in weights)


def test_parameters_that_cannot_be_reset_are_named() -> None:
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
        fresh = reinitialized_copy(model, 1)
    assert isinstance(fresh, Wrapper)
    assert not torch.equal(fresh.inner.gamma, model.inner.gamma)
    assert not torch.equal(fresh.last.weight, model.last.weight)
    with pytest.warns(LabelWarning, match="^EP103: label models start with the current values of scale of Wrapper"):
        reinitialized_copy(Wrapper(own=True), 1)


def test_reinitialized_copy_keeps_frozen_parameters_and_buffers() -> None:
    """Frozen modules also keep their buffers, such as running means."""
    own = build("GPRGNN")
    assert isinstance(own, ep.models.GPRGNN)
    own.gamma.requires_grad_(False)
    trained = nn.Sequential(nn.Linear(21, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).requires_grad_(False)
    trained(torch.randn(9, 21))

    class RecursiveReset(nn.Sequential):
        def reset_parameters(self) -> None:
            for module in self.modules():
                if module is not self and hasattr(module, "reset_parameters"):
                    module.reset_parameters()

    parent = RecursiveReset(copy.deepcopy(trained), nn.Linear(4, 2))
    inside = reinitialized_copy(parent, 1)
    for name, value in parent.state_dict().items():
        assert torch.equal(inside.state_dict()[name], value) == name.startswith("0."), name
    user_model = nn.Sequential(trained, nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2), own)
    user_model[1](torch.randn(9, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh, fresh_own = reinitialized_copy(user_model, 1), reinitialized_copy(own, 1)
    assert isinstance(fresh, nn.Sequential)
    for name, value in trained.state_dict().items():
        assert torch.equal(fresh[0].state_dict()[name], value), name
    assert not torch.equal(fresh[1].running_mean, user_model[1].running_mean)
    assert not torch.equal(fresh[2].weight, user_model[2].weight)
    for model in (fresh[3], fresh_own):
        assert isinstance(model, ep.models.GPRGNN)
        assert torch.equal(model.gamma, own.gamma)
        assert not torch.equal(model.mlp.layers[0].weight, own.mlp.layers[0].weight)
    flags = [parameter.requires_grad for parameter in user_model.parameters()]
    assert [parameter.requires_grad for parameter in fresh.parameters()] == flags


def test_default_settings_of_label_models_are_the_papers() -> None:
    assert (TrainConfig().label_models, TrainConfig().label_weight_decay) == (1, 0.0)


def test_hidden_labels_do_not_affect_pseudo_labels(sbm: Data) -> None:
    """Hidden labels affect neither the pseudo-labels nor the selection of label models."""
    found = []
    for is_wrong in (False, True):
        split = ep.splits.inductive(sbm, seed=0)
        if is_wrong:
            for view in (split.train, split.val):
                hidden = torch.ones(view.data.num_nodes, dtype=torch.bool)
                hidden[view.nodes] = False
                view.data.y = torch.where(hidden, 1 - view.data.y, view.data.y)
        found.append(pseudo_labels(build(), split, label_models=3, **{**SHORT, "max_epochs": 15, "patience": 15}))
    expected, changed = found
    assert torch.equal(expected.labels, changed.labels)
    assert torch.equal(expected.confidence, changed.confidence)
    assert (expected.voters, expected.val_accuracy) == (changed.voters, changed.val_accuracy)
    assert expected.accuracy == pytest.approx(1 - changed.accuracy)


@pytest.mark.parametrize(("self_training", "phase"), [(True, "label model 1 of 2, before"), (False, "warm-up: ")])
def test_non_finite_training_names_label_model_or_warmup(self_training: bool, phase: str, sbm: Data) -> None:
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    split = ep.splits.inductive(sbm, seed=0)
    with pytest.raises(FloatingPointError, match=f"^{phase}.*no longer finite"):
        ep.train(model, split, self_training=self_training, label_models=2, lr=1e30, **SHORT)
    if self_training:
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
