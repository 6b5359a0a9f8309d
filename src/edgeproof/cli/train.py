"""``edgeproof train``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import edgeproof as ep
from edgeproof._catalog import ATTACKS, DATASETS, MODELS, PRESETS
from edgeproof._files import check_not_existing, check_outputs
from edgeproof.cli._groups import FixOptions, SplitOptions, check_protocol, grouped
from edgeproof.cli._options import (
    COUNT,
    Device,
    Force,
    Local,
    LogDir,
    Protocol,
    Quiet,
    Root,
    check_dataset,
    complete,
    names,
    parse_device,
    parse_settings,
)
from edgeproof.cli._printing import command_line, print_line, print_table, print_warning
from edgeproof.cli._train_options import with_config_options

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data

    from edgeproof.attacks import Attack
    from edgeproof.cli._target import GraphSource
    from edgeproof.evaluation.result import Result
    from edgeproof.splits import Split
    from edgeproof.training import History, Preset


@with_config_options
@grouped
def train(
    dataset: Annotated[
        str,
        typer.Option(
            help=f"Name of the dataset: {names(DATASETS)}; or a graph file (.npz, .csv, .parquet, .graphml, .mtx).",
            autocompletion=complete(DATASETS),
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help=f"Name of the model: {names(MODELS)}; or module:factory for your own model: a function in an installed "
            "module or one in this folder, called as factory(in_channels, out_channels), that returns a torch.nn.Module.",
            autocompletion=complete(MODELS),
        ),
    ],
    splitting: SplitOptions,
    fixing: FixOptions,
    out: Annotated[
        Path, typer.Option(help="File of the trained model; its result file has the same name with .json added.")
    ] = Path("model.safetensors"),
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="Use the whole graph instead of its largest connected component.")
    ] = False,
    protocol: Protocol = "strict",
    seed: Annotated[int, typer.Option(help="Seed of the split, the initial parameters and the training.")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Setting of the model, or argument of your own factory, as name=value, such as hidden_channels=128; "
            "repeatable.",
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help=f"Adversarial training with this attack: {names(ATTACKS)}. Default: clean training.",
            autocompletion=complete(ATTACKS),
        ),
    ] = None,
    attack_setting: Annotated[
        list[str] | None,
        typer.Option("--attack-set", help="Setting of the attack as name=value, such as steps=10; repeatable."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of the attack as a fraction of the edges at the training nodes.")
    ] = None,
    local: Local = None,
    count: Annotated[str | None, COUNT] = None,
    self_training: Annotated[
        bool | None, typer.Option(help="Train on pseudo-labels of the unlabelled nodes. Default: as in the preset.")
    ] = None,
    label_model: Annotated[
        str | None,
        typer.Option(
            help="Model that predicts the pseudo-labels; implies --self-training. Default: the preset's, or --model.",
            autocompletion=complete(MODELS),
        ),
    ] = None,
    label_setting: Annotated[
        list[str] | None,
        typer.Option("--label-set", help="Setting of the label model as name=value, such as dropout=0.8; repeatable."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Training settings: default (works across graphs and models), certified (self-training for OneHop, whose "
            "worst case can be computed), paper (the paper's settings, also those of the model), or sturdy (self-training "
            "against a large budget, for models that rely on a node's own features, such as APPNP with alpha=0.8 and "
            "dropout=0.8).",
            autocompletion=complete(PRESETS),
        ),
    ] = "default",
    force: Force = False,
    log_dir: LogDir = None,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a model, save it, and write its clean accuracy to a result file.

    If training is interrupted, the same command resumes from the last checkpoint.

    Example: [bold]edgeproof train --dataset cora_ml --model GPRGNN --seed 0 --out model.safetensors[/]

    With LR-BCD, as in the paper: [bold]edgeproof train --dataset citeseer --model GPRGNN --attack LRBCD --epsilon 0.2
    --local 0.5 --self-training[/]
    """
    # Check all arguments before the graph is loaded, because that may download it.
    from edgeproof.cli._target import GraphSource, check_model_fits, model_files
    from edgeproof.datasets.registry import source_files

    torch_device = parse_device(device)
    paths = _Paths.of(out)
    check_dataset(dataset)
    source = GraphSource(dataset, fixing.fixes, masks=splitting.masks)
    check_outputs(paths, [*source_files(dataset, root), *source.mask_files, *model_files(model)])
    check_not_existing([paths.model, paths.result], force=force or paths.is_resumed)
    check_protocol(protocol, splitting.setting("inductive"), splitting.sizes)
    given = {name: value for name, value in {**settings, "seed": seed}.items() if value is not None}
    chosen, chosen_attack = _choose_training(preset, given, attack, attack_setting or [], (epsilon, local, count))
    spec = _ModelSpec(model, {**_paper_settings(preset, model), **parse_settings(setting)})
    spec.check()
    label_spec = _choose_label_model(chosen, label_model, label_setting or [], self_training)
    log = None if log_dir is None else ep.training.TensorBoardLog(log_dir)

    graph = source.load(root, largest_component=not all_nodes)
    network = spec.build(graph, seed).to(torch_device)
    label_network: torch.nn.Module | bool | None = self_training
    if label_spec is not None:
        label_network = label_spec.build(graph, seed).to(torch_device)
    views = _split(graph, splitting, seed, model, protocol).to(torch_device)
    check_model_fits(network, views.test.data)
    save = partial(spec.save, network, graph)
    with _keep_progress(network, paths, save), warnings.catch_warnings(), log or nullcontext():
        # Problems of the trained model are printed below and stored in the result; restarts (EP107) are printed at once.
        warnings.filterwarnings("ignore", "EP10[1-6]", ep.training.TrainingWarning)
        history = ep.train(
            network,
            views,
            attack=chosen_attack,
            epsilon=epsilon,
            local=local,
            count=count,
            self_training=label_network,
            preset=chosen,
            checkpoint=paths.checkpoint,
            progress=not quiet,
            observe=log,
        )
    result = _result(network, views, history, source, splitting.sizes, seed, torch_device)
    result = replace(result, model={**result.model, **spec.describe()})
    save(paths.model)
    result.write(paths.result)
    ep.training.remove_checkpoints(paths.checkpoint)
    _print(result)
    print(f"model: {paths.model}   result: {paths.result}")


