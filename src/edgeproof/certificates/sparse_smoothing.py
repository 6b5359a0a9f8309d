"""Certificates by sparse randomized smoothing (Bojchevski et al., ICML 2020): sample, bound, radius."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._checks import Nodes, check_data, check_int, check_positive, check_seed, describe, is_number, node_ids
from edgeproof._files import check_writable
from edgeproof._progress import progress_bar
from edgeproof._tensors import fingerprint
from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.class_counts import ClassCounts, CountsPart, check_same_run
from edgeproof.certificates.confidence import binomial_test, class_probability_bounds, clopper_pearson
from edgeproof.certificates.regions import Noise, certified_grid, lower_bound, region_probabilities, upper_bound
from edgeproof.certificates.sampling import Sampler
from edgeproof.certificates.smoothed_sampler import SmoothedSampler
from edgeproof.models.base import predict

# Result of :meth:`SparseSmoothing.predict` at nodes where the smoothed model abstains.
ABSTAIN = -1
# Number of nodes whose logits are part of the fingerprint of a model.
_FINGERPRINT_NODES = 16
# Seeds are hashed as signed 64-bit integers.


@dataclass(frozen=True)
class SparseSmoothing:
    """Smoothed classifier: predicts the class that a model predicts most often on random graphs around the given one.

    Args:
        p_add: Probability of adding a pair that is not an edge.
        p_del: Probability of deleting an edge.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(20)
    >>> model = models.build("GCN", data.num_features, 2, seed=0)
    >>> smoothing = SparseSmoothing(p_add=0.001, p_del=0.4)
    >>> certificate = smoothing.certify(model, data, nodes, samples=500, progress=False)
    >>> certificate.certified(r_add=0, r_del=1).shape
    torch.Size([20])
    >>> smoothing.predict(model, data, nodes, samples=500, progress=False).shape
    torch.Size([20])
    """

    p_add: float = 0.01
    p_del: float = 0.6

    def __post_init__(self) -> None:
        noise = Noise(self.p_add, self.p_del)
        object.__setattr__(self, "p_add", noise.p_add)
        object.__setattr__(self, "p_del", noise.p_del)

    @property
    def noise(self) -> Noise:
        """Distribution of the random graphs."""
        return Noise(self.p_add, self.p_del)

    def certify(
        self,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        samples: int = 100_000,
        alpha: float = 0.05,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = True,
    ) -> Certificate:
        """Certify the predictions of the smoothed model.

        For every node, all statements of the certificate hold together with probability at least 1 - ``alpha``.

        Args:
            model: Any module called as ``model(x, edge_index, edge_weight=None)``, on the device of the graph.
            data: Graph. Labels are optional; with labels, the certificate has a certified accuracy.
            nodes: Nodes to certify: ids, or a boolean mask.
            samples: Number of random graphs that bound class probabilities.
            alpha: Significance level: upper bound on the probability that the certificate of a node is wrong.
            seed: Random seed.
            choosing_samples: Number of further random graphs that select the class of each node.
            memory: Memory of a batch of random graphs in gigabytes. Default: half of the free memory, on a CPU at most a
                quarter of a gigabyte, because larger batches are not faster.
            checkpoint: File to store class counts in. If it exists, sampling continues from it.
            progress: Whether to show a progress bar (on terminals only).
        """
        _check_settings(samples, choosing_samples, seed, memory)
        check_alpha(alpha)
        nodes = _checked_nodes(data, nodes)
        labels = node_labels(data, nodes)
        self.check_samples(samples, alpha, _clean_logits(model, data, nodes).size(1))
        counts = self.sample_counts(
            *(model, data, nodes, samples, seed),
            choosing_samples=choosing_samples,
            memory=memory,
            checkpoint=checkpoint,
            progress=progress,
        )
        return self.certify_counts(counts, alpha, labels=labels)

    def certify_counts(self, counts: ClassCounts, alpha: float = 0.05, *, labels: Tensor | None = None) -> Certificate:
        """Return the certificate that follows from class counts.

        The number of samples must not depend on the counts: if samples are added until a node is certified, certificates are
        wrong with a probability above ``alpha``.

        Args:
            counts: Class counts, from :meth:`sample_counts` or :func:`~edgeproof.certificates.merge_counts`.
            alpha: Significance level: upper bound on the probability that the certificate of a node is wrong.
            labels: True classes of the nodes, in the same order. Default: no accuracy.

        Raises:
            ValueError: If the counts are for other noise, or too few to certify anything.
        """
        check_same_run(counts.run, {"noise": [self.p_add, self.p_del]}, "these class counts")
        check_alpha(alpha)
        alpha, (num_nodes, num_classes) = float(alpha), counts.bounding.shape
        self.check_samples(counts.samples, alpha, num_classes)
        if labels is not None:
            _check_labels(labels, num_nodes)
        c_A = counts.choosing.argmax(dim=1)
        p_A_lower, p_B_upper = class_probability_bounds(counts.bounding.numpy(), c_A.numpy(), alpha)
        grid = certified_grid(self.noise, p_A_lower, p_B_upper)
        return Certificate(
            prediction=c_A,
            grid=torch.from_numpy(grid),
            p_lower=torch.from_numpy(p_A_lower),
            p_upper=torch.from_numpy(p_B_upper),
            labels=labels,
            alpha=alpha,
            samples=counts.samples,
            p_add=self.p_add,
            p_del=self.p_del,
        )

    def predict(
        self,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        samples: int = 1000,
        alpha: float = 0.05,
        seed: int = 0,
        *,
        memory: float | None = None,
        progress: bool = True,
    ) -> Tensor:
        """Predict with the smoothed model, and abstain where the counts do not determine the most probable class.

        As in Cohen et al. (ICML 2019), a two-sided binomial test compares the counts of the two most frequent classes: where
        the model does not abstain, it returns the most probable class, with probability at least 1 - ``alpha`` at each node.

        Args:
            model: Any module called as ``model(x, edge_index, edge_weight=None)``, on the device of the graph.
            data: Graph.
            nodes: Nodes to predict: ids, or a boolean mask.
            samples: Number of random graphs.
            alpha: Significance level of the test at each node.
            seed: Random seed.
            memory: Memory of a batch of random graphs in gigabytes, see :meth:`certify`.
            progress: Whether to show a progress bar (on terminals only).

        Returns:
            Predicted classes in main memory, -1 (``ABSTAIN``) where the model abstains, shape ``[nodes]``.
        """
        _check_settings(samples, 1, seed, memory)
        check_alpha(alpha)
        nodes = _checked_nodes(data, nodes)
        num_classes = _clean_logits(model, data, nodes).size(1)
        counts = torch.zeros(nodes.numel(), num_classes, dtype=torch.long)
        with progress_bar("samples", samples, show=progress) as advance:
            sampler = self._sampler(model, data, nodes, seed, memory)
            for _, batch in sampler.counts(range(samples), num_classes, choosing=False):
                counts = counts + batch
                advance(int(counts[0].sum()), "")
        (n_A, n_B), c_A = counts.topk(2, dim=1).values.numpy().T, counts.argmax(dim=1)
        return torch.where(torch.from_numpy(binomial_test(n_A, n_B) <= alpha), c_A, ABSTAIN)

    def sample_counts(
        self,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        samples: int = 100_000,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 30.0,
        progress: bool = True,
    ) -> ClassCounts:
        """Count the model's predictions on random graphs.

        Args:
            model: Model, see :meth:`certify`, as for the other arguments.
            data: Graph.
            nodes: Nodes to certify: ids, or a boolean mask.
            samples: Number of random graphs that bound class probabilities.
            seed: Random seed.
            choosing_samples: Number of random graphs that select the class of each node.
            memory: Memory of a batch in gigabytes.
            checkpoint: File to store class counts in. If it exists, sampling continues from it.
            checkpoint_seconds: Seconds between two writes of the checkpoint. It is always written at the end, also after an
                error or an interrupt.
            progress: Whether to show a progress bar (on terminals only).

        Raises:
            ValueError: If the checkpoint is damaged, or of another seed, model, graph, set of nodes or noise.
        """
        _check_settings(samples, choosing_samples, seed, memory)
        # NumPy integers are not JSON serializable.
        samples, choosing_samples, seed = int(samples), int(choosing_samples), int(seed)
        nodes = _checked_nodes(data, nodes)
        run, num_classes = self.run_fingerprint(model, data, nodes)
        file = None if checkpoint is None else Path(checkpoint)
        counts = saved = _initial_counts(file, nodes.numel(), num_classes, seed, run)
        sampler = self._sampler(model, data, nodes, seed, memory)
        start = last_save = time.perf_counter()
        done_before = sum(counts.streams[seed])
        try:
            with progress_bar("samples", samples + choosing_samples, show=progress) as advance:
                for counts in sampler.extend(counts, choosing_samples, samples):  # noqa: B020
                    done, now = sum(counts.streams[seed]), time.perf_counter()
                    advance(done, f"{(done - done_before) / (now - start):,.0f} samples/s")
                    if file is not None and now - last_save > checkpoint_seconds:
                        counts.save(file)
                        saved, last_save = counts, now
        finally:
            if file is not None and (counts is not saved or not file.exists()):
                counts.save(file)
        return counts

    def sample_part(
        self,
        model: nn.Module,
        data: Data,
        nodes: Nodes,
        part: int,
        parts: int,
        samples: int = 100_000,
        seed: int = 0,
        *,
        choosing_samples: int = 1000,
        memory: float | None = None,
    ) -> CountsPart:
        """Count the predictions of one of several equal parts of the samples of :meth:`sample_counts`, for parallel workers.

        Each random graph depends only on the seed and the sample number, so :func:`~edgeproof.certificates.join_parts` gives
        the same class counts for any number of parts.

        Args:
            model: Model, see :meth:`certify`, as for the other arguments.
            data: Graph.
            nodes: Nodes to certify: ids, or a boolean mask.
            part: Index of the part, from 0.
            parts: Number of parts.
            samples: Number of samples of all parts together that bound class probabilities.
            seed: Random seed.
            choosing_samples: Number of samples of all parts together that select classes.
            memory: Memory of a batch in gigabytes.
        """
        _check_settings(samples, choosing_samples, seed, memory)
        check_int(1, parts=parts)
        check_int(0, parts - 1, part=part)
        nodes = _checked_nodes(data, nodes)
        run, num_classes = self.run_fingerprint(model, data, nodes)
        sampler = self._sampler(model, data, nodes, seed, memory)
        totals = (int(choosing_samples), int(samples))
        ranges = tuple(range(part * total // parts, (part + 1) * total // parts) for total in totals)
        zeros = torch.zeros(nodes.numel(), num_classes, dtype=torch.long)
        counts = ClassCounts(zeros, zeros, {int(seed): (0, 0)}, run)
        for choosing, numbers in zip((True, False), ranges, strict=True):
            for size, batch in sampler.counts(numbers, num_classes, choosing=choosing):
                counts = counts.with_batch(batch, size, choosing=choosing)
        return CountsPart(counts.choosing, counts.bounding, int(seed), (ranges[0], ranges[1]), totals, run)

    def run_fingerprint(self, model: nn.Module, data: Data, nodes: Nodes) -> tuple[dict[str, Any], int]:
        """Return a fingerprint of noise, model, graph and nodes, and the number of classes.

        It includes some logits, because the ``repr`` of a model does not contain all settings.

        Raises:
            ValueError: If the model cannot be certified, for example because its logits are not finite.
        """
        nodes = _checked_nodes(data, nodes)
        logits = _clean_logits(model, data, nodes)
        run = {
            "noise": [self.p_add, self.p_del],
            "model": [repr(model), *model.state_dict(), fingerprint(model.state_dict().values())],
            "logits": logits[nodes[:_FINGERPRINT_NODES]].double().tolist(),
            "graph": fingerprint([data.x, data.edge_index]),
            "nodes": fingerprint([nodes]),
        }
        return run, logits.size(1)

    def check_samples(self, samples: int, alpha: float, num_classes: int) -> None:
        """Raise if this number of samples is too small to certify any node."""
        needed = samples_needed(self.noise, alpha, num_classes)
        if samples < needed:
            raise ValueError(
                f"expected at least {needed} samples to certify anything at alpha={alpha} with {num_classes} classes, "
                f"p_add={self.p_add} and p_del={self.p_del}, got {samples}"
            )

    def _sampler(self, model: nn.Module, data: Data, nodes: Tensor, seed: int, memory: float | None) -> SmoothedSampler:
        return SmoothedSampler(model, data, nodes, Sampler.of(data, self.noise, seed), memory)


def samples_needed(noise: Noise, alpha: float, num_classes: int) -> int:
    """Return the smallest number of samples that can certify one added or one deleted edge, if all samples agree."""
    check_alpha(alpha)

    def can_certify(samples: int) -> bool:
        p_A_lower = clopper_pearson(np.array([samples]), samples, alpha / num_classes)[0]
        regions = [region_probabilities(noise, *radii) for radii in ((1, 0), (0, 1))]
        return any(bool(lower_bound(p_A_lower, *r)[0] > upper_bound(1 - p_A_lower, *r)[0]) for r in regions)

    low, high = 0, 1
    while not can_certify(high):
        low, high = high, 2 * high
        if high > 1 << 40:
            raise ValueError(f"expected noise that allows a certificate, got {noise}: one edge changes it too much")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if can_certify(middle) else (middle, high)
    return high


def check_alpha(alpha: float) -> None:
    """Raise unless ``alpha`` lies in (0, 1)."""
    if not is_number(alpha) or not 0 < alpha < 1:
        raise ValueError(f"expected 0 < alpha < 1, got {alpha!r}")


def node_labels(data: Data, nodes: Nodes) -> Tensor | None:
    """Return the labels of the nodes in main memory, or None for a graph without labels."""
    nodes = _checked_nodes(data, nodes)
    if data.get("y") is None:
        return None
    if not isinstance(data.y, Tensor) or data.y.shape != data.x.shape[:1]:
        raise ValueError(f"expected labels y of shape [{data.x.size(0)}], got {describe(data.y)}")
    labels = data.y[nodes].cpu()
    _check_labels(labels, nodes.numel())
    return labels


def _initial_counts(
    checkpoint: Path | None, num_nodes: int, num_classes: int, seed: int, run: dict[str, Any]
) -> ClassCounts:
    """Return the counts in the checkpoint if it exists, otherwise zeros."""
    if checkpoint is not None:
        check_writable(checkpoint)
        if checkpoint.exists():
            counts = ClassCounts.load(checkpoint)
            check_same_run(counts.run, run, f"{checkpoint}: delete it, or use another file")
            if set(counts.streams) != {seed}:
                raise ValueError(
                    f"expected class counts of seed {seed} in {checkpoint}, got seeds {sorted(counts.streams)}"
                )
            return counts
    zeros = torch.zeros(num_nodes, num_classes, dtype=torch.long)
    return ClassCounts(zeros, zeros, {seed: (0, 0)}, run)


def _checked_nodes(data: Data, nodes: Nodes) -> Tensor:
    """Check the graph, and return the ids of the nodes."""
    check_data(data, labels=False)
    return node_ids(nodes, data)


def _clean_logits(model: nn.Module, data: Data, nodes: Tensor) -> Tensor:
    """Return the model's logits on the clean graph, after checking them."""
    logits = predict(model, data)
    if logits.size(1) < 2:
        raise ValueError(
            f"expected logits of shape [{data.x.size(0)}, classes] from {type(model).__name__} with at least 2 classes, "
            f"got {list(logits.shape)}"
        )
    if not bool(logits[nodes].isfinite().all()):
        raise ValueError(f"expected finite logits from {type(model).__name__}, got NaN or Inf on the clean graph")
    return logits


def _check_settings(samples: int, choosing_samples: int, seed: int, memory: float | None) -> None:
    check_int(1, samples=samples, choosing_samples=choosing_samples)
    check_seed(seed)
    if memory is not None:
        check_positive(memory=memory)


def _check_labels(labels: Tensor, num_nodes: int) -> None:
    if not isinstance(labels, Tensor) or labels.dtype != torch.long or labels.shape != (num_nodes,):
        raise ValueError(f"expected one int64 label for each of {num_nodes} nodes, got {describe(labels)}")
    if num_nodes and int(labels.min()) < 0:
        raise ValueError(
            f"expected labels >= 0, got {int(labels.min())}: remove y from the graph to certify without an accuracy"
        )
