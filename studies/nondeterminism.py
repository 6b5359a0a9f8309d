"""Effect of rounding on training: models whose initial parameters differ only in the last bits.

python studies/nondeterminism.py        write docs/nondeterminism.md from the stored results
python studies/nondeterminism.py run    train and attack the models without stored results, into results/nondeterminism
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from _pages import DOCS, command_line, csv_text, provenance, stored, study_store, table
from torch import nn

from edgeproof import models
from edgeproof.attacks import LRBCD
from edgeproof.experiments import AttackSpec, CleanAccuracy, Job, ModelSpec, Record, RobustAccuracy, Run, as_settings
from edgeproof.experiments.execute import build_model
from edgeproof.paper import Recipe
from edgeproof.paper.numbers import PaperRow
from edgeproof.paper.recipes import SEEDS, local_factor

STORE = study_store("nondeterminism")
PAGE = DOCS / "nondeterminism.md"
DATASET, EPSILON = "citeseer", 0.25
# Features and classes of Citeseer: initial parameters depend on these and the seed only.
SIZES = (3703, 6)
MODELS = ("GCN", "GPRGNN")
DRAWS = 4
ATTACK = RobustAccuracy(AttackSpec.of(LRBCD()), (EPSILON,), local_factor(DATASET))


def change_last_bits(in_channels: int, out_channels: int, *, model: str, draw: int, **settings: Any) -> nn.Module:
    """Return a model with every initial parameter changed by a relative -1, 0 or 1 machine epsilon.

    Args:
        in_channels: Number of features per node.
        out_channels: Number of classes.
        model: Name of the model.
        draw: Seed of the changes.
        settings: Settings of the model that differ from those of the paper.
    """
    network = models.build(model, in_channels, out_channels, {**models.PAPER_SETTINGS.get(model, {}), **settings})
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in network.parameters():
            step = torch.randint(-1, 2, parameter.shape, generator=generator).to(parameter)
            parameter.mul_(1 + step * torch.finfo(parameter.dtype).eps)
    return network


def round_coefficients(in_channels: int, out_channels: int, *, init_seed: int) -> nn.Module:
    """Return a GPRGNN whose initial coefficients are computed in another order of operations, as before commit 2aa1c74.

    Args:
        in_channels: Number of features per node.
        out_channels: Number of classes.
        init_seed: Seed of the coefficients.
    """
    network = models.GPRGNN(in_channels, out_channels, **models.PAPER_SETTINGS["GPRGNN"], init_seed=init_seed)
    drawn = torch.from_numpy(np.random.RandomState(init_seed).uniform(-1, 1, network.gamma.numel())).to(network.gamma)
    with torch.no_grad():
        network.gamma.copy_(drawn / drawn.abs().sum())
    return network


def base_run(model: str, seed: int) -> Run:
    """Return the run of the protocol: regular training on a strict split."""
    return Recipe(PaperRow("inductive", DATASET, model, False, None, None), seed).run


def variants(run: Run) -> dict[str, Run]:
    """Return runs from changed initial parameters, by title; the first is the unchanged one."""
    # Identities have the settings that differ from those of the paper.
    name, settings = run.model.name, run.model.identity.get("settings", {})
    specs = {"unchanged": run.model}
    if name == "GPRGNN":
        specs["initial coefficients rounded differently"] = ModelSpec(
            "nondeterminism:round_coefficients", as_settings(settings)
        )
    for draw in range(1, DRAWS + 1):
        changed = as_settings({**settings, "model": name, "draw": draw})
        specs[f"last bits, draw {draw}"] = ModelSpec("nondeterminism:change_last_bits", changed)
    return {title: replace(run, model=spec) for title, spec in specs.items()}


def jobs() -> list[Job]:
    """Return all runs with their measurements."""
    return [
        Job(run, (CleanAccuracy(), ATTACK))
        for model in MODELS
        for seed in SEEDS
        for run in variants(base_run(model, seed)).values()
    ]


def largest_change(run: Run, unchanged: Run) -> float:
    """Return the largest difference between the initial parameters of two runs."""
    pair = [build_model(chosen.model, *SIZES, chosen.training_seed) for chosen in (run, unchanged)]
    changes = [(ours - theirs).abs().max().item() for ours, theirs in zip(*(m.parameters() for m in pair), strict=True)]
    return max(changes)


@dataclass(frozen=True)
class Outcome:
    """Stored results of one run.

    Args:
        model: Name of the model.
        seed: Seed of the split.
        title: Change of the initial parameters.
        change: Largest change of an initial parameter.
        records: Training, clean accuracy and accuracy under attack.
    """

    model: str
    seed: int
    title: str
    change: float
    records: tuple[Record, Record, Record]

    @property
    def epochs(self) -> tuple[int, int]:
        """Best epoch and number of epochs."""
        return self.records[0].values["best_epoch"], self.records[0].values["epochs"]

    @property
    def accuracies(self) -> tuple[float, float]:
        """Clean accuracy and accuracy under attack, in percent."""
        clean, attacked = (100 * record.values["accuracy"][0][1] for record in self.records[1:])
        return clean, attacked


@cache
def outcomes() -> list[Outcome]:
    """Return the stored results of all runs."""
    found = []
    for model in MODELS:
        for seed in SEEDS:
            unchanged = base_run(model, seed)
            for title, run in variants(unchanged).items():
                training = STORE.get(run.identity)
                clean, attacked = (stored(STORE, run, measurement) for measurement in (CleanAccuracy(), ATTACK))
                if training is None or clean is None or attacked is None:
                    continue
                change = largest_change(run, unchanged)
                found.append(Outcome(model, seed, title, change, (training, clean, attacked)))
    return found


def other_files() -> dict[str, str]:
    """Return the results of all runs as a CSV file by name."""
    titles = ["model", "split", "initial parameters", "change", "best epoch", "epochs", "clean", "attacked"]
    rows = [
        [
            *(run.model, str(run.seed), run.title, f"{run.change:.1e}"),
            *map(str, run.epochs),
            *(f"{accuracy:.1f}" for accuracy in run.accuracies),
        ]
        for run in outcomes()
    ]
    return {"nondeterminism.csv": csv_text(titles, rows)}


def summary() -> str:
    """Return the ranges of each model and split."""
    by_split: dict[tuple[str, int], list[Outcome]] = {}
    for run in outcomes():
        by_split.setdefault((run.model, run.seed), []).append(run)
    rows = []
    for (model, seed), runs in by_split.items():
        accuracies = [
            f"{min(column):.1f} to {max(column):.1f}" for column in zip(*(run.accuracies for run in runs), strict=True)
        ]
        best = [run.epochs[0] for run in runs]
        rows.append([model, str(seed), str(len(runs)), f"{min(best)} to {max(best)}", *accuracies])
    return table(["model", "split", "trainings", "best epoch", "clean", "attacked"], rows)


def page() -> str:
    """Return the page."""
    clean: dict[tuple[str, int], list[float]] = {}
    for run in outcomes():
        clean.setdefault((run.model, run.seed), []).append(run.accuracies[0])
    return PAGE_TEXT.format(
        draws=DRAWS,
        epsilon=EPSILON,
        spread=max(max(values) - min(values) for values in clean.values()),
        table=summary(),
        commands=provenance(record for run in outcomes() for record in run.records),
    )


PAGE_TEXT = """# Nondeterminism of training

