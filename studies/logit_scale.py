"""Dependence of attacks on the scale of the logits: the protocol's attacks with the tanh margin and with the scaled margin.

    python studies/logit_scale.py        write docs/logit-scale.md from the stored results
    python studies/logit_scale.py run    train and attack the models without stored results, into results/logit_scale

Models are trained as ``edgeproof reproduce run`` trains them, on strict splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from statistics import fmean

from _pages import DOCS, PROTOCOL_STORE, command_line, csv_text, mean_and_error, provenance, stored, study_store, table

from edgeproof.experiments import AttackSpec, CleanAccuracy, Job, LogitMargins, Measurement, Record, RobustAccuracy
from edgeproof.paper import Recipe, find_table
from edgeproof.paper.numbers import PaperColumn, PaperRow
from edgeproof.paper.recipes import SEEDS, PaperMeasurement, recipes, training_name

STORE = study_store("logit_scale")
PAGE = DOCS / "logit-scale.md"
# The study has the rows of these tables with these models and trainings.
TABLES = ("main", "other-graphs", "arxiv-table-stand-in")
MODELS = {
    "citeseer": ("GCN", "GPRGNN"),
    "pubmed": ("GPRGNN",),
    "csbm": ("GPRGNN",),
    "squirrel": ("GCN", "GPRGNN"),
    "arxiv-stand-in": ("APPNP", "GPRGNN"),
}
TRAININGS = ("regular", "LRBCD", "PRBCD")
ATTACKS = ("LRBCD", "PRBCD")
LOSSES = ("tanh_margin", "scaled_margin")
# The largest of the protocol's budgets.
NUM_BUDGETS = 2
MARGINS = LogitMargins()


def rows() -> list[PaperRow]:
    """Return the rows in the order of the tables, which have one training budget each."""
    listed = [row for table in TABLES for row in find_table(table).rows if row.model in MODELS.get(row.dataset, ())]
    return list(dict.fromkeys(row for row in listed if training_name(row) in TRAININGS))


def attack(recipe: Recipe, name: str, loss: str) -> RobustAccuracy:
    """Return the protocol's attack with another loss, at the largest budgets."""
    protocol = PaperMeasurement(recipe, name)
    spec = AttackSpec.of(replace(protocol.attack, loss=loss))  # type: ignore[call-arg]
    return RobustAccuracy(spec, protocol.epsilons[-NUM_BUDGETS:], protocol.local)


def measurements(recipe: Recipe) -> tuple[Measurement, ...]:
    """Return all measurements of a model."""
    return (CleanAccuracy(), MARGINS, *(attack(recipe, name, loss) for name in ATTACKS for loss in LOSSES))


def jobs() -> list[Job]:
    """Return all runs with their measurements."""
    return [Job(recipe.run, measurements(recipe)) for row in rows() for recipe in recipes(row, "strict")]


def complete(row: PaperRow) -> dict[Recipe, dict[Measurement, Record]]:
    """Return the stored results of those models of a row for which all measurements are stored."""
    found = {}
    for recipe in recipes(row, "strict"):
        records = {measurement: stored(STORE, recipe.run, measurement) for measurement in measurements(recipe)}
        if None not in records.values():
            found[recipe] = {measurement: record for measurement, record in records.items() if record is not None}
    return found


def accuracy(records: dict[Measurement, Record], measurement: Measurement, epsilon: float = 0.0) -> float:
    """Return one accuracy in percent."""
    return float(100 * dict(records[measurement].values["accuracy"])[epsilon])


@cache
def all_results() -> dict[PaperRow, dict[Recipe, dict[Measurement, Record]]]:
    """Return the stored results of all rows."""
    return {row: complete(row) for row in rows()}


def other_files() -> dict[str, str]:
    """Return all results as a CSV file by name."""
    titles = ["graph", "model", "training", "seeds", "margin", "flat", "clean", "attack", "paper"]
    results = all_results()
    shown = [line for row in results for line in lines(row, results[row])]
    return {"logit-scale.csv": csv_text([*titles, "tanh margin", "scaled margin"], shown)}


def summary() -> str:
    """Return the results at the largest budget, one row per training: both losses of each attack."""
    shown = []
    for row, models in all_results().items():
        largest: dict[str, list[str]] = {}
        for *about, title, _, tanh, scaled in lines(row, models):
            largest[title.partition(" ")[0]] = [about[4], tanh, scaled]
        if largest:
            margins = largest[ATTACKS[0]][0]
            cells = [" → ".join(largest[name][1:]) for name in ATTACKS]
            shown.append([row.dataset, row.model, training_name(row), margins, *cells])
    return table(["graph", "model", "training", "margin", *ATTACKS], shown)


def page() -> str:
    """Return the page."""
    results = all_results()
    records = [record for models in results.values() for found in models.values() for record in found.values()]
    return PAGE_TEXT.format(
        slope=MARGINS.flat_slope,
        table=summary(),
        differences="\n".join(largest_differences(results)),
        commands=provenance(records),
    )


