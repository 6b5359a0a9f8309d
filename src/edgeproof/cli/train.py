"""``edgeproof train``."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, cast

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof._names import look_up, unknown_name
from edgeproof.cli._options import Device, LogDir, Quiet, Root, parse_device, parse_settings
from edgeproof.cli._printing import print_warning
from edgeproof.cli._target import COUNT, Local
from edgeproof.evaluation import clean_scores
from edgeproof.evaluation.result import Result, describe_environment, describe_model, describe_split
from edgeproof.report import describe_filter
from edgeproof.splits import Split
from edgeproof.training import PRESETS, LabelWarning, TrainConfig, remove_checkpoints
from edgeproof.training.adversarial import make_threat
from edgeproof.training.checkpoint import sibling_files
from edgeproof.training.config import TrainSettings, check_threat_settings, configure

# Settings of training with an option of their own.
_OPTIONS = ("loss", "lr", "weight_decay", "warmup_epochs", "max_epochs", "patience", "validate_every", "seed")


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
    protocol: Annotated[
        str,
        typer.Option(
            help="Inductive splits: strict (test nodes are in no graph that training sees, checked), or as_released (those of "
            "the paper's released scripts, where most test nodes of GPRGNN have been seen; to compare with printed figures)."
        ),
    ] = "strict",
    seed: Annotated[int, typer.Option(help="Decides the split, the initial parameters and the training.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the model as name=value, such as hidden_channels=128; repeatable."),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help=f"Adversarial training against one of: {', '.join(ep.attacks.available())}, with its settings for training; "
            "clean training by default."
        ),
    ] = None,
    attack_setting: Annotated[
        list[str] | None,
        typer.Option("--attack-set", help="A setting of the attack as name=value, such as steps=10; repeatable."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The attack's budget, as a share of the edges at the nodes trained on.")
    ] = None,
    local: Local = None,
    count: Annotated[str | None, COUNT] = None,
    self_training: Annotated[
        bool | None,
        typer.Option(
            help="Whether other models label the unlabelled nodes first, of the same kind or as the preset has them; "
            "else as the preset."
        ),
    ] = None,
    label_model: Annotated[
        str | None, typer.Option(help="Self-training on labels of models of this kind; one of those of --model.")
    ] = None,
    label_setting: Annotated[
        list[str] | None,
        typer.Option("--label-set", help="A setting of these models as name=value, such as dropout=0.8; repeatable."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help=f"Settings to begin with. {'; '.join(f'{name}: {one.description}' for name, one in PRESETS.items())}."
        ),
    ] = "paper",
    loss: Annotated[
        str | None,
        typer.Option(
            help="Loss of the main loop, tanh_margin or cross_entropy, or another of edgeproof.losses; this and all below: "
            "else the preset's."
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    warmup_epochs: Annotated[int | None, typer.Option(help="Cross-entropy epochs before the main loop.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Most epochs of the main loop.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Epochs without a better validation loss before stopping.")
    ] = None,
    validate_every: Annotated[int | None, typer.Option(help="Epochs between validations.")] = None,
    train_setting: Annotated[
        list[str] | None,
        typer.Option(
            "--train-set",
            help="Any other setting of training as name=value, such as averaging=0.98; repeatable. "
            f"Known: {', '.join(entry.name for entry in fields(TrainConfig) if entry.name not in _OPTIONS)}.",
        ),
    ] = None,
    log_dir: LogDir = None,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a model, save it, and write down how well it does.

    An interrupted run goes on from its last checkpoint when the same command is given again.

    Example: [bold]edgeproof train --dataset cora_ml --model GPRGNN --seed 0 --out model.safetensors[/]

    Against LR-BCD, as in the paper: [bold]edgeproof train --dataset citeseer --model GPRGNN --attack LRBCD --epsilon 0.2
    --local 0.5 --self-training[/]
    """
    # Everything that can be wrong is looked at before a graph is loaded, which may mean downloading it.
    place = parse_device(device)
    result_file, checkpoint = (out.with_name(out.name + ending) for ending in (".json", ".checkpoint"))
    for path in (out, result_file, checkpoint):
        check_writable(path)
    if dataset not in ep.datasets.available():
        raise unknown_name("dataset", dataset, ep.datasets.available())
    splitters: dict[str, Callable[[Data], Split]] = {
        "inductive": lambda graph: ep.splits.by_protocol(graph, seed, model=model, protocol=protocol),
        "transductive": lambda graph: ep.splits.transductive(graph, seed),
        "provided": lambda graph: ep.splits.provided(graph, split_index, test_on_val=test_on_val),
    }
    splitter = look_up("split", split, splitters)
    if protocol not in ep.splits.PROTOCOLS:
        raise unknown_name("protocol", protocol, ep.splits.PROTOCOLS)
    if protocol == "as_released" and split != "inductive":
        raise ValueError(f"expected protocol as_released with inductive splits only, got {split}")
    if split != "provided" and (test_on_val or split_index):
        raise ValueError(f"expected --test-on-val and --split-index with --split provided only, got {split}")
    values = (loss, lr, weight_decay, warmup_epochs, max_epochs, patience, validate_every, seed)
    given = {name: value for name, value in zip(_OPTIONS, values, strict=True) if value is not None}
    others = parse_settings(train_setting or [])
    for name in others:
        if name in _OPTIONS:
            raise ValueError(f"expected {name} as --{name.replace('_', '-')}, got it in --train-set")
    chosen = configure(preset, cast(TrainSettings, {**given, **others}))
    against = None if attack is None else ep.attacks.build(attack).for_training()
    if attack_setting:
        usual = chosen.threat.attack if against is None and chosen.threat is not None else against
        if usual is None:
            raise ValueError(f"expected --attack beside --attack-set {' '.join(attack_setting)}, got none")
        against = ep.attacks.build(type(usual).__name__, {**asdict(usual), **parse_settings(attack_setting)})
    if attack is None and against is not None and chosen.threat is not None:
        # The preset's own attack, with other settings.
        chosen, against = replace(chosen, threat=replace(chosen.threat, attack=against)), None
    check_threat_settings(chosen.config, make_threat(against, epsilon, local, count, chosen.threat))
    settings, label_settings = parse_settings(setting or []), parse_settings(label_setting or [])
    ep.models.build(model, 1, 2, settings)
    if label_settings and label_model is None:
        if chosen.labeller is None:
            raise ValueError(f"expected --label-model beside --label-set {' '.join(label_setting or [])}, got none")
        # The preset's own label models, with other settings.
        label_model, label_settings = chosen.labeller, {**chosen.labeller_settings, **label_settings}
    if label_model is not None:
        if self_training is False:
            raise ValueError(f"expected no label models with --no-self-training, got {label_model}")
        ep.models.build(label_model, 1, 2, label_settings)
    log = None if log_dir is None else ep.training.TensorBoardLog(log_dir)

    graph = ep.datasets.load(dataset, root, largest_component=not all_nodes)
    sizes = graph.num_features, ep.num_classes(graph)
    network = ep.models.build(model, *sizes, settings, seed=seed).to(place)
    labeller: torch.nn.Module | bool | None = self_training
    if label_model is not None:
        labeller = ep.models.build(label_model, *sizes, label_settings, seed=seed).to(place)
    initial = {name: value.clone() for name, value in network.state_dict().items()}
    parts = splitter(graph).to(place)
    try:
        with warnings.catch_warnings(), log or nullcontext():
            # Shown below, and kept in the result.
            warnings.simplefilter("ignore", LabelWarning)
            history = ep.train(
                network,
                parts,
                attack=against,
                epsilon=epsilon,
                local=local,
                count=count,
                self_training=labeller,
                preset=chosen,
                checkpoint=checkpoint,
                progress=not quiet,
                observe=log,
            )
    except FloatingPointError:
        # What is left of the run is not lost, nor is what an earlier one has left. A label model that failed leaves nothing.
        if any(not torch.equal(initial[name], value) for name, value in network.state_dict().items()):
            kept = out.with_name(f"{out.name}.last-good")
            ep.save(network, kept)
            message = f"the parameters named below are in {kept}"
            Console(stderr=True, highlight=False).print(message, soft_wrap=True, markup=False)
        raise
    except KeyboardInterrupt:
        if checkpoint.exists() or sibling_files(checkpoint):
            message = f"interrupted; the same command goes on from {checkpoint}"
            Console(stderr=True, highlight=False).print(message, soft_wrap=True, markup=False)
        raise
    doubt = history.pseudo_labels.warning if history.pseudo_labels is not None else None
    result = Result(
        command=shlex.join(["edgeproof", *sys.argv[1:]]),
        dataset=dataset,
        split=describe_split(parts),
        model={**describe_model(network), **describe_filter(network, parts.test.data)},
        training=history.summary(),
        seed=seed,
        scores=clean_scores(network, parts),
        environment=describe_environment(place),
        warnings=() if doubt is None else (doubt,),
    )
    ep.save(network, out)
    result.write(result_file)
    remove_checkpoints(checkpoint)
    _show(result)
    for warning in result.warnings:
        print_warning(warning)
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
        f"{result.training['seconds'] + result.training.get('label_seconds', 0.0):.1f}",
    )
    Console().print(table)