Changes of 3e-8 or less to the initial parameters can change the clean accuracy on one split by up to {spread:.1f} points.
Every step rounds, and early stopping selects an epoch by a loss whose last digits vary. The same training may therefore give
another model on another machine, with another number of threads, or with later code.

The standard errors of [our tables](reproduction.md) are over splits with one training each, so they include this variation.

Regular training on Citeseer, `strict` splits. Accuracies are in percent, clean and under LR-BCD at ε = {epsilon:g}: smallest
and largest value of each split.

{table}

To reduce the variation: use the same machine and number of threads, store and evaluate model files instead of retraining, and
average over several splits. On one machine, the same seed gives the same model.

## All trainings

- *Unchanged*: the usual initial parameters.
- *Last bits*: every parameter changed by a relative -1, 0 or 1 machine epsilon, in {draws} random draws.
- *Initial coefficients rounded differently*: GPRGNN with coefficients computed in another order of operations, as before
  commit 2aa1c74.
- *Change*: largest change of an initial parameter.

[All trainings as CSV](nondeterminism.csv)

## Reproduce

    python studies/nondeterminism.py run
    python studies/nondeterminism.py

The first command trains and attacks the models without stored results in `results/nondeterminism`, the second one writes this
page. The stored results were computed by

{commands}
"""


if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE, other_files)()
