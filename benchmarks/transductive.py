"""What the transductive setting hides: training schemes, "perfect" robustness, and a defence that only remembers.

    python benchmarks/transductive.py run memory                       the memorising defence, in both settings
    python benchmarks/transductive.py run schemes --device cuda        self-training, adversarial training, or both
    python benchmarks/transductive.py run perfect --device cuda        trained with a budget of as many flips as edges
    python benchmarks/transductive.py render                           docs/transductive.md

A model that has a result in results/transductive is not trained again. All test nodes are attacked at once, without local
budgets. Nothing here measures robustness: that is the point.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from _runs import run_missing, summary
from torch import nn

import edgeproof as ep
from edgeproof.attacks import DICE, FGSM, PGD, PRBCD, Attack, GreedyRBCD
from edgeproof.result import Result, Score, describe_environment, describe_model, describe_split
from edgeproof.training import Memorizing

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "transductive"
PAPER = HERE.parent / "results" / "paper" / "transductive.csv"
PAGE = HERE.parent / "docs" / "transductive.md"
SEEDS = (0, 1, 5)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Unit:
    """One model to train and to attack.

    Args:
        study: ``"memory"``, ``"schemes"`` or ``"perfect"``.
        dataset: the graph.
        model: which model.
        scheme: how it is trained: ``"regular"``, ``"adversarial"``, ``"self"`` or ``"both"``.
        epsilon: budget of the attack in training; 0 without one.
        seed: of the split and everything else.
        setting: ``"transductive"`` or ``"inductive"``.
        memorizing: whether the defence stands in front of the model.
    """

    study: str
    dataset: str
    model: str
    scheme: str
    epsilon: float
    seed: int
    setting: str = "transductive"
    memorizing: bool = False

    @property
    def path(self) -> Path:
        name = "memorizing-" if self.memorizing else ""
        parts = (
            self.study,
            self.setting,
            self.dataset,
            f"{name}{self.model}",
            self.scheme,
            f"{self.epsilon:g}",
            self.seed,
        )
        return RESULTS / f"{'-'.join(map(str, parts))}.json"


def units(study: str) -> Iterator[Unit]:
    for seed in SEEDS:
        if study == "memory":
            for setting in ("transductive", "inductive"):
                for memorizing in (False, True):
                    yield Unit(study, "citeseer", "GCN", "regular", 0.0, seed, setting, memorizing)
        elif study == "perfect":
            for dataset in ("cora", "cora_ml", "citeseer"):
                yield Unit(study, dataset, "GPRGNN", "both", 1.0, seed)
            yield Unit(study, "citeseer", "GCN", "both", 1.0, seed)
        else:
            for dataset in ("cora", "citeseer"):
                for model in ("GCN", "APPNP", "GPRGNN"):
                    yield Unit(study, dataset, model, "regular", 0.0, seed)
                    yield Unit(study, dataset, model, "self", 0.0, seed)
                    for epsilon in (0.05, 0.1):
                        yield Unit(study, dataset, model, "adversarial", epsilon, seed)
                        yield Unit(study, dataset, model, "both", epsilon, seed)


def attacks(study: str) -> tuple[dict[str, Attack], tuple[float, ...]]:
    """What each study attacks with, and the budgets."""
    strong = GreedyRBCD(loss="log_margin", steps=200)
    if study == "memory":
        return {"PRBCD": PRBCD(), "GreedyRBCD, log margin": strong, "DICE": DICE()}, (0.1, 0.25)
    if study == "schemes":
        return {"PGD": PGD(), "GreedyRBCD, log margin": strong}, (0.05, 0.1, 0.25)
    every = {"PGD": PGD(), "DICE": DICE(), "FGSM": FGSM(), "GreedyRBCD": GreedyRBCD(), "PRBCD": PRBCD()}
    return every, (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)


def measure(unit: Unit, device: str, threads: int) -> str:
    """Train, attack and write the result."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    # The released code takes Cora whole, although the paper's text says largest component for all.
    data = ep.datasets.load(unit.dataset, largest_component=unit.dataset != "cora")
    split = getattr(ep.splits, unit.setting)(data, unit.seed).to(device)
    model = ep.models.build(unit.model, data.num_features, ep.num_classes(data), seed=unit.seed).to(device)
    start = time.perf_counter()
    history = train(unit, model, split)
    seconds = time.perf_counter() - start
    judged: nn.Module = Memorizing(model, split.train.data).eval() if unit.memorizing else model
    graph, nodes = split.test.data, split.test.nodes
    scores = [Score("test", "clean", 0.0, ep.evaluation.clean_accuracy(judged, graph, nodes))]
    chosen, epsilons = attacks(unit.study)
    budgets = ep.Budget.from_epsilons(graph, nodes, epsilons)
    for name, attack in chosen.items():
        # A model that does not listen has no gradient: it is attacked with what is worst for the model behind it.
        for epsilon, result in zip(epsilons, attack(model, graph, nodes, budgets, seed=unit.seed), strict=True):
            scores.append(Score("test", name, epsilon, ep.evaluation.clean_accuracy(judged, result.data, nodes)))
    Result(
        command=f"python benchmarks/transductive.py run {unit.study} --device {device}",
        dataset=unit.dataset,
        split=describe_split(split),
        model={**describe_model(model), "memorizing": unit.memorizing},
        training={**history.summary(), "scheme": unit.scheme, "seconds_with_labels": round(seconds, 1)},
        seed=unit.seed,
        scores=tuple(scores),
        environment=describe_environment(device),
        threat={"local": None, "count": "incident"},
    ).write(unit.path)
    shown = ", ".join(f"{one.attack} {one.epsilon:g}: {one.accuracy:.1%}" for one in scores)
    return f"{unit.path.stem} ({seconds:.0f} s, best epoch {history.best_epoch} of {len(history.epochs)}): {shown}"


