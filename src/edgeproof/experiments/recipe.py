"""How a row of the paper's tables is trained: every setting, by name, and a hash of them all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from edgeproof import datasets, models, splits
from edgeproof._tensors import fingerprint
from edgeproof.attacks import LRBCD, PGD, PRBCD, Attack
from edgeproof.experiments.paper import STAND_IN, Row, is_large, stands_for
from edgeproof.graph import num_classes
from edgeproof.models import GraphModel
from edgeproof.splits import PROTOCOLS, Split
from edgeproof.training import History, TrainConfig, pseudo_labels, train

SEEDS = (0, 1, 5)
# Which graph a name stands for, by its :meth:`Recipe.fingerprint`: results are of this one. The others have not been at hand.
GRAPHS = {
    "citeseer": "8446fc8370f86226",
    "cora": "d3bb1bea9b2dba9c",
    "cora_ml": "de62f3b916369e62",
    "pubmed": "e1bf2890df828082",
    "squirrel": "4aae9bf9c761a9f6",
    "csbm": "5d4e0eb744c6aab3",
    "karate": "2aadf9e788e3c3c0",
    STAND_IN: "fc1416eae1ed6359",
}
# Labelled and validation nodes of each class, where they are drawn; fewer where a graph is too small.
_PER_CLASS, _FEWER_PER_CLASS = 20, {"karate": 1}
# Comes with masks, but none of test nodes: as in the paper, it is tested on its validation nodes.
_TESTED_ON_VAL = "csbm"
# Come with masks of their own, which the paper uses.
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
    # As in the released configurations; the paper's text has 0.001.
    ("GCN", "squirrel"): {"weight_decay": 1e-2},
    ("GCN", "wikics"): {"weight_decay": 1e-4},
    ("GPRGNN", "csbm"): {"weight_decay": 1e-2, "lr": 0.1},
    ("GPRGNN", "squirrel"): {"weight_decay": 1e-2},
    ("GPRGNN", "wikics"): {"weight_decay": 1e-4},
    # As its authors train it.
    ("GRAND", "citeseer"): {"loss": "cross_entropy", "weight_decay": 5e-4},
}
FAST_EPOCHS = 60


@dataclass(frozen=True)
class Recipe:
    """One model to train.

    Args:
        row: the row of a table.
        seed: of the split and of everything else.
        protocol: ``"strict"`` or ``"as_released"``; see :func:`edgeproof.splits.by_protocol`.
        fast: whether to train for a few epochs against a weaker attack, to try things out.
    """

    row: Row
    seed: int
    protocol: str = "strict"
    fast: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the trained model."""
        attack = self.attack
        return {
            "kind": "training",
            "dataset": self.row.dataset,
            "graph": GRAPHS.get(self.row.dataset),
            "setting": self.row.setting,
            "protocol": self.protocol,
            "nodes": self.nodes,
            "model": self.row.model,
            "model_settings": self.full_model_settings,
            "config": asdict(self.config),
            "label_config": asdict(self.label_config) if self.row.self_training else None,
            "attack": None if attack is None else repr(attack),
            "epsilon": self.row.epsilon,
            "local": self.local,
            "count": "incident",
            "seed": self.seed,
        }

    @property
    def nodes(self) -> dict[str, Any]:
        """Who is labelled and who is tested on: so many of each class, drawn, or the masks that came with the graph."""
        if self.row.setting == "transductive":
            return {"per_class": _FEWER_PER_CLASS.get(self.row.dataset, _PER_CLASS)}
        if _has_masks(self.row.dataset):
            return {"test_on_val": self.row.dataset == _TESTED_ON_VAL}
        return {"per_class": _PER_CLASS}

    @property
    def model_settings(self) -> dict[str, Any]:
        """What differs from the model's defaults."""
        settings = dict(_MODELS.get((self.row.model, stands_for(self.row.dataset)), {}))
        if self.row.model == "APPNP" and self.row.attack == "LRBCD":
            # As in the released configurations; the paper's text has one dropout for all.
            settings["dropout"] = 0.5
        if self.row.model == "GPRGNN":
            # As in the released scripts.
            settings["init_seed"] = self.seed
        return settings

    @property
    def full_model_settings(self) -> dict[str, Any]:
        return dict(_all_settings(self.row.model, tuple(self.model_settings.items())))

    @property
    def config(self) -> TrainConfig:
        row, graph = self.row, stands_for(self.row.dataset)
        settings = {**_TRAINING.get(graph, {}), **_TRAINING.get((row.model, graph), {}), "seed": self.seed}
        if row.setting == "transductive":
            settings["patience"] = 300
        if self.fast:
            settings["max_epochs"] = FAST_EPOCHS
        return TrainConfig(**settings)

    @property
    def label_config(self) -> TrainConfig:
        """Of the model that labels; in the transductive study it is kept at its best of 500 epochs."""
        config, epochs = self.config, FAST_EPOCHS if self.fast else 500
        return replace(config, max_epochs=epochs, patience=epochs) if self.row.setting == "transductive" else config

    @property
    def attack(self) -> Attack | None:
        large, steps = is_large(self.row.dataset), 2 if self.fast else 20
        block_size = 10_000 if self.fast else 3_000_000 if large else 1_000_000
        if self.row.attack == "LRBCD":
            return LRBCD(steps=steps, block_size=block_size, lr=4000.0 if large else 2000.0)
        if self.row.attack == "PRBCD":
            return replace(PRBCD().for_training(), steps=steps, block_size=block_size)
        if self.row.attack == "PGD":
            return PGD(steps=2 if self.fast else 50 if self.row.epsilon == 1 else 10)
        return None

    @property
    def local(self) -> float | None:
        return local_share(self.row.dataset) if self.row.attack == "LRBCD" else None

    def data(self) -> Data:
        """The graph; the released code takes Cora and arXiv whole.

        Raises:
            ValueError: if there is another one under its name, whose results would be taken for this one's.
        """
        name = self.row.dataset
        if name == STAND_IN:
            data = datasets.arxiv_stand_in()
        else:
            data = datasets.load(name, largest_component=name != "cora" and not is_large(name))
        found, expected = self.fingerprint(data), GRAPHS.get(name)
        if expected not in (None, found):
            path = None if name == STAND_IN else datasets.find(name)
            mend = "" if path is None else f"; remove {path} to have it downloaded, or give your own graph another name"
            raise ValueError(
                f"expected {name} to be the graph that results are of, with the fingerprint {expected}, got {found}: "
                f"features, labels, masks or the order of nodes differ{mend}"
            )
        return data

    def fingerprint(self, data: Data) -> str:
        """A hash of features, labels, edges, in whatever order these come, and of masks where these are used."""
        masks = ("train_mask", "val_mask", "test_mask") if _has_masks(self.row.dataset) else ()
        return fingerprint([data.x, coalesce(data.edge_index), data.y, *(data.get(name) for name in masks)])

    def split(self, data: Data) -> Split:
        nodes = self.nodes
        if "test_on_val" in nodes:
            return splits.provided(data, self._provided_index(data), **nodes)
        if self.row.setting == "transductive":
            count = nodes["per_class"]
            return splits.transductive(data, self.seed, train_per_class=count, val_per_class=count)
        return splits.by_protocol(data, self.seed, model=self.row.model, protocol=self.protocol, **nodes)

    def _provided_index(self, data: Data) -> int:
        """Which of the splits that came with the graph: one per seed, where there are several."""
        mask = data.train_mask
        return 0 if mask.dim() == 1 else self.seed % int(mask.size(1))

    def train(self, split: Split, device: str, checkpoint: Path | None = None) -> tuple[GraphModel, History]:
        """The trained model, and the course of its training.

        Args:
            split: who is trained on.
            device: where.
            checkpoint: keeps the state of an unfinished run, to go on with.
        """
        split = split.to(device)
        graph = split.train.data
        classes = num_classes(split.test.data)
        model = models.build(self.row.model, graph.num_features, classes, self.model_settings, seed=self.seed).to(
            device
        )
        labels: Any = False
        if self.row.self_training:
            labels = pseudo_labels(model, split, preset=self.label_config, checkpoint=checkpoint, progress=False)
        history = train(
            model,
            split,
            attack=self.attack,
            epsilon=self.row.epsilon,
            local=self.local,
            self_training=labels,
            preset=self.config,
            checkpoint=checkpoint,
            progress=False,
        )
        return model, history


