"""``edgeproof attack``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import edgeproof as ep
from edgeproof._warnings import EdgeproofWarning, with_code
from edgeproof.cli._options import (
    AdditionsOnly,
    AllowedFile,
    AttackName,
    Count,
    Dataset,
    DeletionsOnly,
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
    parse_device,
    parse_settings,
)
from edgeproof.cli._printing import print_table, print_warning

if TYPE_CHECKING:
    from edgeproof.attacks import AttackResult


def attack(
    model: Model,
    attack: AttackName = "PRBCD",
    epsilon: Epsilons = [0.1],  # noqa: B006
    local: Local = None,
    count: Count = "incident",
    additions_only: AdditionsOnly = False,
    deletions_only: DeletionsOnly = False,
    allowed: AllowedFile = None,
    dataset: Dataset = None,
    split: SplitName = None,
    split_seed: SplitSeed = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Setting of the attack as name=value, such as steps=100 or loss=log_margin; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Result file; per-node outcomes go to the same name with .nodes added.")
    ] = Path("attack.json"),
    graph: Annotated[
        Path | None,
        typer.Option(help="File of the perturbed graph (.npz); several epsilons give one file each, named by epsilon."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the attack.")] = 0,
    to_undirected: ToUndirected = False,
    remove_self_loops: RemoveSelfLoops = False,
    merge_duplicates: MergeDuplicates = False,
    drop_weights: DropWeights = False,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack the test nodes of a model, and write its accuracy under attack to a result file.

    Example: [bold]edgeproof attack --model model.safetensors --attack LRBCD -e 0.1 -e 0.25 --local 0.5[/]
    """
    from edgeproof.cli._constraints import make_constraints, parse_flip_kind, read_pairs
    from edgeproof.cli._target import check_files, check_target, check_target_outputs, load_target, result_of
    from edgeproof.evaluation import AttackScore
    from edgeproof.evaluation.checks import budget_problems
    from edgeproof.evaluation.result import Score

    torch_device = parse_device(device)
    kind, pairs = parse_flip_kind(additions_only, deletions_only), read_pairs(allowed)
    built = ep.attacks.build(attack, parse_settings(setting))
    graphs = _graph_files(graph, epsilon)
    check_files(out, graphs)
    fixes = ep.datasets.Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    trained = check_target(model, dataset, split, epsilon, fixes)
    check_target_outputs((out, ep.report.nodes_file(out), *graphs), model, dataset, trained, root)
    target = load_target(model, dataset, split, split_seed, trained, root, torch_device, fixes)
    view = target.split.test
    constraints = make_constraints(kind, pairs, view)
    budgets = ep.Budget.from_epsilons(view.data, view.nodes, epsilon, local=local, count=count, constraints=constraints)
    problems = tuple(with_code(code, message) for code, message in budget_problems(budgets, epsilon))
    with warnings.catch_warnings():
        # Printed below and stored in the result.
        warnings.simplefilter("ignore", EdgeproofWarning)
        attacked = built(target.model, view.data, view.nodes, budgets, seed=seed, progress=not quiet)
    results = dict(zip(epsilon, attacked, strict=True))
    for path, result in zip(graphs, attacked, strict=False):
        ep.datasets.write_npz(result.data, path)
    name, clean_accuracy = type(built).__name__, attacked[0].clean_accuracy
    written = result_of(
        target,
        seed,
        torch_device,
        scores=(
            Score("test", "clean", 0.0, clean_accuracy),
            *(Score("test", name, value, result.accuracy) for value, result in results.items()),
        ),
        threat={
            "local": local,
            "count": count,
            **({} if constraints is None else {"constraints": constraints.description}),
            "budgets": {str(value): result.budget.total for value, result in results.items()},
            "attacks": {name: repr(built)},
            "tier": attacked[0].tier,
            "rows": [
                AttackScore(
                    name,
                    value,
                    result.budget.total,
                    result.flips.size(1),
                    result.accuracy,
                    result.seconds["total"],
                    result.queries,
                )._asdict()
                for value, result in results.items()
            ],
        },
        warnings=problems,
    )
    outcomes = ep.report.Outcomes.of(
        {(name, value): result for value, result in results.items()}, view.data, view.nodes, view.ids[view.nodes]
    )
    outcomes.save(ep.report.nodes_file(out))
    written.write(out)
    tier = attacked[0].tier
    _print(results, f"{name} on {written.model['name']}, {target.dataset}: clean {clean_accuracy:.1%}, tier {tier}")
    for problem in problems:
        print_warning(problem)
    print(f"result: {out}" + "".join(f"   graph: {path}" for path in graphs))


def _print(results: dict[float, AttackResult], title: str) -> None:
    from rich.table import Table

    table = Table(title=title)
    for column in ("epsilon", "budget", "flips", "accuracy", "seconds"):
        table.add_column(column, justify="right")
    for epsilon, result in results.items():
        table.add_row(
            f"{epsilon:g}",
            str(result.budget.total),
            str(result.flips.size(1)),
            f"{result.accuracy:.1%}",
            f"{result.seconds['total']:.1f}",
        )
    print_table(table)


def _graph_files(graph: Path | None, epsilons: list[float]) -> list[Path]:
    if graph is None:
        return []
    if len(epsilons) == 1:
        return [graph]
    return [graph.with_name(f"{graph.stem}-{epsilon:g}{graph.suffix}") for epsilon in epsilons]
