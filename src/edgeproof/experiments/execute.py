"""Execution of a run: its split, its model, its training, and models as bytes."""

from __future__ import annotations

import importlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from edgeproof import models, splits
from edgeproof._names import look_up
from edgeproof.experiments.graphs import is_local, load_graph
from edgeproof.experiments.spec import ModelSpec, SplitSpec, resolve
from edgeproof.experiments.sweep import Run
from edgeproof.graph import num_classes
from edgeproof.models import io as model_io
from edgeproof.serialization import read_tensors, write_tensors
from edgeproof.splits import Split
from edgeproof.training import History, pseudo_labels, train

Factory = Callable[..., nn.Module]


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


def load_factory(name: str) -> Factory:
    """Import the function given as ``module:factory``, from the current folder or an installed module.

    Raises:
        ImportError: If the module cannot be imported; the message has the file and line of the error.
        ValueError: If the name is not of this form, or the module has no such function.
    """
    module_name, _, factory_name = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not factory_name.isidentifier():
        raise ValueError(f"expected module:factory, such as my_models:build, got {name!r}")
    # As `python -m` does: the current folder comes first.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        # A user's module may raise anything.
        raise ImportError(f"cannot import {module_name!r} of {name!r}: {_describe(error)}") from error
    finally:
        sys.path.remove("")
    functions = {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}
    factory: Factory = look_up(f"function of {module_name}", factory_name, functions)
    return factory


def _describe(error: BaseException) -> str:
    """Return type, message and place of an error in a user's module."""
    if isinstance(error, (ImportError, SyntaxError)):
        # Their messages have the name of the module, or file and line.
        return f"{type(error).__name__}: {error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"


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
    make = load_factory(spec.name) if factory is None else factory
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            model = make(in_channels, out_channels, **settings)
        except Exception as error:
            raise ValueError(f"{spec.label} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected {spec.name} to return a torch.nn.Module, got {type(model).__name__}")
    return model


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
            tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
            header = {"factory": spec.name, "settings": dict(spec.settings), "sizes": [in_channels, out_channels]}
            write_tensors(path, tensors, header)
        return path.read_bytes()


def model_from_bytes(content: bytes, spec: ModelSpec, factory: Factory | None = None) -> nn.Module:
    """Return the model that :func:`model_to_bytes` wrote, in evaluation mode; raises ``ValueError`` for damaged content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        if not spec.is_factory:
            return model_io.load(path)
        header, tensors = read_tensors(path)
    try:
        in_channels, out_channels = header["sizes"]
        model = build_model(spec, in_channels, out_channels, 0, factory)
        model.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"the stored parameters do not fit {spec.label}: {error}") from error
    return model.eval()
