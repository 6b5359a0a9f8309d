"""Target of ``attack``, ``evaluate`` and ``certify``: a model, and the graph and nodes it is tested on."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._catalog import SPLITS
from edgeproof._checks import check_non_negative
from edgeproof._files import check_outputs, is_graph_file
from edgeproof._names import look_up
from edgeproof.cli._options import check_dataset, check_name
from edgeproof.cli._printing import command_line
from edgeproof.datasets import Fixes
from edgeproof.datasets.registry import source_files
from edgeproof.evaluation.result import (
    Result,
    Score,
    describe_environment,
    describe_file,
    describe_model,
    describe_split,
)
from edgeproof.report import describe_filter
from edgeproof.splits import Split


@dataclass(frozen=True)
class GraphSource:
    """Source of a graph.

    Args:
        name: Name or path of the dataset.
        fixes: Changes of the edges of a file.
        path: Path of the file if it is not at ``name``.
    """

    name: str
    fixes: Fixes
    path: str | None = None

    def load(self, root: Path | None, *, largest_component: bool = True) -> Data:
        """Load the graph."""
        return ep.datasets.load(self.path or self.name, root, largest_component=largest_component, **asdict(self.fixes))


@dataclass(frozen=True)
class EvalTarget:
    """Model, and the split it is tested on.

    Args:
        model: Model in evaluation mode, on the device.
        split: Split with the test nodes.
        graph: Source of the graph.
        training: Training settings from the model's result file; empty if there is none.
        seen: Number of test nodes in the training or validation graph; None if unknown.
    """

    model: nn.Module
    split: Split
    graph: GraphSource
    training: dict[str, Any]
    seen: int | None

    @property
    def dataset(self) -> str:
        """Name or path of the dataset."""
        return self.graph.name


def check_target(
    model: str, dataset: str | None, split: str | None, epsilons: list[float], fixes: Fixes
) -> Result | None:
    """Check the options before anything is loaded, and return the result file beside the model, if there is one."""
    for epsilon in epsilons:
        check_non_negative(epsilon=epsilon)
    if len(set(epsilons)) != len(epsilons):
        raise ValueError(f"expected distinct epsilons, got {epsilons}")
    check_dataset(dataset)
    if dataset is None and fixes.names:
        raise ValueError(f"expected --{fixes.names[0].replace('_', '-')} together with --dataset, got None")
    check_name("split", split, SPLITS)
    path = Path(model)
    if not path.exists() and ":" not in model:
        raise FileNotFoundError(f"no model at {model}: expected a model file of edgeproof train, or module:factory")
    result_file = path.with_name(path.name + ".json")
    trained = Result.read(result_file) if path.exists() and result_file.exists() else None
    if dataset is None and trained is None:
        raise ValueError(f"expected --dataset, because there is no result file {result_file}")
    return trained


def load_target(
    model: str,
    dataset: str | None,
    split: str | None,
    split_seed: int | None,
    trained: Result | None,
    root: Path | None,
    device: torch.device,
    fixes: Fixes,
) -> EvalTarget:
    """Load the model and the graph; options that are None default to the model's result file."""
    network = load_model(model)
    if trained is not None:
        _check_fingerprint(network, model, trained)
    network = network.to(device).eval()
    if trained is not None and (dataset, split, split_seed) == (None, None, None):
        graph = _training_graph(trained)
        views = _training_split(trained, root, graph)
    else:
        # check_target has raised if both are None.
        graph = _training_graph(cast(Result, trained)) if dataset is None else GraphSource(dataset, fixes)
        moved = _moved_split(trained, root, graph) if (split, split_seed) == (None, None) else None
        recorded = trained.split if trained is not None else {}
        seed = split_seed if split_seed is not None else int(recorded.get("seed") or 0)
        setting = split or str(recorded.get("setting", "inductive"))
        views = moved or _make_split(graph.load(root), setting, "released", seed)
    seen = None if trained is None or trained.dataset != graph.name else _num_seen(trained, views, root)
    views = views.to(device)
    _check_model_fits(network, views.test.data)
    return EvalTarget(network, views, graph, trained.training if trained is not None else {}, seen)


def _check_fingerprint(network: nn.Module, model: str, trained: Result) -> None:
    """Raise unless the parameters are those that the result file of the model describes."""
    # Result files of edgeproof 0.1.0 may have no fingerprint.
    expected, found = trained.model.get("fingerprint"), describe_model(network)["fingerprint"]
    if expected not in (None, found):
        raise ValueError(
            f"{model} is not the model that its result file {model}.json describes: it has the fingerprint {found} instead of "
            f"{expected}. Train it again, or remove the result file and pass --dataset"
        )


def _num_seen(trained: Result, split: Split, root: Path | None) -> int | None:
    """Return the number of test nodes in the model's training or validation graph; None if its split is not available."""
    try:
        training_split = _training_split(trained, root, _training_graph(trained))
    except (ValueError, OSError):
        return None
    seen = torch.cat([training_split.train.ids, training_split.val.ids])
    return int(torch.isin(split.test.ids[split.test.nodes], seen).sum())


def _training_graph(trained: Result) -> GraphSource:
    """Return the source of the graph that a model was trained on; a file is searched where it was then."""
    if "file" not in trained.split:
        return GraphSource(trained.dataset, Fixes())
    recorded = trained.split["file"]
    path = next((path for path in (trained.dataset, recorded) if Path(path).exists()), None)
    if path is None:
        raise FileNotFoundError(
            f"no such file: {trained.dataset} (it was {recorded} when the model was trained); pass its new path as --dataset"
        )
    fixes = Fixes(**dict.fromkeys(trained.split["fixes"], True))
    return GraphSource(trained.dataset, fixes, path)


