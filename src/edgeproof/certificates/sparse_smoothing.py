"""Certificates by sparse randomized smoothing (Bojchevski et al., ICML 2020)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._files import check_writable
from edgeproof._modes import evaluating
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint, on_host
from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.regions import Noise, certified_grid, clopper_pearson, least, masses, most
from edgeproof.certificates.sampling import Sampler, one_by_one
from edgeproof.certificates.votes import Votes, check_same_run
from edgeproof.graph import check_data, check_nodes
from edgeproof.models.base import GraphModel
from edgeproof.models.predict import predict
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.copies import Diffusing

# Samples that choose a class are numbered from here: never among those that bound its probability.
_CHOOSING = 1 << 48
# Bytes that are taken by default, as a share of what a GPU has free, and on a CPU.
_SHARE_OF_GPU, _ON_CPU = 0.5, 1 << 28
# How far logits of a graph alone and among others may differ, relative to the largest.
_SAME = {torch.float32: 1e-4, torch.float64: 1e-9}
# Graphs that are drawn at a time where the model sees them one by one.
_ALONE = 64
# Seconds between two writes of the votes.
_SECONDS = 30.0


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
        Noise(self.p_add, self.p_del)

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
            memory: gigabytes that a batch of random graphs may take; by default half of what a GPU has free, or a quarter
                of a gigabyte on a CPU.
            checkpoint: a file to keep the votes in; if it exists, voting goes on from there.
            progress: whether to draw a progress bar (on terminals only).
        """
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
            alpha=alpha,
        )
        labels = data.y[nodes].cpu() if isinstance(data.get("y"), Tensor) else None
        return self.decide(votes, alpha, labels=labels)

    def decide(self, votes: Votes, alpha: float = 0.05, *, labels: Tensor | None = None) -> Certificate:
        """The certificate that follows from votes; :func:`~edgeproof.certificates.merge` joins those of several machines.

        The probability of the class that was chosen is bounded from below and that of every other class from above, each with
        confidence 1 - ``alpha`` / classes (Clopper and Pearson), so that all hold together with 1 - ``alpha``.
        """
        noise = Noise(self.p_add, self.p_del)
        check_same_run(votes.run, {"noise": [self.p_add, self.p_del]})
        _check_alpha(alpha)
        classes = votes.bounding.size(1)
        self._check_enough(votes.samples, alpha, classes)
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
        alpha: float = 0.05,
    ) -> Votes:
        """The model's answers on random graphs; see :meth:`certify` for the arguments."""
        check_data(data, labels=False)
        check_nodes(nodes, data)
        for name, value, fewest in (
            ("samples", samples, 1),
            ("choosing_samples", choosing_samples, 1),
            ("seed", seed, 0),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < fewest:
                raise ValueError(f"expected {name} to be a whole number >= {fewest}, got {value!r}")
        if memory is not None and not (isinstance(memory, (int, float)) and 0 < memory < math.inf):
            raise ValueError(f"expected memory in gigabytes, above 0, got {memory!r}")
        _check_alpha(alpha)
        classes = predict(model, data).size(1)
        self._check_enough(samples, alpha, classes)
        run = {
            "noise": [self.p_add, self.p_del],
            "model": fingerprint(model.state_dict().values()),
            "graph": fingerprint([data.x, data.edge_index]),
            "nodes": fingerprint([nodes]),
        }
        nothing = torch.zeros(nodes.numel(), classes, dtype=torch.long)
        votes = Votes(nothing, nothing, {seed: (0, 0)}, run)
        file = None if checkpoint is None else Path(checkpoint)
        if file is not None:
            check_writable(file)
            if file.exists():
                votes = Votes.load(file)
                check_same_run(votes.run, run)
                if set(votes.streams) != {seed}:
                    raise ValueError(f"expected votes of seed {seed} in {file}, got those of {sorted(votes.streams)}")
        electorate = _Electorate(model, data, nodes, Sampler.of(data, Noise(self.p_add, self.p_del), seed), memory)
        started = written = time.perf_counter()
        done_before = sum(votes.streams[seed])
        with progress_bar("votes", samples + choosing_samples, show=progress) as advance:
            for votes in electorate.continue_with(votes, choosing_samples, samples, classes):  # noqa: B020
                done, now = sum(votes.streams[seed]), time.perf_counter()
                advance(done, f"{(done - done_before) / (now - started):,.0f} samples/s")
                if file is not None and now - written > _SECONDS:
                    votes.save(file)
                    written = now
        if file is not None:
            votes.save(file)
        return votes

    def _check_enough(self, samples: int, alpha: float, classes: int) -> None:
        needed = samples_needed(Noise(self.p_add, self.p_del), alpha, classes)
        if samples < needed:
            raise ValueError(
                f"expected at least {needed} samples to certify anything at alpha={alpha} with {classes} classes, "
                f"p_add={self.p_add} and p_del={self.p_del}, got {samples}"
            )


def samples_needed(noise: Noise, alpha: float, classes: int) -> int:
    """How few samples can certify a single added or deleted edge, if all agree."""

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


class _Electorate:
    """A model that is asked about random graphs, many at a time.

    Args:
        model: the model.
        data: the graph.
        nodes: the nodes that count.
        sampler: draws the graphs.
        memory: gigabytes that a batch may take.
    """

    def __init__(self, model: nn.Module, data: Data, nodes: Tensor, sampler: Sampler, memory: float | None) -> None:
        self.model, self.data, self.nodes, self.sampler = model, data, nodes, sampler
        self.encoded = None
        if isinstance(model, Diffusing):
            with evaluating(model), torch.no_grad():
                self.encoded = model.encode(data.x)
        self.side_by_side = not isinstance(model, GraphModel) or model.side_by_side
        self.batch = self._batch_size(memory)
        # One graph alone leaves nothing to tell apart; where answers would mix, graphs are drawn together all the same.
        self.side_by_side = self.side_by_side and (self.batch == 1 or self._keeps_apart())

    def continue_with(self, votes: Votes, choosing: int, bounding: int, classes: int) -> Iterator[Votes]:
        """Votes with more and more samples, until there are as many as wanted of each kind."""
        (seed,) = votes.streams
        for part, wanted, offset in ((0, choosing, _CHOOSING), (1, bounding, 0)):
            while votes.streams[seed][part] < wanted:
                done = votes.streams[seed][part]
                count = min(self.batch, wanted - done)
                counts = self._ask(offset + done, count, classes)
                streams = list(votes.streams[seed])
                streams[part] += count
                votes = replace(
                    votes,
                    choosing=votes.choosing + counts if part == 0 else votes.choosing,
                    bounding=votes.bounding + counts if part == 1 else votes.bounding,
                    streams={seed: (streams[0], streams[1])},
                )
                yield votes
        if votes.streams[seed][0] >= choosing and votes.streams[seed][1] >= bounding:
            yield votes

    def _ask(self, first: int, count: int, classes: int) -> Tensor:
        """How often each class is answered at each node."""
        logits = self._logits(self.sampler.draw(first, count, self.data.x.dtype), count)
        answers = logits.view(count, -1, classes)[:, self.nodes].argmax(dim=2)
        return on_host((answers[:, :, None] == torch.arange(classes, device=answers.device)).sum(dim=0))

    def _logits(self, graphs: Adjacency, count: int) -> Tensor:
        if not self.side_by_side and count > 1:
            return torch.cat([self._logits(graph, 1) for graph in one_by_one(graphs, count)])
        with evaluating(self.model), torch.no_grad():
            if self.encoded is not None:
                assert isinstance(self.model, Diffusing)
                return self.model.diffuse(self.encoded.repeat(count, 1), graphs)
            pattern = graphs.pattern
            edges = torch.stack([pattern.col, pattern.row])[:, graphs.weight > 0]
            logits: Tensor = self.model(self.data.x.repeat(count, 1), edges)
            return logits

    def _batch_size(self, memory: float | None) -> int:
        """As many graphs as fit: one is tried, and what it takes is counted."""
        graph = self.sampler.draw(0, 1, self.data.x.dtype)
        # Columns, rows, weights before and after normalisation; hidden states of a few steps, or features and what follows.
        states, steps = (self.data.x, 3) if self.encoded is None else (self.encoded, 16)
        size = graph.pattern.col.numel() * 40 + states.numel() * states.element_size() * steps
        if memory is not None:
            free = memory * 1e9
        elif self.data.x.is_cuda:
            free = _SHARE_OF_GPU * torch.cuda.mem_get_info(self.data.x.device)[0]
        else:
            free = _ON_CPU
        return max(1, min(4096 if self.side_by_side else _ALONE, int(free / size)))

    def _keeps_apart(self) -> bool:
        """Whether two graphs side by side get the logits that each gets alone: a norm over all nodes would mix them."""
        dtype = self.data.x.dtype
        together = self._logits(self.sampler.draw(0, 2, dtype), 2)
        alone = torch.cat([self._logits(self.sampler.draw(one, 1, dtype), 1) for one in range(2)])
        return bool((together - alone).abs().max() <= _SAME[dtype] * alone.abs().max())


def _check_alpha(alpha: float) -> None:
    if not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
        raise ValueError(f"expected 0 < alpha < 1, got {alpha!r}")
