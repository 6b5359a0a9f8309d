"""Target of ``attack``, ``evaluate`` and ``certify``: a model, and the graph and nodes it is tested on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._checks import check_non_negative
from edgeproof._files import check_not_existing, check_outputs, is_graph_file
from edgeproof._names import look_up
from edgeproof.cli._groups import SplitOptions, TargetOptions
from edgeproof.cli._options import check_dataset
from edgeproof.cli._printing import command_line
from edgeproof.datasets import Fixes
from edgeproof.datasets.masks import with_masks
from edgeproof.datasets.registry import source_files
from edgeproof.evaluation.result import (
    Result,
    Score,
    describe_environment,
    describe_file,
    describe_model,
    describe_split,
)
from edgeproof.models.factory import build_trained, is_factory_name
from edgeproof.report import describe_filter
from edgeproof.splits import Split

_FIXES = [field.name for field in fields(Fixes)]


@dataclass(frozen=True)
class GraphSource:
    """Source of a graph.

    Args:
        name: Name or path of the dataset.
        fixes: Changes of the edges of a file.
        path: Path of the file if it is not at ``name``.
        masks: File with the masks of a provided split.
    """

    name: str
    fixes: Fixes
    path: str | None = None
    masks: Path | None = None

    def load(self, root: Path | None, *, largest_component: bool = True) -> Data:
        """Load the graph."""
        data = ep.datasets.load(self.path or self.name, root, largest_component=False, **asdict(self.fixes))
        data = data if self.masks is None else with_masks(data, self.masks)
        return ep.datasets.keep_largest_component(data) if largest_component else data

    @property
    def mask_files(self) -> list[Path]:
        """The file with the masks, if any."""
        return [] if self.masks is None else [self.masks]

    def describe(self) -> dict[str, Any]:
        """Return the paths of graph and masks as entries of a result file."""
        masks = {} if self.masks is None else {"masks": str(self.masks.resolve())}
        return {**describe_file(self.path or self.name, self.fixes), **masks}


@dataclass(frozen=True)
class EvalTarget:
    """Model, and the split it is tested on.

    Args:
        model: Model in evaluation mode, on the device.
        split: Split with the test nodes.
        graph: Source of the graph.
        training: Training settings from the model's result file; empty if there is none.
        seen: Number of test nodes in the training or validation graph; None if unknown.
        sizes: Given sizes of the split.
    """

    model: nn.Module
    split: Split
    graph: GraphSource
    training: dict[str, Any]
    seen: int | None
    sizes: Mapping[str, float]

    @property
    def dataset(self) -> str:
        """Name or path of the dataset."""
        return self.graph.name


def check_target(options: TargetOptions, epsilons: Sequence[float] = ()) -> Result | None:
    """Check the options before anything is loaded, and return the result file beside the model, if there is one."""
    for epsilon in epsilons:
        check_non_negative(epsilon=epsilon)
    if len(set(epsilons)) != len(epsilons):
        raise ValueError(f"expected distinct epsilons, got {epsilons}")
    model, fixes = options.model, options.fixes
    check_dataset(options.dataset)
    if options.dataset is None and fixes.names:
        raise ValueError(f"expected --{fixes.names[0].replace('_', '-')} together with --dataset, got None")
    options.setting("inductive")
    path = Path(model)
    if not path.exists() and not is_factory_name(model):
        raise FileNotFoundError(f"no model at {model}: expected a model file of edgeproof train, or module:factory")
    if options.factory is not None and not path.exists():
        raise ValueError(f"expected --factory together with a model file of edgeproof train, got --model {model}")
    result_file = path.with_name(path.name + ".json")
    trained = Result.read(result_file) if path.exists() and result_file.exists() else None
    if options.dataset is None and trained is None:
        raise ValueError(f"expected --dataset, because there is no result file {result_file}")
    if options.dataset is None and trained is not None:
        try:
            _check_split(trained)
        except ValueError as error:
            raise ValueError(
                f"{result_file} is not a result file of edgeproof train: {error}. Pass --dataset, or train the model again"
            ) from error
    return trained


def _check_split(trained: Result) -> None:
    """Raise unless a result file describes a split that can be reconstructed."""
    split = trained.split
    kinds: dict[str, type | tuple[type, ...]] = {
        "setting": str,
        "rule": str,
        "seed": (int, type(None)),
        "fingerprint": str,
        **({"file": str, "fixes": list} if "file" in split else {}),
    }
    for name, kind in kinds.items():
        if not isinstance(split.get(name, ...), kind):
            raise ValueError(f"expected the {name} of a split, got {split.get(name, 'none')!r}")
    unknown = [name for name in split.get("fixes", ()) if name not in _FIXES]
    if unknown:
        raise ValueError(f"expected changes of edges among {', '.join(_FIXES)}, got {unknown[0]!r}")


def load_target(options: TargetOptions, trained: Result | None, device: torch.device) -> EvalTarget:
    """Load the model and the graph; options that are None default to the model's result file."""
    network = load_model(options.model, options.factory)
    if trained is not None:
        _check_fingerprint(network, options.model, trained)
    network = network.to(device).eval()
    views, graph = _load_split(options, trained)
    seen = None if trained is None or trained.dataset != graph.name else _num_seen(trained, views, options.root)
    views = views.to(device)
    check_model_fits(network, views.test.data)
    recorded = trained is not None and not options.is_split_given
    return EvalTarget(
        network,
        views,
        graph,
        training=trained.training if trained is not None else {},
        seen=seen,
        sizes=trained.split.get("sizes", {}) if trained is not None and recorded else options.sizes,
    )


