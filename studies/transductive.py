"""Robustness in the transductive setting: the memorizing defence, self-training, and "perfect" robustness.

python studies/transductive.py        write docs/transductive.md from the stored results
python studies/transductive.py run    train and attack the models of the memorizing defence without stored results

The other models are trained by ``edgeproof reproduce``; the page shows the results in its store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from _pages import DOCS, PROTOCOL_STORE, command_line, csv_text, mean_and_error, provenance, study_store, table

from edgeproof.experiments import (
    AttackSpec,
    CleanAccuracy,
    Job,
    Measurement,
    MemorizingAccuracy,
    Record,
    RobustAccuracy,
    Run,
    Task,
    as_settings,
    read_sweep,
)
from edgeproof.paper import Recipe, compare, find_figure, find_table
from edgeproof.paper.figures.curves import Curve, Curves
from edgeproof.paper.numbers import PaperRow
from edgeproof.paper.recipes import SEEDS, PaperMeasurement

STORE = study_store("transductive")
PAGE = DOCS / "transductive.md"
SETTINGS = ("transductive", "inductive")
ATTACKS = {
    "PRBCD": AttackSpec("PRBCD"),
    "GreedyRBCD, log margin": AttackSpec("GreedyRBCD", as_settings({"loss": "log_margin", "steps": 200})),
    "DICE": AttackSpec("DICE"),
}
EPSILONS = (0.1, 0.25)
# Figures and tables of the paper that the page uses.
TRAININGS = ("self-training-cora", "self-training-cora-5", "self-training-citeseer", "self-training-citeseer-5")
PERFECT = ("perfect-cora", "perfect-cora-ml", "perfect-citeseer")
# Budget at which trainings are compared.
EPSILON = 0.25
# Budgets, and budget in training, of the table on the page; the CSV file has all.
SHOWN_BUDGETS, SHOWN_EPSILON = (0.0, EPSILON, 1.0), 0.1


def jobs() -> list[Job]:
    """Return the jobs of the memorizing defence."""
    return [job for setting in SETTINGS for job in setting_jobs(setting)]


def setting_jobs(setting: str) -> list[Job]:
    """Return the jobs of the memorizing defence in one setting."""
    return read_sweep(Path(__file__).parent / f"memorizing_{setting}.toml").jobs()


def page() -> str:
    """Return the page."""
    memorizing = [record for job in jobs() for task in job.tasks if (record := STORE.get(task.identity)) is not None]
    early, trainings = early_stops(), all_trainings()
    return PAGE_TEXT.format(
        memorizing=memorizing_table(),
        trainings=table(*training_rows(trainings, shown_only=True)),
        early=table(["pseudo-labels", "trainings against PGD", "best within 30 epochs", "within 5"], early),
        adversary=adversary_table(trainings),
        gains=gain_table(),
        commands=provenance(memorizing),
    )


def other_files() -> dict[str, str]:
    """Return the accuracies of all trainings as CSV files, and the page about perfect robustness, by name."""
    return {
        "perfect-robustness.md": PERFECT_TEXT.format(perfect=perfect_table(), labels=label_table()),
        "transductive.csv": csv_text(*training_rows(all_trainings())),
        "transductive-settings.csv": csv_text(*setting_rows()),
    }


def percent(run: Run, measurement: Measurement, epsilon: float) -> float:
    """Return a stored accuracy of the memorizing study, in percent."""
    record = STORE.get(Task(run, measurement).identity)
    if record is None:
        raise LookupError(
            f"no stored result of {measurement.label} for {run.name}; run python studies/transductive.py run"
        )
    return float(100 * dict(record.values["accuracy"])[epsilon])


def memorizing_table() -> str:
    """Return the accuracies of GCN and of the memorizing defence based on it in both settings."""
    rows = []
    for setting in SETTINGS:
        runs = [job.run for job in setting_jobs(setting)]
        cells: dict[str, list[str]] = {"GCN": [], "memorizing GCN": []}
        any_attack = MemorizingAccuracy(ATTACKS["PRBCD"], EPSILONS)
        cells["GCN"].append(mean_and_error([percent(run, CleanAccuracy(), 0.0) for run in runs]))
        cells["memorizing GCN"].append(mean_and_error([percent(run, any_attack, 0.0) for run in runs]))
        for attack in ATTACKS.values():
            for epsilon in EPSILONS:
                for name, kind in (("GCN", RobustAccuracy), ("memorizing GCN", MemorizingAccuracy)):
                    measurement = kind(attack, EPSILONS)
                    cells[name].append(mean_and_error([percent(run, measurement, epsilon) for run in runs]))
        rows += [[setting, name, *accuracies] for name, accuracies in cells.items()]
    attacks = [f"{name} {epsilon:g}" for name in ATTACKS for epsilon in EPSILONS]
    return table(["setting", "model", "clean", *attacks], rows)


def curves_of(nickname: str) -> list[Curve]:
    """Return all curves of a figure."""
    content = find_figure(nickname).content
    assert isinstance(content, Curves)
    return [curve for panel in content.panels for curve in panel.curves]


def training_names() -> dict[PaperRow, str]:
    """Return all trainings of the paper's figures with their names in the figures."""
    return {curve.row: curve.name for nickname in TRAININGS for curve in curves_of(nickname)}


