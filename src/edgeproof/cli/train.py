"""``edgeproof train``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof._names import look_up, unknown_name
from edgeproof.cli._options import Device, Quiet, Root, parse_device, parse_settings
from edgeproof.evaluation import clean_scores
from edgeproof.result import Result, describe_environment, describe_model, describe_split
from edgeproof.splits import Split
from edgeproof.training import TrainConfig


def train(
    dataset: Annotated[str, typer.Option(help=f"One of: {', '.join(ep.datasets.available())}.")],
    model: Annotated[str, typer.Option(help=f"One of: {', '.join(ep.models.available())}.")],
    out: Annotated[
        Path, typer.Option(help="Where the model goes; the result goes beside it, with .json added.")
    ] = Path("model.safetensors"),
    split: Annotated[
        str, typer.Option(help="Who is trained and tested on: inductive, transductive, or provided with the data.")
    ] = "inductive",
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Keep the whole graph instead of its largest connected component.")
    ] = False,
    test_on_val: Annotated[
        bool,
        typer.Option("--test-on-val", help="With provided splits: test on validation nodes where no test nodes are."),
    ] = False,
    split_index: Annotated[int, typer.Option(help="Which of the provided splits.")] = 0,
    rule: Annotated[
        str, typer.Option(help="How nodes are drawn: released, or released_gprgnn_training (see the docs on splits).")
    ] = "released",
    seed: Annotated[int, typer.Option(help="Decides the split, the initial parameters and the training.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the model as name=value, such as hidden_channels=128; repeatable."),
    ] = None,
    loss: Annotated[str, typer.Option(help="Loss of the main loop: tanh_margin or cross_entropy.")] = TrainConfig.loss,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = TrainConfig.lr,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = TrainConfig.weight_decay,
    warmup_epochs: Annotated[
        int, typer.Option(help="Cross-entropy epochs before the main loop.")
    ] = TrainConfig.warmup_epochs,
    max_epochs: Annotated[int, typer.Option(help="Most epochs of the main loop.")] = TrainConfig.max_epochs,
    patience: Annotated[
        int, typer.Option(help="Epochs without a better validation loss before stopping.")
    ] = TrainConfig.patience,
    validate_every: Annotated[int, typer.Option(help="Epochs between validations.")] = TrainConfig.validate_every,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model, save it, and write down how well it does.

    An interrupted run goes on from its last checkpoint when the same command is given again.

    Example: [bold]edgeproof train --dataset cora_ml --model GPRGNN --seed 0 --out model.safetensors[/]
    """
    # Everything that can be wrong is looked at before a graph is loaded, which may mean downloading it.
    place = parse_device(device)
    result_file, checkpoint = (out.with_name(out.name + ending) for ending in (".json", ".checkpoint"))
    for path in (out, result_file, checkpoint):
        check_writable(path)
    if dataset not in ep.datasets.available():
        raise unknown_name("dataset", dataset, ep.datasets.available())
    splitters: dict[str, Callable[[Data], Split]] = {
        "inductive": lambda graph: ep.splits.inductive(graph, seed, rule=rule),
        "transductive": lambda graph: ep.splits.transductive(graph, seed, rule=rule),
        "provided": lambda graph: ep.splits.provided(graph, split_index, test_on_val=test_on_val),
    }
    splitter = look_up("split", split, splitters)
    look_up("rule", rule, ep.splits.RULES)
    config = TrainConfig(
        loss=loss,
        lr=lr,
        weight_decay=weight_decay,
        warmup_epochs=warmup_epochs,
        max_epochs=max_epochs,
        patience=patience,
        validate_every=validate_every,
        seed=seed,
    )
    settings = parse_settings(setting or [])
    ep.models.build(model, 1, 2, settings)

    graph = ep.datasets.load(dataset, root, largest_component=not all_nodes)
    network = ep.models.build(model, graph.num_features, ep.num_classes(graph), settings, seed=seed).to(place)
    parts = splitter(graph).to(place)
    try:
        history = ep.train(network, parts, **asdict(config), checkpoint=checkpoint, progress=not quiet)
    except KeyboardInterrupt:
        if checkpoint.exists():
            message = f"interrupted; the same command goes on from {checkpoint}"
            Console(stderr=True, highlight=False).print(message, soft_wrap=True, markup=False)
        raise
    result = Result(
        command=shlex.join(["edgeproof", *sys.argv[1:]]),
        dataset=dataset,
        split=describe_split(parts),
        model=describe_model(network),
        training=history.summary(),
        seed=seed,
        scores=clean_scores(network, parts),
        environment=describe_environment(place),
    )
    ep.save(network, out)
    result.write(result_file)
    checkpoint.unlink()
    _show(result)
    Console().print(f"model: {out}   result: {result_file}", highlight=False, soft_wrap=True, markup=False)


def _show(result: Result) -> None:
    table = Table(title="Clean accuracy")
    for column in ("dataset", "model", "seed", "train", "val", "test", "best epoch", "seconds"):
        table.add_column(column, justify="left" if column in ("dataset", "model") else "right")
    table.add_row(
        result.dataset,
        result.model["name"],
        str(result.seed),
        *(f"{result.score(nodes):.1%}" for nodes in ("train", "val", "test")),
        str(result.training["best_epoch"]),
        f"{result.training['seconds']:.1f}",
    )
    Console().print(table)