def train(unit: Unit, model: nn.Module, split: ep.splits.Split) -> ep.training.History:
    """By the unit's scheme, with the paper's settings but for the label models, which are kept at their best epoch."""
    labels: Any = False
    if unit.scheme in ("self", "both"):
        labels = ep.training.pseudo_labels(model, split, max_epochs=500, patience=500, seed=unit.seed, progress=False)
    threat: dict[str, Any] = {}
    if unit.scheme in ("adversarial", "both"):
        threat = {"attack": PGD(steps=50 if unit.epsilon == 1 else 10), "epsilon": unit.epsilon}
    patience = 300 if unit.setting == "transductive" else 200
    return ep.train(model, split, self_training=labels, patience=patience, seed=unit.seed, progress=False, **threat)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="memory, schemes or perfect.")],
    jobs: Annotated[int, typer.Option(help="Processes at once.")] = 1,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes can share one GPU.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads per process.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Also what has a result.")] = False,
) -> None:
    """Train and attack every model that has no result yet."""
    if study not in ("memory", "schemes", "perfect"):
        raise typer.BadParameter(f"expected memory, schemes or perfect, got {study}")
    run_missing(list(units(study)), measure, jobs=jobs, device=device, threads=threads, force=force)


@app.command()
def render() -> None:
    """Write the page from the results that are there."""
    parts = {
        "memory": "\n".join(memory_rows()) or "*Not run yet.*",
        "schemes": "\n".join(scheme_rows()) or "*Not run yet.*",
        "perfect": "\n".join(perfect_rows()) or "*Not run yet.*",
    }
    PAGE.write_text(PAGE_TEXT.format(**parts), encoding="utf-8")
    print(f"wrote {PAGE}")


def whole(study: str) -> dict[Unit, list[Result]]:
    """Results of all seeds, by the unit of the first seed; only where all seeds are there."""
    found: dict[Unit, list[Result]] = {}
    for unit in units(study):
        if unit.path.exists():
            found.setdefault(replace(unit, seed=SEEDS[0]), []).append(Result.read(unit.path))
    return {unit: results for unit, results in found.items() if len(results) == len(SEEDS)}


def cells(results: list[Result], names: list[tuple[str, float]]) -> str:
    return " | ".join(summary([100 * result.score("test", *name) for result in results]) for name in names)


def columns(study: str) -> list[tuple[str, float]]:
    chosen, epsilons = attacks(study)
    return [("clean", 0.0), *((name, epsilon) for name in chosen for epsilon in epsilons)]


def header(first: list[str], names: list[tuple[str, float]]) -> list[str]:
    titles = [*first, *(name if not epsilon else f"{name} {epsilon:g}" for name, epsilon in names)]
    return ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]


def memory_rows() -> list[str]:
    names, found = columns("memory"), whole("memory")
    lines = header(["setting", "model"], names) if found else []
    for unit, results in sorted(found.items(), key=lambda item: item[0].setting, reverse=True):
        who = "remembers GCN's answers" if unit.memorizing else "GCN"
        lines.append(f"| {unit.setting} | {who} | {cells(results, names)} |")
    return lines


