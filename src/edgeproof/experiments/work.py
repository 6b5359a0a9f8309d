"""What a worker does, wherever it is: train a model, measure it, and hand over every result as soon as it is there."""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from edgeproof._files import replacing
from edgeproof.analysis import Coefficients
from edgeproof.certificates import ClassCounts, CountsPart
from edgeproof.evaluation.result import describe_environment
from edgeproof.experiments.looks import diffusion_of, filter_of
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.origins import Origin
from edgeproof.experiments.plan import Job
from edgeproof.experiments.recipe import Recipe
from edgeproof.experiments.store import Record, Store, StoreWarning
from edgeproof.models import GraphModel
from edgeproof.models import io as model_io
from edgeproof.splits import Split
from edgeproof.training import CheckpointError, Epoch, TensorBoardLog, remove_checkpoints


@dataclass(frozen=True)
class Product:
    """A result, and the model behind it where it is new.

    Args:
        record: the result.
        model: the bytes of the model's file.
        epochs: how its training went; kept nowhere but in a log.
    """

    record: Record
    model: bytes | None = None
    epochs: tuple[Epoch, ...] = ()


def work(job: Job, known: bytes | None, device: str, threads: int, command: str, store: Store) -> Iterator[Product]:
    """Everything that a job asks for, one thing after the other.

    Args:
        job: what to do.
        known: the file of the trained model, if there is one.
        device: where to do it.
        threads: of the CPU.
        command: what to write down as having made it.
        store: where a long training keeps its state until whoever asks for the next thing has got the model, and a certificate
            its votes. Results are not put there.
    """
    data, checkpoint = job.recipe.data(), store.checkpoint_path(job.recipe.identity, device)
    if known is None:
        product = trained(job.recipe, data, device, threads, command, checkpoint)
        known = product.model
        yield product
    assert known is not None
    # Also what an earlier run, or another on the same disk, has left.
    remove_checkpoints(checkpoint)
    for measure in job.measures:
        votes = store.votes_path(measure.identity, _digest(known)) if measure.kind == "smoothing" else None
        yield measured(measure, data, known, device, threads, command, votes)
        if votes is not None:
            votes.unlink(missing_ok=True)


def trained(
    recipe: Recipe, data: Data, device: str, threads: int, command: str, checkpoint: Path | None = None
) -> Product:
    """A model, by its recipe; from a checkpoint on, if there is one. Only training against an attack is worth one."""
    file = checkpoint if recipe.row.attack is not None else None
    resumed = file is not None and file.exists()
    split = recipe.split(data)
    try:
        with _set_up(threads):
            model, history = recipe.train(split, device, file)
    except CheckpointError as error:
        # Damaged, or of another version of this library.
        assert file is not None
        warnings.warn(f"the training begins anew: {error}", StoreWarning, stacklevel=2)
        remove_checkpoints(file)
        resumed = False
        with _set_up(threads):
            model, history = recipe.train(split, device, file)
    values = {"best_epoch": history.best_epoch, "epochs": len(history.epochs), "stopped": history.stopped}
    environment = describe_environment(device)
    content, seconds = _to_bytes(model), history.label_seconds + history.seconds
    graph = recipe.fingerprint(data)
    notes = {**history.summary(), "resumed": resumed, "model": _digest(content), "graph": graph}
    record = Record(recipe.identity, values, command, environment, round(seconds, 2), notes)
    return Product(record, content, history.epochs)


def measured(
    measure: Measure, data: Data, model: bytes, device: str, threads: int, command: str, votes: Path | None = None
) -> Product:
    """What is measured of a model; a certificate from the votes on that are there already."""
    resumed = False
    if votes is not None and votes.exists():
        try:
            ClassCounts.load(votes)
            resumed = True
        except ValueError as error:
            warnings.warn(f"the votes are counted anew: {error}", StoreWarning, stacklevel=2)
            votes.unlink()
    with _set_up(threads):
        split = measure.recipe.split(data).to(device)
        start = time.perf_counter()
        found = measure.run(_from_bytes(model).to(device), split, votes)
        seconds = round(time.perf_counter() - start, 2)
    product = _product(measure, found, split, model, command, describe_environment(device), seconds)
    # Then the time is not that of all votes.
    notes = {**product.record.notes, "resumed": True} if resumed else product.record.notes
    return Product(replace(product.record, notes=notes))


@dataclass(frozen=True)
class Counted:
    """A share of a certificate's votes.

    Args:
        share: the votes.
        environment: of the worker that counted them.
        seconds: that it took.
    """

    share: CountsPart
    environment: dict[str, Any]
    seconds: float


