"""Execution of a run: its split, its model, its training, and models as bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data

from edgeproof import models, splits
from edgeproof.experiments.graphs import is_local, load_graph
from edgeproof.experiments.spec import ModelSpec, SplitSpec, resolve
from edgeproof.experiments.sweep import Run
from edgeproof.graph import num_classes
from edgeproof.models import io as model_io
from edgeproof.models.factory import Factory, build_own, load_factory
from edgeproof.splits import Split
from edgeproof.training import History, pseudo_labels, train


def make_split(run: Run, data: Data) -> Split:
    """Return the split of a run: its rule applied with its seed."""
    spec: SplitSpec = run.split
    if spec.kind == "provided":
        mask = data.get("train_mask")
        index = 0 if mask is None or mask.dim() == 1 else run.seed % int(mask.size(1))
        return splits.provided(data, index, test_on_val=spec.test_on_val)
    train, val = spec.train_per_class, spec.val_per_class
    if spec.kind == "transductive":
        return splits.transductive(data, run.seed, train_per_class=train, val_per_class=val)
    if spec.protocol == "as_released":
        name, protocol = run.model.name, spec.protocol
        return splits.by_protocol(data, run.seed, model=name, protocol=protocol, per_class=train)
    split = splits.inductive(data, run.seed, train_per_class=train, val_per_class=val, test_share=spec.test_fraction)
    split.check_unseen()
    return split


def check_runs(runs: Iterable[Run]) -> None:
    """Raise for models that cannot be imported and for splits that do not fit their graph, before any training.

    Graphs that would have to be downloaded are not checked.
    """
    runs = list(runs)
    for name in dict.fromkeys(run.model.name for run in runs if run.model.is_factory):
        load_factory(name)
    first = {(run.graph, run.split, run.model.name if run.split.protocol == "as_released" else ""): run for run in runs}
    for run in first.values():
        if is_local(run.dataset):
            try:
                make_split(run, load_graph(*run.graph))
            except (ValueError, AttributeError) as error:
                raise ValueError(f"invalid {run.split.kind} split of {run.dataset.label}: {error}") from error


def build_model(
    spec: ModelSpec, in_channels: int, out_channels: int, seed: int | None = None, factory: Factory | None = None
) -> nn.Module:
    """Return a new model whose initial parameters depend on ``seed`` alone.

    Args:
        spec: The architecture.
        in_channels: Number of features per node.
        out_channels: Number of classes.
        seed: Seed of the initial parameters; without it they come from torch's global generator.
        factory: The factory that ``spec`` names; imported by default.
    """
    settings = dict(spec.settings)
    if not spec.is_factory:
        return models.build(spec.name, in_channels, out_channels, settings, seed=seed)
    return build_own(spec.name, in_channels, out_channels, settings, seed=seed, factory=factory)


def train_run(
    run: Run, split: Split, device: str, checkpoint: Path | None = None, factory: Factory | None = None
) -> tuple[nn.Module, History]:
    """Train the model of a run.

    Args:
        run: Specification of the run.
        split: The split of the run.
        device: Device to train on.
        checkpoint: Checkpoint file; an unfinished training resumes from it.
        factory: The factory of the model; imported by default.

    Returns:
        The trained model, and the history of its training.
    """
    split = split.to(device)
    sizes = split.train.data.num_features, num_classes(split.test.data)
    model = build_model(run.model, *sizes, run.training_seed, factory).to(device)
    training = resolve(run.training).with_seed(run.training_seed)
    preset = training.preset
    labels: Any = False
    if preset.self_training:
        label_model = model
        if preset.label_model is not None:
            settings = dict(preset.label_model_settings)
            label_model = models.build(preset.label_model, *sizes, settings, seed=run.training_seed).to(device)
        labels = pseudo_labels(label_model, split, preset=training.label_config, checkpoint=checkpoint, progress=False)
    history = train(model, split, self_training=labels, preset=preset, checkpoint=checkpoint, progress=False)
    return model, history


def model_to_bytes(model: nn.Module, spec: ModelSpec, in_channels: int, out_channels: int) -> bytes:
    """Return the content of a safetensors file with the model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        if not spec.is_factory:
            model_io.save(model, path)
        else:
            model_io.save_own(model, path, spec.name, in_channels, out_channels, dict(spec.settings))
        return path.read_bytes()


def model_from_bytes(content: bytes, spec: ModelSpec, factory: Factory | None = None) -> nn.Module:
    """Return the model that :func:`model_to_bytes` wrote, in evaluation mode; raises ``ValueError`` for damaged content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        if not spec.is_factory:
            return model_io.load(path)
        return model_io.load_own(path, spec.name, factory)
