"""Run time of adversarial training: an epoch by phase, and whole runs.

    python benchmarks/training_epoch.py epoch    results/benchmarks/training_epoch-cpu.json
    python benchmarks/training_epoch.py run      results/benchmarks/training_run-lrbcd-cpu.json

With ``--device cuda`` both measure a GPU. ``python studies/robust_training.py`` renders the results. Run it alone on the
machine.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import write_record
from attack_step import arxiv_sized
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import LRBCD, PRBCD, Attack, GreedyRBCD

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Device = Annotated[str, typer.Option(help="'cpu' or 'cuda'.")]


@dataclass(frozen=True)
class Threat:
    """An attack in training with its budgets, and the settings of training that affect the time of an epoch.

    Args:
        attack: The attack.
        epsilon: Budget as a fraction of the edges.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        validate_every: Number of epochs between validations.
        warm_start: Whether attacks start from the previous perturbation.
    """

    attack: Attack
    epsilon: float
    local: float | None = None
    validate_every: int = 1
    warm_start: bool = False


THREATS = {
    "lrbcd": Threat(LRBCD().for_training(), 0.2, 0.5),
    "lrbcd-every5": Threat(LRBCD().for_training(), 0.2, 0.5, validate_every=5),
    "lrbcd-free": Threat(LRBCD(steps=1, block_size=1_000_000, lr=2000.0), 0.2, 0.5, warm_start=True),
    "prbcd": Threat(PRBCD().for_training(), 0.2),
    "greedy-1.5": Threat(GreedyRBCD(loss="log_margin").for_training(), 1.5, 2.0),
}
LARGE = Threat(LRBCD(steps=20, block_size=3_000_000, lr=4000.0), 0.05, 0.25, validate_every=10)


@app.command()
def epoch(
    device: Device = "cpu",
    epochs: Annotated[int, typer.Option(help="Number of timed epochs, after half as many untimed ones.")] = 60,
    large: Annotated[bool, typer.Option(help="Also measure the graph of arXiv's size; needs a GPU.")] = False,
) -> None:
    """Measure milliseconds per epoch by phase, and peak memory."""
    data = ep.datasets.load("citeseer")
    split = ep.splits.inductive(data, 0).to(device)
    labels = ep.training.pseudo_labels(new_model(data, device), split, progress=False)
    rows = [
        epoch_time(f"Citeseer, `{name}`", threat, split, labels, new_model(data, device), epochs)
        for name, threat in THREATS.items()
    ]
    if large:
        graph = arxiv_sized(torch.device(device))
        split = ep.splits.inductive(graph, 0, train_per_class=2000, val_per_class=500).to(device)
        model = new_model(graph, device, hidden_channels=256)
        rows.append(epoch_time("arXiv-sized graph, LR-BCD", LARGE, split, False, model, 10))
    write_record(RESULTS / f"training_epoch-{torch.device(device).type}.json", device, rows=rows)


@app.command()
def run(
    device: Device = "cpu",
    seed: Annotated[list[int] | None, typer.Option(help="Seed of a split; repeatable. Default: 0, 1 and 5.")] = None,
) -> None:
    """Measure seconds of whole LR-BCD trainings on Citeseer with label models, until early stopping."""
    rows = []
    data = ep.datasets.load("citeseer")
    threat = THREATS["lrbcd"]
    for chosen in seed or (0, 1, 5):
        split = ep.splits.inductive(data, chosen).to(device)
        start = time.perf_counter()
        history = ep.train(
            new_model(data, device, seed=chosen),
            split,
            attack=threat.attack,
            epsilon=threat.epsilon,
            local=threat.local,
            self_training=True,
            progress=False,
            seed=chosen,
        )
        seconds, count = round(time.perf_counter() - start, 1), history.summary()["epochs"]
        rows.append({"recipe": "lrbcd", "seed": chosen, "epochs": count, "seconds_with_labels": seconds})
        print(f"lrbcd, split {chosen}: {count} epochs, {seconds} s", flush=True)
        write_record(RESULTS / f"training_run-lrbcd-{torch.device(device).type}.json", device, rows=rows)


def new_model(data: Data, device: str, *, seed: int = 0, **settings: Any) -> torch.nn.Module:
    """Return an untrained GPRGNN."""
    return ep.models.build("GPRGNN", data.num_features, ep.num_classes(data), settings, seed=seed).to(device)


def epoch_time(
    case: str, threat: Threat, split: ep.splits.Split, labels: Any, model: torch.nn.Module, epochs: int
) -> dict[str, Any]:
    """Return the time of an epoch: the difference between a long and a short run, which excludes work done once per run.

    Args:
        case: Title of the case.
        threat: Threat model of the training.
        split: The split.
        labels: Pseudo-labels; False for none.
        model: The untrained model.
        epochs: Difference between the numbers of epochs of the two runs.
    """
    if split.train.data.x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    histories = [
        ep.train(
            copy.deepcopy(model),
            split,
            attack=threat.attack,
            epsilon=threat.epsilon,
            local=threat.local,
            self_training=labels,
            progress=False,
            warmup_epochs=1,
            max_epochs=count,
            patience=count,
            validate_every=threat.validate_every,
            warm_start=threat.warm_start,
        )
        for count in (2, epochs // 2, epochs // 2 + epochs)
    ]
    # The first run compiles kernels.
    _, short, long = histories
    milliseconds = {phase: (long.phases[phase] - short.phases.get(phase, 0.0)) / epochs * 1000 for phase in long.phases}
    row = {
        "case": case,
        "attack": repr(threat.attack),
        "epochs": epochs,
        "ms_per_epoch": (long.seconds - short.seconds) / epochs * 1000,
        "phases_ms": milliseconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if split.train.data.x.is_cuda else None,
    }
    phases = ", ".join(f"{phase} {spent:.1f}" for phase, spent in milliseconds.items())
    print(f"{case}: {row['ms_per_epoch']:.0f} ms per epoch ({phases}), peak {row['peak_gib']} GiB", flush=True)
    return row


if __name__ == "__main__":
    app()
