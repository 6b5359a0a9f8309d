"""Effect of rounding on training: models whose initial parameters differ only in the last bits.

python studies/nondeterminism.py        write docs/nondeterminism.md from the stored results
python studies/nondeterminism.py run    train and attack the models without stored results, into results/nondeterminism
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _pages import DOCS, command_line, provenance, stored, study_store, table
from torch import nn

from edgeproof import models
from edgeproof.attacks import LRBCD
from edgeproof.experiments import AttackSpec, CleanAccuracy, Job, ModelSpec, RobustAccuracy, Run, as_settings
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


def page() -> str:
    """Return the page."""
    rows, records = [], []
    by_split: dict[tuple[str, int], list[float]] = {}
    for model in MODELS:
        for seed in SEEDS:
            unchanged = base_run(model, seed)
            for title, run in variants(unchanged).items():
                training = STORE.get(run.identity)
                clean, attacked = (stored(STORE, run, measurement) for measurement in (CleanAccuracy(), ATTACK))
                if training is None or clean is None or attacked is None:
                    continue
                records += [training, clean, attacked]
                accuracies = [100 * record.values["accuracy"][0][1] for record in (clean, attacked)]
                by_split.setdefault((model, seed), []).append(accuracies[0])
                rows.append(
                    [
                        *(model, str(seed), title, f"{largest_change(run, unchanged):.1e}"),
                        *(str(training.values[name]) for name in ("best_epoch", "epochs")),
                        *(f"{accuracy:.1f}" for accuracy in accuracies),
                    ]
                )
    titles = ["model", "split", "initial parameters", "change", "best epoch", "epochs", "clean", "attacked"]
    spread = max(max(clean) - min(clean) for clean in by_split.values())
    return PAGE_TEXT.format(
        draws=DRAWS, epsilon=EPSILON, spread=spread, table=table(titles, rows), commands=provenance(records)
    )


PAGE_TEXT = """# Nondeterminism of training

Changes of 3e-8 or less to the initial parameters can change the clean accuracy on one split by up to {spread:.1f} points.
Every step rounds, and early stopping selects an epoch by a loss whose last digits vary. The same training may therefore give
another model on another machine, with another number of threads, or with later code.

The standard errors of [our tables](reproduction.md) are over splits with one training each, so they include this variation.

Regular training on Citeseer, `strict` splits. *Change*: largest change of an initial parameter. Accuracies are in percent,
clean and under LR-BCD at ε = {epsilon:g}.

- *Unchanged*: the usual initial parameters.
- *Last bits*: every parameter changed by a relative -1, 0 or 1 machine epsilon, in {draws} random draws.
- *Initial coefficients rounded differently*: GPRGNN with coefficients computed in another order of operations, as before
  commit 2aa1c74.

{table}

## Reproduce

    python studies/nondeterminism.py run
    python studies/nondeterminism.py

The first command trains and attacks the models without stored results in `results/nondeterminism`, the second one writes this
page. The stored results were computed by

{commands}
"""


if __name__ == "__main__":
    command_line(PAGE, page, jobs, STORE)()
