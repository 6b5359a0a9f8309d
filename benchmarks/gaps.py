"""Trials about figures of the paper that do not come out: the protocol's models, attacked in another way.

    python benchmarks/gaps.py run [--jobs 2] [--device cuda]     attack what is not yet in results/gaps
    python benchmarks/gaps.py render                             write docs/gaps.md from what is there

Models are trained as ``edgeproof reproduce`` trains them. Each trial changes one thing about the attack, and runs the attack as
the protocol has it beside it, on the same model.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import made_by, on, run_missing, summary, write_record

import edgeproof as ep
from edgeproof.attacks import LRBCD, PGD, Attack
from edgeproof.experiments import find
from edgeproof.experiments.paper import Column, Row, training_of
from edgeproof.experiments.recipe import Recipe

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "gaps"
PAGE = HERE.parent / "docs" / "gaps.md"
SEEDS = (0, 1, 5)
EPSILONS = (0.1, 0.25)


@dataclass(frozen=True)
class Trial:
    """A question.

    Args:
        about: what is asked.
        table: where the paper prints the figure.
        models: whose, regularly trained, by protocol of their splits.
        dataset: on which graph.
        attack: the attack's name in the table.
        ways: in words, the attack and the local budgets; the first is the protocol's.
    """

    about: str
    table: str
    models: tuple[tuple[str, str], ...]
    dataset: str
    attack: str
    ways: dict[str, tuple[Attack, float | None]]


TRIALS = {
    "pgd-loss": Trial(
        "PGD with the cross-entropy: the option that names the loss is misspelled in the authors' configuration, so that the "
        "printed figures may be of their default.",
        "more-attacks",
        (("GCN", "strict"), ("GPRGNN", "as_released")),
        "citeseer",
        "PGD",
        {"tanh margin": (PGD(), None), "cross-entropy": (PGD(loss="cross_entropy"), None)},
    ),
    "squirrel-local": Trial(
        "LR-BCD with local budgets of a quarter of the degree, which the protocol has for ogbn-arxiv alone.",
        "other-graphs",
        (("GCN", "strict"), ("GPRGNN", "strict")),
        "squirrel",
        "LRBCD",
        {"half of the degree": (LRBCD(), 0.5), "a quarter": (LRBCD(), 0.25)},
    ),
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Unit:
    """One model, attacked in all ways of a trial."""

    trial: str
    model: str
    protocol: str
    seed: int

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.trial}-{self.model}-{self.protocol}-{self.seed}.json"

    @property
    def recipe(self) -> Recipe:
        row = Row("inductive", TRIALS[self.trial].dataset, self.model, False, None, None)
        return Recipe(row, self.seed, self.protocol)


def units(trials: Sequence[str]) -> list[Unit]:
    return [
        Unit(name, model, protocol, seed)
        for name in trials
        for model, protocol in TRIALS[name].models
        for seed in SEEDS
    ]


def measure(unit: Unit, device: str, threads: int) -> str:
    """Train, attack and write the result."""
    torch.set_num_threads(threads)
    split = unit.recipe.split(unit.recipe.data()).to(device)
    model, _ = unit.recipe.train(split, device)
    graph, nodes = split.test.data, split.test.nodes
    rows = []
    for name, (attack, local) in TRIALS[unit.trial].ways.items():
        budgets = ep.Budget.from_epsilons(graph, nodes, EPSILONS, local=local)
        found = attack(model, graph, nodes, budgets, seed=unit.seed)
        rows += [
            {"way": name, "attack": repr(attack), "local": local, "epsilon": epsilon, "accuracy": 100 * one.accuracy}
            for epsilon, one in zip(EPSILONS, found, strict=True)
        ]
    write_record(unit.path, device, training=unit.recipe.identity, rows=rows)
    return f"{unit.path.stem}: " + ", ".join(f"{row['way']} {row['epsilon']:g}: {row['accuracy']:.1f}" for row in rows)


@app.command()
def run(
    trial: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(TRIALS)}; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes can share one GPU.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads per process.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also what has a result.")] = False,
) -> None:
    """Train and attack every model that has no result yet."""
    on(device)
    chosen = trial or list(TRIALS)
    for name in chosen:
        if name not in TRIALS:
            raise typer.BadParameter(f"expected one of {', '.join(TRIALS)}, got {name!r}")
    run_missing(units(chosen), measure, jobs=jobs, device=device, threads=threads, force=force)


PAGE_TEXT = """# Trials about gaps

Where a figure of the paper [does not come out](what-reproduces.md#open), one thing about the attack was changed, on models
trained as the protocol says, and the protocol's own attack was run on the same models. Accuracies in percent, means over the
splits 0, 1 and 5 with their standard errors; the models are regularly trained. A change that brings a figure to the paper's may
be what the authors had, or may hit it by chance. Made by `python benchmarks/gaps.py render`.

{trials}

## How these were made

{commands}
"""


@app.command()
def render() -> None:
    """Write the page from the results that are there."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    found = {unit: json.loads(unit.path.read_text()) for unit in units(list(TRIALS)) if unit.path.exists()}
    sections = []
    for name, trial in TRIALS.items():
        ways = list(trial.ways)
        lines = [f"## {name}", "", *textwrap.wrap(trial.about, 128), ""]
        lines += [f"| model | splits | {trial.attack} at | paper | {' | '.join(ways)} | runs |"]
        lines += ["|---|---|---|---|" + "---|" * (len(ways) + 1)]
        for model, protocol in trial.models:
            here = [record for unit, record in found.items() if (unit.trial, unit.model) == (name, model)]
            for epsilon in EPSILONS:
                ours = [summary(accuracies(here, way, epsilon)) for way in ways]
                printed = paper(trial, model, epsilon)
                lines.append(f"| {model} | {protocol} | {epsilon:g} | {printed} | {' | '.join(ours)} | {len(here)} |")
        sections.append("\n".join(lines))
    commands = "\n".join(dict.fromkeys(f"- {made_by(record)}" for record in found.values()))
    return PAGE_TEXT.format(trials="\n\n".join(sections), commands=commands)


def accuracies(records: Sequence[dict[str, Any]], way: str, epsilon: float) -> list[float]:
    return [
        row["accuracy"]
        for record in records
        for row in record["rows"]
        if (row["way"], row["epsilon"]) == (way, epsilon)
    ]


def paper(trial: Trial, model: str, epsilon: float) -> str:
    """What the paper prints."""
    (cell,) = (
        cell
        for cell in find(trial.table).cells
        if (cell.row.dataset, cell.row.model, training_of(cell.row)) == (trial.dataset, model, "regular")
        and cell.column == Column(trial.attack, epsilon)
    )
    return f"{cell.mean:.1f} ± {cell.error:.1f}"


if __name__ == "__main__":
    app()