def all_trainings() -> dict[PaperRow, dict[int, dict[float, float]]]:
    """Return the accuracies of all trainings of the paper's figures by seed."""
    return {row: accuracies_by_seed(row) for row in training_names()}


def accuracies_by_seed(row: PaperRow) -> dict[int, dict[float, float]]:
    """Return :func:`accuracies` for those of the paper's seeds with stored results."""
    seeds = max((find_figure(nickname).seeds for nickname in TRAININGS), key=len)
    return {seed: measured for seed in seeds if (measured := accuracies(row, seed))}


def accuracies(row: PaperRow, seed: int) -> dict[float, float]:
    """Return fractions under PGD by budget, starting with 0; empty if a result is missing."""
    recipe = Recipe(row, seed)
    records = [PROTOCOL_STORE.get(PaperMeasurement(recipe, kind).identity) for kind in ("clean", "PGD")]
    if None in records:
        return {}
    return {epsilon: value for record in records if record for epsilon, value in record.values["accuracy"]}


def training_record(row: PaperRow, seed: int) -> Record | None:
    """Return the record of a training of the paper."""
    return PROTOCOL_STORE.get(Recipe(row, seed).identity)


Trainings = dict[PaperRow, dict[int, dict[float, float]]]


def training_rows(trainings: Trainings, *, shown_only: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the accuracies under PGD of all trainings with results for at least two seeds.

    Args:
        trainings: Accuracies by seed.
        shown_only: Whether to return the rows and columns of the page only.
    """
    names, rows = training_names(), []
    for row, by_seed in trainings.items():
        if len(by_seed) < 2 or (shown_only and row.epsilon not in (None, SHOWN_EPSILON)):
            continue
        results = list(by_seed.values())
        budgets = SHOWN_BUDGETS if shown_only else list(results[0])
        records = [training_record(row, seed) for seed in by_seed]
        best = ", ".join(str(record.values["best_epoch"]) if record else "?" for record in records)
        epsilon = "-" if row.epsilon is None else f"{row.epsilon:g}"
        cells = [mean_and_error([100 * result[budget] for result in results]) for budget in budgets]
        about = [row.dataset, row.model, names[row]]
        rows.append([*about, *cells] if shown_only else [*about, epsilon, str(len(results)), *cells, best])
    shown = [f"{budget:.0%}" for budget in budgets]
    if shown_only:
        return ["dataset", "model", "training", *shown], rows
    return ["dataset", "model", "training", "ε in training", "splits", *shown, "best epochs"], rows


def early_stops() -> list[list[str]]:
    """Return the numbers of trainings against PGD with an early best epoch, without and with pseudo-labels."""
    best: dict[bool, list[int]] = {False: [], True: []}
    for row in (row for row in training_names() if row.attack is not None):
        records = (training_record(row, seed) for seed in accuracies_by_seed(row))
        best[row.self_training] += [record.values["best_epoch"] for record in records if record]
    return [
        [
            "with" if labelled else "without",
            str(len(epochs)),
            *(str(sum(epoch <= last for epoch in epochs)) for last in (30, 5)),
        ]
        for labelled, epochs in best.items()
    ]


def adversary_table(trainings: Trainings) -> str:
    """Return the differences between trainings with and without PGD, without and with pseudo-labels."""
    rows = []
    for row in (row for row in trainings if row.attack is not None and not row.self_training):
        pairs = [
            (trainings[replace(against, attack=None, epsilon=None)], trainings[against])
            for against in (row, replace(row, self_training=True))
        ]
        seeds = [seed for seed in trainings[row] if all(seed in results for pair in pairs for results in pair)]
        gains = [
            mean_and_error([100 * (against[seed][EPSILON] - regular[seed][EPSILON]) for seed in seeds])
            for regular, against in pairs
        ]
        rows.append([row.dataset, row.model, f"{row.epsilon:g}", str(len(seeds)), *gains])
    titles = ["dataset", "model", "ε in training", "splits", "without pseudo-labels", "with pseudo-labels"]
    return table(titles, rows)


def setting_rows() -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of accuracies on Citeseer in both settings."""
    rows = []
    for curve in curves_of("self-training-citeseer"):
        if (both := in_both_settings(curve.row)) is not None:
            rows.append([curve.row.model, curve.name, *map(mean_and_error, both)])
    return ["model", "training", "transductive, PGD", "inductive, PR-BCD"], rows


def gain_table() -> str:
    """Return the gains by self-training and by the adversary in both settings."""
    rows_of = {(curve.row.model, curve.name): curve.row for curve in curves_of("self-training-citeseer")}
    steps = {
        "self-training": ("regular", "self-training"),
        "the adversary, with pseudo-labels": ("self-training", "self- and adversarial"),
    }
    rows = []
    for model in dict.fromkeys(model for model, _ in rows_of):
        for step, names in steps.items():
            before, after = (in_both_settings(rows_of[model, name]) for name in names)
            if before and after:
                gains = [
                    [late - early for early, late in zip(*pair, strict=True)]
                    for pair in zip(before, after, strict=True)
                ]
                # Unpaired: the same seed samples different nodes in the two settings.
                difference = fmean(gains[0]) - fmean(gains[1])
                error = math.hypot(*(stdev(gain) / len(gain) ** 0.5 for gain in gains))
                rows.append([model, step, *map(mean_and_error, gains), f"{difference:.1f} ± {error:.1f}"])
    return table(["model", "gain by", "transductive, PGD", "inductive, PR-BCD", "difference"], rows)


def in_both_settings(row: PaperRow) -> tuple[list[float], list[float]] | None:
    """Return accuracies of a transductive training on Citeseer and its inductive counterpart; None if results are missing."""
    attack, epsilon = ("PRBCD", 0.2) if row.attack else (None, None)
    inductive = replace(row, setting="inductive", attack=attack, epsilon=epsilon)
    records = [PROTOCOL_STORE.get(PaperMeasurement(Recipe(inductive, seed), "PRBCD").identity) for seed in SEEDS]
    transductive = [accuracies(row, seed) for seed in SEEDS]
    if None in records or not all(transductive):
        return None
    return (
        [100 * result[EPSILON] for result in transductive],
        [100 * dict(record.values["accuracy"])[EPSILON] for record in records if record],
    )


def perfect_table() -> str:
    """Return the paper's three tables in one, one row per attack, with the printed numbers in brackets."""
    rows = []
    for nickname in PERFECT:
        by_attack: dict[str, dict[float, str]] = {}
        clean = ""
        for cell in compare(find_table(nickname), PROTOCOL_STORE).cells:
            ours, column = cell.ours["strict"], cell.paper.column
            if ours is None:
                continue
            text = f"{ours} ({cell.paper.mean:.1f})"
            if column.attack == "clean":
                clean = text
            else:
                by_attack.setdefault(column.attack, {})[column.epsilon] = text
        dataset = find_table(nickname).rows[0].dataset
        for attack, cells in by_attack.items():
            rows.append([dataset, attack, clean, *(cells[budget] for budget in SHOWN_BUDGETS[1:])])
    return table(["dataset", "attack", *(f"{budget:.0%}" for budget in SHOWN_BUDGETS)], rows)


def label_table() -> str:
    """Return accuracies of pseudo-labels and of the models trained on them against as many flips as edges."""
    paper_rows = [
        *(find_table(nickname).rows[0] for nickname in PERFECT),
        *(curve.row for curve in curves_of("perfect")),
    ]
    rows = []
    for row in dict.fromkeys(paper_rows):
        measured = [accuracies(row, seed) for seed in SEEDS]
        records = [training_record(row, seed) for seed in SEEDS]
        if None in records or not all(measured):
            continue
        notes = [record.notes for record in records if record]
        cells = [mean_and_error([100 * note["label_accuracy"] for note in notes])]
        cells += [mean_and_error([100 * result[budget] for result in measured]) for budget in (0.0, 1.0)]
        weights = [own_weight(note["gamma"]) for note in notes if "gamma" in note]
        rows.append([row.dataset, row.model, *cells, ", ".join(f"{weight:.2f}" for weight in weights) or "-"])
    titles = [
        "dataset",
        "model",
        "labels right",
        "accuracy at 0%",
        "at 100%",
        "weight of the node itself in γ, by split",
    ]
    return table(titles, rows)


def own_weight(gamma: Sequence[float]) -> float:
    """Return the absolute weight of a node's own features as a fraction of the sum of all absolute coefficients."""
    return abs(gamma[0]) / sum(map(abs, gamma))


PAGE_TEXT = """# Robustness needs the inductive setting

Accuracy under attack in the *transductive* setting cannot distinguish robustness from memorization: a defence that only
stores its predictions on the clean graph is perfectly robust there, and not robust on new nodes. In the transductive setting
the training graph contains the test nodes; in the *inductive* setting they are added later. Work on adversarial training of
graph neural networks before the paper was transductive.

Numbers are means and standard errors in percent, over the splits 0, 1 and 5 unless a table states otherwise.

## A memorizing defence is perfect

`ep.training.Memorizing(model, data)` returns the predictions of `model` on the clean graph for every node that it contains,
whatever the edges are (Propositions 1 and 2 of the paper). All test nodes are attacked at once; the budget is a fraction of the
edges at them. The attack targets the model inside the defence. These models were trained with the warm-up as part
of the run (`separate_warmup=False`).

{memorizing}

In the transductive setting no attack lowers the accuracy of the defence, although it is not a better model than GCN. On new
nodes it equals GCN. The same holds for every model and every attack, because the predictions do not depend on edges
(`tests/training/test_memorize.py` tests GCN under all attacks).

The same as runnable code: [Inductive and transductive](concepts/inductive.md).

## Self-training leaks the clean graph

Pseudo-labels of test nodes are predictions on the clean graph, so a model trained on them has information that is not in the
attacked graph. Validation nodes are pseudo-labelled here, too: early stopping then uses nodes of the training set.

Accuracy under PGD by the fraction of flipped edges, for models with regular training, training against PGD (10 steps),
self-training, or both, trained with ε = 0.1 ([figures](figures.md)). Ten splits of Cora, three of Citeseer. The paper trains
label models for 500 epochs without early stopping; ours are the best of 500 epochs by validation loss.

![Cora, trained with 10 %](figures/self-training-cora.png)

{trainings}

All budgets, trainings with ε = 0.05, and the best epoch of every split by validation loss:

[All trainings as CSV](transductive.csv)

Many trainings against PGD without pseudo-labels stop early, so "adversarial training does not help" may partly
mean that it was short:

{early}

Gain in accuracy from training against PGD, under PGD with a quarter of the edges flipped, as mean of paired differences:

{adversary}

## Both settings compared

Gain over the previous training on Citeseer with a quarter of the edges flipped, as mean of paired differences. Inductive
adversarial training is against PR-BCD with ε = 0.2. Attacks and budgets differ between the settings, but the gains from a
training can be compared:

{gains}

[Accuracies in both settings as CSV](transductive-settings.csv)

With three splits, a difference of less than four standard errors may be chance. Differences may be caused by the setting or
by the different attacks: a large difference suggests a leak, but does not prove it.

Training with a very large budget: ["Perfect" robustness](perfect-robustness.md).

## Reproduce

    python studies/transductive.py run
    edgeproof reproduce run self-training-cora self-training-cora-5
    edgeproof reproduce run self-training-citeseer self-training-citeseer-5 --seed 0 --seed 1 --seed 5
    python studies/transductive.py

The first command runs the sweeps of the memorizing defence (`studies/memorizing_transductive.toml` and
`studies/memorizing_inductive.toml`), which store their results in `results/transductive`. The results of `edgeproof reproduce`
are in `results/experiments`. The last command writes this page. The stored results of the memorizing defence were computed by

{commands}
"""


PERFECT_TEXT = """# "Perfect" robustness in the transductive setting

GPRGNN that is trained against as many flips as edges loses almost no accuracy in the transductive setting, as the paper
reports. This setting [cannot show that it is robustness](transductive.md) rather than memory of the clean graph.

GPRGNN with self-training and training against PGD (50 steps) with as many flips as edges: test accuracy under attack by the
fraction of flipped edges, with the paper's numbers in brackets ([all budgets](reproduction.md?q=overfitting)):

{perfect}

![Cora, trained against as many flips as edges](figures/perfect.png)

Most of the paper's numbers reproduce. On Cora-ML and Citeseer, as many flips as edges lower the accuracy by less than a point;
on Cora by one or two, and by 3.3 at most (split 0, PGD). The transductive setting cannot show that this is robustness:

- The model was trained on pseudo-labels of the attacked nodes, predicted on the clean graph. Its clean accuracy is within a
  point of the accuracy of these labels.
- About half of its coefficients' weight or more is on the features of the node itself, which no edge perturbation changes.
  GCN has no such coefficients, and its accuracy drops.

{labels}

Accuracies of pseudo-labels are over all unlabelled nodes, the others over test nodes. On Cora the pseudo-labels of split 5
are the worst (76.8 % correct), which may partly explain why our numbers are below the paper's.

## Reproduce

    edgeproof reproduce run perfect-cora perfect-cora-ml perfect-citeseer perfect
    python studies/transductive.py
"""


if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE, other_files)()