def scheme_rows() -> list[str]:
    names, found = columns("schemes"), whole("schemes")
    about = {
        "regular": "regular",
        "self": "self-training",
        "adversarial": "adversarial",
        "both": "self- and adversarial",
    }
    lines = header(["dataset", "model", "training", "ε in training"], names) if found else []
    for unit, results in found.items():
        row = f"| {unit.dataset} | {unit.model} | {about[unit.scheme]} | {unit.epsilon:g} |"
        lines.append(f"{row} {cells(results, names)} |")
    return lines


def perfect_rows() -> list[str]:
    """One table as the paper's three, an attack a row, its figures in brackets."""
    found = whole("perfect")
    chosen, epsilons = attacks("perfect")
    paper = {
        (row["dataset"], row["attack"], float(row["epsilon"])): row["mean"]
        for row in csv.DictReader(PAPER.open(encoding="utf-8"))
    }
    shares = (0.0, *epsilons)
    lines = ["| dataset | model | attack | " + " | ".join(f"{share:.0%}" for share in shares) + " |"] if found else []
    lines += ["|" + "---|" * (3 + len(shares))] if found else []
    for unit, results in found.items():
        for name in chosen:
            row = []
            for share in shares:
                ours = cells(results, [(name, share) if share else ("clean", 0.0)])
                printed = paper.get((unit.dataset, name, share)) if unit.model == "GPRGNN" else None
                row.append(ours if printed is None else f"{ours} ({printed})")
            lines.append(f"| {unit.dataset} | {unit.model} | {name} | {' | '.join(row)} |")
    return lines


PAGE_TEXT = """# Why only the inductive setting tells the truth

In the *transductive* setting the graph that a model is trained on holds the test nodes; in the *inductive* setting they come
later. Work on adversarial training of graph neural networks before the paper was transductive. There, accuracy under attack
says nothing about robustness, for two reasons that this page measures. Made by `python benchmarks/transductive.py run ...` and
`render`; mean and standard error in percent over the splits 0, 1 and 5; every model's figures are in `results/transductive`.

## Remembering is enough

`ep.training.Memorizing(model, data)` answers for every node that it has seen as `model` did on the clean graph, and never looks
at an edge again (Propositions 1 and 2 of the paper). All test nodes are attacked at once, with a share of the edges at them as
budget; the defence is faced with the flips that are worst for the model behind it.

{memory}

In the transductive setting no attack costs it anything, although it has learned nothing that GCN did not know. On new nodes it
is GCN. The same holds for every model and every attack (`tests/training/test_memorize.py`), so *a defence can be perfect
transductively and worthless*, and a figure from that setting cannot tell which.

```python
import edgeproof as ep

data = ep.datasets.load("csbm")
for setting in (ep.splits.transductive, ep.splits.inductive):
    split = setting(data, seed=0)
    model = ep.models.build("GPRGNN", data.num_features, ep.num_classes(data), seed=0)
    ep.train(model, split, max_epochs=100, progress=False)
    defence = ep.training.Memorizing(model, split.train.data).eval()
    graph, nodes = split.test.data, split.test.nodes
    attack = ep.attacks.GreedyRBCD(steps=20, block_size=100_000, loss="log_margin")
    flips = attack(model, graph, nodes, ep.Budget.from_epsilon(graph, nodes, 0.25))
    print(split.setting, flips.clean_accuracy, ep.evaluation.clean_accuracy(defence, flips.data, nodes))
```

`split.num_seen` counts the test nodes that training or validation has seen, `split.check_unseen()` raises `LeakError` if there
are any, and every result file says how many there were (`test_nodes_seen`).

## Self-training leaks the clean graph

Pseudo-labels of test nodes are answers on the clean graph. A model trained on them has been told what to say under attack.
Accuracy of PGD-trained models (10 steps), transductive. The paper has ten splits here and label models of 500 epochs without
early stopping; these are three splits, and label models at the best validation epoch of 500.

{schemes}

## "Perfect" robustness

GPRGNN, self-trained and trained against PGD (50 steps) with as many flips as there are edges; test accuracy under attack by the
share of edges flipped, the paper's figures in brackets (tables `app_adv_causes_overfitting*`):

{perfect}
"""

if __name__ == "__main__":
    app()
