"""Certificates by sparse randomized smoothing (Bojchevski et al., ICML 2020)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import check_data, check_nodes
from edgeproof._files import check_writable
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint
from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.class_counts import ClassCounts, Share, check_same_run
from edgeproof.certificates.regions import Noise, certified_grid, clopper_pearson, least, masses, most
from edgeproof.certificates.sampling import Sampler
from edgeproof.certificates.smoothed_sampler import SmoothedSampler
from edgeproof.models.base import predict

# Seconds between two writes of the votes.
_SECONDS = 30.0
# Nodes whose answers on the clean graph help to tell models apart.
_ANSWERS = 16
# Seeds are hashed as numbers of 64 bits.
_MOST_SEEDS = 1 << 63


@dataclass(frozen=True)
class SparseSmoothing:
    """A smoothed classifier answers what a model answers most often on random graphs around the one that it is shown.

    Args:
        p_add: probability with which a pair that is no edge is added.
        p_del: probability with which an edge is deleted.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(20)
    >>> model = models.build("GCN", data.num_features, 2, seed=0)
    >>> certificate = SparseSmoothing(p_add=0.001, p_del=0.4).certify(model, data, nodes, samples=500, progress=False)
    >>> certificate.certified(r_add=0, r_del=1).shape
    torch.Size([20])
    """

    p_add: float = 0.01
    p_del: float = 0.6

    def __post_init__(self) -> None:
        noise = Noise(self.p_add, self.p_del)
        object.__setattr__(self, "p_add", noise.p_add)
        object.__setattr__(self, "p_del", noise.p_del)

    def certify(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        samples: int = 100_000,
        alpha: float = 0.05,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = True,
    ) -> Certificate:
        """Which answers no change of so many edges can alter; each statement is true with probability at least 1 - ``alpha``.

        Args:
            model: any module called as ``model(x, edge_index, edge_weight=None)``, on the graph's device.
            data: the graph.
            nodes: the nodes to certify.
            samples: random graphs that bound probabilities.
            alpha: how often a node's statement may be wrong, over all random choices.
            seed: which random graphs.
            choosing_samples: random graphs, independent of the others, that choose each node's class.
            memory: gigabytes that a batch of random graphs may take; by default half of what is free, but on a CPU no more than
                a quarter of one, for more would gain nothing.
            checkpoint: a file to keep the votes in; if it exists, voting goes on from there.
            progress: whether to draw a progress bar (on terminals only).
        """
        _check_settings(samples, choosing_samples, seed, memory)
        check_alpha(alpha)
        labels = known_labels(data, nodes)
        self.check_enough(samples, alpha, _answers(model, data, nodes).size(1))
        votes = self.vote(
            model,
            data,
            nodes,
            samples,
            seed,
            choosing_samples=choosing_samples,
            memory=memory,
            checkpoint=checkpoint,
            progress=progress,
        )
        return self.decide(votes, alpha, labels=labels)

    def decide(self, votes: ClassCounts, alpha: float = 0.05, *, labels: Tensor | None = None) -> Certificate:
        """The certificate that follows from votes; :func:`~edgeproof.certificates.merge` joins those of several machines.

        The number of votes must not depend on what they say: to look, and to add votes until a node is certified, makes the
        statement wrong more often than ``alpha``.

        The probability of the class that was chosen is bounded from below and that of every other class from above, each with
        confidence 1 - ``alpha`` / classes (Clopper and Pearson), so that all hold together with 1 - ``alpha``.

        Args:
            votes: at least as many as can certify anything.
            alpha: how often a node's statement may be wrong.
            labels: the true classes of the nodes, in their order.
        """
        noise = Noise(self.p_add, self.p_del)
        check_same_run(votes.run, {"noise": [self.p_add, self.p_del]}, "these votes")
        check_alpha(alpha)
        alpha = float(alpha)
        nodes, classes = votes.bounding.shape
        self.check_enough(votes.samples, alpha, classes)
        if labels is not None:
            _check_labels(labels, nodes)
        prediction = votes.choosing.argmax(dim=1)
        lower, upper = clopper_pearson(votes.bounding.numpy(), votes.samples, alpha / classes)
        own = prediction.numpy()[:, None]
        p_lower = np.take_along_axis(lower, own, axis=1)[:, 0]
        np.put_along_axis(upper, own, -1.0, axis=1)
        p_upper = np.minimum(upper.max(axis=1), 1 - p_lower)
        grid = torch.from_numpy(certified_grid(noise, p_lower, p_upper))
        return Certificate(
            prediction=prediction,
            grid=grid,
            p_lower=torch.from_numpy(p_lower),
            p_upper=torch.from_numpy(p_upper),
            labels=labels,
            alpha=alpha,
            samples=votes.samples,
            p_add=self.p_add,
            p_del=self.p_del,
        )

    def vote(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        samples: int = 100_000,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = True,
    ) -> ClassCounts:
        """The model's answers on random graphs; see :meth:`certify` for the arguments."""
        _check_settings(samples, choosing_samples, seed, memory)
        # NumPy's numbers are none that JSON knows.
        samples, choosing_samples, seed = int(samples), int(choosing_samples), int(seed)
        run, classes = self.question(model, data, nodes)
        nothing = torch.zeros(nodes.numel(), classes, dtype=torch.long)
        votes = ClassCounts(nothing, nothing, {seed: (0, 0)}, run)
        file = None if checkpoint is None else Path(checkpoint)
        if file is not None:
            check_writable(file)
            if file.exists():
                votes = ClassCounts.load(file)
                check_same_run(votes.run, run, f"{file}: delete it, or use another file")
                if set(votes.streams) != {seed}:
                    raise ValueError(f"expected votes of seed {seed} in {file}, got those of {sorted(votes.streams)}")
        electorate = SmoothedSampler(model, data, nodes, Sampler.of(data, Noise(self.p_add, self.p_del), seed), memory)
        started = written = time.perf_counter()
        kept = votes
        done_before = sum(votes.streams[seed])
        try:
            with progress_bar("votes", samples + choosing_samples, show=progress) as advance:
                for votes in electorate.continue_with(votes, choosing_samples, samples, classes):  # noqa: B020
                    done, now = sum(votes.streams[seed]), time.perf_counter()
                    advance(done, f"{(done - done_before) / (now - started):,.0f} samples/s")
                    if file is not None and now - written > _SECONDS:
                        votes.save(file)
                        kept, written = votes, now
        finally:
            # Whatever ended it, what was counted is not counted again.
            if file is not None and (votes is not kept or not file.exists()):
                votes.save(file)
        return votes

    def vote_share(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        share: int,
        shares: int,
        samples: int = 100_000,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
    ) -> Share:
        """One of so many equal shares of the votes that :meth:`vote` would count: for machines that count side by side.

        Every random graph follows from the seed and its number, so that :func:`~edgeproof.certificates.join` gives the same
        votes, however many shares there are.

        Args:
            model: as for :meth:`certify`, as are the other arguments.
            data: the graph.
            nodes: the nodes to certify.
            share: which one, from 0 on.
            shares: of how many.
            samples: of all shares together.
            seed: which random graphs.
            choosing_samples: of all shares together.
            memory: gigabytes that a batch may take.
        """
        _check_settings(samples, choosing_samples, seed, memory)
        if not (isinstance(share, int) and isinstance(shares, int) and 0 <= share < shares):
            raise ValueError(f"expected one of {shares} shares, from 0 on, got {share}")
        run, classes = self.question(model, data, nodes)
        electorate = SmoothedSampler(model, data, nodes, Sampler.of(data, Noise(self.p_add, self.p_del), seed), memory)
        mine, counted = [], []
        for choosing, total in ((True, choosing_samples), (False, samples)):
            mine.append(range(share * total // shares, (share + 1) * total // shares))
            votes = torch.zeros(nodes.numel(), classes, dtype=torch.long)
            for _, counts in electorate.counts(mine[-1], classes, choosing=choosing):
                votes = votes + counts
            counted.append(votes)
        totals = (int(choosing_samples), int(samples))
        return Share(counted[0], counted[1], int(seed), (mine[0], mine[1]), totals, run)

    def question(self, model: nn.Module, data: Data, nodes: Tensor) -> tuple[dict[str, Any], int]:
        """What votes answer, and among how many classes; raises if the model cannot be asked.

        Settings that a model does not print show in its answers, of which some are part of the question.
        """
        logits = _answers(model, data, nodes)
        run = {
            "noise": [self.p_add, self.p_del],
            "model": [repr(model), *model.state_dict(), fingerprint(model.state_dict().values())],
            "answers": logits[nodes[:_ANSWERS]].double().tolist(),
            "graph": fingerprint([data.x, data.edge_index]),
            "nodes": fingerprint([nodes]),
        }
        return run, logits.size(1)

    def check_enough(self, samples: int, alpha: float, classes: int) -> None:
        """Raise if so few samples can certify nothing."""
        needed = samples_needed(Noise(self.p_add, self.p_del), alpha, classes)
        if samples < needed:
            raise ValueError(
                f"expected at least {needed} samples to certify anything at alpha={alpha} with {classes} classes, "
                f"p_add={self.p_add} and p_del={self.p_del}, got {samples}"
            )


def samples_needed(noise: Noise, alpha: float, classes: int) -> int:
    """How few samples can certify a single added or deleted edge, if all agree."""
    check_alpha(alpha)

    def enough(samples: int) -> bool:
        lower = clopper_pearson(np.array([samples]), samples, alpha / classes)[0]
        return any(
            bool(least(lower, *masses(noise, *radii))[0] > most(1 - lower, *masses(noise, *radii))[0])
            for radii in ((1, 0), (0, 1))
        )

    fewest, many = 0, 1
    while not enough(many):
        fewest, many = many, 2 * many
        if many > 1 << 40:
            raise ValueError(f"nothing can be certified with {noise}: a changed edge changes too much of the noise")
    while many - fewest > 1:
        middle = (fewest + many) // 2
        fewest, many = (fewest, middle) if enough(middle) else (middle, many)
    return many


def _check_settings(samples: int, choosing_samples: int, seed: int, memory: float | None) -> None:
    for name, value, fewest in (
        ("samples", samples, 1),
        ("choosing_samples", choosing_samples, 1),
        ("seed", seed, 0),
    ):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < fewest:
            raise ValueError(f"expected {name} to be a whole number >= {fewest}, got {value!r}")
    if seed >= _MOST_SEEDS:
        raise ValueError(f"expected seed < {_MOST_SEEDS}, got {seed}: larger ones begin again")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, Real) or not 0 < memory < math.inf):
        raise ValueError(f"expected memory in gigabytes, above 0, got {memory!r}")


