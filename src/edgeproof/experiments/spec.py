"""Specifications of datasets, splits, models, attacks and trainings: frozen, hashable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from edgeproof import attacks, models
from edgeproof._checks import check_bool, check_fraction, check_int, check_positive
from edgeproof._files import is_graph_file
from edgeproof._names import unknown_name
from edgeproof.attacks import Attack
from edgeproof.datasets import Fixes
from edgeproof.experiments.identity import non_default, plain, without_empty
from edgeproof.splits import PROTOCOLS
from edgeproof.training import Preset, Threat, TrainConfig
from edgeproof.training.adversarial import make_threat
from edgeproof.training.config import check_threat_settings, configure

Settings = tuple[tuple[str, Any], ...]
SPLIT_KINDS = ("inductive", "transductive", "provided")
_NO_FIXES = Fixes()
_CHANNELS = ("in_channels", "out_channels")


def as_settings(values: Mapping[str, Any]) -> Settings:
    """Return settings in a hashable form: pairs sorted by name, lists as tuples.

    >>> as_settings({"steps": 20, "block_size": 1000})
    (('block_size', 1000), ('steps', 20))
    """
    return tuple((name, _hashable(values[name])) for name in sorted(values))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class AttackSpec:
    """An attack by name.

    Args:
        name: One of :func:`edgeproof.attacks.available`.
        settings: Settings that differ from the defaults of the attack.
    """

    name: str
    settings: Settings = ()

    @classmethod
    def of(cls, attack: Attack) -> AttackSpec:
        """Return the specification of an attack.

        >>> AttackSpec.of(attacks.LRBCD(steps=20))
        AttackSpec(name='LRBCD', settings=(('steps', 20),))
        """
        standard = type(attack)()
        changed = {
            entry.name: getattr(attack, entry.name)
            for entry in fields(attack)
            if getattr(attack, entry.name) != getattr(standard, entry.name)
        }
        return cls(type(attack).__name__, as_settings(changed))

    @classmethod
    def for_training(cls, name: str, settings: Mapping[str, Any] | None = None) -> AttackSpec:
        """Return an attack with its settings for adversarial training, some of them changed."""
        usual = attacks.build(name).for_training()
        return cls.of(attacks.build(name, {**asdict(usual), **(settings or {})}))

    def build(self) -> Attack:
        """Return the attack."""
        return attacks.build(self.name, dict(self.settings))

    @property
    def identity(self) -> dict[str, Any]:
        """The name, and the settings that differ from their defaults."""
        return dict(_attack_identity(self))


@cache
def _attack_identity(spec: AttackSpec) -> dict[str, Any]:
    return attack_identity(spec.build())


def attack_identity(attack: Attack) -> dict[str, Any]:
    """Return the part of an identity that describes an attack."""
    name, defaults = type(attack).__name__, asdict(type(attack)())
    return without_empty({"name": name, "settings": non_default(name, asdict(attack), defaults)})


@dataclass(frozen=True)
class DatasetSpec:
    """A graph.

    Args:
        name: A name that :func:`edgeproof.experiments.graphs.available` lists, or the path of a graph file; see
            :func:`edgeproof.datasets.load`.
        largest_component: Whether to keep only the largest connected component.
        fingerprint: Hash of the expected graph; None if it is not known.
        fixes: Changes of the edges of a file. The fingerprint contains their effect.
    """

    name: str
    largest_component: bool = True
    fingerprint: str | None = None
    fixes: Fixes = _NO_FIXES

    def __post_init__(self) -> None:
        check_bool(largest_component=self.largest_component)
        if self.fixes.names and not self.is_file:
            raise ValueError(f"expected {', '.join(self.fixes.names)} with a file only, got the dataset {self.name}")

    @property
    def is_file(self) -> bool:
        """Whether the name is a path."""
        return is_graph_file(self.name)

    @property
    def label(self) -> str:
        """The name; of a file, its name without the ending, or the folder of ``edges.csv``."""
        path = Path(self.name)
        if not self.is_file:
            return self.name
        return path.parent.name if path.stem == "edges" and path.parent.name else path.stem

    @property
    def identity(self) -> dict[str, Any]:
        """The label and the fingerprint; independent of the folder of a file."""
        changed = non_default("dataset", {"largest_component": self.largest_component}, {})
        entries = {"name": self.label, "graph": self.fingerprint}
        return {**{name: value for name, value in entries.items() if value is not None}, **changed}


@dataclass(frozen=True)
class SplitSpec:
    """A rule that divides nodes into training, validation and test nodes; sampling uses the seed of the run.

    Args:
        kind: ``"inductive"`` or ``"transductive"``, see :mod:`edgeproof.splits`; or ``"provided"``, inductive by the masks of
            the dataset. If there are several provided splits, the seed selects one.
        train_per_class: Number of labelled training nodes per class.
        val_per_class: Number of validation nodes per class.
        test_fraction: Fraction of each class used as test nodes (inductive).
        protocol: ``"strict"`` or ``"as_released"``, see :func:`edgeproof.splits.by_protocol` (inductive).
        test_on_val: Whether to test on the validation nodes (provided).
    """

    kind: str = "inductive"
    train_per_class: int = 20
    val_per_class: int = 20
    test_fraction: float = 0.1
    protocol: str = "strict"
    test_on_val: bool = False

    def __post_init__(self) -> None:
        if self.kind not in SPLIT_KINDS:
            raise unknown_name("split", self.kind, SPLIT_KINDS)
        if self.protocol not in PROTOCOLS:
            raise unknown_name("protocol", self.protocol, PROTOCOLS)
        check_int(1, train_per_class=self.train_per_class, val_per_class=self.val_per_class)
        check_positive(test_fraction=self.test_fraction)
        check_fraction(test_fraction=self.test_fraction)
        check_bool(test_on_val=self.test_on_val)
        sizes = (self.train_per_class - self.val_per_class, self.test_fraction)
        if self.protocol == "as_released" and (self.kind != "inductive" or sizes != (0, 0.1)):
            raise ValueError(
                "expected protocol as_released with inductive splits of as many validation as training nodes per class and "
                f"test_fraction=0.1, got {self}"
            )

    @property
    def title(self) -> str:
        """The kind and the entries that differ from the defaults, for tables."""
        return self.kind + in_brackets({name: value for name, value in self.identity.items() if name != "kind"})

    @property
    def uses_masks(self) -> bool:
        """Whether the masks of the dataset determine the split."""
        return self.kind == "provided"

    @property
    def label(self) -> str:
        """The protocol of inductive splits, else ``"transductive"``."""
        return self.kind if self.kind == "transductive" else self.protocol

    @property
    def identity(self) -> dict[str, Any]:
        """The entries that differ from their defaults, without those that have no effect."""
        used = {
            "inductive": ("train_per_class", "val_per_class", "test_fraction", "protocol"),
            "transductive": ("train_per_class", "val_per_class"),
            "provided": ("test_on_val",),
        }
        values = {name: getattr(self, name) for name in ("kind", *used[self.kind])}
        return non_default("split", values, {})


@dataclass(frozen=True)
class ModelSpec:
    """An architecture.

    Args:
        name: One of :func:`edgeproof.models.available`; or ``module:factory``, a function in a module of the current folder or
            an installed one, called as ``factory(in_channels, out_channels, **settings)``, that returns a new
            ``torch.nn.Module``.
        settings: Further arguments of the constructor.
    """

    name: str
    settings: Settings = ()

    def __post_init__(self) -> None:
        # Raises for an unknown name or setting.
        self.identity  # noqa: B018

    @classmethod
    def of_paper(cls, name: str, settings: Mapping[str, Any] | None = None) -> ModelSpec:
        """Return a model of the paper: with its settings where they differ from the library's defaults."""
        return cls(name, as_settings({**models.PAPER_SETTINGS.get(name, {}), **(settings or {})}))

    @property
    def is_factory(self) -> bool:
        """Whether the name is ``module:factory``."""
        return ":" in self.name

    @property
    def label(self) -> str:
        """The name with the settings that differ from the defaults."""
        return self.name + in_brackets(self.identity.get("settings", {}))

    @property
    def identity(self) -> dict[str, Any]:
        """The name, and the settings that differ from their defaults."""
        if self.is_factory:
            return without_empty({"name": self.name, "settings": plain(dict(self.settings))})
        return dict(_model_identity(self))