@lru_cache
def _all_settings(model: str, changed: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Every setting of a model but its channels, the defaults among them: a default that changes changes the identity."""
    settings = models.build(model, 1, 2, dict(changed)).settings
    channels = ("in_channels", "out_channels")
    return tuple((name, value) for name, value in settings.items() if name not in channels and value is not None)


def _has_masks(dataset: str) -> bool:
    """Whether a graph comes with masks of its own, which the paper uses."""
    return dataset in _WITH_MASKS or is_large(dataset)


def at_hand(dataset: str) -> bool:
    """Whether the graph can be had without a download."""
    return dataset == STAND_IN or datasets.is_local(dataset)


def local_share(dataset: str) -> float:
    """Budget at each node as a share of its degree, where there are local budgets."""
    return 0.25 if is_large(dataset) else 0.5


def seeds_of(dataset: str, fast: bool = False) -> tuple[int, ...]:
    """The paper's seeds; one is enough to try things out, and for a generated graph that is beside no figure of the paper."""
    return SEEDS[:1] if fast or dataset == STAND_IN else SEEDS


def protocols_of(row: Row) -> tuple[str, ...]:
    """Protocols that differ for a row: the released scripts mix up the splits of GPRGNN alone, where splits are drawn."""
    drawn = row.setting == "inductive" and not _has_masks(row.dataset)
    return tuple(PROTOCOLS) if row.model == "GPRGNN" and drawn else ("strict",)


def recipes(row: Row, protocol: str, fast: bool = False) -> list[Recipe]:
    """The models behind a row, one per seed."""
    return [Recipe(row, seed, protocol, fast) for seed in seeds_of(row.dataset, fast)]
