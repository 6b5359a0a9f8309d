"""How close the standard suite comes to the worst case: against EvA, against the suite without exact gains, and its parts.

    python studies/worst_case.py        write docs/worst-case.md from the stored results
    python studies/worst_case.py run    train and attack the models without stored results, into results/worst_case

Every cell (model, split, budget, threat model) is a task of its own, so an interrupted sweep repeats at most one. On a GPU:

    python studies/worst_case.py run --device cuda --jobs 4 --threads 2
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from _pages import DOCS, ROOT, command_line, mean_and_error, provenance, study_store, table

from edgeproof.experiments import (
    AttackSpec,
    DatasetSpec,
    Job,
    Measurement,
    ModelSpec,
    Record,
    Run,
    SplitSpec,
    Sweep,
    Task,
    TrainingSpec,
    WorstCase,
    as_settings,
)
from edgeproof.experiments.measurements import ADDED_ATTACKS

STORE = study_store("worst_case")
PAGE = DOCS / "worst-case.md"
TIMES = ROOT / "results" / "benchmarks"
GRAPHS = ("citeseer", "cora_ml", "pubmed", "amazon_photo", "sbm-dense")
SEEDS = (0, 1, 5)
EPSILONS = (0.05, 0.1, 0.25)
THREATS: Mapping[str, float | None] = {"global": None, "local": 0.5}
REGULAR = TrainingSpec(name="regular")
ADVERSARIAL = TrainingSpec(
    name="LR-BCD", attack=AttackSpec.for_training("LRBCD"), epsilon=0.2, local=0.5, self_training=True
)
STURDY = TrainingSpec(name="sturdy", preset="sturdy")
MODELS = {
    REGULAR: tuple(map(ModelSpec, ("GCN", "GPRGNN", "GAT", "APPNP", "SoftMedianGDC", "GRAND"))),
    ADVERSARIAL: (ModelSpec("GPRGNN"),),
    STURDY: (ModelSpec("APPNP", as_settings({"alpha": 0.8, "dropout": 0.8})),),
}
EVA = AttackSpec("EvA")
# The ablation: search, loss and number of candidates, on these graphs and models.
ABLATED_GRAPHS, ABLATED_MODELS = ("citeseer", "cora_ml"), ("GCN", "GPRGNN")
ABLATION: Mapping[str, AttackSpec] = {
    **{
        f"{search}, {loss.replace('_', ' ')}": AttackSpec(search, as_settings({"loss": loss}))
        for search in ("PRBCD", "GreedyRBCD", "FGSM")
        for loss in ("tanh_margin", "scaled_margin", "log_margin")
    },
    **{
        f"ExactGain, {number:,} candidates": AttackSpec("ExactGain", as_settings({"candidates": number}))
        for number in (200, 2_000, 20_000, 100_000)
    },
    "NodeSelection": AttackSpec("NodeSelection"),
}


def cells(attack: AttackSpec | None) -> list[WorstCase]:
    """Return one measurement per budget and threat model."""
    return [WorstCase((epsilon,), attack, local) for epsilon in EPSILONS for local in THREATS.values()]


def jobs() -> list[Job]:
    """Return one job per model, smallest graphs and regular training first."""
    sweeps = [
        Sweep(
            tuple(map(DatasetSpec, GRAPHS)), networks, (*cells(None), *cells(EVA)), (training,), (SplitSpec(),), SEEDS
        )
        for training, networks in MODELS.items()
    ]
    found = [job for sweep in sweeps for job in sweep.jobs()]
    order = sorted(found, key=lambda job: GRAPHS.index(job.run.dataset.name))
    return [Job(job.run, (*job.measurements, *ablation(job.run))) for job in order]


def ablation(run: Run) -> tuple[Measurement, ...]:
    """Return the measurements of the ablation."""
    ablated = run.dataset.name in ABLATED_GRAPHS and run.model.name in ABLATED_MODELS and run.training == REGULAR
    return tuple(cell for attack in ABLATION.values() for cell in cells(attack)) if ablated else ()


@dataclass(frozen=True)
class Cell:
    """Stored results of one model at one budget, accuracies in percent.

    Args:
        run: The model.
        measured: Budget and threat model.
        suite: Result of the standard suite.
        eva: Result of EvA; None if it is not stored.
    """

    run: Run
    measured: WorstCase
    suite: Record
    eva: Record | None

    @property
    def threat(self) -> str:
        """``"global"`` or ``"local"``."""
        return "global" if self.measured.local is None else "local"

    @property
    def earlier(self) -> float:
        """Accuracy under the suite without exact gains."""
        return 100 * min(row[2] for row in self.suite.values["attacks"] if row[0] not in ADDED_ATTACKS)

    @property
    def worst(self) -> float:
        """Accuracy under the suite."""
        return accuracy(self.suite)

    def of(self, attack: str) -> float | None:
        """Return the accuracy under one attack of the suite, if it ran."""
        found = [100 * row[2] for row in self.suite.values["attacks"] if row[0] == attack]
        return found[0] if found else None


def accuracy(record: Record) -> float:
    """Return the accuracy of a record in percent."""
    return float(100 * record.values["accuracy"][0][1])


def stored_cells() -> list[Cell]:
    """Return all cells with a stored result of the suite."""
    found = []
    for job in jobs():
        for measured in cells(None):
            suite = STORE.get(Task(job.run, measured).identity)
            if suite is not None:
                eva = STORE.get(Task(job.run, WorstCase(measured.epsilons, EVA, measured.local)).identity)
                found.append(Cell(job.run, measured, suite, eva))
    return found


def page() -> str:
    """Return the page."""
    found, total = stored_cells(), sum(len(cells(None)) for _ in jobs())
    records = [record for cell in found for record in (cell.suite, cell.eva) if record is not None]
    ablated = list(ablation_records())
    return PAGE_TEXT.format(
        conclusion=conclusion(found, total),
        cells=table(
            ["graph", "model", "training", "threat", "ε", "splits", "clean", "earlier suite", "suite", "EvA"],
            cell_rows(found),
        ),
        stages=table(["graph", "model", "threat", "ε", *ADDED_ATTACKS, "seconds", "queries"], stage_rows(found)),
        ablation=table(["attack", "ε", "accuracy", "cells", "seconds"], ablation_rows(ablated)),
        scaling=table(
            [
                "device",
                "graph",
                "nodes",
                "targets",
                "model",
                "evaluator",
                "µs per candidate",
                "20 flips, seconds",
                "queries",
            ],
            scaling_rows(),
        ),
        commands=provenance([*records, *(record for _, _, record in ablated)]),
    )


def conclusion(found: list[Cell], total: int) -> str:
    """Return the first sentences of the page."""
    if not found:
        return "No results are stored."
    gain = fmean(cell.earlier - cell.worst for cell in found)
    text = (
        f"Attacks by exact gains lower the accuracy that the standard suite finds by {gain:.1f} points on average. Stored: "
        f"{len(found)} of {total} cells."
    )
    compared = [(cell.worst, accuracy(cell.eva)) for cell in found if cell.eva is not None]
    if compared:
        below = sum(worst <= eva + 1e-6 for worst, eva in compared)
        difference = fmean(eva - worst for worst, eva in compared)
        text += f" It is at most that under EvA in {below} of {len(compared)} cells, on average {difference:.1f} points lower."
    return text


def grouped(found: list[Cell]) -> dict[tuple[str, str, str, str, float], list[Cell]]:
    """Return the cells that differ only in their splits."""
    groups: dict[tuple[str, str, str, str, float], list[Cell]] = {}
    for cell in found:
        run = cell.run
        key = (run.dataset.label, run.model.name, run.training.name, cell.threat, cell.measured.epsilons[0])
        groups.setdefault(key, []).append(cell)
    return groups


def cell_rows(found: list[Cell]) -> Iterator[list[str]]:
    """Yield one row per model, threat model and budget."""
    for (graph, model, training, threat, epsilon), group in grouped(found).items():
        eva = [accuracy(cell.eva) for cell in group if cell.eva is not None]
        values = [
            [100 * cell.suite.values["clean"] for cell in group],
            [cell.earlier for cell in group],
            [cell.worst for cell in group],
            eva,
        ]
        splits = ", ".join(str(cell.run.seed) for cell in group)
        yield [graph, model, training, threat, f"{epsilon:g}", splits, *map(mean_and_error, values)]


def stage_rows(found: list[Cell]) -> Iterator[list[str]]:
    """Yield the accuracies after each of the attacks by exact gains, with their seconds and queries."""
    for (graph, model, training, threat, epsilon), group in grouped(found).items():
        if training != REGULAR.name:
            continue
        rows = [row for cell in group for row in cell.suite.values["attacks"] if row[0] in ADDED_ATTACKS]
        stages = [[value for cell in group if (value := cell.of(name)) is not None] for name in ADDED_ATTACKS]
        seconds, queries = (fmean([sum(row[i] for row in rows) / len(group)]) for i in (4, 3))
        yield [graph, model, threat, f"{epsilon:g}", *map(mean_and_error, stages), f"{seconds:.0f}", f"{queries:,.0f}"]


def ablation_records() -> Iterator[tuple[str, WorstCase, Record]]:
    """Yield the stored results of the ablation with the names of their attacks."""
    names = {attack: name for name, attack in ABLATION.items()}
    for job in jobs():
        for measured in ablation(job.run):
            assert isinstance(measured, WorstCase)
            record = STORE.get(Task(job.run, measured).identity)
            if record is not None and measured.attack is not None:
                yield names[measured.attack], measured, record


def ablation_rows(found: list[tuple[str, WorstCase, Record]]) -> Iterator[list[str]]:
    """Yield the mean accuracy of each attack at each budget."""
    for name in ABLATION:
        for epsilon in EPSILONS:
            records = [record for own, measured, record in found if own == name and measured.epsilons == (epsilon,)]
            if records:
                seconds = fmean(row[4] for record in records for row in record.values["attacks"])
                mean = fmean(map(accuracy, records))
                yield [name, f"{epsilon:g}", f"{mean:.1f}", str(len(records)), f"{seconds:.1f}"]


def scaling_rows() -> Iterator[list[str]]:
    """Yield the measurements of benchmarks/exact_gains.py."""
    for path in sorted(TIMES.glob("exact_gains-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for row in record["rows"]:
            yield [
                *(record["environment"]["device"], row["graph"], f"{row['nodes']:,}", f"{row['targets']:,}"),
                *(row["model"], row["evaluator"], f"{1e6 * row['candidate_seconds']:.1f}"),
                *(f"{row['attack_seconds']:.1f}", f"{row['queries']:,}"),
            ]


PAGE_TEXT = """# Worst case

{conclusion}

Accuracy in percent of the test nodes, attacked all at once: mean and standard error over inductive splits. *Global*: the total
budget is a fraction ε of the edges at the test nodes. *Local*: in addition, each node has a budget of half its degree.

- *Earlier suite*: the attacks of the standard suite by gradients, which run first.
- *Suite*: these, and the attacks by exact gains: [what they do](attacks.md).
- *EvA*: population 512, 1,024 generations, own implementation of [arXiv:2507.08212](https://arxiv.org/abs/2507.08212).

{cells}

## Stages

Accuracy under each attack by exact gains (and the short run of EvA in the suite, population 64, 40 generations), on regularly
trained models. Seconds and queries are those of these attacks together.

{stages}

## Ablation

Mean accuracy of single attacks on the models and threat models of the table above that are stored.

{ablation}

## Scaling

Untrained models, a tenth of the nodes as targets. *20 flips*: `ExactGain` with a budget of 20. On graphs with too many pairs at
the target nodes, its candidates are a random sample.

{scaling}

## Reproduce

    python benchmarks/exact_gains.py --device cuda
    python studies/worst_case.py run --device cuda --jobs 4 --threads 2
    python studies/worst_case.py

The stored results were computed by

{commands}
"""

if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE)()