def _load_split(options: TargetOptions, trained: Result | None) -> tuple[Split, GraphSource]:
    """Return the split of the options, by default that of the training, and the source of its graph."""
    if trained is not None and options.dataset is None and not options.is_split_given:
        graph = _training_graph(trained)
        return _training_split(trained, options.root, graph), graph
    # check_target has raised if both are None.
    graph = (
        _training_graph(cast(Result, trained))
        if options.dataset is None
        else GraphSource(options.dataset, options.fixes)
    )
    if options.masks is not None:
        graph = replace(graph, masks=options.masks)
    if not options.is_split_given:
        moved = _moved_split(trained, options.root, graph)
        if moved is not None:
            return moved, graph
    recorded = trained.split if trained is not None else {}
    seed = options.split_seed if options.split_seed is not None else int(recorded.get("seed") or 0)
    setting = options.setting(str(recorded.get("setting", "inductive")))
    return make_split(graph.load(options.root), setting, options, seed), graph


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
        _check_split(trained)
        training_split = _training_split(trained, root, _training_graph(trained))
    except (ValueError, OSError):
        return None
    seen = torch.cat([training_split.train.ids, training_split.val.ids])
    return int(torch.isin(split.test.ids[split.test.nodes], seen).sum())


def _training_graph(trained: Result) -> GraphSource:
    """Return the source of the graph that a model was trained on; a file is searched where it was then."""
    masks = Path(trained.split["masks"]) if "masks" in trained.split else None
    if "file" not in trained.split:
        return GraphSource(trained.dataset, Fixes(), masks=masks)
    recorded = trained.split["file"]
    path = next((path for path in (trained.dataset, recorded) if Path(path).exists()), None)
    if path is None:
        raise FileNotFoundError(
            f"no such file: {trained.dataset} (it was {recorded} when the model was trained); pass its new path as --dataset"
        )
    fixes = Fixes(**dict.fromkeys(trained.split["fixes"], True))
    return GraphSource(trained.dataset, fixes, path, masks)


def _moved_split(trained: Result | None, root: Path | None, graph: GraphSource) -> Split | None:
    """Return the split that the model was trained on if it was the same graph in another file, else None."""
    if trained is None or "file" not in trained.split or not is_graph_file(graph.name):
        return None
    try:
        _check_split(trained)
        return _training_split(trained, root, graph)
    except ValueError:
        return None


def _training_split(trained: Result, root: Path | None, graph: GraphSource) -> Split:
    """Return the split that the model was trained on, or raise if it cannot be reconstructed from this graph."""
    rule, seed = trained.split["rule"], trained.split["seed"]
    whole = graph.load(root, largest_component=False)
    for data in (ep.datasets.keep_largest_component(whole), whole):
        split = _recorded_split(data, trained.split)
        if split.fingerprint == trained.split["fingerprint"]:
            return split
    reason = "the file has changed since" if is_graph_file(graph.name) else "the graph may be a different version"
    raise ValueError(
        f"cannot reconstruct the split of {graph.name} that the model was trained on (rule {rule}, seed {seed}): {reason}. "
        "Choose a split with --dataset, --split and --split-seed; its test nodes may have been used in training"
    )


