"""Interface of evaluators: the exact effect of flips at the target nodes, without a full forward pass per flip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from edgeproof import losses
from edgeproof.propagation.autograd_path import probe_pairs, same_logits
from edgeproof.propagation.pairs import Pairs

if TYPE_CHECKING:
    from edgeproof.propagation.edge_gradient import EdgeGradientEngine


@dataclass(frozen=True, eq=False)
class Scan:
    """Margins of the target nodes after each of many single flips.

    Entries ``rowptr[i]`` to ``rowptr[i + 1]`` belong to candidate ``i``. Target nodes without an entry keep their margin.

    Args:
        rowptr: Start of the entries of each candidate, shape ``[candidates + 1]``.
        position: Position of the target node of each entry, shape ``[entries]``.
        margin: Margin of the target node after the flip, shape ``[entries]``.
        before: Margin of every target node before the flip, shape ``[targets]``.

    >>> scan = Scan(torch.tensor([0, 1, 3]), torch.tensor([0, 0, 1]), torch.tensor([-1.0, 1.0, -2.0]), torch.tensor([2.0, 3.0]))
    >>> scan.num_lost, scan.margins()
    (tensor([1, 1]), tensor([[-1.,  3.],
            [ 1., -2.]]))
    """

    rowptr: Tensor
    position: Tensor
    margin: Tensor
    before: Tensor

    def __len__(self) -> int:
        return self.rowptr.numel() - 1

    @property
    def candidate(self) -> Tensor:
        """Candidate of each entry."""
        candidates = torch.arange(len(self), device=self.rowptr.device)
        return candidates.repeat_interleave(self.rowptr.diff(), output_size=self.position.numel())

    @property
    def num_lost(self) -> Tensor:
        """Number of target nodes that each candidate newly misclassifies, minus the number that it corrects."""
        lost = (self.before > 0)[self.position].long() - (self.margin > 0).long()
        return lost.new_zeros(len(self)).index_add_(0, self.candidate, lost)

    def total(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the change of a sum over target nodes for each candidate.

        Args:
            before: Term of every target node before the flip, shape ``[targets]``.
            after: Term of each entry after the flip, shape ``[entries]``.
        """
        change = after - before[self.position]
        return change.new_zeros(len(self)).index_add_(0, self.candidate, change)

    def margins(self) -> Tensor:
        """Return the margins of all target nodes after each flip, shape ``[candidates, targets]``."""
        margins = self.before.repeat(len(self), 1)
        margins[self.candidate, self.position] = self.margin
        return margins

    def margins_at(self, position: int) -> Tensor:
        """Return the margins of one target node after each flip, shape ``[candidates]``."""
        margins, entries = self.before[position].repeat(len(self)), self.position == position
        margins[self.candidate[entries]] = self.margin[entries]
        return margins


class IncrementalEvaluator(Protocol):
    """Exact margins of target nodes under flips that are taken and given back one after another.

    Created by :func:`incremental_evaluator`; in evaluation mode and with the model's current parameters.

    Args:
        name: How margins are computed.
        flips: Flips of the current state, in ascending order, shape ``[2, flips]``.
        margins: Margin of every target node in the current state; positive where it is classified correctly.
        num_hops: Number of hops :math:`L` over which flips reach: a target node is affected by a flip with an end within
            :math:`L - 1` hops, by the degree of an end at :math:`L` hops, and by nothing else. None if unknown.
    """

    name: str
    flips: Tensor
    margins: Tensor
    num_hops: int | None

    def scan(self, candidates: Tensor, only: int | None = None) -> Scan:
        """Return the margins after each single flip, in addition to those of the current state.

        Args:
            candidates: Pairs, shape ``[2, candidates]``. A pair among the current flips is taken back.
            only: Position of a target node; margins of the others are not computed. Default: all.
        """

    def apply(self, flips: Tensor) -> None:
        """Flip pairs of the current graph. A pair among the current flips is taken back.

        Args:
            flips: Distinct pairs, shape ``[2, flips]``.
        """


def toggled(flips: Tensor, changed: Tensor, num_nodes: int) -> Tensor:
    """Return the pairs that are in exactly one of two sets of flips, in ascending order.

    >>> toggled(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[2, 0], [1, 3]]), num_nodes=4)
    tensor([[0, 0],
            [1, 3]])
    """
    both = torch.cat([flips, Pairs.of(changed, num_nodes).both], dim=1)
    key, count = (both.amin(dim=0) * num_nodes + both.amax(dim=0)).unique(return_counts=True)
    return Pairs.from_key(key[count == 1], num_nodes).both


def margins_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the margins of logits of shape ``[targets, classes]``; NaN, which is not positive, for non-finite logits."""
    return torch.where(logits.isfinite().all(dim=1), losses.margin(logits, labels), torch.nan)


def is_exact(evaluator: IncrementalEvaluator, engine: EdgeGradientEngine) -> bool:
    """Whether an evaluator agrees with the model up to rounding: without flips, after several, and in a scan.

    The evaluator ends in the state in which it was.
    """
    probed = probe_pairs(engine.data).both

    def same(margins: Tensor, flips: Tensor) -> bool:
        (logits,) = engine.logits_of([flips])
        z = logits[0, engine.nodes]
        # Margins are differences of logits, so their rounding errors have the scale of the logits.
        values = [torch.cat([m.to(z), z.abs().amax()[None]]) for m in (margins, margins_of(z, engine.labels))]
        return same_logits(*values)

    equal = same(evaluator.margins, probed[:, :0]) and same(evaluator.scan(probed[:, :1]).margins()[0], probed[:, :1])
    evaluator.apply(probed)
    equal = equal and same(evaluator.margins, probed)
    equal = equal and same(evaluator.scan(probed[:, :1]).margins()[0], probed[:, 1:])
    evaluator.apply(probed)
    return equal
