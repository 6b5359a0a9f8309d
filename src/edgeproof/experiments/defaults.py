"""The defaults that identities of version 3 omit: a frozen copy, not the defaults of the code.

Never change an entry. A test compares this table with the code: when a setting is new, add it here with the value that all
earlier results had; when a default of the code has changed on purpose, list it in that test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "TrainConfig": {
        "loss": "tanh_margin",
        "lr": 0.01,
        "weight_decay": 0.001,
        "warmup_epochs": 10,
        "separate_warmup": True,
        "max_epochs": 3000,
        "min_epochs": 0,
        "patience": 200,
        "validate_every": 1,
        "epsilon_warmup": 0,
        "warm_start": False,
        "clean_share": 0.0,
        "averaging": 0.0,
        "label_models": 1,
        "label_weight_decay": 0.0,
    },
    "DICE": {"add_ratio": 0.6},
    "FGSM": {"loss": "tanh_margin"},
    "GreedyRBCD": {"steps": 400, "block_size": 500000, "loss": "tanh_margin"},
    "LRBCD": {"steps": 400, "block_size": 500000, "lr": 100.0, "samples": 20, "loss": "tanh_margin"},
    "PGD": {"steps": 400, "lr": 0.1, "samples": 20, "loss": "tanh_margin"},
    "PRBCD": {
        "steps": 400,
        "fine_tune_steps": 100,
        "block_size": 500000,
        "lr": 100.0,
        "samples": 20,
        "keep_best": True,
        "loss": "tanh_margin",
    },
    "RandomFlips": {},
    "APPNP": {"hidden_channels": 64, "num_layers": 2, "K": 10, "alpha": 0.1, "dropout": 0.2},
    "ChebNetII": {
        "hidden_channels": 64,
        "num_layers": 2,
        "K": 10,
        "dropout": 0.8,
        "propagation_dropout": 0.5,
        "filter_lr": 0.001,
        "filter_weight_decay": 0.005,
    },
    "GAT": {"hidden_channels": 64, "num_layers": 2, "heads": 1, "dropout": 0.5},
    "GCN": {"hidden_channels": 64, "num_layers": 2, "dropout": 0.5},
    "GPRGNN": {
        "hidden_channels": 64,
        "num_layers": 2,
        "K": 10,
        "init": "random",
        "alpha": 0.1,
        "init_seed": None,
        "dropout": 0.2,
    },
    "GRAND": {
        "hidden_channels": 32,
        "K": 2,
        "dropnode": 0.5,
        "input_dropout": 0.0,
        "dropout": 0.2,
        "samples": 2,
        "temperature": 0.3,
        "consistency": 0.7,
    },
    "MLP": {"hidden_channels": 64, "num_layers": 2, "dropout": 0.2},
    "SoftMedianGDC": {
        "hidden_channels": 64,
        "num_layers": 2,
        "alpha": 0.15,
        "k": 64,
        "temperature": 0.2,
        "dropout": 0.5,
    },
    "dataset": {"largest_component": True},
    "split": {
        "kind": "inductive",
        "train_per_class": 20,
        "val_per_class": 20,
        "test_fraction": 0.1,
        "protocol": "strict",
        "test_on_val": False,
    },
    "threat": {"local": None, "count": "incident"},
    "attack": {"local": None, "count": "incident"},
    "evaluate": {"attacks": (), "local": None, "count": "incident"},
    "smoothing": {"p_add": 0.01, "p_del": 0.6, "samples": 100000, "choosing_samples": 1000, "alpha": 0.05},
    "filter": {"bins": 41},
    "clean": {},
    "diffusion": {},
    "degrees": {"local": None, "count": "incident"},
    "margins": {"flat_slope": 0.0001},
}
