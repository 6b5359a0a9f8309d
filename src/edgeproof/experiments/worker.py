"""Run one job: train a model, measure it, and yield every result as soon as it is computed."""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from edgeproof._files import write_bytes
from edgeproof._warnings import warn
from edgeproof.analysis import Coefficients
from edgeproof.certificates import CountsPart
from edgeproof.evaluation.result import describe_environment
from edgeproof.experiments.analyses import DiffusionMatrix, LearnedFilter
from edgeproof.experiments.execute import make_split, model_from_bytes, model_to_bytes, train_run
from edgeproof.experiments.graphs import graph_fingerprint, load_graph
from edgeproof.experiments.measurements import CertifiedAccuracy
from edgeproof.experiments.spec import resolve
from edgeproof.experiments.store import Record, Store, StoreWarning
from edgeproof.experiments.sweep import Job, Run, Task
from edgeproof.graph import num_classes
from edgeproof.models.factory import Factory
from edgeproof.splits import Split
from edgeproof.training import CheckpointError, Epoch, TensorBoardLog, remove_checkpoints


@dataclass(frozen=True)
class Product:
    """A result, with the model if it was trained by this job.

    Args:
        record: The result.
        model: Content of the model's file.
        epochs: Metrics of all epochs of a training, for logs.
    """

    record: Record
    model: bytes | None = None
    epochs: tuple[Epoch, ...] = ()


@dataclass(frozen=True)
class Setup:
    """Computing environment of a worker.

    Args:
        device: Device.
        threads: Number of CPU threads.
        command: Command to record in results.
    """

    device: str = "cpu"
    threads: int = 1
    command: str = ""


def run_job(job: Job, model: bytes | None, setup: Setup, store: Store) -> Iterator[Product]:
    """Yield all results of a job.

    Args:
        job: Job to run.
        model: The file of the trained model, if it exists.
        setup: How to compute.
        store: Store for checkpoints of trainings and counts of certificates. Results are not written to it; see :func:`keep`.
    """
    graph, checkpoint = load_graph(*job.run.graph), store.checkpoint_path(job.run.identity, setup.device)
    if model is None:
        product = train_model(job.run, graph, setup, checkpoint)
        model = product.model
        yield product
    assert model is not None
    # Include checkpoints of an interrupted process, or of another process on the same disk.
    remove_checkpoints(checkpoint)
    for task in job.tasks:
        counts = None
        if isinstance(task.measurement, CertifiedAccuracy):
            counts = store.counts_path(task.identity, digest(model))
        yield measure_model(task, graph, model, setup, counts)
        if counts is not None:
            counts.unlink(missing_ok=True)


def train_model(
    run: Run, graph: Data, setup: Setup, checkpoint: Path | None = None, factory: Factory | None = None
) -> Product:
    """Train the model of a run; adversarial training resumes from its checkpoint."""
    # Clean training is too short to be worth a checkpoint.
    file = checkpoint if resolve(run.training).preset.threat is not None else None
    resumed = file is not None and file.exists()
    split = make_split(run, graph)
    try:
        with _configured(setup.threads):
            model, history = train_run(run, split, setup.device, file, factory)
    except CheckpointError as error:
        # The checkpoint is damaged, or was written by another version of this library.
        assert file is not None
        warn("EP203", f"the training restarts from the beginning: {error}", StoreWarning)
        remove_checkpoints(file)
        resumed = False
        with _configured(setup.threads):
            model, history = train_run(run, split, setup.device, file, factory)
    values = {"best_epoch": history.best_epoch, "epochs": len(history.epochs), "stopped": history.stopped}
    sizes = split.train.data.num_features, num_classes(split.test.data)
    content, seconds = model_to_bytes(model, run.model, *sizes), history.label_seconds + history.seconds
    fingerprint = graph_fingerprint(graph, run.split.uses_masks)
    notes = {**history.summary(), "resumed": resumed, "model": digest(content), "graph": fingerprint}
    environment = describe_environment(setup.device)
    record = Record(run.identity, values, setup.command, environment, round(seconds, 2), notes)
    return Product(record, content, history.epochs)


def measure_model(
    task: Task, graph: Data, model: bytes, setup: Setup, counts: Path | None = None, factory: Factory | None = None
) -> Product:
    """Measure a model; a certificate resumes from its counts."""
    resumed = False
    if counts is not None and counts.exists():
        try:
            CertifiedAccuracy.check_checkpoint(counts)
            resumed = True
        except ValueError as error:
            warn("EP204", f"the sampling restarts from the beginning: {error}", StoreWarning)
            counts.unlink()
    with _configured(setup.threads):
        split = make_split(task.run, graph).to(setup.device)
        network = _loaded(task.run, model, setup.device, factory)
        start = time.perf_counter()
        values = task.measurement.measure(network, split, task.run.seed, counts)
        seconds = round(time.perf_counter() - start, 2)
    environment = describe_environment(setup.device)
    product = _product(task, values, split, model, setup.command, environment, seconds)
    # The run time of a resumed certificate excludes the samples drawn before the interrupt.
    notes = {**product.record.notes, "resumed": True} if resumed else product.record.notes
    return Product(replace(product.record, notes=notes))