def _paper_settings(preset: str, model: str) -> Mapping[str, Any]:
    """Return the settings of the paper's model with the preset ``paper``; none with other presets."""
    return ep.models.PAPER_SETTINGS.get(model, {}) if preset == "paper" else {}


class _Paths(NamedTuple):
    """Output files."""

    model: Path
    result: Path
    checkpoint: Path
    last_good: Path

    @classmethod
    def of(cls, model: Path) -> _Paths:
        """Derive all paths from that of the model."""
        return cls(model, *(model.with_name(model.name + end) for end in (".json", ".checkpoint", ".last-good")))

    @property
    def is_resumed(self) -> bool:
        """Whether an interrupted run is resumed."""
        from edgeproof.training.checkpoint import sibling_files

        return self.checkpoint.exists() or bool(sibling_files(self.checkpoint))


class _ModelSpec(NamedTuple):
    """Model of the library, or of a user's factory.

    Args:
        name: Name, or ``module:factory``.
        settings: Settings of the model, or further arguments of the factory.
    """

    name: str
    settings: dict[str, Any]

    @property
    def is_own(self) -> bool:
        """Whether the model is the user's; names of files get a helpful error later."""
        return ":" in self.name or self.name.endswith(".py")

    def check(self) -> None:
        """Raise if the model cannot be built; a user's factory is only imported."""
        if self.is_own:
            from edgeproof.models.factory import load_factory

            load_factory(self.name)
        else:
            ep.models.build(self.name, 1, 2, self.settings)

    def build(self, graph: Data, seed: int) -> torch.nn.Module:
        """Return a new model for a graph."""
        make = ep.models.build_own if self.is_own else ep.models.build
        return make(self.name, graph.num_features, ep.num_classes(graph), self.settings, seed=seed)

    def save(self, network: torch.nn.Module, graph: Data, path: Path) -> None:
        """Write the trained model."""
        if self.is_own:
            ep.models.save_own(network, path, self.name, graph.num_features, ep.num_classes(graph), self.settings)
        else:
            ep.save(network, path)

    def describe(self) -> dict[str, Any]:
        """Return further entries of the model in a result file."""
        return {"factory": self.name, "settings": self.settings} if self.is_own else {}


