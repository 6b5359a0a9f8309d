"""``edgeproof attack``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import edgeproof as ep
from edgeproof._warnings import EdgeproofWarning, with_code
from edgeproof.cli._groups import TargetOptions, grouped
from edgeproof.cli._options import (
    AdditionsOnly,
    AllowedFile,
    AttackName,
    Count,
    DeletionsOnly,
    Epsilons,
    Force,
    Local,
    Quiet,
    parse_device,
    parse_settings,
)
from edgeproof.cli._printing import print_table, print_warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeproof import Budget
    from edgeproof.attacks import Attack, AttackResult
    from edgeproof.cli._target import EvalTarget


@grouped
def attack(
    target_options: TargetOptions,
    attack: AttackName = "PRBCD",
    epsilon: Epsilons = [0.1],  # noqa: B006
    local: Local = None,
    count: Count = "incident",
    additions_only: AdditionsOnly = False,
    deletions_only: DeletionsOnly = False,
    allowed: AllowedFile = None,
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
    force: Force = False,
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

    torch_device = parse_device(target_options.device)
    kind, pairs = parse_flip_kind(additions_only, deletions_only), read_pairs(allowed)
    built = ep.attacks.build(attack, parse_settings(setting))
    graphs = _graph_files(graph, epsilon)
    check_files(out, graphs)
    trained = check_target(target_options, epsilon)
    read = [] if allowed is None else [allowed]
    check_target_outputs((out, ep.report.nodes_file(out), *graphs), target_options, trained, read, force=force)
    target = load_target(target_options, trained, torch_device)
    view = target.split.test
    constraints = make_constraints(kind, pairs, view)
    budgets = ep.Budget.from_epsilons(view.data, view.nodes, epsilon, local=local, count=count, constraints=constraints)
    problems = tuple(with_code(code, message) for code, message in budget_problems(budgets, epsilon))
    results: dict[float, AttackResult] = {}
    interrupted = False
    try:
        for value, result in zip(epsilon, _attack_each(built, target, budgets, seed, not quiet), strict=True):
            results[value] = result
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    for path, result in zip(graphs, results.values(), strict=False):
        ep.datasets.write_npz(result.data, path)
    name, first = type(built).__name__, next(iter(results.values()))
    written = result_of(
        target,
        seed,
        torch_device,
        scores=(
            Score("test", "clean", 0.0, first.clean_accuracy),
            *(Score("test", name, value, result.accuracy) for value, result in results.items()),
        ),
        threat={
            "local": local,
            "count": count,
            **({} if constraints is None else {"constraints": constraints.description}),
            "budgets": {str(value): result.budget.total for value, result in results.items()},
            "attacks": {name: repr(built)},
            "tier": first.tier,
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
    subject = f"{name} on {written.model['name']}, {target.dataset}"
    _print(results, f"{subject}: clean {first.clean_accuracy:.1%}, tier {first.tier}")
    for problem in problems:
        print_warning(problem)
    if interrupted:
        finished = ", ".join(f"{value:g}" for value in results)
        raise KeyboardInterrupt(f"interrupted; the results of epsilon {finished} are in {out}")
    print(f"result: {out}" + "".join(f"   graph: {path}" for path in graphs))


def _attack_each(
    attack: Attack, target: EvalTarget, budgets: Sequence[Budget], seed: int, progress: bool
) -> Iterator[AttackResult]:
    """Yield the result at each budget as soon as it is known."""
    from edgeproof._progress import progress_bar
    from edgeproof.attacks.base import make_target

    view, name = target.split.test, type(attack).__name__
    with warnings.catch_warnings():
        # The caller prints and stores them.
        warnings.simplefilter("ignore", EdgeproofWarning)
        attacked = make_target(target.model, view.data, view.nodes, None, None)
        with progress_bar(name, sum(map(attack.num_steps, budgets)), show=progress) as advance:
            yield from attack.each_on_target(attacked, budgets, seed=seed, advance=advance)


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