def make_split(data: Data, setting: str, options: SplitOptions, seed: int, rule: str = "released") -> Split:
    """Return the split of the options.

    Args:
        data: Graph.
        setting: Result of :meth:`SplitOptions.setting`.
        options: Options.
        seed: Seed of a sampled split.
        rule: Rule of a sampled split.
    """
    sizes: dict[str, Any] = options.sizes
    splitters = {
        "inductive": lambda: ep.splits.inductive(data, seed, rule=rule, **sizes),
        "transductive": lambda: ep.splits.transductive(data, seed, rule=rule, **sizes),
        "provided": lambda: ep.splits.provided(data, options.split_index or 0, test_on_val=options.test_on_val),
    }
    return look_up("split", setting, splitters)()


def _recorded_split(data: Data, recorded: Mapping[str, Any]) -> Split:
    """Return the split that a result file describes."""
    rule, seed, setting = str(recorded["rule"]), int(recorded["seed"] or 0), str(recorded["setting"])
    if rule == "as_released":
        return ep.splits.by_protocol(data, seed, model="GPRGNN", protocol=rule)
    match = re.fullmatch(r"provided\[(\d+)\](, tested on val)?", rule)
    if match is not None:
        options = SplitOptions(split_index=int(match[1]), test_on_val=match[2] is not None)
        return make_split(data, "provided", options, seed)
    return make_split(data, setting, SplitOptions(**recorded.get("sizes", {})), seed, rule)


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
            **target.graph.describe(),
            **({"sizes": target.sizes} if target.sizes else {}),
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
    options: TargetOptions,
    trained: Result | None,
    others: Iterable[Path] = (),
    *,
    force: bool,
    progress: Path | None = None,
    resumed: bool = False,
) -> None:
    """Raise unless all output files can be written, none of them is read, and none is a result of an earlier run.

    Args:
        outputs: Output files.
        options: Options of the target.
        trained: Result file of the model, if there is one.
        others: Further input files.
        force: Whether to overwrite results of earlier runs.
        progress: File of the progress, which is continued if it exists.
        resumed: Whether an interrupted run is resumed, which may have written some of the files.
    """
    outputs = list(outputs)
    written = [*outputs, *([] if progress is None else [progress])]
    recorded = {} if trained is None else trained.split
    names = [] if options.dataset is None else [options.dataset]
    if trained is not None and "file" in recorded:
        # The file may have moved since training.
        names += [name for name in (trained.dataset, str(recorded["file"])) if Path(name).exists()]
    elif trained is not None:
        names.append(trained.dataset)
    graphs = [file for name in names for file in source_files(name, options.root)]
    masks = [path for path in (options.masks, recorded.get("masks")) if path is not None]
    check_outputs(written, [*model_files(options.model, options.factory), *graphs, *map(Path, masks), *others])
    check_not_existing(outputs, force=force or resumed)


def check_files(out: Path, graphs: Sequence[Path]) -> None:
    """Raise unless result and graphs can be written to different files, those of graphs ending in ``.npz``."""
    check_outputs((out, *graphs))
    for graph in graphs:
        if graph.suffix != ".npz":
            raise ValueError(f"expected a graph file that ends in .npz, got {graph}")


def model_files(model: str, factory: str | None = None) -> list[Path]:
    """Return the file of a model and its result file, and the files of the module with its factory."""
    files = [Path(model), Path(model + ".json")] if Path(model).exists() else []
    for name in (model, factory or ""):
        if is_factory_name(name):
            module = name.partition(":")[0].replace(".", "/")
            files += [Path(f"{module}.py"), Path(module, "__init__.py")]
    return files


def load_model(model: str, factory: str | None = None) -> nn.Module:
    """Load a model file, or call ``module:factory``."""
    if not Path(model).exists():
        return build_trained(model)
    return ep.load(model) if factory is None else ep.models.load_own(model, factory)


def check_model_fits(network: nn.Module, data: Data) -> None:
    """Raise if the model cannot be called on the graph."""
    try:
        logits = ep.models.predict(network, data)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the model does not fit the graph of {data.num_features} features: {error}") from error
    classes = ep.num_classes(data)
    if logits.size(1) < classes:
        raise ValueError(
            f"expected logits of shape [{data.num_nodes}, {classes}] from the model, got {list(logits.shape)}"
        )
