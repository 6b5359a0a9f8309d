"""Names of datasets, models and attacks, for command-line help and completion without importing torch."""

from __future__ import annotations

DATASETS = ("citeseer", "cora_ml", "cora", "pubmed", "squirrel", "wikics", "ogbn-arxiv", "karate", "csbm")
MODELS = ("APPNP", "ChebNetII", "GAT", "GCN", "GPRGNN", "GRAND", "MLP", "SoftMedianGDC")
ATTACKS = ("DICE", "FGSM", "GreedyRBCD", "LRBCD", "PGD", "PRBCD", "RandomFlips")
PRESETS = ("paper", "sturdy")
SPLITS = ("inductive", "transductive", "provided")
PROTOCOLS = ("strict", "as_released")
TRAININGS = ("regular", "self", "LRBCD", "PRBCD", "PGD")
# Kinds of measurements for general use; those specific to one study are not listed.
MEASUREMENTS = ("clean", "attack", "evaluate", "smoothing")
FORMATS = ("csv", "latex", "markdown")
