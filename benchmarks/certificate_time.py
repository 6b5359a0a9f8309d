"""Run time of certificates by computation and of certified training.

    python benchmarks/certificate_time.py certify    results/benchmarks/certificate_time-certify-cpu.json
    python benchmarks/certificate_time.py train      results/benchmarks/certificate_time-train-cpu.json

With ``--device cuda`` both measure a GPU, and ``certify`` also the graph of arXiv's size. Run it alone on the machine.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import get_device, write_record
from attack_step import arxiv_sized
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import LRBCD
from edgeproof.certificates import WorstCase

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"
EPSILON, LOCAL = 0.25, 0.5
TRAIN_EPSILON, TRAIN_LOCAL = 0.2, 0.5
# Training of the certified models: their margins should be those of a trained model, their accuracy does not matter.
SHORT: dict[str, Any] = {"max_epochs": 60}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Device = Annotated[str, typer.Option(help="'cpu' or 'cuda'.")]
Datasets = Annotated[list[str] | None, typer.Option("--dataset", help="Dataset; repeatable.")]


@app.command()
def certify(device: Device = "cpu", dataset: Datasets = None, attack: bool = True) -> None:
    """Measure seconds for the test nodes of a split, with and without local budgets."""
    place = get_device(device)
    rows = []
    for name in dataset or ("citeseer", "pubmed"):
        data = ep.datasets.load(name)
        split = ep.splits.inductive(data, 0).to(place)
        model = new_model("OneHop", data, place)
        ep.train(model, split, self_training=known_labels(split), preset="certified", progress=False, **SHORT)
        rows += certify_rows(name, model, split.test.data, split.test.nodes, LOCAL, attack)
    if place.type == "cuda" and dataset is None:
        data = arxiv_sized(place)
        model = new_model("OneHop", data, place)
        # As many test nodes as in ogbn-arxiv.
        rows += certify_rows("arXiv-sized graph", model, data, torch.arange(48_603, device=place), 0.25, attack=False)
    write_record(RESULTS / f"certificate_time-certify-{place.type}.json", place, rows=rows)


@app.command()
def train(
    device: Device = "cpu",
    epochs: Annotated[int, typer.Option(help="Number of timed epochs.")] = 20,
    dataset: Datasets = None,
) -> None:
    """Measure milliseconds per epoch of certified training and of training with LR-BCD."""
    place = get_device(device)
    rows = []
    for name in dataset or ("citeseer",):
        data = ep.datasets.load(name)
        split = ep.splits.inductive(data, 0).to(place)
        labels = known_labels(split)
        for case, model, settings, attack in (
            ("certified", "OneHop", {"worst_weight": 1.0}, None),
            ("certified, one member", "OneHop", {"worst_weight": 1.0, "members": 1}, None),
            ("clean, one-hop", "OneHop", {}, None),
            ("LR-BCD, 20 steps", "GPRGNN", {}, LRBCD().for_training()),
        ):
            network = new_model(model, data, place, settings)
            rows.append({"dataset": name, "case": case, **epoch_time(network, split, labels, attack, epochs)})
            print(rows[-1], flush=True)
    write_record(RESULTS / f"certificate_time-train-{place.type}.json", place, rows=rows)


def new_model(
    name: str, data: Data, device: torch.device, settings: Mapping[str, Any] | None = None
) -> torch.nn.Module:
    """Return an untrained model."""
    return ep.models.build(name, data.num_features, ep.num_classes(data), settings, seed=0).to(device)


def known_labels(split: ep.splits.Split) -> ep.training.PseudoLabels:
    """Return the true labels in place of pseudo-labels: their values do not affect the run time."""
    labels = split.train.data.y
    ones = torch.ones(labels.numel(), device=labels.device)
    return ep.training.PseudoLabels(labels, ones, 1.0, 1.0, (), (), "known labels")


def certify_rows(
    name: str, model: torch.nn.Module, data: Data, nodes: torch.Tensor, local: float, attack: bool
) -> list[dict[str, Any]]:
    """Return the seconds of certificates with and without local budgets and with and without an attack."""
    rows, device = [], nodes.device
    for factor in (local, None):
        budget = ep.Budget.from_epsilon(data, nodes, EPSILON, local=factor)
        for searches in (False, True) if attack else (False,):
            certificate = WorstCase(attack=searches)
            # The first call loads kernels.
            certificate.certify(model, data, nodes[:10], budget)
            synchronize(device)
            start = time.perf_counter()
            found = certificate.certify(model, data, nodes, budget)
            synchronize(device)
            rows.append(
                {
                    "graph": name,
                    "nodes": nodes.numel(),
                    "local": factor,
                    "flips": budget.total,
                    "attack": searches,
                    "seconds": round(time.perf_counter() - start, 3),
                    "guaranteed": found.budgets[0].guaranteed,
                }
            )
            print(rows[-1], flush=True)
    return rows


def epoch_time(
    model: torch.nn.Module,
    split: ep.splits.Split,
    labels: ep.training.PseudoLabels,
    attack: ep.attacks.Attack | None,
    epochs: int,
) -> dict[str, Any]:
    """Return milliseconds per epoch: the difference between a long and a short run."""
    budgets: dict[str, Any] = {} if attack is None else {"epsilon": TRAIN_EPSILON, "local": TRAIN_LOCAL}
    seconds = [
        ep.train(
            copy.deepcopy(model),
            split,
            attack=attack,
            self_training=labels,
            preset="paper",
            loss="cross_entropy",
            separate_warmup=False,
            warmup_epochs=0,
            max_epochs=count,
            progress=False,
            **budgets,
        ).seconds
        for count in (2, 2, epochs + 2)
    ]
    return {"model": repr(model), "epochs": epochs, "ms_per_epoch": round((seconds[2] - seconds[1]) / epochs * 1000, 1)}


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    app()
