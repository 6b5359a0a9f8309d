"""``edgeproof evaluate``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import edgeproof as ep
from edgeproof._catalog import ATTACKS, EFFORTS
from edgeproof.cli._groups import TargetOptions, grouped
from edgeproof.cli._options import (
    AdditionsOnly,
    AllowedFile,
    Count,
    DeletionsOnly,
    Epsilons,
    Force,
    Local,
    Quiet,
    check_name,
    complete,
    names,
    parse_device,
)
from edgeproof.cli._printing import print_error, print_line, print_table, print_warning

if TYPE_CHECKING:
    from edgeproof.evaluation import Evaluation

# Exit status of a model below --fail-below; errors exit with 1, invalid options with 2.
FAILED = 3
# Accuracies are computed in single precision.
_ROUNDING = 1e-4


@grouped
def evaluate(
    target_options: TargetOptions,
    epsilon: Epsilons = [0.05, 0.1, 0.25],  # noqa: B006
    local: Local = None,
    count: Count = "incident",
    additions_only: AdditionsOnly = False,
    deletions_only: DeletionsOnly = False,
    allowed: AllowedFile = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Run this attack instead of the standard suite: {names(ATTACKS)}; repeatable.",
            autocompletion=complete(ATTACKS),
        ),
    ] = None,
    effort: Annotated[
        str,
        typer.Option(
            help="Effort of the suite: quick (about a tenth of the time), standard, or thorough (several times the time).",
            autocompletion=complete(EFFORTS),
        ),
    ] = "standard",
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="Also report baselines that use no edges: the majority class, and an MLP."),
    ] = False,
    fragility: Annotated[
        int | None,
        typer.Option(help="Also search, for each test node, the fewest flips that misclassify it, up to this many."),
    ] = None,
    fail_below: Annotated[
        float | None,
        typer.Option(
            help=f"Exit with status {FAILED} if the lowest accuracy over all epsilons is below this, in percent."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Result file; per-node outcomes go to the same name with .nodes added.")
    ] = Path("evaluation.json"),
    graph: Annotated[
        Path | None, typer.Option(help="File of the worst perturbed graph at the largest epsilon (.npz).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all attacks.")] = 0,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Measure robust accuracy: the accuracy under the strongest attack of a suite.

    The standard suite has no parameters to tune, and warns about results that may overestimate robustness. If the command is
    interrupted, the same command resumes.

    Example: [bold]edgeproof evaluate --model model.safetensors -e 0.1 -e 0.25 --local 0.5[/]
    """
    from edgeproof.cli._constraints import make_constraints, parse_flip_kind, read_pairs
    from edgeproof.cli._target import check_files, check_target, check_target_outputs, load_target, result_of

    torch_device = parse_device(target_options.device)
    kind, pairs = parse_flip_kind(additions_only, deletions_only), read_pairs(allowed)
    attacks = [ep.attacks.build(name) for name in attack or []]
    check_name("effort", effort, EFFORTS)
    if attacks and effort != "standard":
        raise ValueError(f"expected no --effort with --attack, got {effort}: it selects a suite")
    if fail_below is not None and not 0 <= fail_below <= 100:
        raise ValueError(f"expected 0 <= --fail-below <= 100, a percentage, got {fail_below:g}")
    graphs = [] if graph is None else [graph]
    check_files(out, graphs)
    checkpoint = out.with_name(out.name + ".checkpoint")
    trained = check_target(target_options, epsilon)
    check_target_outputs(
        (out, ep.report.nodes_file(out), *graphs),
        target_options,
        trained,
        [] if allowed is None else [allowed],
        force=force,
        progress=checkpoint,
        resumed=checkpoint.exists(),
    )
    target = load_target(target_options, trained, torch_device)
    view = target.split.test
    constraints = make_constraints(kind, pairs, view)
    with _resuming(checkpoint), warnings.catch_warnings():
        # Printed below and stored in the result.
        warnings.simplefilter("ignore", ep.evaluation.EvaluationWarning)
        evaluation = ep.evaluate(
            target.model,
            view.data,
            view.nodes,
            epsilon,
            attacks or "standard",
            effort=effort,
            local=local,
            count=count,
            constraints=constraints,
            baselines=target.split if baselines else None,
            seed=seed,
            fragility=fragility,
            checkpoint=checkpoint,
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
            **({} if constraints is None else {"constraints": constraints.description}),
            "budgets": {str(row.epsilon): row.total for row in evaluation.rows},
            "attacks": {type(built).__name__: repr(built) for built in attacks} or "standard",
            "effort": evaluation.effort,
            "tier": evaluation.tier,
            "rows": [row._asdict() for row in evaluation.rows],
            **({} if evaluation.fragility is None else {"fragility": evaluation.fragility.summary()}),
        },
        warnings=evaluation.warnings,
    )
    outcomes = ep.report.Outcomes.of(evaluation.results, view.data, view.nodes, view.ids[view.nodes])
    outcomes.save(ep.report.nodes_file(out))
    result.write(out)
    ep.training.remove_checkpoints(checkpoint)
    _print(evaluation, f"{result.model['name']}, {target.dataset}")
    print(f"result: {out}")
    if fail_below is not None:
        _check_threshold(evaluation, fail_below)


@contextmanager
def _resuming(checkpoint: Path) -> Iterator[None]:
    """Print that the evaluation resumes, and how to resume it after an interrupt."""
    from edgeproof.evaluation.checkpoint import num_finished

    if finished := num_finished(checkpoint):
        print_line(f"resuming from {checkpoint}: {finished} finished searches")
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.exists():
            raise KeyboardInterrupt(f"interrupted; the same command resumes from {checkpoint}") from None
        raise


def _check_threshold(evaluation: Evaluation, percent: float) -> None:
    """Exit with status :data:`FAILED` if the lowest accuracy is below a percentage."""
    lowest = min(evaluation.epsilons, key=evaluation.accuracy)
    if 100 * evaluation.accuracy(lowest) < percent - _ROUNDING:
        print_error(
            f"accuracy {evaluation.accuracy(lowest):.1%} at epsilon {lowest:g} is below the {percent:g}% of --fail-below"
        )
        raise typer.Exit(FAILED)


def _print(evaluation: Evaluation, title: str) -> None:
    from rich.table import Table

    table = Table(title=f"Accuracy under attack: {title}, clean {evaluation.clean_accuracy:.1%}")
    table.add_column("attack")
    for epsilon in evaluation.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    for name, accuracy in evaluation.baselines.items():
        table.add_row(name, *[f"{accuracy:.1%}"] * len(evaluation.epsilons))
    if evaluation.baselines:
        table.add_section()
    for name in dict.fromkeys(row.attack for row in evaluation.rows):
        table.add_row(name, *(f"{row.accuracy:.1%}" for row in evaluation.rows if row.attack == name))
    table.add_section()
    table.caption = f"tier: {evaluation.tier}"
    worst = "worst" if evaluation.effort is None else f"worst ({evaluation.effort} effort)"
    table.add_row(worst, *(f"{evaluation.accuracy(epsilon):.1%}" for epsilon in evaluation.epsilons), style="bold")
    print_table(table)
    if evaluation.fragility is not None:
        print(evaluation.fragility)
    for warning in evaluation.warnings:
        print_warning(warning)