@dataclass(frozen=True)
class CountedPart:
    """Class counts over one part of a certificate's samples.

    Args:
        part: The counts.
        environment: Environment of the worker.
        seconds: Run time.
    """

    part: CountsPart
    environment: dict[str, Any]
    seconds: float


def count_samples(
    task: Task, graph: Data, model: bytes, setup: Setup, part: int, parts: int, factory: Factory | None = None
) -> CountedPart:
    """Count classes over one of several parts of a certificate's samples."""
    assert isinstance(task.measurement, CertifiedAccuracy)
    with _configured(setup.threads):
        split = make_split(task.run, graph).to(setup.device)
        network = _loaded(task.run, model, setup.device, factory)
        start = time.perf_counter()
        counts = task.measurement.count_part(network, split, task.run.seed, part, parts)
        return CountedPart(counts, describe_environment(setup.device), time.perf_counter() - start)


def combine_counts(task: Task, graph: Data, model: bytes, setup: Setup, *parts: CountedPart) -> Product:
    """Combine all parts into the result of :func:`measure_model`; run times of the workers are added up."""
    assert isinstance(task.measurement, CertifiedAccuracy)
    split = make_split(task.run, graph)
    start = time.perf_counter()
    values = task.measurement.combine([counted.part for counted in parts], split)
    seconds = round(sum(counted.seconds for counted in parts) + time.perf_counter() - start, 2)
    product = _product(task, values, split, model, setup.command, parts[0].environment, seconds)
    notes = {**product.record.notes, "shares": len(parts)}
    return Product(replace(product.record, notes=notes))


def _loaded(run: Run, model: bytes, device: str, factory: Factory | None) -> nn.Module:
    return model_from_bytes(model, run.model, factory).to(device)


def _product(
    task: Task,
    values: dict[str, Any],
    split: Split,
    model: bytes,
    command: str,
    environment: dict[str, Any],
    seconds: float,
) -> Product:
    # Digest of the measured model: a model retrained on another machine differs in its last bits.
    notes = {"test_nodes": split.test.nodes.numel(), "test_nodes_seen": split.num_seen, "model": digest(model)}
    return Product(Record(task.identity, values, command, environment, seconds, notes))


def measure_without_model(job: Job, store: Store, command: str) -> Iterator[Product]:
    """Yield the results that need no model: training records contain the learned coefficients of GPRGNN.

    Args:
        job: Job with the required measurements.
        store: Store that may contain the record of the training.
        command: Command to record in results.
    """
    record = store.get(job.run.identity)
    tasks = [task for task in job.tasks if isinstance(task.measurement, (LearnedFilter, DiffusionMatrix))]
    if record is None or "gamma" not in record.notes or job.run.model.name != "GPRGNN" or not tasks:
        return
    learned = Coefficients.of(record.notes["gamma"], self_loops=True, model="GPRGNN")
    graph = load_graph(*job.run.graph)
    for task in tasks:
        assert isinstance(task.measurement, (LearnedFilter, DiffusionMatrix))
        start = time.perf_counter()
        values = task.measurement.of(learned, graph)
        seconds = round(time.perf_counter() - start, 2)
        notes = {"from": "the coefficients in the record of the training", "training": record.key}
        yield Product(Record(task.identity, values, command, describe_environment("cpu"), seconds, notes))


@contextmanager
def _configured(threads: int) -> Iterator[None]:
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        # The notes of a training result contain the outcome of the training.
        warnings.simplefilter("ignore")
        yield


def keep(product: Product, store: Store, log_dir: Path | None = None) -> None:
    """Write a product to a store, the model first, so that every stored result has its model.

    Args:
        product: The product.
        store: The store.
        log_dir: Folder for TensorBoard logs of trainings, one subfolder each.
    """
    if product.model is not None:
        write_bytes(store.model_path(product.record.identity), product.model)
    if log_dir is not None and product.epochs:
        with TensorBoardLog(log_dir / _log_name(product.record)) as log:
            for epoch in product.epochs:
                log(epoch)
    store.put(product.record)


def _log_name(record: Record) -> str:
    from edgeproof.experiments.provenance import Provenance

    text = re.sub(r"[^\w.]+", "-", str(Provenance.of(record.run)))
    return f"{text}-{record.key[:8]}"


def stored_model(run: Run, store: Store) -> bytes | None:
    """Return the file of the trained model if it is stored; warn if the file does not match its record."""
    path, record = store.model_path(run.identity), store.get(run.identity)
    if record is None or not path.exists():
        return None
    content, expected = path.read_bytes(), record.notes.get("model")
    if expected == digest(content) or (expected is None and _is_model(content, run)):
        return content
    warn("EP205", f"{path} is damaged or not the model of its record: it is trained again", StoreWarning)
    return None


def _is_model(content: bytes, run: Run) -> bool:
    """Whether this is a complete model file; the only possible check for old records without a digest."""
    try:
        model_from_bytes(content, run.model)
    except (ValueError, TypeError):
        return False
    return True


def digest(content: bytes) -> str:
    """Return the hash that identifies a model in results."""
    return hashlib.sha256(content).hexdigest()[:16]
