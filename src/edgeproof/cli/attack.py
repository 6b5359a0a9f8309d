"""``edgeproof attack``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import edgeproof as ep
from edgeproof.cli._options import Device, Quiet, Root, parse_device, parse_settings
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
from edgeproof.evaluation import AttackScore
from edgeproof.evaluation.result import Score
from edgeproof.report import Outcomes, nodes_file


def attack(
    model: Model,
    attack: Annotated[str, typer.Option(help=f"One of: {', '.join(ep.attacks.available())}.")] = "PRBCD",
    epsilon: Epsilons = [0.1],  # noqa: B006
    local: Local = None,
    count: Count = "incident",
    dataset: Dataset = None,
    split: SplitName = None,
    split_seed: SplitSeed = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of the attack as name=value, such as steps=100 or loss=log_margin; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the result goes; what became of each node goes beside it, with .nodes added.")
    ] = Path("attack.json"),
    graph: Annotated[
        Path | None,
        typer.Option(
            help="Where the perturbed graph goes, as .npz; with several epsilons one file each, its epsilon added."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the attack's random choices.")] = 0,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Attack the test nodes of a model, and write down what became of its accuracy.

    Example: [bold]edgeproof attack --model model.safetensors --attack LRBCD -e 0.1 -e 0.25 --local 0.5[/]
    """
    place = parse_device(device)
    chosen = ep.attacks.build(attack, parse_settings(setting or []))
    graphs = _graph_files(graph, epsilon)
    check_files(out, graphs)
    known = check_target(model, dataset, split, epsilon)
    aim = load_target(model, dataset, split, split_seed, known, root, place)
    view = aim.split.test
    budgets = ep.Budget.from_epsilons(view.data, view.nodes, epsilon, local=local, count=count)
    results = chosen(aim.model, view.data, view.nodes, budgets, seed=seed, progress=not quiet)
    for path, result in zip(graphs, results, strict=False):
        write_npz(result.data, path)
    name = type(chosen).__name__
    written = result_of(
        aim,
        seed,
        place,
        scores=(
            Score("test", "clean", 0.0, results[0].clean_accuracy),
            *(Score("test", name, share, result.accuracy) for share, result in zip(epsilon, results, strict=True)),
        ),
        threat={
            "local": local,
            "count": count,
            "budgets": {str(share): budget.total for share, budget in zip(epsilon, budgets, strict=True)},
            "attacks": {name: repr(chosen)},
            "rows": [
                AttackScore(
                    name, share, one.budget.total, one.flips.size(1), one.accuracy, one.seconds["total"]
                )._asdict()
                for share, one in zip(epsilon, results, strict=True)
            ],
        },
    )
    found = {(name, share): one for share, one in zip(epsilon, results, strict=True)}
    Outcomes.of(found, view.data, view.nodes, view.ids[view.nodes]).save(nodes_file(out))
    written.write(out)
    table = Table(title=f"{name} on {written.model['name']}, {aim.dataset}: clean {results[0].clean_accuracy:.1%}")
    for column in ("epsilon", "budget", "flips", "accuracy", "seconds"):
        table.add_column(column, justify="right")
    for share, result in zip(epsilon, results, strict=True):
        flips = str(result.flips.size(1))
        table.add_row(
            f"{share:g}", str(result.budget.total), flips, f"{result.accuracy:.1%}", f"{result.seconds['total']:.1f}"
        )
    Console().print(table)
    listed = "".join(f"   graph: {path}" for path in graphs)
    Console().print(f"result: {out}{listed}", highlight=False, soft_wrap=True, markup=False)


def _graph_files(graph: Path | None, epsilons: list[float]) -> list[Path]:
    if graph is None:
        return []
    if len(epsilons) == 1:
        return [graph]
    return [graph.with_name(f"{graph.stem}-{share:g}{graph.suffix}") for share in epsilons]
