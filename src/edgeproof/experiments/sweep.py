"""Sweeps: combinations of runs (models to train) and measurements, and the jobs that compute them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import nn

from edgeproof._checks import check_int, check_seed
from edgeproof._names import look_up
from edgeproof.experiments.identity import VERSION, key_of, non_default, without_empty
from edgeproof.experiments.spec import DatasetSpec, ModelSpec, SplitSpec, TrainingSpec, describe_training, in_brackets
from edgeproof.splits import Split

# Distance between the training seeds of two restarts; larger than the seeds of usual sweeps, so that none coincide.
_SEEDS_PER_RESTART = 1000


@dataclass(frozen=True)
class Run:
    """One model to train.

    Args:
        dataset: The graph.
        split: The rule that divides its nodes.
        model: The architecture.
        training: Specification of the training.
        seed: Seed of the split, the initial parameters, training and attacks.
        restart: Number of the restart. Restarts of a run differ in the seed of initial parameters and training, not in
            the split.
    """

    dataset: DatasetSpec
    split: SplitSpec
    model: ModelSpec
    training: TrainingSpec
    seed: int = 0
    restart: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_int(0, restart=self.restart)

    @property
    def training_seed(self) -> int:
        """Seed of the initial parameters and of training."""
        return self.seed + _SEEDS_PER_RESTART * self.restart

    @cached_property
    def entries(self) -> dict[str, Any]:
        """The ``"run"`` entry of identities."""
        parts = {"split": self.split.identity, "training": self.training.identity}
        named = {"dataset": self.dataset.identity, "model": self.model.identity, "seed": self.seed}
        return {**named, **without_empty(parts), **({"restart": self.restart} if self.restart else {})}

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that determine the trained model."""
        return {"version": VERSION, "kind": "training", "run": self.entries}

    @property
    def name(self) -> str:
        """Dataset, model, training, split and seed as text."""
        return describe_run(self.entries)

    @property
    def graph(self) -> tuple[DatasetSpec, bool]:
        """The dataset, and whether its masks are used; together they determine the graph to load."""
        return self.dataset, self.split.uses_masks


def describe_run(entries: Mapping[str, Any]) -> str:
    """Describe the ``"run"`` entry of an identity as text, with the number of epochs if it is not the default."""
    training, split = entries.get("training", {}), entries.get("split", {})
    kind = split.get("kind", "inductive")
    rule = kind if kind == "transductive" else split.get("protocol", "strict")
    epochs, restart = training.get("config", {}).get("max_epochs"), entries.get("restart")
    text = f"{entries['dataset']['name']} {entries['model']['name']}, {describe_training(training)}, {rule}"
    text += f", seed {entries['seed']}" + (f", restart {restart}" if restart is not None else "")
    return text + (f", {epochs} epochs" if epochs is not None else "")


