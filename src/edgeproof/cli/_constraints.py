"""Constraints of ``attack``, ``evaluate`` and ``explain``, from options and files."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

import edgeproof as ep
from edgeproof.constraints import Selection
from edgeproof.splits import View


def parse_flip_kind(additions_only: bool, deletions_only: bool) -> str | None:
    """Return ``"additions"`` or ``"deletions"``; None if both are allowed."""
    if additions_only and deletions_only:
        raise ValueError("expected --additions-only or --deletions-only, got both: they leave no flip")
    return "additions" if additions_only else "deletions" if deletions_only else None


def read_pairs(path: Path | None) -> Tensor | None:
    """Read pairs of node ids, two per line, separated by a comma or white space; lines that start with # are comments.

    Returns:
        Pairs, shape ``[2, pairs]``; None without a file.

    >>> path = getfixture("tmp_path") / "pairs.txt"
    >>> _ = path.write_text("# attacker and victims\\n3 17\\n3,20\\n")
    >>> read_pairs(path)
    tensor([[ 3,  3],
            [17, 20]])
    """
    if path is None:
        return None
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*(\d{1,18})[\s,]+(\d{1,18})\s*", line)
        if match is None:
            raise ValueError(f"expected two node ids in line {number} of {path}, got {line[:60]!r}")
        pairs.append((int(match[1]), int(match[2])))
    if not pairs:
        raise ValueError(f"expected at least one pair of nodes in {path}, got none")
    return torch.tensor(pairs).T.contiguous()


def make_constraints(kind: str | None, pairs: Tensor | None, view: View) -> ep.Constraints | None:
    """Return the constraints of the options; None without any.

    Args:
        kind: Result of :func:`parse_flip_kind`.
        pairs: Result of :func:`read_pairs`, node ids of the dataset.
        view: Graph under attack.
    """
    if kind is None and pairs is None:
        return None
    selections: list[Selection] = [] if kind is None else [kind]
    if pairs is not None:
        selections.append(local_ids(pairs, view))
    return ep.Constraints(tuple(selections))


def local_ids(ids: Tensor, view: View) -> Tensor:
    """Convert node ids of the dataset to those of a view.

    Raises:
        ValueError: If a node is not in the view's graph.
    """
    order = view.ids.argsort()
    ascending = view.ids[order]
    ids = ids.to(ascending.device)
    place = torch.searchsorted(ascending, ids).clamp(max=ascending.numel() - 1)
    missing = ids[ascending[place] != ids]
    if missing.numel():
        raise ValueError(
            f"expected ids of nodes in the graph under attack, got {missing.numel()} others, such as {int(missing[0])}"
        )
    return order[place]
