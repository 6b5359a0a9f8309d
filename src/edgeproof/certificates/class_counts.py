"""Class counts: how often a model predicts each class at each node, over random graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.serialization import read_tensors, write_tensors

# Version of the file format. Since 3, entries are named as in this module.
_FORMAT = 3


@dataclass(frozen=True, eq=False)
class ClassCounts(TabularResult):
    """Class counts of one smoothed model, from one or several random seeds.

    Args:
        choosing: Counts used to select the class of each node, shape ``[nodes, classes]``.
        bounding: Independent counts used to bound its probability, same shape.
        streams: Number of samples for ``choosing`` and for ``bounding``, by seed.
        run: Fingerprint of noise, model, graph and nodes, see :meth:`SparseSmoothing.run_fingerprint`.
    """

    choosing: Tensor
    bounding: Tensor
    streams: dict[int, tuple[int, int]]
    run: dict[str, Any]

    @property
    def samples(self) -> int:
        """Number of samples that bound probabilities."""
        return sum(bounding for _, bounding in self.streams.values())

    def __repr__(self) -> str:
        nodes, classes = self.choosing.shape
        return f"ClassCounts({nodes} nodes, {classes} classes, streams={self.streams})"

    def summary(self) -> Record:
        """Return the number of samples of each seed, and the fingerprint of the run."""
        return {"streams": [[seed, *samples] for seed, samples in sorted(self.streams.items())], "run": self.run}

    def _records(self) -> list[Record]:
        choosing, bounding = self.choosing.tolist(), self.bounding.tolist()
        return [
            {"node": node, "choosing": chosen, "bounding": bounded}
            for node, (chosen, bounded) in enumerate(zip(choosing, bounding, strict=True))
        ]

    def _layout(self) -> Layout:
        nodes, classes = self.choosing.shape
        lines = [[str(seed), *map(str, samples)] for seed, samples in sorted(self.streams.items())]
        return Layout(
            title=f"class counts of {nodes:,} nodes and {classes} classes",
            header=("seed", "choosing samples", "bounding samples"),
            lines=lines,
        )

    def with_batch(self, counts: Tensor, samples: int, *, choosing: bool) -> ClassCounts:
        """Return the sum of these counts, of a single seed, and those of another batch.

        Args:
            counts: Class counts of the batch, shape ``[nodes, classes]``.
            samples: Number of samples of the batch.
            choosing: Whether to add them to ``choosing`` (True) or to ``bounding`` (False).
        """
        ((seed, (num_choosing, num_bounding)),) = self.streams.items()
        if choosing:
            streams = {seed: (num_choosing + samples, num_bounding)}
            return replace(self, choosing=self.choosing + counts, streams=streams)
        return replace(self, bounding=self.bounding + counts, streams={seed: (num_choosing, num_bounding + samples)})

    def save(self, path: str | Path) -> None:
        """Write the counts to a file, atomically."""
        streams = [[seed, *samples] for seed, samples in sorted(self.streams.items())]
        tensors = {"choosing": self.choosing.cpu().contiguous(), "bounding": self.bounding.cpu().contiguous()}
        write_tensors(path, tensors, {"class_counts": _FORMAT, "run": self.run, "streams": streams})

    @classmethod
    def load(cls, path: str | Path) -> ClassCounts:
        """Read counts written by :meth:`save`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged or of another kind or version.
        """
        header, tensors = read_tensors(path)
        if header.get("class_counts") != _FORMAT:
            raise ValueError(
                f"expected class counts of format {_FORMAT} in {path}, got another kind or version of file"
            )
        try:
            streams = {int(seed): (int(choosing), int(bounding)) for seed, choosing, bounding in header["streams"]}
            counts = cls(tensors["choosing"], tensors["bounding"], streams, dict(header["run"]))
            counts._check()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return counts

    def _check(self) -> None:
        if self.choosing.shape != self.bounding.shape or self.choosing.dim() != 2:
            shapes = f"{list(self.choosing.shape)} and {list(self.bounding.shape)}"
            raise ValueError(f"expected choosing and bounding counts of one shape [nodes, classes], got {shapes}")
        for index, (name, counts) in enumerate((("choosing", self.choosing), ("bounding", self.bounding))):
            samples = sum(stream[index] for stream in self.streams.values())
            if counts.dtype != torch.long or bool((counts < 0).any()) or bool((counts.sum(dim=1) != samples).any()):
                raise ValueError(f"expected {name} counts >= 0 that sum to {samples} at every node")


@dataclass(frozen=True, eq=False)
class CountsPart:
    """Class counts of some of the samples of one seed.

    Args:
        choosing: Counts used to select the class of each node, shape ``[nodes, classes]``.
        bounding: Counts used to bound its probability, same shape.
        seed: Random seed.
        samples: Sample numbers of the ``choosing`` and of the ``bounding`` counts.
        total: Number of ``choosing`` and of ``bounding`` samples in all parts together.
        run: Fingerprint, see :class:`ClassCounts`.
    """

    choosing: Tensor
    bounding: Tensor
    seed: int
    samples: tuple[range, range]
    total: tuple[int, int]
    run: dict[str, Any]


def join_parts(parts: Iterable[CountsPart]) -> ClassCounts:
    """Join all parts of the class counts of one seed, in any order.

    Raises:
        ValueError: If the parts are of different runs or seeds, or if samples are missing or counted twice.
    """
    parts = list(parts)
    if not parts:
        raise ValueError("expected at least one part to join, got none")
    if not all(isinstance(part, CountsPart) for part in parts):
        raise TypeError(f"expected CountsPart objects to join, got {', '.join(type(part).__name__ for part in parts)}")
    parts.sort(key=lambda part: [(samples.start, samples.stop) for samples in part.samples])
    first = parts[0]
    for part in parts:
        check_same_run(part.run, first.run, f"a part of seed {part.seed}")
        if part.seed != first.seed:
            raise ValueError(
                f"expected parts of one seed, got {first.seed} and {part.seed}: use merge_counts for several seeds"
            )
        if part.total != first.total:
            raise ValueError(f"expected parts of the same total, got {first.total} and {part.total} samples")
    choosing, bounding = torch.zeros_like(first.choosing), torch.zeros_like(first.bounding)
    joined = (0, 0)
    for part in parts:
        for stop, samples in zip(joined, part.samples, strict=True):
            if samples.start != stop:
                raise ValueError(
                    f"expected a part that begins at sample {stop}, got samples {samples.start} to {samples.stop}"
                )
        choosing, bounding = choosing + part.choosing, bounding + part.bounding
        joined = (part.samples[0].stop, part.samples[1].stop)
    if joined != first.total:
        raise ValueError(f"expected parts of {first.total} samples in total, got only the first {joined}")
    counts = ClassCounts(choosing, bounding, {first.seed: joined}, first.run)
    counts._check()
    return counts


def merge_counts(counts: Iterable[ClassCounts]) -> ClassCounts:
    """Add up class counts of different seeds, for example from several machines.

    Raises:
        ValueError: If they are of different runs, or have a seed (and therefore samples) in common.
    """
    counts = list(counts)
    if not counts:
        raise ValueError("expected class counts to merge, got none")
    if not all(isinstance(each, ClassCounts) for each in counts):
        raise TypeError(f"expected ClassCounts to merge, got {', '.join(type(each).__name__ for each in counts)}")
    total = counts[0]
    for each in counts[1:]:
        check_same_run(each.run, total.run, f"the class counts of seeds {sorted(each.streams)}")
        common = set(each.streams) & set(total.streams)
        if common:
            raise ValueError(f"expected class counts of different seeds, got seeds {sorted(common)} more than once")
        total = replace(
            total,
            choosing=total.choosing + each.choosing,
            bounding=total.bounding + each.bounding,
            streams={**total.streams, **each.streams},
        )
    return total


def check_same_run(run: dict[str, Any], expected: dict[str, Any], source: str) -> None:
    """Raise unless class counts have the expected noise, model, graph and nodes.

    Args:
        run: Fingerprint of the counts.
        expected: Expected fingerprint; entries that it lacks are not compared.
        source: Name of the counts in the error message.
    """
    for key, value in expected.items():
        actual = run.get(key)
        if key == "logits":
            if not _is_close(actual, value):
                raise ValueError(
                    f"expected class counts for the same model, got those of a model with other logits in {source}"
                )
        elif actual != value:
            if key == "noise":
                raise ValueError(f"expected class counts for noise {value}, got noise {actual} in {source}")
            raise ValueError(f"expected class counts for the same {key}, got another {key} in {source}")


def _is_close(actual: object, expected: list[list[float]]) -> bool:
    """Whether logits are equal up to rounding differences between machines."""
    a, b = torch.tensor(actual if isinstance(actual, list) else []), torch.tensor(expected)
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())))