def check_alpha(alpha: float) -> None:
    """Raise unless it is a probability to be wrong with."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < alpha < 1:
        raise ValueError(f"expected 0 < alpha < 1, got {alpha!r}")


def _answers(model: nn.Module, data: Data, nodes: Tensor) -> Tensor:
    """The model's logits on the clean graph; raises if it cannot be asked."""
    check_data(data, labels=False)
    check_nodes(nodes, data)
    logits = predict(model, data)
    if logits.size(1) < 2:
        raise ValueError(
            f"expected logits of shape [{data.x.size(0)}, classes] from {type(model).__name__}, got {list(logits.shape)}"
        )
    if not bool(logits[nodes].isfinite().all()):
        raise ValueError(f"expected finite logits from {type(model).__name__}, got NaN or Inf on the clean graph")
    return logits


def known_labels(data: Data, nodes: Tensor) -> Tensor | None:
    """The labels of some nodes, in main memory; none for a graph without labels."""
    check_data(data, labels=False)
    check_nodes(nodes, data)
    if data.get("y") is None:
        return None
    if not isinstance(data.y, Tensor) or data.y.shape != data.x.shape[:1]:
        raise ValueError(f"expected labels y of shape [{data.x.size(0)}], got {getattr(data.y, 'shape', data.y)!r}")
    labels = data.y[nodes].cpu()
    _check_labels(labels, nodes.numel())
    return labels


def _check_labels(labels: Tensor, nodes: int) -> None:
    if not isinstance(labels, Tensor) or labels.dtype != torch.long or labels.shape != (nodes,):
        raise ValueError(f"expected one int64 label for each of {nodes} nodes, got {labels!r}")
    if nodes and int(labels.min()) < 0:
        raise ValueError(
            f"expected labels >= 0, got {int(labels.min())}: without y, answers are certified but not judged"
        )
