"""Settings of the paper's experiments, as specifications of runs and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from edgeproof.attacks import DICE, FGSM, LRBCD, PGD, PRBCD, Attack, GreedyRBCD
from edgeproof.experiments.analyses import AttackedDegrees, DiffusionMatrix, LearnedFilter
from edgeproof.experiments.graphs import STAND_IN, with_fingerprint
from edgeproof.experiments.measurements import CertifiedAccuracy, CleanAccuracy, RobustAccuracy
from edgeproof.experiments.spec import AttackSpec, DatasetSpec, ModelSpec, SplitSpec, TrainingSpec, as_settings, resolve
from edgeproof.experiments.sweep import Measurement, Run, Task
from edgeproof.paper.numbers import PaperColumn, PaperRow, epsilons, is_large, stands_for
from edgeproof.splits import PROTOCOLS
from edgeproof.training import TrainConfig

SEEDS = (0, 1, 5)
TRAININGS = ("regular", "self", "LRBCD", "PRBCD", "PGD")
KINDS = (
    *("clean", "DICE", "FGSM", "GreedyRBCD", "LRBCD", "PGD", "PRBCD", "LRBCD-global", "LRBCD-global-slow"),
    *("smoothing", "filter", "degrees", "diffusion"),
)
# Labelled and validation nodes per class; fewer where a graph is too small.
_PER_CLASS, _FEWER_PER_CLASS = 20, {"karate": 1}
# The paper tests on the validation nodes of this graph, whose masks have no test nodes.
_TESTED_ON_VAL = "csbm"
# The paper uses the masks of these graphs, and of ogbn-arxiv.
_WITH_MASKS = (_TESTED_ON_VAL, "squirrel")
# Settings of models that differ from their defaults.
_MODELS: dict[tuple[str, str], dict[str, Any]] = {
    ("GCN", "csbm"): {"hidden_channels": 32, "dropout": 0.2},
    ("GCN", "squirrel"): {"hidden_channels": 128},
    ("GCN", "wikics"): {"hidden_channels": 128},
    ("GCN", "ogbn-arxiv"): {"hidden_channels": 256, "num_layers": 3},
    ("APPNP", "ogbn-arxiv"): {"hidden_channels": 256},
    ("GPRGNN", "ogbn-arxiv"): {"hidden_channels": 256},
    ("MLP", "ogbn-arxiv"): {"hidden_channels": 256},
    ("GPRGNN", "csbm"): {"dropout": 0.5},
    ("GPRGNN", "squirrel"): {"hidden_channels": 128, "dropout": 0.5},
    ("GPRGNN", "wikics"): {"hidden_channels": 128},
}
# Settings of training that differ from the paper's common ones: by dataset, and by model and dataset.
_TRAINING: dict[str | tuple[str, str], dict[str, Any]] = {
    "csbm": {"warmup_epochs": 50},
    "squirrel": {"warmup_epochs": 50},
    "ogbn-arxiv": {"warmup_epochs": 20, "weight_decay": 0.0, "validate_every": 10},
    # From the released configurations; the paper's text has 0.001.
    ("GCN", "squirrel"): {"weight_decay": 1e-2},
    ("GCN", "wikics"): {"weight_decay": 1e-4},
    ("GPRGNN", "csbm"): {"weight_decay": 1e-2, "lr": 0.1},
    ("GPRGNN", "squirrel"): {"weight_decay": 1e-2},
    ("GPRGNN", "wikics"): {"weight_decay": 1e-4},
    # Settings of the authors of that model.
    ("GRAND", "citeseer"): {"loss": "cross_entropy", "weight_decay": 5e-4},
}
FAST_EPOCHS = 60
SAMPLES = 100_000
# These models compute a new diffusion for every random graph, so fewer samples are drawn: certificates are valid, but
# slightly weaker.
FEWER_SAMPLES = {"SoftMedianGDC": 10_000}
_FAST_SAMPLES = 1_000
# Measurements by an attack under another name.
_ATTACKS = {"LRBCD-global": "LRBCD", "LRBCD-global-slow": "LRBCD", "degrees": "PRBCD"}
_SLOW_LR = 3.0
_DEGREES_AT = (0.1, 0.25)


def training_name(row: PaperRow) -> str:
    """Return how models of a row are trained: one of :data:`TRAININGS`."""
    return row.attack or ("self" if row.self_training else "regular")


@dataclass(frozen=True)
class Recipe:
    """One model of the paper.

    Args:
        row: Row of a table.
        seed: Seed of the run.
        protocol: ``"strict"`` or ``"as_released"``; see :func:`edgeproof.splits.by_protocol`.
        fast: Whether to train for a few epochs against a weaker attack, for quick tests.
    """

    row: PaperRow
    seed: int
    protocol: str = "strict"
    fast: bool = False

    @cached_property
    def run(self) -> Run:
        """The specification of the model."""
        name, split = self.row.dataset, self._split
        whole = name == "cora" or is_large(name)
        return Run(
            dataset=with_fingerprint(DatasetSpec(name, largest_component=not whole), split.uses_masks),
            split=split,
            model=ModelSpec.of_paper(self.row.model, self.model_settings),
            training=self._training,
            seed=self.seed,
        )

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that determine the trained model."""
        return self.run.identity

    @property
    def config(self) -> TrainConfig:
        """Settings of the training loop."""
        return resolve(self.run.training).with_seed(self.seed).preset.config

    @property
    def _split(self) -> SplitSpec:
        name = self.row.dataset
        if self.row.setting == "transductive":
            size = _FEWER_PER_CLASS.get(name, _PER_CLASS)
            return SplitSpec("transductive", train_per_class=size, val_per_class=size)
        if _has_masks(name):
            return SplitSpec("provided", test_on_val=name == _TESTED_ON_VAL)
        return SplitSpec(train_per_class=_PER_CLASS, val_per_class=_PER_CLASS, protocol=self.protocol)

    @property
    def model_settings(self) -> dict[str, Any]:
        """Settings of the model that differ from its defaults."""
        settings = dict(_MODELS.get((self.row.model, stands_for(self.row.dataset)), {}))
        if self.row.model == "APPNP" and self.row.attack == "LRBCD":
            # From the released configurations; the paper's text has one dropout for all.
            settings["dropout"] = 0.5
        if self.row.model == "GPRGNN":
            # As in the released scripts.
            settings["init_seed"] = self.seed
        return settings

    @property
    def _training(self) -> TrainingSpec:
        row, attack = self.row, self._attack
        return TrainingSpec(
            config=as_settings(self._config),
            attack=None if attack is None else AttackSpec.of(attack),
            epsilon=row.epsilon,
            local=local_factor(row.dataset) if row.attack == "LRBCD" else None,
            self_training=row.self_training,
            label_config=as_settings(self._label_config) if row.self_training else (),
        )

    @property
    def _config(self) -> dict[str, Any]:
        graph = stands_for(self.row.dataset)
        settings = {**_TRAINING.get(graph, {}), **_TRAINING.get((self.row.model, graph), {})}
        if self.row.setting == "transductive":
            settings["patience"] = 300
        if self.fast:
            settings["max_epochs"] = FAST_EPOCHS
        return settings

    @property
    def _label_config(self) -> dict[str, Any]:
        """Settings of label models; in the transductive study they are trained for 500 epochs, and the best epoch is kept."""
        epochs = FAST_EPOCHS if self.fast else 500
        return {"max_epochs": epochs, "patience": epochs} if self.row.setting == "transductive" else {}

    @property
    def _attack(self) -> Attack | None:
        large, steps = is_large(self.row.dataset), 2 if self.fast else 20
        block_size = 10_000 if self.fast else 3_000_000 if large else 1_000_000
        if self.row.attack == "LRBCD":
            return LRBCD(steps=steps, block_size=block_size, lr=4000.0 if large else 2000.0)
        if self.row.attack == "PRBCD":
            return replace(PRBCD().for_training(), steps=steps, block_size=block_size)
        if self.row.attack == "PGD":
            return PGD(steps=2 if self.fast else 50 if self.row.epsilon == 1 else 10)
        return None