@cache
def _model_identity(spec: ModelSpec) -> dict[str, Any]:
    with_settings, standard = (models.build(spec.name, 1, 2, dict(chosen)) for chosen in (spec.settings, ()))
    return model_identity(with_settings, standard)


def model_identity(model: models.GraphModel, standard: models.GraphModel) -> dict[str, Any]:
    """Return the part of an identity that describes a model of the library.

    Args:
        model: The model.
        standard: A model of the same class with default settings.
    """
    values, defaults = (
        {name: value for name, value in network.settings.items() if name not in _CHANNELS}
        for network in (model, standard)
    )
    name = type(model).__name__
    return without_empty({"name": name, "settings": non_default(name, values, defaults)})


@dataclass(frozen=True)
class TrainingSpec:
    """Specification of a training.

    Args:
        name: Title for tables, not part of identities. Default: a description of the settings.
        preset: One of :data:`edgeproof.training.PRESETS`.
        config: Settings of :class:`~edgeproof.training.TrainConfig` that differ from the preset, without the seed.
        attack: The attack to train against. Default: that of the preset, if any.
        epsilon: Budget of the attack as a fraction of the edges.
        local: Budget of each node as a factor of its degree; None for no local budgets.
        count: Edges that ``epsilon`` is a fraction of; see :meth:`edgeproof.Budget.from_epsilon`.
        self_training: Whether to train on pseudo-labels. Default: as in the preset.
        label_config: Settings of the label models that differ from ``config``.
        label_model: Architecture of the label models, one of :func:`edgeproof.models.available`. Default: that of the preset,
            if any, otherwise that of the trained model.
    """

    name: str = ""
    preset: str = "paper"
    config: Settings = ()
    attack: AttackSpec | None = None
    epsilon: float | None = None
    local: float | None = None
    count: str | None = None
    self_training: bool | None = None
    label_config: Settings = ()
    label_model: ModelSpec | None = None

    def __post_init__(self) -> None:
        if self.label_model is not None and self.label_model.is_factory:
            raise ValueError(
                f"expected label_model as one of {', '.join(models.available())}, got {self.label_model.name}"
            )
        if any(name == "seed" for name, _ in (*self.config, *self.label_config)):
            raise ValueError("expected no seed in the settings of a training: the seed of the run is used")
        # Raises for settings that do not fit together.
        self.identity  # noqa: B018

    @property
    def label(self) -> str:
        """The title for tables."""
        config = dict(self.config) if self.preset == "default" else self.identity.get("config", {})
        return self.name or describe_training(self.identity) + (f", {in_brackets(config)[1:-1]}" if config else "")

    @property
    def identity(self) -> dict[str, Any]:
        """The combined settings of preset and specification that differ from their defaults."""
        return dict(_training_identity(self))


