"""Graphs of experiments: loading, and fingerprints that protect stored results from another graph of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from edgeproof import datasets
from edgeproof._names import unknown_name
from edgeproof._tensors import fingerprint
from edgeproof.datasets.files import files_of
from edgeproof.experiments.spec import DatasetSpec

# A generated graph of the size of ogbn-arxiv.
STAND_IN = "arxiv-stand-in"
# Generated graphs of different size, density, homophily and features, by name: arguments of datasets.attributed_sbm.
GENERATED: Mapping[str, Mapping[str, Any]] = {
    "sbm-small": {"num_nodes": 500, "num_classes": 2, "degree": 6, "num_features": 32},
    "sbm-mixed": {"num_nodes": 1000, "num_classes": 5, "degree": 20, "homophily": 0.3, "features": "binary"},
    "sbm-words": {"num_nodes": 2000, "num_classes": 7, "degree": 10, "homophily": 0.7, "features": "counts"},
    "sbm-unscaled": {"num_nodes": 2000, "num_classes": 3, "degree": 5, "homophily": 0.1, "num_features": 16, "scale": 1e3},
    "sbm-heterophilous": {"num_nodes": 1500, "num_classes": 12, "degree": 30, "homophily": 0.02, "features": "binary"},
    "sbm-dense": {"num_nodes": 3000, "num_classes": 10, "degree": 100, "homophily": 0.6, "num_features": 64, "signal": 0.5},
    "sbm-classes": {
        "num_nodes": 5000, "num_classes": 15, "degree": 50, "homophily": 0.5, "num_features": 1000, "features": "binary"
    },
    "sbm-densest": {"num_nodes": 8000, "num_classes": 4, "degree": 200, "homophily": 0.4, "num_features": 128, "signal": 0.3},
    "sbm-large": {"num_nodes": 20_000, "num_classes": 6, "degree": 10, "homophily": 0.75, "features": "counts", "signal": 0.5},
}  # fmt: skip
# Fingerprints of the graphs of the stored results, by name, largest component, and use of the masks.
FINGERPRINTS = {
    ("citeseer", True, False): "8446fc8370f86226",
    ("cora", False, False): "d3bb1bea9b2dba9c",
    ("cora_ml", True, False): "de62f3b916369e62",
    ("pubmed", True, False): "e1bf2890df828082",
    ("squirrel", True, True): "4aae9bf9c761a9f6",
    ("csbm", True, True): "5d4e0eb744c6aab3",
    ("karate", True, False): "2aadf9e788e3c3c0",
    (STAND_IN, False, True): "fc1416eae1ed6359",
}


def available() -> list[str]:
    """Return the names of all graphs that experiments can use besides files."""
    return [*datasets.available(), STAND_IN, *GENERATED]


def is_local(dataset: DatasetSpec) -> bool:
    """Whether the graph can be loaded without a download."""
    return dataset.is_file or dataset.name in (STAND_IN, *GENERATED) or datasets.is_local(dataset.name)


def check_dataset(dataset: DatasetSpec) -> None:
    """Raise if there is no such name or file."""
    if dataset.is_file:
        if not Path(dataset.name).exists():
            raise FileNotFoundError(f"expected a graph file, got {dataset.name}, which does not exist")
    elif dataset.name not in available():
        raise unknown_name("dataset", dataset.name, available())


def with_fingerprint(dataset: DatasetSpec, masks: bool) -> DatasetSpec:
    """Fill in the fingerprint: of a file by reading it, of a named graph if it is known.

    Args:
        dataset: The graph.
        masks: Whether its masks are used.
    """
    if dataset.fingerprint is not None:
        return dataset
    if dataset.is_file:
        check_dataset(dataset)
        changed = max(file.stat().st_mtime_ns for file in files_of(Path(dataset.name)))
        found: str | None = _file_fingerprint(dataset, masks, changed)
    else:
        found = FINGERPRINTS.get((dataset.name, dataset.largest_component, masks))
    return replace(dataset, fingerprint=found)


@cache
def _file_fingerprint(dataset: DatasetSpec, masks: bool, _changed: int) -> str:
    return graph_fingerprint(load_graph(dataset, masks), masks)


def load_graph(dataset: DatasetSpec, masks: bool) -> Data:
    """Load a graph.

    Raises:
        ValueError: If it is not the graph of the expected fingerprint.
    """
    if dataset.is_file:
        path, fixes = Path(dataset.name), asdict(dataset.fixes)
        data = datasets.load(path, largest_component=dataset.largest_component, **fixes)
    elif dataset.name == STAND_IN:
        data = datasets.arxiv_stand_in()
    elif dataset.name in GENERATED:
        data = datasets.attributed_sbm(**GENERATED[dataset.name])
    else:
        data = datasets.load(dataset.name, largest_component=dataset.largest_component)
    if dataset.name in (STAND_IN, *GENERATED) and dataset.largest_component:
        data = datasets.keep_largest_component(data)
    found = graph_fingerprint(data, masks)
    if dataset.fingerprint not in (None, found):
        raise ValueError(
            f"expected {dataset.name} to be the graph of the stored results, with the fingerprint {dataset.fingerprint}, got "
            f"{found}: features, labels, masks or the order of nodes differ{_remedy(dataset)}"
        )
    return data


def graph_fingerprint(data: Data, masks: bool) -> str:
    """Return a hash of features, labels, edges (in any order) and, where they are used, masks."""
    names = ("train_mask", "val_mask", "test_mask") if masks else ()
    return fingerprint([data.x, coalesce(data.edge_index), data.y, *(data.get(name) for name in names)])


def _remedy(dataset: DatasetSpec) -> str:
    if dataset.is_file:
        return "; the file has changed since the sweep was read"
    path = None if dataset.name in (STAND_IN, *GENERATED) else datasets.find(dataset.name)
    return "" if path is None else f"; remove {path} to download it again, or give your own graph another name"
