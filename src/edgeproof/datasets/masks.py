"""Provided splits in files: text with one line per node, or an archive of masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from edgeproof.datasets.archive import read_arrays
from edgeproof.datasets.convert import add_masks

MASKS = ("train_mask", "val_mask", "test_mask")


def with_masks(data: Data, path: Path) -> Data:
    """Return the graph with the masks of a file instead of its own.

    Args:
        data: Graph with all nodes of the dataset.
        path: An ``.npz`` archive with boolean ``train_mask``, ``val_mask`` and ``test_mask``, shape ``[nodes]`` or
            ``[nodes, splits]``; or a text file with ``train``, ``val``, ``test`` or nothing in the line of each node.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file does not fit the graph.

    >>> path = getfixture("tmp_path") / "splits.txt"
    >>> _ = path.write_text("train\\nval\\n\\ntest\\n")
    >>> data = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> with_masks(data, path).val_mask
    tensor([False,  True, False, False])
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such file of masks: {path}")
    num_nodes, masked = data.x.size(0), data.clone()
    for name in MASKS:
        if name in masked:
            del masked[name]
    if path.suffix.lower() == ".npz":
        for name, mask in read_arrays(path, MASKS).items():
            if mask.dtype != np.bool_ or mask.ndim not in (1, 2) or len(mask) != num_nodes:
                raise ValueError(
                    f"{path}: expected boolean {name} of shape [{num_nodes}], got {mask.dtype} {list(mask.shape)}"
                )
            masked[name] = torch.from_numpy(mask)
        return masked
    try:
        parts = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is neither a text file nor an .npz archive: {error}") from error
    if len(parts) != num_nodes:
        raise ValueError(f"{path}: expected one line for each of {num_nodes} nodes, got {len(parts)} lines")
    try:
        add_masks(masked, parts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return masked