def _moved_split(trained: Result | None, root: Path | None, graph: GraphSource) -> Split | None:
    """Return the split that the model was trained on if it was the same graph in another file, else None."""
    if trained is None or "file" not in trained.split or not is_graph_file(graph.name):
        return None
    try:
        return _training_split(trained, root, graph)
    except (KeyError, ValueError):
        return None


def _training_split(trained: Result, root: Path | None, graph: GraphSource) -> Split:
    """Return the split that the model was trained on, or raise if it cannot be reconstructed from this graph."""
    rule, seed = str(trained.split["rule"]), int(trained.split["seed"] or 0)
    whole = graph.load(root, largest_component=False)
    for data in (ep.datasets.keep_largest_component(whole), whole):
        setting = "provided" if rule.startswith("provided") else trained.split["setting"]
        split = _make_split(data, setting, rule, seed)
        if split.fingerprint == trained.split["fingerprint"]:
            return split
    reason = "the file has changed since" if is_graph_file(graph.name) else "the graph may be a different version"
    raise ValueError(
        f"cannot reconstruct the split of {graph.name} that the model was trained on (rule {rule}, seed {seed}): {reason}. "
        "Choose a split with --dataset, --split and --split-seed; its test nodes may have been used in training"
    )


def _make_split(data: Data, setting: str, rule: str, seed: int) -> Split:
    match = re.fullmatch(r"provided\[(\d+)\](, tested on val)?", rule)
    index, test_on_val = (int(match[1]), match[2] is not None) if match else (0, False)
    splitters = {
        "inductive": lambda: (
            ep.splits.by_protocol(data, seed, model="GPRGNN", protocol=rule)
            if rule == "as_released"
            else ep.splits.inductive(data, seed, rule=rule)
        ),
        "transductive": lambda: ep.splits.transductive(data, seed, rule=rule),
        "provided": lambda: ep.splits.provided(data, index, test_on_val=test_on_val),
    }
    return look_up("split", setting, splitters)()


def result_of(
    target: EvalTarget,
    seed: int,
    device: torch.device,
    scores: tuple[Score, ...],
    threat: dict[str, Any],
    warnings: tuple[str, ...] = (),
) -> Result:
    """Return the content of the result file, including the provenance of the model and its test nodes."""
    return Result(
        command=command_line(),
        dataset=target.dataset,
        split={
            **describe_split(target.split),
            "test_nodes_seen": target.seen,
            **describe_file(target.graph.path or target.graph.name, target.graph.fixes),
        },
        model={**describe_model(target.model), **describe_filter(target.model, target.split.test.data)},
        training=target.training,
        seed=seed,
        scores=scores,
        environment=describe_environment(device),
        threat=threat,
        warnings=warnings,
    )


def check_target_outputs(
    outputs: Iterable[Path],
    model: str,
    dataset: str | None,
    trained: Result | None,
    root: Path | None,
    others: Iterable[Path] = (),
) -> None:
    """Raise unless all output files can be written and none of them is read.

    Args:
        outputs: Output files.
        model: Value of ``--model``.
        dataset: Value of ``--dataset``.
        trained: Result file of the model, if there is one.
        root: Folder of dataset archives.
        others: Further input files.
    """
    names = [] if dataset is None else [dataset]
    if trained is not None and "file" in trained.split:
        # The file may have moved since training.
        names += [name for name in (trained.dataset, str(trained.split["file"])) if Path(name).exists()]
    elif trained is not None:
        names.append(trained.dataset)
    graphs = [file for name in names for file in source_files(name, root)]
    check_outputs(outputs, [*_model_files(model), *graphs, *others])


def check_files(out: Path, graphs: Sequence[Path]) -> None:
    """Raise unless result and graphs can be written to different files, those of graphs ending in ``.npz``."""
    check_outputs((out, *graphs))
    for graph in graphs:
        if graph.suffix != ".npz":
            raise ValueError(f"expected a graph file that ends in .npz, got {graph}")


def _model_files(model: str) -> list[Path]:
    """Return the file of a model and its result file, or the file of the module with its factory."""
    if Path(model).exists():
        return [Path(model), Path(model + ".json")]
    name = model.partition(":")[0].replace(".", "/")
    return [Path(f"{name}.py"), Path(name, "__init__.py")]


def load_model(model: str) -> nn.Module:
    """Load a model file, or call ``module:factory``."""
    if Path(model).exists():
        return ep.load(model)
    module_name, _, factory_name = model.partition(":")
    # Like `python -m`: search the current folder first.
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ImportError(f"cannot import {module_name!r} of {model!r}: {error}") from error
    finally:
        sys.path.remove("")
    functions = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    factory = look_up(f"function of {module_name}", factory_name, functions)
    try:
        network = factory()
    except Exception as error:
        raise ValueError(f"{model} failed: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected {model} to return a torch.nn.Module, got {type(network).__name__}")
    return network


def _check_model_fits(network: nn.Module, data: Data) -> None:
    """Raise if the model cannot be called on the graph."""
    try:
        logits = ep.models.predict(network, data)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"the model does not fit the graph of {data.num_features} features: {error}") from error
    classes = ep.num_classes(data)
    if logits.size(1) < classes:
        raise ValueError(
            f"expected logits of shape [{data.num_nodes}, {classes}] from the model, got {list(logits.shape)}"
        )
