"""ClassCounts: how often a model answered each class at each node, over random graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeproof.serialization import read_tensors, write_tensors

# Since 2, the question has some of the model's answers.
_FORMAT = 2


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Counts of answers, and what they are counts of.

    Args:
        choosing: votes that choose each node's class, shape ``[nodes, classes]``.
        bounding: votes, independent of those, that bound its probability, same shape.
        streams: for each seed how many samples were drawn to choose and to bound.
        run: what identifies the question: noise, model and some of its answers, graph, nodes.
    """

    choosing: Tensor
    bounding: Tensor
    streams: dict[int, tuple[int, int]]
    run: dict[str, Any]

    @property
    def samples(self) -> int:
        """Samples that bound probabilities."""
        return sum(bounding for _, bounding in self.streams.values())

    def save(self, path: str | Path) -> None:
        """Write them; the file appears whole or not at all."""
        header = {
            "votes": _FORMAT,
            "run": self.run,
            "streams": [[seed, *counts] for seed, counts in sorted(self.streams.items())],
        }
        tensors = {"choosing": self.choosing.cpu().contiguous(), "bounding": self.bounding.cpu().contiguous()}
        write_tensors(path, tensors, header)

    @classmethod
    def load(cls, path: str | Path) -> ClassCounts:
        """Read what :meth:`save` wrote; raises ``ValueError`` for anything else."""
        header, tensors = read_tensors(path)
        if header.get("votes") != _FORMAT:
            raise ValueError(f"{path} holds no votes of this version")
        try:
            streams = {int(seed): (int(one), int(two)) for seed, one, two in header["streams"]}
            votes = cls(tensors["choosing"], tensors["bounding"], streams, dict(header["run"]))
            votes._check()
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        return votes

    def _check(self) -> None:
        chosen, bounded = (sum(counts[part] for counts in self.streams.values()) for part in (0, 1))
        if self.choosing.shape != self.bounding.shape or self.choosing.dim() != 2:
            raise ValueError(f"counts of shapes {list(self.choosing.shape)} and {list(self.bounding.shape)}")
        for name, counts, samples in (("choosing", self.choosing, chosen), ("bounding", self.bounding, bounded)):
            if counts.dtype != torch.long or bool((counts < 0).any()) or bool((counts.sum(dim=1) != samples).any()):
                raise ValueError(f"{name} votes that are not {samples} at every node")


@dataclass(frozen=True, eq=False)
class Share:
    """Some of the votes of one seed, counted apart from the others.

    Args:
        choosing: as those of :class:`ClassCounts`.
        bounding: likewise.
        seed: which random graphs.
        samples: which of them chose, and which bounded.
        total: how many there are of each kind in all shares together.
        run: as that of :class:`ClassCounts`.
    """

    choosing: Tensor
    bounding: Tensor
    seed: int
    samples: tuple[range, range]
    total: tuple[int, int]
    run: dict[str, Any]


def join(shares: Iterable[Share]) -> ClassCounts:
    """All votes of one seed, from their shares in any order.

    Raises:
        ValueError: if they are not of one question and one seed, or a sample is missing or counted twice.
    """
    shares = list(shares)
    if not shares:
        raise ValueError("expected shares to join, got none")
    if not all(isinstance(one, Share) for one in shares):
        raise TypeError(f"expected Shares to join, got {', '.join(type(one).__name__ for one in shares)}")
    shares.sort(key=lambda share: [(one.start, one.stop) for one in share.samples])
    first = shares[0]
    for share in shares:
        check_same_run(share.run, first.run, f"a share of the votes of seed {share.seed}")
        if share.seed != first.seed:
            raise ValueError(f"expected shares of one seed, got {first.seed} and {share.seed}: merge their votes")
        if share.total != first.total:
            raise ValueError(f"expected shares of as many samples in all, got {first.total} and {share.total}")
    choosing, bounding = torch.zeros_like(first.choosing), torch.zeros_like(first.bounding)
    drawn = (0, 0)
    for share in shares:
        for done, more in zip(drawn, share.samples, strict=True):
            if more.start != done:
                raise ValueError(
                    f"expected the samples from number {done} on, got those from {more.start} to {more.stop}"
                )
        choosing, bounding = choosing + share.choosing, bounding + share.bounding
        drawn = (share.samples[0].stop, share.samples[1].stop)
    if drawn != first.total:
        raise ValueError(f"expected shares of {first.total} samples in all, got those of the first {drawn}")
    votes = ClassCounts(choosing, bounding, {first.seed: drawn}, first.run)
    votes._check()
    return votes


def merge(votes: Iterable[ClassCounts]) -> ClassCounts:
    """ClassCounts from several machines together: counts add up.

    Raises:
        ValueError: if they answer different questions, or two have a seed in common and so the same samples.
    """
    votes = list(votes)
    if not votes:
        raise ValueError("expected votes to merge, got none")
    if not all(isinstance(one, ClassCounts) for one in votes):
        raise TypeError(f"expected ClassCounts to merge, got {', '.join(type(one).__name__ for one in votes)}")
    total = votes[0]
    for more in votes[1:]:
        check_same_run(more.run, total.run, f"the votes of seeds {sorted(more.streams)}")
        common = set(more.streams) & set(total.streams)
        if common:
            raise ValueError(f"expected votes of different seeds, got {sorted(common)} twice: the same samples")
        total = replace(
            total,
            choosing=total.choosing + more.choosing,
            bounding=total.bounding + more.bounding,
            streams={**total.streams, **more.streams},
        )
    return total


def check_same_run(found: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    """Raise unless two sets of votes answer the same question.

    Args:
        found: the question that some votes answer.
        expected: the question at hand.
        where: what these votes are, for a message.
    """
    for key, value in expected.items():
        other = found.get(key)
        if key == "answers" and not _close(other, value):
            raise ValueError(f"expected votes for the same model, got those for one that answers otherwise in {where}")
        if key == "noise" and other != value:
            raise ValueError(f"expected votes for noise {value}, got those for {other} in {where}")
        if key not in ("answers", "noise") and other != value:
            raise ValueError(f"expected votes for the same {key}, got those for another in {where}")


def _close(found: object, expected: list[list[float]]) -> bool:
    """Whether these are the same logits, up to the rounding of different machines."""
    one, two = torch.tensor(found if isinstance(found, list) else []), torch.tensor(expected)
    return one.shape == two.shape and bool(torch.allclose(one, two, rtol=1e-3, atol=1e-3 * float(two.abs().max())))