def _split(graph: Data, options: SplitOptions, seed: int, model: str, protocol: str) -> Split:
    from edgeproof.cli._target import make_split

    if protocol == "as_released":
        return ep.splits.by_protocol(graph, seed, model=model, protocol=protocol)
    setting = options.setting("inductive")
    split = make_split(graph, setting, options, seed)
    if setting == "inductive":
        split.check_unseen()
    return split


def _choose_training(
    preset: str,
    settings: dict[str, Any],
    attack: str | None,
    attack_settings: Sequence[str],
    budget: tuple[float | None, float | None, str | None],
) -> tuple[Preset, Attack | None]:
    """Return the preset with the given settings, and the attack that replaces the preset's, if any."""
    from edgeproof.training.adversarial import make_threat
    from edgeproof.training.config import check_threat_settings, configure

    chosen = configure(preset, settings)  # type: ignore[arg-type]
    chosen_attack = None if attack is None else ep.attacks.build(attack).for_training()
    if attack_settings:
        base = chosen_attack
        if base is None and chosen.threat is not None:
            base = chosen.threat.attack
        if base is None:
            raise ValueError(f"expected --attack together with --attack-set {' '.join(attack_settings)}, got None")
        changed = ep.attacks.build(type(base).__name__, {**asdict(base), **parse_settings(attack_settings)})
        if chosen_attack is None and chosen.threat is not None:
            chosen = replace(chosen, threat=replace(chosen.threat, attack=changed))
        else:
            chosen_attack = changed
    check_threat_settings(chosen.config, make_threat(chosen_attack, *budget, chosen.threat), settings)
    return chosen, chosen_attack


def _choose_label_model(
    preset: Preset, name: str | None, settings: Sequence[str], self_training: bool | None
) -> _ModelSpec | None:
    """Return the label model of the options; None for the default of the preset."""
    parsed: dict[str, Any] = parse_settings(settings)
    if parsed and name is None:
        if preset.label_model is None:
            raise ValueError(f"expected --label-model together with --label-set {' '.join(settings)}, got None")
        name, parsed = preset.label_model, {**preset.label_model_settings, **parsed}
    if name is None:
        return None
    if self_training is False:
        raise ValueError(f"expected no --label-model with --no-self-training, got {name}")
    label_spec = _ModelSpec(name, parsed)
    label_spec.check()
    return label_spec


@contextmanager
def _keep_progress(network: torch.nn.Module, paths: _Paths, save: Callable[[Path], None]) -> Iterator[None]:
    """Save the last finite parameters if training diverges; print how to resume after an interrupt."""
    import torch

    initial = {name: value.clone() for name, value in network.state_dict().items()}
    try:
        yield
    except FloatingPointError:
        # Without a change, no epoch has finished and there is nothing to save.
        if any(not torch.equal(initial[name], value) for name, value in network.state_dict().items()):
            save(paths.last_good)
            print_line(f"saved the restored parameters to {paths.last_good}")
        raise
    except KeyboardInterrupt:
        if paths.is_resumed:
            raise KeyboardInterrupt(f"interrupted; the same command resumes from {paths.checkpoint}") from None
        raise


def _result(
    network: torch.nn.Module,
    split: Split,
    history: History,
    source: GraphSource,
    sizes: dict[str, float],
    seed: int,
    device: torch.device,
) -> Result:
    from edgeproof.evaluation import clean_scores
    from edgeproof.evaluation.result import Result, describe_environment, describe_model, describe_split

    label_warning = None if history.pseudo_labels is None else history.pseudo_labels.warning
    return Result(
        command=command_line(),
        dataset=source.name,
        split={**describe_split(split), **source.describe(), **({"sizes": sizes} if sizes else {})},
        model={**describe_model(network), **ep.report.describe_filter(network, split.test.data)},
        training=history.summary(),
        seed=seed,
        scores=clean_scores(network, split),
        environment=describe_environment(device),
        warnings=tuple(warning for warning in (label_warning, history.warning) if warning is not None),
    )


def _print(result: Result) -> None:
    from rich.table import Table

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
    print_table(table)
    for warning in result.warnings:
        print_warning(warning)