def counted(measure: Measure, data: Data, model: bytes, device: str, threads: int, share: int, shares: int) -> Counted:
    """One of so many shares of a certificate's votes."""
    with _set_up(threads):
        split = measure.recipe.split(data).to(device)
        start = time.perf_counter()
        votes = measure.vote(_from_bytes(model).to(device), split, share, shares)
        return Counted(votes, describe_environment(device), time.perf_counter() - start)


def certified(measure: Measure, data: Data, model: bytes, command: str, *shares: Counted) -> Product:
    """What :func:`measured` finds, from all shares of the votes; seconds are those of all workers together."""
    split = measure.recipe.split(data)
    start = time.perf_counter()
    found = measure.decide([one.share for one in shares], split)
    seconds = round(sum(one.seconds for one in shares) + time.perf_counter() - start, 2)
    product = _product(measure, found, split, model, command, shares[0].environment, seconds)
    notes = {**product.record.notes, "shares": len(shares)}
    return Product(replace(product.record, notes=notes))


def _product(
    measure: Measure,
    found: dict[str, Any],
    split: Split,
    model: bytes,
    command: str,
    environment: dict[str, Any],
    seconds: float,
) -> Product:
    # Of which file: trained anew on another machine, a model is not the same to the last bit.
    notes = {"test_nodes": split.test.nodes.numel(), "test_nodes_seen": split.num_seen, "model": _digest(model)}
    return Product(Record(measure.identity, found, command, environment, seconds, notes))


def read_off(job: Job, store: Store, command: str) -> Iterator[Product]:
    """What needs no model: a diffusion that GPRGNN has learned is in the record of its training.

    Args:
        job: what is wanted of a model.
        store: where the record of its training may be.
        command: what to write down as having made it.
    """
    record = store.get(job.recipe.identity)
    wanted = [measure for measure in job.measures if measure.kind in ("filter", "diffusion")]
    if record is None or "gamma" not in record.notes or job.recipe.row.model != "GPRGNN" or not wanted:
        return
    learned = Coefficients.of(record.notes["gamma"], self_loops=True, model="GPRGNN")
    graph = job.recipe.data()
    for measure in wanted:
        start = time.perf_counter()
        found = filter_of(learned, graph) if measure.kind == "filter" else diffusion_of(learned, graph)
        seconds = round(time.perf_counter() - start, 2)
        notes = {"from": "the coefficients in the record of the training", "training": record.key}
        yield Product(Record(measure.identity, found, command, describe_environment("cpu"), seconds, notes))


@contextmanager
def _set_up(threads: int) -> Iterator[None]:
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        # What training has to say about itself is in the notes.
        warnings.simplefilter("ignore")
        yield


def keep(product: Product, store: Store, log_dir: Path | None = None) -> None:
    """Put a product into a store: first the model, so that a result never lacks the model that it is of.

    Args:
        product: what to keep.
        store: where.
        log_dir: where TensorBoard will look for how trainings went, one folder for each.
    """
    if product.model is not None:
        path = store.model_path(product.record.identity)
        with replacing(path) as temporary:
            temporary.write_bytes(product.model)
    if log_dir is not None and product.epochs:
        with TensorBoardLog(log_dir / _log_name(product.record)) as log:
            for epoch in product.epochs:
                log(epoch)
    store.put(product.record)


def _log_name(record: Record) -> str:
    """A name that says what was trained, and is the result's own."""
    about = re.sub(r"[^\w.]+", "-", str(Origin.of(record.identity)))
    return f"{about}-{record.key[:8]}"


def known_model(job: Job, store: Store) -> bytes | None:
    """The file of the job's model, if it is there and of this very training; one that is not is reported."""
    path, record = store.model_path(job.recipe.identity), store.get(job.recipe.identity)
    if record is None or not path.exists():
        return None
    content, named = path.read_bytes(), record.notes.get("model")
    if named == _digest(content) or (named is None and _is_model(content)):
        return content
    warnings.warn(f"{path} is not the model of its record, or damaged; it is trained anew", StoreWarning, stacklevel=2)
    return None


def _is_model(content: bytes) -> bool:
    """Whether this is the whole file of a model: all that can be asked where an old record does not name it."""
    try:
        _from_bytes(content)
    except (ValueError, TypeError):
        return False
    return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _to_bytes(model: GraphModel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model_io.save(model, path)
        return path.read_bytes()


def _from_bytes(content: bytes) -> GraphModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        return model_io.load(path)
