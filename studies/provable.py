"""Clean and guaranteed accuracy of one-hop models with bounded messages, as a frontier over the bound.

python studies/provable.py        write docs/provable.md and its figures from the stored results
python studies/provable.py run    train and certify the models without stored results, into results/provable

Everything is inductive and ``strict``: no test node is in a training or validation graph. All models of a split are trained on
the same pseudo-labels, which are computed once. On a CPU, sparse features are trained as sparse tensors, which changes results
by rounding only. If ``run`` is interrupted, the same command resumes.
"""

from __future__ import annotations

import copy
import json
import shlex
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import robust_training
import torch
import typer
from _pages import DOCS, ROOT, mean_and_error, provenance, study_store, table
from torch_geometric.data import Data

from edgeproof import models
from edgeproof._plotting import empty_figure, write_figure
from edgeproof.attacks import LRBCD, PRBCD, GreedyRBCD
from edgeproof.evaluation.result import describe_environment
from edgeproof.experiments import (
    AttackSpec,
    ClassAccuracy,
    CleanAccuracy,
    DatasetSpec,
    Job,
    Measurement,
    ModelSpec,
    ProvenAccuracy,
    Record,
    RobustAccuracy,
    Run,
    SplitSpec,
    Task,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments.execute import build_model, make_split
from edgeproof.experiments.graphs import load_graph
from edgeproof.experiments.spec import resolve
from edgeproof.graph import num_classes
from edgeproof.splits import Split
from edgeproof.training import PseudoLabels, pseudo_labels, train

STORE = study_store("provable")
PAGE = DOCS / "provable.md"
BENCHMARKS = ROOT / "results" / "benchmarks"
# Graphs in order of their size; the last one is generated.
DATASETS = ("citeseer", "cora_ml", "pubmed", "amazon_photo", "sbm-words")
# Splits of the reported results, splits for comparison with earlier results, and splits on which settings were chosen.
REPORTED, EARLIER, SELECTION = tuple(range(20, 30)), tuple(range(10)), tuple(range(30, 34))
BOUNDS = (0.01, 0.1, 0.15, 0.2, 0.3)
# Bound of the model that is also trained on its worst case.
WITH_WORST = 0.15
EPSILONS = (0.05, 0.1, 0.25)
TRAINING = TrainingSpec("certified", preset="certified")
REGULAR = TrainingSpec("regular", preset="default")
PROVEN, CLASSES = ProvenAccuracy(EPSILONS), ClassAccuracy()
# The tighter bound, on graphs with a few hundred test nodes.
TIGHTER, SMALL = ProvenAccuracy(EPSILONS, collective="lp"), ("citeseer", "cora_ml", "sbm-words")
# Less than this fraction of non-zero features is faster as a sparse tensor on a CPU.
_SPARSE = 0.05
_GREEDY = AttackSpec.of(GreedyRBCD(loss="log_margin", steps=200))
ATTACKS: tuple[RobustAccuracy, ...] = tuple(
    RobustAccuracy(attack, EPSILONS, local)
    for attack, local in (
        (AttackSpec.of(LRBCD()), 0.5),
        (_GREEDY, 0.5),
        (AttackSpec.of(PRBCD()), None),
        (_GREEDY, None),
    )
)


def one_hop(bound: float, **settings: Any) -> ModelSpec:
    """Return a one-hop model."""
    return ModelSpec("OneHop", as_settings({"bound": bound, **settings}))


ONE_HOPS = [
    *((f"OneHop, c = {bound:g}", one_hop(bound)) for bound in BOUNDS),
    (f"OneHop, c = {WITH_WORST:g}, trained on the worst case", one_hop(WITH_WORST, worst_weight=1.0)),
]
MLP = ModelSpec("MLP", as_settings({"dropout": 0.8}))
GNN = ModelSpec("GPRGNN")


def jobs(attacks: bool = False) -> list[Job]:
    """Return all runs with their measurements, those of one split after each other.

    Args:
        attacks: Whether one-hop models are attacked, too.
    """
    found = []
    for dataset in DATASETS:
        for seed in (*REPORTED, *EARLIER, *SELECTION):
            found.append(Job(run_of(dataset, MLP, seed), (CleanAccuracy(), CLASSES)))
            found.append(Job(run_of(dataset, GNN, seed, REGULAR), (CleanAccuracy(), CLASSES)))
            measurements = (PROVEN, CLASSES, *((TIGHTER,) if dataset in SMALL else ()), *(ATTACKS if attacks else ()))
            found += [Job(run_of(dataset, model, seed), measurements) for _, model in ONE_HOPS]
    return found


def run_of(dataset: str, model: ModelSpec, seed: int, training: TrainingSpec = TRAINING) -> Run:
    """Return one run."""
    return Run(DatasetSpec(dataset), SplitSpec(), model, training, seed)


class Worker:
    """Trains and measures models, and keeps the split and the pseudo-labels of the last one.

    Args:
        device: Device.
        command: Command to record.
    """

    def __init__(self, device: str, command: str) -> None:
        self.device, self.command = device, command
        self._split: tuple[tuple[str, int], Split] | None = None
        self._labels: tuple[tuple[str, int], PseudoLabels] | None = None

    def run(self, job: Job) -> Iterable[Record]:
        """Yield the results of a job; none if all are stored. All results of a job are those of the same trained model."""
        if all(STORE.get(Task(job.run, measurement).identity) is not None for measurement in job.measurements):
            return
        split = self.split(job.run)
        model, record = self.trained(job.run, split)
        yield record
        environment = describe_environment(self.device)
        for measurement in job.measurements:
            values = measurement.measure(model, split, job.run.seed)
            notes = {"test_nodes": split.test.nodes.numel(), "test_nodes_seen": split.num_seen}
            yield Record(Task(job.run, measurement).identity, values, self.command, environment, 0.0, notes)

    def split(self, run: Run) -> Split:
        """Return the split of a run on the device, with sparse features where that is faster."""
        key = run.dataset.name, run.seed
        if self._split is None or self._split[0] != key:
            data = load_graph(*run.graph)
            self._split = key, make_split(run, _with_fast_features(data, self.device)).to(self.device)
        return self._split[1]

    def trained(self, run: Run, split: Split) -> tuple[torch.nn.Module, Record]:
        """Train the model of a run; return it with the record of the training."""
        sizes = split.train.data.num_features, num_classes(split.test.data)
        model = build_model(run.model, *sizes, run.training_seed).to(self.device)
        preset = resolve(run.training).with_seed(run.training_seed).preset
        labels = self.labels(run, split) if preset.self_training else False
        history = train(model, split, self_training=labels, preset=preset, progress=False)
        values = {"best_epoch": history.best_epoch, "epochs": len(history.epochs), "stopped": history.stopped}
        notes = history.summary()
        if isinstance(model, models.OneHop):
            notes["influence"] = model.influence
        environment = describe_environment(self.device)
        return model, Record(run.identity, values, self.command, environment, round(history.seconds, 2), notes)

    def labels(self, run: Run, split: Split) -> PseudoLabels:
        """Return the pseudo-labels of a split, which do not depend on the model."""
        key = run.dataset.name, run.seed
        if self._labels is None or self._labels[0] != key:
            training = resolve(run.training).with_seed(run.training_seed)
            assert training.preset.label_model is not None
            sizes = split.train.data.num_features, num_classes(split.test.data)
            settings = dict(training.preset.label_model_settings)
            label_model = models.build(training.preset.label_model, *sizes, settings, seed=run.training_seed)
            found = pseudo_labels(label_model.to(self.device), split, preset=training.label_config, progress=False)
            self._labels = key, found
        return self._labels[1]


def _with_fast_features(data: Data, device: str) -> Data:
    if not device.startswith("cpu") or data.x.layout != torch.strided or float((data.x != 0).double().mean()) > _SPARSE:
        return data
    found = copy.copy(data)
    found.x = data.x.to_sparse_csr()
    return found


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """Write the page of the study and its figures from the stored results."""
    if context.invoked_subcommand is None:
        for dataset in DATASETS:
            if has_results(dataset):
                draw(dataset)
        PAGE.write_text(page(), encoding="utf-8")
        print(f"wrote {PAGE}")


@app.command()
def run(
    dataset: Annotated[list[str] | None, typer.Option(help="Only this dataset; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this split; repeatable.")] = None,
    device: Annotated[str, typer.Option(help="'cpu' or 'cuda'.")] = "cpu",
    attacks: Annotated[bool, typer.Option(help="Also attack the one-hop models; slow on a CPU.")] = False,
) -> None:
    """Run the jobs without stored results, one after the other."""
    worker = Worker(device, shlex.join(["python", "studies/provable.py", *sys.argv[1:]]))
    chosen = [
        job
        for job in jobs(attacks)
        if job.run.dataset.name in (dataset or DATASETS) and (not seed or job.run.seed in seed)
    ]
    for job in chosen:
        for record in worker.run(job):
            STORE.put(record)
            if record.kind != "training":
                print(f"{job.run.dataset.name} {job.run.seed} {job.run.model.label} {record.kind}", flush=True)
    STORE.pack()


def value(dataset: str, model: ModelSpec, seed: int, measurement: Measurement, training: TrainingSpec) -> Any:
    """Return stored values, or None."""
    record = STORE.get(Task(run_of(dataset, model, seed, training), measurement).identity)
    return None if record is None else record.values


def point(dataset: str, model: ModelSpec, seed: int, training: TrainingSpec = TRAINING) -> dict[str, float] | None:
    """Return the accuracies of one model in percent by title, or None if they are not stored."""
    is_one_hop = model.name == "OneHop"
    found = value(dataset, model, seed, PROVEN if is_one_hop else CleanAccuracy(), training)
    classes = value(dataset, model, seed, CLASSES, training)
    if found is None or classes is None:
        return None
    by_class = 100 * CLASSES.accuracies(classes)["mean"]
    if not is_one_hop:
        return {"clean": 100 * found["accuracy"][0][1], "by class": by_class}
    # The attained accuracies of both measurements are equal.
    tighter = value(dataset, model, seed, TIGHTER, training) or found
    rows = {f"{kind} {epsilon:g}": 100 * share for kind, epsilon, share in tighter["guaranteed"]}
    gaps = {
        f"gap {kind} {epsilon:g}": 100 * (high - low)
        for (kind, epsilon, low), (_, _, high) in zip(tighter["guaranteed"], tighter["attained"], strict=True)
    }
    return {"clean": 100 * found["clean"], "by class": by_class, **rows, **gaps, "any edges": 100 * found["any_edges"]}


def points(
    dataset: str, model: ModelSpec, seeds: Iterable[int], training: TrainingSpec = TRAINING
) -> list[dict[str, float]]:
    """Return the stored accuracies of a model on several splits."""
    found = [point(dataset, model, seed, training) for seed in seeds]
    return [each for each in found if each is not None]


COLUMNS = ("clean", "by class", "local 0.05", "local 0.1", "local 0.25", "global 0.05", "global 0.1", "global 0.25")


def frontier_table(dataset: str, seeds: tuple[int, ...]) -> str:
    """Return one row per model: clean and guaranteed accuracies."""
    titles = ["model", "splits", *COLUMNS, "any edges", "largest gap, local", "largest gap, global"]
    rows = []
    for title, model, training in models_of():
        found = points(dataset, model, seeds, training)
        if not found:
            continue
        if model.name == "OneHop":
            cells = [mean_and_error([each[column] for each in found]) for column in (*COLUMNS, "any edges")]
            gaps = [
                f"{max(each[f'gap {kind} {epsilon:g}'] for each in found for epsilon in EPSILONS):.1f}"
                for kind in ("local", "global")
            ]
        else:
            clean = mean_and_error([each["clean"] for each in found])
            by_class = mean_and_error([each["by class"] for each in found])
            # Without edges, no perturbation has an effect. The worst case of a GPRGNN is not known.
            proven = [clean if model.name == "MLP" else "-"] * 7
            cells, gaps = [clean, by_class, *proven], ["-", "-"]
        rows.append([title, str(len(found)), *cells, *gaps])
    return table(titles, rows)


def models_of() -> list[tuple[str, ModelSpec, TrainingSpec]]:
    """Return title, model and training of every row."""
    rows = [("GPRGNN, regular training", GNN, REGULAR), ("MLP, same labels", MLP, TRAINING)]
    return rows + [(title, model, TRAINING) for title, model in ONE_HOPS]


def draw(dataset: str, seeds: tuple[int, ...] = REPORTED) -> None:
    """Draw the frontier of a graph: guaranteed over clean accuracy, one point per bound."""
    figure = empty_figure(7, 3.2)
    axes = figure.subplots(1, 2, sharex=True)
    for axis, kind in zip(axes, ("local", "global"), strict=True):
        for epsilon in EPSILONS:
            found = [points(dataset, one_hop(bound), seeds) for bound in BOUNDS]
            xs, ys = (
                [sum(each[column] for each in at) / len(at) for at in found if at]
                for column in ("clean", f"{kind} {epsilon:g}")
            )
            axis.plot(xs, ys, marker="o", markersize=3, label=f"OneHop, ε = {epsilon:g}")
        plain = points(dataset, MLP, seeds)
        if plain:
            clean = sum(each["clean"] for each in plain) / len(plain)
            axis.plot([clean], [clean], marker="x", linestyle="", color="black", label="MLP, any edges")
        axis.set_xlabel("clean accuracy, %")
        axis.set_ylabel("guaranteed accuracy, %")
        axis.set_title(f"{kind} budgets")
    axes[0].legend(fontsize=7)
    for suffix in ("svg", "png"):
        write_figure(figure, DOCS / "figures" / f"provable-{dataset}.{suffix}")


def has_results(dataset: str) -> bool:
    """Return whether any reported result of a graph is stored."""
    return bool(points(dataset, one_hop(BOUNDS[0]), (*REPORTED, *EARLIER)))


def tables() -> str:
    """Return the tables of all graphs with stored results."""
    parts = []
    for dataset in DATASETS:
        if not has_results(dataset):
            continue
        parts.append(f"### {dataset}\n\n![Frontier of {dataset}](figures/provable-{dataset}.png)")
        for name, seeds in (("20 to 29", REPORTED), ("0 to 9", EARLIER)):
            if points(dataset, one_hop(BOUNDS[0]), seeds):
                parts.append(f"Splits {name}:\n\n{frontier_table(dataset, seeds)}")
    return "\n\n".join(parts)


def defence_table() -> str:
    """Return clean and attacked accuracies of other defences on Citeseer, from the study of robust training."""
    rows = []
    for name in ("regular", "lrbcd", "sturdy", "mlp-labels-drop"):
        runs = [robust_training.runs(name)[seed] for seed in EARLIER]
        cells = [
            mean_and_error(
                [min(robust_training.percent(run, robust_training.TEST[title]) for title in titles) for run in runs]
            )
            for titles in (("clean",), ("LR-BCD", "greedy, local"), ("PR-BCD", "greedy"))
        ]
        rows.append([f"`{name}`", robust_training.RECIPES[name].about, str(len(runs)), *cells])
    return table(["recipe", "description", "splits", "clean", "attacked, local 0.25", "attacked, global 0.25"], rows)


def attack_cells() -> str:
    """Return how many attacked cells there are, and how many are below the guaranteed accuracy."""
    total, below = 0, 0
    for job in jobs(attacks=True):
        if job.run.model.name != "OneHop":
            continue
        proven = STORE.get(Task(job.run, PROVEN).identity)
        for attack in ATTACKS:
            record = STORE.get(Task(job.run, attack).identity)
            proven = STORE.get(Task(job.run, TIGHTER).identity) or proven
            if record is None or proven is None:
                continue
            kind = "global" if attack.local is None else "local"
            bounds = {epsilon: share for name, epsilon, share in proven.values["guaranteed"] if name == kind}
            for epsilon, accuracy in record.values["accuracy"]:
                total += 1
                below += accuracy < bounds[epsilon] - 1e-6
    return f"{below} of {total}"


def _benchmarks(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(BENCHMARKS.glob(pattern))]


def certify_table() -> str:
    """Return the run times of certificates."""
    rows = []
    for record in _benchmarks("certificate_time-certify-*.json"):
        for row in record["rows"]:
            local = "none" if row["local"] is None else f"{row['local']:g} x degree"
            searched = "yes" if row["attack"] else "no"
            cells = [f"{row['nodes']:,}", local, f"{row['flips']:,}", searched, f"{row['seconds']:.2f}"]
            rows.append([record["environment"]["device"], row["graph"], *cells])
    return table(["device", "graph", "nodes", "local budget", "flips", "attack", "seconds"], rows)


def train_table() -> str:
    """Return the run times of training."""
    rows = [
        [record["environment"]["device"], row["dataset"], row["case"], f"{row['ms_per_epoch']:.0f}"]
        for record in _benchmarks("certificate_time-train-*.json")
        for row in record["rows"]
    ]
    return table(["device", "graph", "training", "ms per epoch"], rows)


def records() -> list[Record]:
    """Return all stored results of the study."""
    identities = (
        identity
        for job in jobs(attacks=True)
        for identity in (job.run.identity, *(Task(job.run, m).identity for m in job.measurements))
    )
    return [record for record in map(STORE.get, identities) if record is not None]


def page() -> str:
    """Return the page."""
    return PAGE_TEXT.format(
        tables=tables(),
        defences=defence_table(),
        cells=attack_cells(),
        certify=certify_table(),
        train=train_table(),
        commands=provenance(records()),
    )


PAGE_TEXT = r"""# Provable robustness

A model that takes bounded messages from direct neighbors only has a worst case that can be computed. No attack, known or not,
brings its accuracy below the guaranteed value within the budget.

```python
import edgeproof as ep

data = ep.datasets.load("csbm")
split = ep.splits.inductive(data, train_per_class=60)
model = ep.models.build("OneHop", data.num_features, ep.num_classes(data), {{"bound": 0.3}}, seed=0)
ep.train(model, split, preset="certified", label_models=1, max_epochs=60, progress=False)

test = split.test
budgets = ep.Budget.from_epsilons(test.data, test.nodes, [0.1, 0.25], local=0.5)
certificate = ep.certificates.WorstCase().certify(model, test.data, test.nodes, budgets)
print(certificate)
```

On the command line: `edgeproof train --model OneHop --preset certified`, then `edgeproof certify --worst-case`.

## Derivation

The model is

```math
z_v = f(x_v) + \frac{{r(x_v)}}{{\max(d_v, k)}} \sum_{{u \in N(v)}} m(x_u), \qquad |m_c(x)| \le s.
```

- **Any edges.** Every logit changes by at most $`s`$. A node whose margin under $`f`$ exceeds $`2 s`$ keeps its class. With
  the messages of the existing nodes instead of $`\pm s`$, the bound is exact for edges between them.
- **One node.** A flip changes only its two ends. For class $`y`$ against $`c`$ let $`t_u = m_y(x_u) - m_c(x_u)`$. With
  $`a`$ additions and $`d`$ deletions the degree is known, so the worst choice removes the $`d`$ neighbors of largest $`t_u`$
  and adds the $`a`$ other nodes of smallest $`t_u`$. The minimum over $`a`$, $`d`$ and $`c`$ is exact. All nodes of class
  $`y`$ share one sorted list per $`c`$.
- **All nodes.** With $`k_v`$ the fewest flips that misclassify node $`v`$ within its own budget, lost nodes $`S`$
  satisfy $`\sum_{{v \in S}} k_v \le 2 \Delta`$, because a flip touches two nodes. The cheapest nodes first give the
  guaranteed accuracy.
- **The other end of the interval.** A greedy attack takes the cheapest nodes first and prefers partners that the same flip
  harms. Its flips respect all budgets, so the worst case is at most the attained accuracy.

| value | exact or bound |
|---|---|
| margin and fewest flips of a node, partners with a positive budget | exact, up to rounding |
| accuracy for all edges between existing nodes, no budget | exact, up to rounding |
| guaranteed accuracy within a budget | lower bound: a flip may count at both ends, partners' budgets are not shared |
| the same with `WorstCase(collective="lp")` | tighter lower bound: a flip counts at an end only as much as it helps there |
| attained accuracy | upper bound, with the flips as proof |

`BoundedInfluence(model, bound)` gives any model the bound for any edges: $`f(x) + s \tanh(G(X, A) / s)`$.

## Training

Labels come from five GPRGNNs (preset `certified`): the messages carry what many hops know about the training nodes. `bound` is
$`c`$ in $`s = c \cdot \operatorname{{median}}`$ margin of $`f`$. By default a model is the mean of four, which improves
$`f`$ as much as messages do; the row $`c = 0.01`$ shows this effect alone.

The worst flips at each node are found by sorting, so training on the worst-case margin (`worst_weight=1`) needs no attack. With
bounds this small it does not help: see the last row of each table.

## Frontier

Accuracies in percent, mean and standard error over splits; all inductive, no test node seen in training. *By class*: clean
accuracy averaged over classes. *Local*: at most half of each node's degree in addition to the global budget. *Global*: without
local budgets. *Gap*: largest difference between attained and guaranteed accuracy of any split and budget. Guaranteed values
of the MLP equal its clean accuracy, because it uses no edges; GPRGNN has no certificate.

Guaranteed accuracies are those of `WorstCase(collective="lp")` where they are stored, and of the default otherwise.

Settings were chosen on the splits 30 to 33 of Citeseer, by accuracies of test nodes.

{tables}

### Other defences

Citeseer, splits 0 to 9, ε = 0.25, lowest accuracy of the attacks in [Robust training](robust-training.md). Attacked accuracies
are upper bounds of the worst case, guaranteed ones lower bounds.

{defences}

Attacked cells (model, split, budget, attack) with an accuracy below the guaranteed one: {cells}.

## Time

Certificates of the test nodes, and training per epoch.

{certify}

{train}

## Where it does not help

- **Features that say nothing.** Without informative features $`f`$ has small margins, and every edge that helps can harm
  as much.
- **Global budgets.** An adversary that may spend the whole budget anywhere takes the weakest nodes first. At the largest
  budget most nodes with a margin below $`2 s`$ are lost: the guaranteed accuracy is close to that for any edges.
- **Information beyond one hop.** The model sees it only through the labels of its teacher.
- **Perturbed features** are not covered: only edges change.

## Reproduce

    python studies/provable.py run --device cuda --attacks
    python studies/provable.py

The first command trains, certifies and attacks the models without stored results in `results/provable`; the second writes
this page and its figures. `python benchmarks/certificate_time.py certify` and `train` measure run times. The stored results
were computed by

{commands}

After the runs, the identities of stored records were rewritten without changing values: the default of `worst_weight` changed
from 1 to 0 (splits 20 to 27), and the measurement was renamed to `proven` (all splits). The settings were chosen on test nodes
of splits 30 to 33.
"""


if __name__ == "__main__":
    app()
