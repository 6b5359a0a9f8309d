"""``edgeproof evaluate``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import edgeproof as ep
from edgeproof.cli._options import Device, Quiet, Root, parse_device
from edgeproof.cli._printing import print_warning
from edgeproof.cli._target import (
    Count,
    Dataset,
    Epsilons,
    Local,
    Model,
    SplitName,
    SplitSeed,
    check_files,
    check_target,
    load_target,
    result_of,
)
from edgeproof.datasets import write_npz
from edgeproof.evaluation import Evaluation, EvaluationWarning
from edgeproof.report import Outcomes, nodes_file


def evaluate(
    model: Model,
    epsilon: Epsilons = [0.05, 0.1, 0.25],  # noqa: B006
    local: Local = None,
    count: Count = "incident",
    dataset: Dataset = None,
    split: SplitName = None,
    split_seed: SplitSeed = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help=f"Run these instead of the standard suite: {', '.join(ep.attacks.available())}; repeatable."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the result goes; what became of each node goes beside it, with .nodes added.")
    ] = Path("evaluation.json"),
    graph: Annotated[
        Path | None, typer.Option(help="Where the worst graph at the largest epsilon goes, as .npz.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack a model in every way known; the worst is how robust it is.

    The standard suite has nothing to tune, and warns where its figures may be too good.

    Example: [bold]edgeproof evaluate --model model.safetensors -e 0.1 -e 0.25 --local 0.5[/]
    """
    place = parse_device(device)
    chosen = [ep.attacks.build(name) for name in attack or []]
    check_files(out, [graph] if graph is not None else [])
    known = check_target(model, dataset, split, epsilon)
    aim = load_target(model, dataset, split, split_seed, known, root, place)
    view = aim.split.test
    with warnings.catch_warnings():
        # They are in the result, and shown below it.
        warnings.simplefilter("ignore", EvaluationWarning)
        found = ep.evaluate(
            aim.model,
            view.data,
            view.nodes,
            epsilon,
            chosen or "standard",
            local=local,
            count=count,
            seed=seed,
            progress=not quiet,
        )
    if graph is not None:
        write_npz(found.worst[max(found.epsilons)].data, graph)
    result = result_of(
        aim,
        seed,
        place,
        scores=found.scores(),
        threat={
            "local": local,
            "count": count,
            "budgets": {str(row.epsilon): row.total for row in found.rows},
            "attacks": {type(one).__name__: repr(one) for one in chosen} or "standard",
            "rows": [row._asdict() for row in found.rows],
        },
        warnings=found.warnings,
    )
    Outcomes.of(found.results, view.data, view.nodes, view.ids[view.nodes]).save(nodes_file(out))
    result.write(out)
    _show(found, f"{result.model['name']}, {aim.dataset}")
    Console().print(f"result: {out}", highlight=False, soft_wrap=True, markup=False)


def _show(found: Evaluation, title: str) -> None:
    table = Table(title=f"Accuracy under attack: {title}, clean {found.clean_accuracy:.1%}")
    table.add_column("attack")
    for epsilon in found.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    for name in dict.fromkeys(row.attack for row in found.rows):
        table.add_row(name, *(f"{row.accuracy:.1%}" for row in found.rows if row.attack == name))
    table.add_section()
    table.add_row("worst", *(f"{found.accuracy(epsilon):.1%}" for epsilon in found.epsilons), style="bold")
    Console().print(table)
    for warning in found.warnings:
        print_warning(warning)
