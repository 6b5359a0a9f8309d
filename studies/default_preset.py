"""The preset ``"default"`` beside plain training, and adversarial beside regular training, on many graphs.

python studies/default_preset.py        write docs/default-preset.md from the stored results
python studies/default_preset.py run    train the models without a stored result, into results/default_preset
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

from _pages import DOCS, command_line, provenance, study_store, table

from edgeproof import models
from edgeproof.experiments import (
    AttackSpec,
    CleanAccuracy,
    DatasetSpec,
    Job,
    Measurement,
    ModelSpec,
    PlainAccuracy,
    Record,
    RobustAccuracy,
    Run,
    Sweep,
    Task,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments.graphs import GENERATED
from edgeproof.experiments.spec import SplitSpec

STORE = study_store("default_preset")
PAGE = DOCS / "default-preset.md"

# Small graphs first.
GRAPHS = (
    *("csbm", "sbm-small", "sbm-mixed", "citeseer", "cora", "cora_ml", "squirrel", "sbm-words", "sbm-unscaled"),
    *("sbm-heterophilous", "pubmed", "amazon_photo", "sbm-dense", "sbm-classes", "coauthor_cs", "sbm-large"),
    "sbm-densest",
)
# Models with bounded influence of edges have their own study: provable.py.
MODELS = tuple(name for name in models.available() if name not in ("BoundedInfluence", "OneHop"))
SEEDS = (0, 1, 2, 3, 4)
SPLIT = SplitSpec()
EPSILON, LOCAL = 0.1, 0.5
REGULAR = TrainingSpec(name="regular", preset="default")
ADVERSARIAL = TrainingSpec(
    name="LR-BCD", preset="default", attack=AttackSpec.for_training("LRBCD"), epsilon=0.2, local=LOCAL
)
# Accuracy that adversarial training should raise.
ATTACK = RobustAccuracy(AttackSpec("LRBCD", as_settings({"steps": 100, "block_size": 200_000})), (EPSILON,), LOCAL)
# Edges do not matter to an MLP.
ATTACKED_MODELS = tuple(name for name in MODELS if name != "MLP")
ATTACKED_SEEDS = (0, 1, 2)
# Limits in points.
MAX_MEAN_LOSS, MAX_SEED_LOSS, MAX_CLEAN_LOSS, MIN_GAIN_FRACTION = 2.0, 10.0, 3.0, 0.9


def sweeps() -> list[Sweep]:
    """Return all sweeps of the study."""
    graphs, networks = tuple(map(DatasetSpec, GRAPHS)), tuple(map(ModelSpec, MODELS))
    attacked = tuple(map(ModelSpec, ATTACKED_MODELS))
    return [
        Sweep(graphs, networks, (CleanAccuracy(), PlainAccuracy()), (REGULAR,), (SPLIT,), SEEDS),
        Sweep(graphs, attacked, (CleanAccuracy(), ATTACK), (REGULAR, ADVERSARIAL), (SPLIT,), ATTACKED_SEEDS),
    ]


def jobs() -> list[Job]:
    """Return one job per model to train, with the measurements of all sweeps, in the order of seeds, then graphs."""
    measurements: dict[Run, list[Measurement]] = defaultdict(list)
    for sweep in sweeps():
        for job in sweep.jobs():
            found = measurements[job.run]
            found += [measurement for measurement in job.measurements if measurement not in found]
    order = sorted(
        measurements, key=lambda run: (run.seed, GRAPHS.index(run.dataset.name), MODELS.index(run.model.name))
    )
    return [Job(run, tuple(measurements[run])) for run in order]


# Dataset, model and training: accuracies in percent by kind of measurement, then by seed.
Accuracies = Mapping[tuple[str, str, str], Mapping[str, Mapping[int, float]]]


def load() -> tuple[Accuracies, list[Record]]:
    """Return the stored accuracies in percent, and their records."""
    values: dict[tuple[str, str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    records = []
    for job in jobs():
        for measurement in job.measurements:
            record = STORE.get(Task(job.run, measurement).identity)
            if record is not None:
                run = job.run
                key = (run.dataset.name, run.model.name, run.training.name)
                values[key][measurement.kind][run.seed] = 100 * record.values["accuracy"][0][1]
                records.append(record)
    return values, records


def plain_rows(values: Accuracies) -> list[list[str]]:
    """Return mean accuracies after the preset and after plain training, with the difference and the worst seed."""
    rows = []
    for graph in GRAPHS:
        for model in MODELS:
            measured = values.get((graph, model, "regular"), {})
            ours, plain = measured.get("clean", {}), measured.get("plain_training", {})
            seeds = sorted(ours.keys() & plain.keys())
            if not seeds:
                continue
            mean, reference = (statistics.mean(found[seed] for seed in seeds) for found in (ours, plain))
            worst = min(ours[seed] for seed in seeds) - mean
            holds = mean >= reference - MAX_MEAN_LOSS and worst >= -MAX_SEED_LOSS
            cells = [f"{mean:.1f}", f"{reference:.1f}", f"{mean - reference:+.1f}", f"{worst:+.1f}", str(len(seeds))]
            rows.append([graph, model, *cells, "yes" if holds else "**no**"])
    return rows


def gprgnn_rows(values: Accuracies) -> list[list[str]]:
    """Return GPRGNN beside the better of GCN and MLP after plain training."""
    rows = []
    for graph in GRAPHS:
        ours = values.get((graph, "GPRGNN", "regular"), {}).get("clean", {})
        others = [values.get((graph, name, "regular"), {}).get("plain_training", {}) for name in ("GCN", "MLP")]
        if ours and all(others):
            mean, best = statistics.mean(ours.values()), max(statistics.mean(found.values()) for found in others)
            holds = "yes" if mean >= best - MAX_MEAN_LOSS else "**no**"
            rows.append([graph, f"{mean:.1f}", f"{best:.1f}", f"{mean - best:+.1f}", holds])
    return rows


def adversarial_rows(values: Accuracies) -> list[list[str]]:
    """Return clean and attacked accuracies after regular and after adversarial training, on the same seeds."""
    rows = []
    for graph in GRAPHS:
        for model in ATTACKED_MODELS:
            regular, adversarial = (values.get((graph, model, name), {}) for name in ("regular", "LR-BCD"))
            pairs = []
            for kind in ("clean", "attack"):
                before, after = regular.get(kind, {}), adversarial.get(kind, {})
                seeds = sorted(before.keys() & after.keys())
                if seeds:
                    pairs.append([statistics.mean(found[seed] for seed in seeds) for found in (before, after)])
            if len(pairs) < 2:
                continue
            (clean, robust_clean), (attacked, robust) = pairs
            cells = [f"{value:.1f}" for value in (clean, robust_clean, attacked, robust)]
            holds = [
                "yes" if robust_clean >= clean - MAX_CLEAN_LOSS else "**no**",
                "yes" if robust > attacked else "**no**",
            ]
            rows.append([graph, model, *cells, *holds])
    return rows


def _held(rows: Iterable[list[str]], column: int = -1) -> str:
    marks = [row[column] for row in rows]
    return f"{marks.count('yes')} of {len(marks)}"


def page() -> str:
    """Return the page."""
    values, records = load()
    plain, gprgnn, adversarial = plain_rows(values), gprgnn_rows(values), adversarial_rows(values)
    missing = sum(len(job.measurements) for job in jobs()) - len(records)
    return PAGE_TEXT.format(
        plain_held=_held(plain),
        gprgnn_held=_held(gprgnn),
        clean_held=_held(adversarial, -2),
        gain_held=_held(adversarial),
        missing=f" {missing} measurements have not been run." if missing else "",
        plain=table(["graph", "model", "default", "plain", "difference", "worst seed", "seeds", "holds"], plain),
        gprgnn=table(["graph", "GPRGNN, default", "better of GCN and MLP, plain", "difference", "holds"], gprgnn),
        adversarial=table(
            [
                "graph",
                "model",
                "regular",
                "adversarial",
                "regular, attacked",
                "adversarial, attacked",
                "clean holds",
                "gain",
            ],
            adversarial,
        ),
        generated=table(
            ["graph", "arguments of `datasets.attributed_sbm`"],
            [
                [name, ", ".join(f"`{key}={value!r}`" for key, value in found.items())]
                for name, found in GENERATED.items()
            ],
        ),
        provenance=provenance(records),
    )


PAGE_TEXT = """# Does the default preset work on other graphs?

Test accuracy in percent of models trained with `ep.train(model, split)`, beside plain training of the same architecture
(cross-entropy, Adam, early stopping on validation accuracy; PyG's layers where they exist), on inductive splits.{missing}

| requirement | holds for |
|---|---|
| mean at most 2 points below plain training, no seed more than 10 below the mean | {plain_held} pairs of graph and model |
| GPRGNN at most 2 points below the better of GCN and MLP | {gprgnn_held} graphs |
| adversarial training loses at most 3 points of clean accuracy | {clean_held} pairs |
| adversarial training gains under its own attack | {gain_held} pairs |

## GPRGNN beside GCN and MLP

{gprgnn}

## Adversarial training

LR-BCD with epsilon 0.2 and local budgets of half the degree in training; attacked by LR-BCD with epsilon 0.1 and the same local
budgets. An MLP uses no edges and is left out.

{adversarial}

## Clean training

{plain}

*worst seed*: lowest accuracy minus the mean.

## Generated graphs

{generated}

## Reproduce

    python studies/default_preset.py run --device cuda
    python studies/default_preset.py

Results were computed by

{provenance}
"""

if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE)()