class Measurement(ABC):
    """Base class of measurements of a trained model; a subclass is a frozen dataclass of its settings.

    Register a subclass with :func:`register`.
    """

    kind: ClassVar[str]

    @property
    def entries(self) -> dict[str, Any]:
        """Entries of the identity besides the run."""
        defaults = {entry.name: entry.default for entry in fields(self)}  # type: ignore[arg-type]
        return non_default(self.kind, {name: getattr(self, name) for name in defaults}, defaults)

    @property
    def label(self) -> str:
        """The kind and its settings as text."""
        return describe_measurement({"kind": self.kind, **self.entries})

    @abstractmethod
    def measure(self, model: nn.Module, split: Split, seed: int, checkpoint: Path | None = None) -> dict[str, Any]:
        """Return the measured values, ready for JSON.

        Args:
            model: The trained model, on the device of the split.
            split: The split; its test nodes are measured unless the measurement has another setting.
            seed: Seed of all random choices.
            checkpoint: Checkpoint file of an unfinished measurement.
        """

    @staticmethod
    @abstractmethod
    def check(identity: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Raise unless the values are those of a result with this identity.

        Errors may also be ``KeyError``, ``TypeError`` or ``AttributeError``.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """Titles of the table columns whose values :meth:`accuracies` returns."""
        return ()

    @staticmethod
    def accuracies(values: Mapping[str, Any]) -> dict[str, float]:
        """Return fractions of nodes by column."""
        return {}


M = TypeVar("M", bound=type[Measurement])
KINDS: dict[str, type[Measurement]] = {}


def register(kind: str) -> Callable[[M], M]:
    """Return a decorator that registers a class of measurements under a name."""

    def decorate(cls: M) -> M:
        cls.kind = kind
        KINDS[kind] = cls
        return cls

    return decorate


def describe_measurement(identity: Mapping[str, Any]) -> str:
    """Describe a measurement in a few words, from its identity.

    >>> describe_measurement({"kind": "attack", "attack": {"name": "LRBCD", "settings": {"lr": 3.0}}, "local": 0.5})
    'LRBCD(lr=3.0), local 0.5'
    """
    attack = identity.get("attack")
    text = str(identity["kind"])
    if attack is not None:
        name = f"{attack['name']}{in_brackets(attack.get('settings', {}))}"
        text = name if text == "attack" else f"{text}, {name}"
    text += f", local {identity['local']:g}" if identity.get("local") is not None else ""
    return text + (", validation nodes" if identity.get("nodes") == "val" else "")


@dataclass(frozen=True)
class Task:
    """One measurement of one run.

    Args:
        run: The run.
        measurement: The measurement.
    """

    run: Run
    measurement: Measurement

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All settings that determine the result."""
        return task_identity(self.run, self.measurement)


def task_identity(run: Run, measurement: Measurement) -> dict[str, Any]:
    """Return all settings that determine the result of a measurement of a run."""
    return {"version": VERSION, "kind": measurement.kind, "run": run.entries, **measurement.entries}


@dataclass(frozen=True)
class Job:
    """One model to train (unless it is stored), and its measurements.

    Args:
        run: Specification of the model and its training.
        measurements: Measurements of the model.
    """

    run: Run
    measurements: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """The run as text."""
        return self.run.name

    @property
    def tasks(self) -> list[Task]:
        """One task per measurement."""
        return [Task(self.run, measurement) for measurement in self.measurements]


@dataclass(frozen=True)
class Sweep:
    """All combinations of datasets, splits, models, trainings, restarts and seeds, each with the same measurements.

    Args:
        datasets: The graphs.
        models: The architectures.
        measurements: Measurements of every model.
        trainings: Specifications of trainings.
        splits: Rules that divide nodes.
        seeds: Seeds of the runs; tables show means over them.
        restarts: Numbers of restarts, see :class:`Run`; tables show means over them, too.
    """

    datasets: tuple[DatasetSpec, ...]
    models: tuple[ModelSpec, ...]
    measurements: tuple[Measurement, ...]
    trainings: tuple[TrainingSpec, ...] = (TrainingSpec(),)
    splits: tuple[SplitSpec, ...] = (SplitSpec(),)
    seeds: tuple[int, ...] = (0,)
    restarts: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for entry in fields(self):
            values = getattr(self, entry.name)
            if not values:
                raise ValueError(f"expected at least one entry in {entry.name}, got none")
            repeated = [value for number, value in enumerate(values) if value in values[:number]]
            if repeated:
                raise ValueError(f"expected distinct {entry.name}, got {repeated[0]} twice")
        for kind, labels in (
            ("datasets", [dataset.label for dataset in self.datasets]),
            ("trainings", [training.label for training in self.trainings]),
        ):
            for label in labels:
                if labels.count(label) > 1:
                    raise ValueError(
                        f"expected {kind} with distinct names, got {label!r} twice: give each a different name"
                    )
        keys = {key_of({"kind": chosen.kind, **chosen.entries}) for chosen in self.measurements}
        if len(keys) < len(self.measurements):
            raise ValueError("expected distinct measurements, got two with the same settings")

    def runs(self) -> list[Run]:
        """Return every combination, with seeds varying fastest."""
        from edgeproof.experiments.graphs import with_fingerprint

        return [
            Run(with_fingerprint(dataset, split.uses_masks), split, model, training, seed, restart)
            for dataset in self.datasets
            for split in self.splits
            for model in self.models
            for training in self.trainings
            for restart in self.restarts
            for seed in self.seeds
        ]

    def jobs(self) -> list[Job]:
        """Return one job per run."""
        return [Job(run, self.measurements) for run in self.runs()]


def measurement_class(kind: str) -> type[Measurement]:
    """Return the class of a kind of measurements."""
    return look_up("measurement", kind, KINDS)
