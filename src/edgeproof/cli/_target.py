"""What ``attack`` and ``evaluate`` are pointed at: a model, and the graph and nodes that it is tested on."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof._names import look_up, unknown_name
from edgeproof.budget import check_epsilon
from edgeproof.evaluation.result import Result, Score, describe_environment, describe_model, describe_split
from edgeproof.report import describe_filter, nodes_file
from edgeproof.splits import Split

Model = Annotated[
    str,
    typer.Option(
        help="A file of edgeproof train, or module:factory of your own: a function without arguments in a Python module "
        "(of this folder or installed) that returns a ready torch module, called as model(x, edge_index, edge_weight=None)."
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(help=f"One of: {', '.join(ep.datasets.available())}; by default the one in the model's result file."),
]
SplitName = Annotated[
    str | None,
    typer.Option("--split", help="inductive, transductive or provided; by default as the model was trained."),
]
SplitSeed = Annotated[
    int | None, typer.Option(help="Of the split whose test nodes are attacked; by default as the model was trained.")
]
Epsilons = Annotated[
    list[float], typer.Option("--epsilon", "-e", help="Budget as a share of the edges at the test nodes; repeatable.")
]
Local = Annotated[
    float | None, typer.Option(help="Budget of each node as a share of its degree, such as 0.5; none by default.")
]
COUNT = typer.Option(
    help="Edges that epsilon is a share of: incident (the paper's tables, the default) or half_degree (its text)."
)
Count = Annotated[str, COUNT]

_SPLITS = ("inductive", "transductive", "provided")


@dataclass(frozen=True)
class EvalTarget:
    """A model and what it is tested on.

    Args:
        model: in evaluation mode, on the device.
        split: whose test nodes are meant.
        dataset: the graph's name.
        training: how the model was trained, as far as its result file says.
        seen: how many of the test nodes it has seen in training or validation; none where that is not known.
    """

    model: nn.Module
    split: Split
    dataset: str
    training: dict[str, Any]
    seen: int | None


def check_target(model: str, dataset: str | None, split: str | None, epsilons: list[float]) -> Result | None:
    """Raise for what can be seen to be wrong before anything is loaded; what the file beside the model says."""
    for epsilon in epsilons:
        check_epsilon(epsilon)
    if len(set(epsilons)) != len(epsilons):
        raise ValueError(f"expected distinct epsilons, got {epsilons}")
    if dataset is not None and dataset not in ep.datasets.available():
        raise unknown_name("dataset", dataset, ep.datasets.available())
    if split is not None and split not in _SPLITS:
        raise unknown_name("split", split, _SPLITS)
    path = Path(model)
    if not path.exists() and ":" not in model:
        raise FileNotFoundError(f"no model at {model}; expected a file of edgeproof train, or module:factory")
    beside = path.with_name(path.name + ".json")
    known = Result.read(beside) if path.exists() and beside.exists() else None
    if dataset is None and known is None:
        raise ValueError(f"expected --dataset, for there is no result file {beside} that names one")
    return known


def load_target(
    model: str,
    dataset: str | None,
    split: str | None,
    split_seed: int | None,
    known: Result | None,
    root: Path | None,
    device: torch.device,
) -> EvalTarget:
    """Load model and graph. What is not given is taken from the result file beside the model."""
    network = _load(model).to(device).eval()
    if known is not None and (dataset, split, split_seed) == (None, None, None):
        name, parts = known.dataset, _as_trained(known, root)
    else:
        name = dataset or (known.dataset if known is not None else "")
        trained = known.split if known is not None else {}
        seed = split_seed if split_seed is not None else int(trained.get("seed") or 0)
        parts = _split(
            ep.datasets.load(name, root), split or str(trained.get("setting", "inductive")), "released", seed
        )
    seen = None if known is None or known.dataset != name else _num_seen(known, parts, root)
    parts = parts.to(device)
    _check_fits(network, parts.test.data)
    return EvalTarget(network, parts, name, known.training if known is not None else {}, seen)


def _num_seen(known: Result, parts: Split, root: Path | None) -> int | None:
    """How many of the test nodes the model has seen in training or validation; none if its split cannot be had any more."""
    try:
        trained_on = _as_trained(known, root)
    except ValueError:
        return None
    seen = torch.cat([trained_on.train.ids, trained_on.val.ids])
    return int(torch.isin(parts.test.ids[parts.test.nodes], seen).sum())


def _as_trained(known: Result, root: Path | None) -> Split:
    """The very split that the model was trained on; raises if it cannot be had, for its test nodes might have been seen."""
    rule, seed = str(known.split["rule"]), int(known.split["seed"] or 0)
    for largest_component in (True, False):
        data = ep.datasets.load(known.dataset, root, largest_component=largest_component)
        setting = "provided" if rule.startswith("provided") else known.split["setting"]
        parts = _split(data, setting, rule, seed)
        if parts.fingerprint == known.split["fingerprint"]:
            return parts
    raise ValueError(
        f"cannot find the split of {known.dataset} that the model was trained on (rule {rule}, seed {seed}): the graph may be "
        "another version; --dataset, --split and --split-seed choose one, whose test nodes the model may have seen"
    )


def _split(data: Data, setting: str, rule: str, seed: int) -> Split:
    given = re.fullmatch(r"provided\[(\d+)\](, tested on val)?", rule)
    index, test_on_val = (int(given[1]), given[2] is not None) if given else (0, False)
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
    aim: EvalTarget,
    seed: int,
    device: torch.device,
    scores: tuple[Score, ...],
    threat: dict[str, Any],
    warnings: tuple[str, ...] = (),
) -> Result:
    """What came of it, with everything that a result file says about the model and what it was tested on."""
    return Result(
        command=shlex.join(["edgeproof", *sys.argv[1:]]),
        dataset=aim.dataset,
        split={**describe_split(aim.split), "test_nodes_seen": aim.seen},
        model={**describe_model(aim.model), **describe_filter(aim.model, aim.split.test.data)},
        training=aim.training,
        seed=seed,
        scores=scores,
        environment=describe_environment(device),
        threat=threat,
        warnings=warnings,
    )


def check_files(out: Path, graphs: list[Path]) -> None:
    """Raise unless all of these can be written, graphs as archives, and none over another."""
    for graph in graphs:
        if graph.suffix != ".npz":
            raise ValueError(f"expected a graph file that ends in .npz, got {graph}")
        if graph.resolve() == out.resolve():
            raise ValueError(f"expected different files for result and graph, got {out} for both")
    for path in (out, *graphs):
        check_writable(path)
    check_writable(nodes_file(out))


def _load(model: str) -> nn.Module:
    if Path(model).exists():
        return ep.load(model)
    module_name, _, factory_name = model.partition(":")
    # As `python -m` would: modules of the folder that the command is given in.
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
        raise TypeError(f"expected {model} to return a torch module, got {type(network).__name__}")
    return network


def _check_fits(network: nn.Module, data: Data) -> None:
    """Raise unless the model can be called on the graph: an error of its own says why not."""
    try:
        logits = ep.models.predict(network, data)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"the model does not fit the graph of {data.num_features} features: {error}") from error
    classes = ep.num_classes(data)
    if logits.size(1) < classes:
        raise ValueError(
            f"expected logits of shape [{data.num_nodes}, {classes}] from the model, got {list(logits.shape)}"
        )
