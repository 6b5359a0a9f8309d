"""``edgeproof evaluate``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import edgeproof as ep
from edgeproof._catalog import ATTACKS
from edgeproof.cli._options import (
    Count,
    Dataset,
    Device,
    DropWeights,
    Epsilons,
    Local,
    MergeDuplicates,
    Model,
    Quiet,
    RemoveSelfLoops,
    Root,
    SplitName,
    SplitSeed,
    ToUndirected,
    complete,
    names,
    parse_device,
)
from edgeproof.cli._printing import print_table, print_warning

if TYPE_CHECKING:
    from edgeproof.evaluation import Evaluation


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
        typer.Option(
            help=f"Run this attack instead of the standard suite: {names(ATTACKS)}; repeatable.",
            autocompletion=complete(ATTACKS),
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Result file; per-node outcomes go to the same name with .nodes added.")
    ] = Path("evaluation.json"),
    graph: Annotated[
        Path | None, typer.Option(help="File of the worst perturbed graph at the largest epsilon (.npz).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all attacks.")] = 0,
    to_undirected: ToUndirected = False,
    remove_self_loops: RemoveSelfLoops = False,
    merge_duplicates: MergeDuplicates = False,
    drop_weights: DropWeights = False,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Measure robust accuracy: the accuracy under the strongest attack of a suite.

    The standard suite has no parameters to tune, and warns about results that may overestimate robustness.

    Example: [bold]edgeproof evaluate --model model.safetensors -e 0.1 -e 0.25 --local 0.5[/]
    """
    from edgeproof.cli._target import check_files, check_target, load_target, result_of

    torch_device = parse_device(device)
    attacks = [ep.attacks.build(name) for name in attack or []]
    check_files(out, [graph] if graph is not None else [])
    fixes = ep.datasets.Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    trained = check_target(model, dataset, split, epsilon, fixes)
    target = load_target(model, dataset, split, split_seed, trained, root, torch_device, fixes)
    view = target.split.test
    with warnings.catch_warnings():
        # Printed below and stored in the result.
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        evaluation = ep.evaluate(
            target.model,
            view.data,
            view.nodes,
            epsilon,
            attacks or "standard",
            local=local,
            count=count,
            seed=seed,
            progress=not quiet,
        )
    if graph is not None:
        ep.datasets.write_npz(evaluation.worst[max(evaluation.epsilons)].data, graph)
    result = result_of(
        target,
        seed,
        torch_device,
        scores=evaluation.scores(),
        threat={
            "local": local,
            "count": count,
            "budgets": {str(row.epsilon): row.total for row in evaluation.rows},
            "attacks": {type(built).__name__: repr(built) for built in attacks} or "standard",
            "rows": [row._asdict() for row in evaluation.rows],
        },
        warnings=evaluation.warnings,
    )
    outcomes = ep.report.Outcomes.of(evaluation.results, view.data, view.nodes, view.ids[view.nodes])
    outcomes.save(ep.report.nodes_file(out))
    result.write(out)
    _print(evaluation, f"{result.model['name']}, {target.dataset}")
    print(f"result: {out}")


def _print(evaluation: Evaluation, title: str) -> None:
    from rich.table import Table

    table = Table(title=f"Accuracy under attack: {title}, clean {evaluation.clean_accuracy:.1%}")
    table.add_column("attack")
    for epsilon in evaluation.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    for name in dict.fromkeys(row.attack for row in evaluation.rows):
        table.add_row(name, *(f"{row.accuracy:.1%}" for row in evaluation.rows if row.attack == name))
    table.add_section()
    table.add_row("worst", *(f"{evaluation.accuracy(epsilon):.1%}" for epsilon in evaluation.epsilons), style="bold")
    print_table(table)
    for warning in evaluation.warnings:
        print_warning(warning)
