"""The computation behind ``edgeproof demo``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof.attacks import LRBCD, PRBCD, Attack
from edgeproof.certificates import Certificate
from edgeproof.cli._printing import print_table
from edgeproof.evaluation import Evaluation, EvaluationWarning
from edgeproof.graph import num_edges
from edgeproof.splits import Split
from edgeproof.training import History

_MODELS = ("GCN", "GPRGNN")
_EPSILONS = (0.05, 0.1, 0.25)
_LOCAL = 0.5


@dataclass(frozen=True)
class DemoSettings:
    """Settings of the demo; the defaults are much cheaper than the paper's, and sufficient for a thousand nodes.

    Args:
        training_attack: Attack of adversarial training.
        attacks: Attacks of the evaluation.
        regular_epochs: Maximum number of epochs of regular training.
        adversarial_epochs: Maximum number of epochs of adversarial training.
        samples: Number of Monte Carlo samples of each certificate.
    """

    training_attack: Attack = field(default_factory=lambda: LRBCD(steps=10, block_size=20_000))
    attacks: tuple[Attack, ...] = field(
        default_factory=lambda: (
            LRBCD(steps=60, block_size=50_000),
            PRBCD(steps=60, fine_tune_steps=20, block_size=50_000),
        )
    )
    regular_epochs: int = 3000
    adversarial_epochs: int = 100
    samples: int = 2000


class _TestedModel(NamedTuple):
    model: nn.Module
    history: History
    evaluation: Evaluation
    certificate: Certificate


def run_demo(out: Path, settings: DemoSettings, *, progress: bool) -> None:
    """Train, attack and certify the models, print the accuracies, and write a report."""
    check_writable(out)
    console = Console(highlight=False)
    # On this small graph, more threads cost more in synchronization than they gain.
    torch.set_num_threads(1)
    data = ep.datasets.load("csbm")
    split = ep.splits.inductive(data, seed=0, train_per_class=200, val_per_class=100, test_share=0.2)
    console.print(f"Heterophilous cSBM: {data.num_nodes} nodes, {num_edges(data)} edges, {data.num_features} features")
    tested: dict[str, _TestedModel] = {}
    try:
        for name in _MODELS:
            for adversarial in (False, True):
                label = f"{name}, adversarial" if adversarial else f"{name}, regular"
                console.print(f"{label}: training, {len(settings.attacks)} attacks, certificate", style="dim")
                tested[label] = _test(name, split, settings, adversarial=adversarial, progress=progress)
    except KeyboardInterrupt:
        if not tested:
            raise
        _show(tested, split, out, console)
        raise KeyboardInterrupt(f"interrupted; the report {out} has {', '.join(tested)}") from None
    _show(tested, split, out, console)
    print(f"Report: {out} (open it in a browser)")
    print("Next: edgeproof train --dataset cora_ml --model GPRGNN --out model.safetensors")


def _show(tested: dict[str, _TestedModel], split: Split, out: Path, console: Console) -> None:
    """Print the accuracies of the tested models and write the report."""
    print_table(_table(tested))
    for label, result in tested.items():
        if isinstance(result.model, ep.models.GPRGNN):
            gamma = ep.analysis.coefficients(result.model).gamma
            console.print(f"filter of {label}:\n  " + " ".join(f"{value:5.2f}" for value in gamma.tolist()))
    runs = [
        ep.report.Run.of(
            label,
            result.model,
            split.test.data,
            split.test.nodes,
            evaluation=result.evaluation,
            certificate=result.certificate,
            history=result.history,
            split=split,
            dataset="heterophilous cSBM",
            seed=0,
            command="edgeproof demo",
        )
        for label, result in tested.items()
    ]
    ep.report.write(runs, out, title=f"edgeproof demo: {len(runs)} models under attack")


def _test(name: str, split: Split, settings: DemoSettings, *, adversarial: bool, progress: bool) -> _TestedModel:
    model = ep.models.build(name, split.test.data.num_features, ep.num_classes(split.test.data), seed=0)
    history = ep.train(
        model,
        split,
        attack=settings.training_attack if adversarial else None,
        epsilon=0.2 if adversarial else None,
        local=_LOCAL if adversarial else None,
        max_epochs=settings.adversarial_epochs if adversarial else settings.regular_epochs,
        patience=50 if adversarial else 200,
        seed=0,
        progress=progress,
    )
    graph, nodes = split.test.data, split.test.nodes
    with warnings.catch_warnings():
        # They are in the report.
        warnings.simplefilter("ignore", EvaluationWarning)
        evaluation = ep.evaluate(model, graph, nodes, _EPSILONS, settings.attacks, local=_LOCAL, progress=progress)
    smoothing = ep.certificates.SparseSmoothing(p_add=0.005, p_del=0.4)
    certificate = smoothing.certify(
        model, graph, nodes, samples=settings.samples, choosing_samples=200, alpha=0.05, progress=progress
    )
    return _TestedModel(model, history, evaluation, certificate)


def _table(tested: dict[str, _TestedModel]) -> Table:
    """Return a table with one column per model, which fits 80 columns."""
    table = Table(title="Accuracy at the test nodes, %")
    table.add_column("", no_wrap=True)
    for label in tested:
        table.add_column(label.replace(", ", ",\n"), justify="right")
    results = list(tested.values())
    table.add_row("clean", *(f"{100 * result.evaluation.clean_accuracy:.1f}" for result in results))
    table.add_section()
    for rows in zip(*(result.evaluation.rows for result in results), strict=True):
        table.add_row(f"{rows[0].attack}, epsilon {rows[0].epsilon:g}", *(f"{100 * row.accuracy:.1f}" for row in rows))
    table.add_section()
    for label, radii in (("1 deleted", (0, 1)), ("2 deleted", (0, 2)), ("1 added", (1, 0))):
        table.add_row(
            f"certified, {label}", *(f"{100 * result.certificate.accuracy(*radii):.1f}" for result in results)
        )
    return table