@dataclass(frozen=True)
class ResolvedTraining:
    """:class:`TrainingSpec` resolved with its preset.

    Args:
        preset: Settings of the training loop and of its threat model.
        label_config: Settings of label models.
    """

    preset: Preset
    label_config: TrainConfig

    def with_seed(self, seed: int) -> ResolvedTraining:
        """Return the same training with another seed."""
        preset = replace(self.preset, config=replace(self.preset.config, seed=seed))
        return ResolvedTraining(preset, replace(self.label_config, seed=seed))


def resolve(training: TrainingSpec) -> ResolvedTraining:
    """Combine a specification with its preset; raises ``ValueError`` for settings that do not fit together."""
    preset = configure(training.preset, dict(training.config))  # type: ignore[arg-type]
    attack = None if training.attack is None else training.attack.build()
    threat = make_threat(attack, training.epsilon, training.local, training.count, preset.threat)
    check_threat_settings(preset.config, threat, dict(training.config))
    self_training = preset.self_training if training.self_training is None else training.self_training
    if self_training is None:
        self_training = threat is not None
    check_bool(self_training=self_training)
    if training.label_model is not None:
        if not self_training:
            raise ValueError("expected label_model only with self_training=True")
        chosen = training.label_model
        preset = replace(preset, label_model=chosen.name, label_model_settings=dict(chosen.settings))
    label_preset = configure(replace(preset, threat=None), dict(training.label_config))  # type: ignore[arg-type]
    return ResolvedTraining(replace(preset, threat=threat, self_training=self_training), label_preset.config)


@cache
def _training_identity(spec: TrainingSpec) -> dict[str, Any]:
    return training_identity(resolve(spec))


def training_identity(training: ResolvedTraining) -> dict[str, Any]:
    """Return the part of an identity that describes a training."""
    config, labels = (
        {name: value for name, value in asdict(settings).items() if name != "seed"}
        for settings in (training.preset.config, training.label_config)
    )
    defaults = asdict(type(training.preset.config)())
    entries = {"config": non_default("TrainConfig", config, defaults), **_threat_identity(training.preset.threat)}
    if training.preset.self_training:
        entries["self_training"] = True
        entries["label_config"] = {name: value for name, value in labels.items() if value != config[name]}
        if training.preset.label_model is not None:
            entries["label_model"] = ModelSpec(
                training.preset.label_model, as_settings(training.preset.label_model_settings)
            ).identity
    return without_empty(entries)


def _threat_identity(threat: Threat | None) -> dict[str, Any]:
    if threat is None:
        return {}
    budgets = non_default("threat", {"local": threat.local, "count": threat.count}, {})
    return {"attack": attack_identity(threat.attack), "epsilon": float(threat.epsilon), **budgets}


def describe_training(identity: Mapping[str, Any]) -> str:
    """Describe a training in a few words.

    Args:
        identity: The ``"training"`` entry of an identity.

    >>> describe_training(TrainingSpec(attack=AttackSpec("LRBCD"), epsilon=0.2, self_training=True).identity)
    'LRBCD 0.2'
    """
    labelled = bool(identity.get("self_training"))
    if "attack" not in identity:
        return "self-trained" if labelled else "regular"
    return f"{identity['attack']['name']} {identity['epsilon']:g}" + ("" if labelled else ", no self-training")


def in_brackets(settings: Mapping[str, Any]) -> str:
    """Return settings as in a call, or nothing if there are none.

    >>> in_brackets({"lr": 3.0, "steps": 20}), in_brackets({})
    ('(lr=3.0, steps=20)', '')
    """
    return f"({', '.join(f'{name}={value}' for name, value in settings.items())})" if settings else ""