@dataclass(frozen=True)
class PaperMeasurement:
    """One measurement of one model of the paper, at all budgets or radii.

    Args:
        recipe: Model and training.
        kind: One of :data:`KINDS`: ``"clean"``, the name of an attack, ``"smoothing"``; for figures also ``"LRBCD-global"``
            (LR-BCD without local budgets), ``"LRBCD-global-slow"`` (the same with a smaller learning rate), ``"degrees"``
            (nodes at which PR-BCD succeeds), ``"filter"`` (learned coefficients), ``"diffusion"`` (between nodes of a graph).
    """

    recipe: Recipe
    kind: str

    @cached_property
    def task(self) -> Task:
        """The specification of the measurement."""
        return Task(self.recipe.run, self.measurement)

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that determine the result."""
        return self.task.identity

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement without the run."""
        if self.kind == "clean":
            return CleanAccuracy()
        if self.kind == "smoothing":
            model = self.recipe.row.model
            return CertifiedAccuracy(samples=_FAST_SAMPLES if self.recipe.fast else FEWER_SAMPLES.get(model, SAMPLES))
        if self.kind == "filter":
            return LearnedFilter()
        if self.kind == "diffusion":
            return DiffusionMatrix()
        attack = AttackSpec.of(self.attack)
        if self.kind == "degrees":
            return AttackedDegrees(attack, self.epsilons)
        return RobustAccuracy(attack, self.epsilons, self.local)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Budgets of an attack."""
        return _DEGREES_AT if self.kind == "degrees" else epsilons(self.recipe.row, self._attack_name)

    @property
    def local(self) -> float | None:
        """Budget of each node as a factor of its degree."""
        return local_factor(self.recipe.row.dataset) if self.kind == "LRBCD" else None

    @property
    def _attack_name(self) -> str:
        return _ATTACKS.get(self.kind, self.kind)

    @property
    def attack(self) -> Attack:
        """The attack."""
        name, large, fast = self._attack_name, is_large(self.recipe.row.dataset), self.recipe.fast
        block_size = 10_000 if fast else 3_000_000 if large else 500_000
        if name == "LRBCD":
            lr = _SLOW_LR if self.kind == "LRBCD-global-slow" else 100.0
            return LRBCD(steps=10 if fast else 400, block_size=block_size, lr=lr)
        if name == "PRBCD":
            attack = PRBCD(block_size=block_size)
            return replace(attack, steps=8, fine_tune_steps=2) if fast else attack
        if name == "GreedyRBCD":
            return replace(GreedyRBCD(), steps=5) if fast else GreedyRBCD()
        return {"PGD": PGD(steps=10 if fast else 400), "FGSM": FGSM(), "DICE": DICE()}[name]


def kind_of(identity: Mapping[str, Any]) -> str:
    """Return the kind (one of :data:`KINDS`) of a stored measurement of the paper.

    >>> kind_of({"kind": "attack", "attack": {"name": "LRBCD", "settings": {"lr": 3.0}}})
    'LRBCD-global-slow'
    """
    if identity["kind"] != "attack":
        return str(identity["kind"])
    name = str(identity["attack"]["name"])
    if name != "LRBCD" or "local" in identity:
        return name
    slow = identity["attack"].get("settings", {}).get("lr") == _SLOW_LR
    return "LRBCD-global-slow" if slow else "LRBCD-global"


def value(values: Mapping[str, Any], column: PaperColumn) -> float:
    """Return the value of a measurement for one column, in percent."""
    if column.attack == "smoothing":
        rows = {(added, deleted): accuracy for added, deleted, accuracy in values["certified_accuracy"]}
        return 100 * float(rows[column.r_add, column.r_del])
    return 100 * float(dict(values["accuracy"])[column.epsilon])


def _has_masks(dataset: str) -> bool:
    """Whether the paper uses the masks of a graph."""
    return dataset in _WITH_MASKS or is_large(dataset)


def local_factor(dataset: str) -> float:
    """Return local budgets as a factor of the degree."""
    return 0.25 if is_large(dataset) else 0.5


def seeds_of(dataset: str, fast: bool = False) -> tuple[int, ...]:
    """Return the paper's seeds; one for the fast version and for generated graphs, for which the paper has no numbers."""
    return SEEDS[:1] if fast or dataset == STAND_IN else SEEDS


def protocols_of(row: PaperRow) -> tuple[str, ...]:
    """Return the protocols that differ for a row: only for GPRGNN do the released scripts evaluate on another split."""
    drawn = row.setting == "inductive" and not _has_masks(row.dataset)
    return tuple(PROTOCOLS) if row.model == "GPRGNN" and drawn else ("strict",)


def recipes(row: PaperRow, protocol: str, fast: bool = False) -> list[Recipe]:
    """Return the models of a row, one per seed."""
    return [Recipe(row, seed, protocol, fast) for seed in seeds_of(row.dataset, fast)]
