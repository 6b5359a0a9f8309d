"""Memory to load a graph of 34,493 nodes with 8,415 sparse features, the size of Coauthor Physics.

    python benchmarks/load_memory.py

prints the largest memory of a process that imports the library, and of one that also loads the graph from its archive.
``--nodes`` makes the graph smaller.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

MEASURE = """
import resource, sys
import edgeproof as ep
ep.datasets.available()
for path in sys.argv[1:]:
    ep.datasets.load(path)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_graph(path: Path, num_nodes: int, num_features: int = 8_415, degree: float = 14.4, stored: int = 42) -> None:
    """Write a random graph in gust's format.

    Args:
        path: Archive to write.
        num_nodes: Number of nodes.
        num_features: Number of features.
        degree: Mean degree.
        stored: Number of features per node that are not 0.
    """
    random = np.random.default_rng(0)
    pairs = random.integers(0, num_nodes, (2, round(num_nodes * degree / 2)))
    ring = np.arange(num_nodes)
    pairs = np.concatenate([np.stack([ring, (ring + 1) % num_nodes]), pairs[:, pairs[0] != pairs[1]]], axis=1)
    edges = np.concatenate([pairs, pairs[::-1]], axis=1)
    adjacency = sp.csr_matrix((np.ones(edges.shape[1]), edges), shape=(num_nodes, num_nodes))
    adjacency.data[:] = 1
    entries = ring.repeat(stored), random.integers(0, num_features, stored * num_nodes)
    features = sp.csr_matrix((np.ones(stored * num_nodes, dtype=np.float32), entries), shape=(num_nodes, num_features))
    arrays = {"labels": random.integers(0, 5, num_nodes)}
    for prefix, matrix in (("adj", adjacency), ("attr", features)):
        arrays |= {f"{prefix}_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        arrays[f"{prefix}_shape"] = np.array(matrix.shape)
    np.savez_compressed(path, **arrays)


def peak(*paths: Path) -> float:
    """Return the largest memory in MiB of a process that loads the graphs (Linux)."""
    command = [sys.executable, "-c", MEASURE, *map(str, paths)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(output) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=34_493)
    nodes = parser.parse_args().nodes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        write_graph(path, nodes)
        imported, loaded = peak(), peak(path)
    print(f"import: {imported:.0f} MiB   import and load: {loaded:.0f} MiB   difference: {loaded - imported:.0f} MiB")


if __name__ == "__main__":
    main()
