"""Names of datasets, models, attacks, tables and so on, for command-line help and completion without importing torch."""

from __future__ import annotations

DATASETS = (
    "citeseer",
    "cora_ml",
    "cora",
    "pubmed",
    "squirrel",
    "wikics",
    "ogbn-arxiv",
    "amazon_photo",
    "coauthor_cs",
    "karate",
    "csbm",
)
# Endings of graph files; a folder with edges.csv and nodes.csv is a graph, too.
GRAPH_FILES = (".npz", ".csv", ".parquet", ".graphml", ".mtx")
MODELS = (
    "APPNP",
    "BoundedInfluence",
    "ChebNetII",
    "GAT",
    "GCN",
    "GPRGNN",
    "GRAND",
    "MLP",
    "OneHop",
    "SoftMedianGDC",
)
ATTACKS = (
    "DICE",
    "EvA",
    "ExactGain",
    "FGSM",
    "GreedyRBCD",
    "LRBCD",
    "NodeSelection",
    "PGD",
    "PRBCD",
    "QueryGain",
    "RandomFlips",
)
EFFORTS = ("quick", "standard", "thorough")
PRESETS = ("default", "certified", "paper", "sturdy")
SPLITS = ("inductive", "transductive", "provided")
PROTOCOLS = ("strict", "as_released")
TRAININGS = ("regular", "self", "LRBCD", "PRBCD", "PGD")
# Kinds of measurements for general use; those specific to one study are not listed.
MEASUREMENTS = ("clean", "attack", "evaluate", "smoothing", "proven")
FORMATS = ("csv", "latex", "markdown")
# Nicknames of the paper's tables and figures, because shells split labels at the colon.
TABLES = (
    "main",
    "other-graphs",
    "perfect-cora",
    "perfect-cora-ml",
    "perfect-citeseer",
    "citeseer",
    "cora",
    "cora-ml",
    "pubmed",
    "arxiv",
    "more-attacks",
    "certified-citeseer",
    "certified-cora",
    "certified-cora-ml",
    "arxiv-table-stand-in",
)
FIGURES = (
    "teaser",
    "self-training",
    "perfect",
    "karate",
    "degrees",
    "gamma",
    "spectrum",
    "arxiv-curves",
    "arxiv-stand-in",
    "self-training-cora",
    "self-training-cora-5",
    "self-training-citeseer",
    "self-training-citeseer-5",
    "gamma-all",
    "spectrum-all",
    "attacks",
    "curves-citeseer",
    "curves-cora",
    "curves-cora-ml",
    "curves-pubmed",
)