def lines(row: PaperRow, models: dict[Recipe, dict[Measurement, Record]]) -> Iterator[list[str]]:
    """Yield the lines of one row of the paper, one per attack and budget."""
    if not models:
        return
    margins = [records[MARGINS].values for records in models.values()]
    about = [
        *(row.dataset, row.model, training_name(row), ", ".join(str(recipe.seed) for recipe in models)),
        ", ".join(f"{values['median']:.2g}" for values in margins),
        ", ".join(f"{100 * values['flat']:.0f}" for values in margins),
        mean_and_error([accuracy(records, CleanAccuracy()) for records in models.values()]),
    ]
    for name in ATTACKS:
        for epsilon in attack(next(iter(models)), name, LOSSES[0]).epsilons:
            ours = [
                mean_and_error(
                    [accuracy(records, attack(recipe, name, loss), epsilon) for recipe, records in models.items()]
                )
                for loss in LOSSES
            ]
            yield [*about, f"{name} {epsilon:g}", printed(row, name, epsilon), *ours]


def differences(
    results: dict[PaperRow, dict[Recipe, dict[Measurement, Record]]],
) -> Iterator[tuple[str, int, float]]:
    """Yield a cell of our tables, a seed, and the difference from the accuracy in the tables."""
    for row, models in results.items():
        for recipe, records in models.items():
            for kind in ("clean", *ATTACKS):
                here = CleanAccuracy() if kind == "clean" else attack(recipe, kind, "tanh_margin")
                protocol = PROTOCOL_STORE.get(PaperMeasurement(recipe, kind).identity)
                for epsilon, theirs in protocol.values["accuracy"] if protocol else ():
                    if epsilon in dict(records[here].values["accuracy"]):
                        measured = kind if kind == "clean" else f"{kind} {epsilon:g}"
                        cell = f"{row.model}, {training_name(row)}, on {row.dataset}, {measured}"
                        yield cell, recipe.seed, accuracy(records, here, epsilon) - 100 * theirs


def largest_differences(results: dict[PaperRow, dict[Recipe, dict[Measurement, Record]]]) -> list[str]:
    """Return the largest absolute differences, on one split and of means over all seeds."""
    by_cell: dict[str, dict[int, float]] = {}
    for cell, seed, gap in differences(results):
        by_cell.setdefault(cell, {})[seed] = gap
    single = [(abs(gap), f"{cell}, split {seed}") for cell, gaps in by_cell.items() for seed, gap in gaps.items()]
    means = [(abs(fmean(gaps.values())), cell) for cell, gaps in by_cell.items() if len(gaps) == len(SEEDS)]
    if not single or not means:
        return ["*Not run yet.*"]
    (gap, where), (mean, where_mean) = max(single), max(means)
    return [
        f"- {gap:.1f} points on one split ({where}),",
        f"- {mean:.1f} in the mean over {len(SEEDS)} ({where_mean}).",
    ]


def printed(row: PaperRow, name: str, epsilon: float) -> str:
    """Return the number that the paper prints; a dash if it prints none."""
    cells = (cell for table in TABLES for cell in find_table(table).cells if cell.row == row)
    cell = next((cell for cell in cells if cell.column == PaperColumn(name, epsilon)), None)
    return "-" if cell is None or cell.mean is None else f"{cell.mean:.1f} ± {cell.error:.1f}"


PAGE_TEXT = """# Attacks and the scale of the logits

With the paper's tanh margin, LR-BCD and PR-BCD can overestimate robustness, because their strength depends on the scale of
the logits. Multiplying all logits by a constant changes neither predictions nor robustness. But for large logits the tanh
saturates, so the attack ignores these nodes; for small logits the gradients are too small for steps of a fixed length.

The scaled margin (`loss="scaled_margin"`) divides the logits by the median size of the margins at the attacked nodes, and is
otherwise the tanh margin. This scale is not optimal: for margins of moderate size, either loss can give the stronger attack.

Accuracies in percent of the same models under the protocol's attacks with the largest budget, tanh margin → scaled margin:
means and standard errors over seeds, `strict` splits. *Margin*: median size of the margins at test nodes of the clean graph,
one number per seed. On Squirrel, adversarially trained GPRGNN has such small margins that attacks with the tanh margin hardly
work.

The models are trained like those of [our tables](reproduction.md); some are the same models. The paper's numbers for GPRGNN
on Citeseer and Pubmed are for [test nodes that were seen in training](what-reproduces.md).

{table}

All budgets, with the paper's numbers. *Flat*: percentage of these nodes at which the slope of the tanh is below {slope:g}.

[All results as CSV](logit-scale.csv)

## Retrained models

Models that were not stored were retrained with the same settings, but with later code, on another machine or with another
number of threads. [Rounding](nondeterminism.md), and on a GPU other random numbers, can change the trained model. In accuracy
on the clean graph and under attacks with the tanh margin, the models above differ from those of our tables by up to

{differences}

## Reproduce

    python studies/logit_scale.py run
    python studies/logit_scale.py

The first command trains and attacks the models without stored results in `results/logit_scale`, the second one writes this
page. The stored results were computed by

{commands}
"""


if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE, other_files)()
