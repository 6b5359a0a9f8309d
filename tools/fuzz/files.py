"""Every kind of file that the library reads back: how to write a random one, and how to read it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof._tensors import fingerprint
from edgeproof.certificates import Certificate, ClassCounts
from edgeproof.evaluation.checkpoint import Checkpoint as EvaluationCheckpoint
from edgeproof.evaluation.checkpoint import Record as Search
from edgeproof.evaluation.result import Result, Score
from edgeproof.experiments import Record, Store
from edgeproof.experiments.identity import VERSION
from edgeproof.report import Outcomes
from edgeproof.training.checkpoint import Checkpoint as TrainingCheckpoint
from edgeproof.training.checkpoint import RunState


class FileKind(NamedTuple):
    """Kind of file.

    Args:
        suffix: End of its name.
        write: Function of a path and a seed that writes a file.
        read: Function of a path that returns the content as text, or raises ``ValueError`` if the file is damaged.
    """

    suffix: str
    write: Callable[[Path, int], None]
    read: Callable[[Path], str]


def _text(value: object) -> str:
    """Return a text that is equal for equal values; tensors are hashed."""
    if isinstance(value, Tensor):
        return fingerprint([value])
    if isinstance(value, Mapping):
        return str({str(key): _text(entry) for key, entry in value.items()})
    if isinstance(value, (list, tuple)):
        return str([_text(entry) for entry in value])
    return repr(value)


def _fields(value: Any) -> str:
    return _text({field.name: getattr(value, field.name) for field in fields(value)})


def random_graph(seed: int) -> Data:
    """Return a graph of 20 nodes, 4 features and 3 classes, with masks."""
    random = np.random.default_rng(seed)
    pairs = torch.from_numpy(np.argwhere(np.triu(random.random((20, 20)) < 0.2, k=1)).T.copy())
    masks = torch.from_numpy(random.random((3, 20)) < 0.3)
    return Data(
        x=torch.from_numpy(random.normal(size=(20, 4))).float(),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        y=torch.from_numpy(random.integers(0, 3, 20)),
        **dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True)),
    ).coalesce()


def _model(seed: int) -> ep.models.GraphModel:
    name = ep.models.available()[seed % len(ep.models.available())]
    return ep.models.build(name, 4, 3, {"hidden_channels": 8}, seed=seed)


def _write_model(path: Path, seed: int) -> None:
    ep.save(_model(seed), path)


def _read_model(path: Path) -> str:
    model = ep.load(path)
    return f"{model!r} {_text(model.state_dict())}"


def _write_graph(path: Path, seed: int) -> None:
    ep.datasets.write_npz(random_graph(seed), path)


def _read_graph(path: Path) -> str:
    return _text(ep.datasets.read_npz(path).to_dict())


def _write_certificate(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    grid = torch.from_numpy(np.minimum.accumulate(random.random((6, 3, 5)) < 0.8, axis=2))
    prediction, labels = (torch.from_numpy(random.integers(0, 3, 6)) for _ in range(2))
    p_lower, p_upper = (torch.from_numpy(random.random(6)) for _ in range(2))
    Certificate(prediction, grid, p_lower, p_upper, labels, 0.05, 1000 + seed % 1000, 0.01, 0.6).save(path)


def _write_counts(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    choosing, bounding = (torch.from_numpy(random.multinomial(total, [0.2, 0.3, 0.5], size=6)) for total in (10, 40))
    ClassCounts(choosing, bounding, {seed: (10, 40)}, {"noise": [0.01, 0.6], "graph": str(seed)}).save(path)


def _write_outcomes(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    margins = torch.from_numpy(random.normal(size=(2, 6))).float()
    degree = torch.from_numpy(random.integers(0, 9, 6))
    keys = (("LRBCD", 0.1), ("DICE", 0.1))
    Outcomes(torch.arange(6), degree, degree % 3, margins[0].abs(), keys, margins, margins.abs().int()).save(path)


def _write_result(path: Path, seed: int) -> None:
    accuracy = float(np.random.default_rng(seed).random())
    model = {"name": "GCN", "settings": {"hidden_channels": 64}, "fingerprint": str(seed)}
    split = {"setting": "inductive", "rule": "released", "seed": seed, "fingerprint": "0" * 16}
    scores = (Score("test", "clean", 0.0, accuracy), Score("test", "LRBCD", 0.1, accuracy / 2))
    Result("edgeproof train", "csbm", split, model, {"max_epochs": 5}, seed, scores, {"python": "3"}).write(path)


def _read_result(path: Path) -> str:
    return json.dumps(asdict(Result.read(path)))


def _write_record(path: Path, seed: int) -> None:
    accuracy = float(np.random.default_rng(seed).random())
    run = {"dataset": {"name": "csbm"}, "model": {"name": "GCN"}, "seed": 0}
    identity = {"version": VERSION, "kind": "clean", "run": run}
    record = Record(identity, {"accuracy": [[0.0, accuracy]]}, "edgeproof sweep", {"python": "3"}, 1.5, {})
    # A store names the file by its identity.
    written = Store(path.parent / "written").put(record)
    written.replace(path)


def _read_record(path: Path) -> str:
    content = json.loads(path.read_bytes())
    try:
        return _fields(Record.of(content))
    except (TypeError, LookupError, AttributeError) as error:
        # The store treats these in the same way.
        raise ValueError(f"{path} is damaged: {error!r}") from error


def _training(seed: int) -> tuple[ep.models.GraphModel, torch.optim.Optimizer]:
    model = _model(seed)
    return model, torch.optim.Adam(model.parameters())


def _write_training_checkpoint(path: Path, seed: int) -> None:
    model, optimizer = _training(seed)
    torch.stack([parameter.square().sum() for parameter in model.parameters()]).sum().backward()
    optimizer.step()
    best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = RunState(3, 2, 0.25 + seed % 7, best, [], torch.tensor([[0], [1]]), 1.5, {"forward": 1.0})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        TrainingCheckpoint(path, {"model": seed % 8}, 1).save(state, model, optimizer, None)


def _read_training_checkpoint(path: Path) -> str:
    # The identity of the run is known before its checkpoint is read.
    seed = int(path.name.partition("-")[0])
    model, optimizer = _training(seed)
    with torch.random.fork_rng(devices=[]):
        state = TrainingCheckpoint(path, {"model": seed % 8}, 1).restore(model, optimizer, None)
        generator = fingerprint([torch.get_rng_state()])
    return f"{_fields(state)} {_text(model.state_dict())} {_text(optimizer.state_dict()['state'])} {generator}"


def _write_evaluation_checkpoint(path: Path, seed: int) -> None:
    flips = torch.from_numpy(np.random.default_rng(seed).integers(0, 20, (2, 5)))
    searches = [Search(flips[:, :size], (0.5, 0.25), {"total": 1.0}, "propagate", 12, 2.0) for size in (2, 5)]
    EvaluationCheckpoint(path, {"seed": 0}, searches, {"majority baseline": 0.3}).save()


def _read_evaluation_checkpoint(path: Path) -> str:
    checkpoint = EvaluationCheckpoint.open(path, {"seed": 0})
    return f"{_text([_fields(record) for record in checkpoint.records])} {checkpoint.baselines}"


KINDS: Mapping[str, FileKind] = {
    "model": FileKind(".safetensors", _write_model, _read_model),
    "graph": FileKind(".npz", _write_graph, _read_graph),
    "certificate": FileKind(".safetensors", _write_certificate, lambda path: _fields(Certificate.load(path))),
    "class counts": FileKind(".counts", _write_counts, lambda path: _fields(ClassCounts.load(path))),
    "outcomes": FileKind(".nodes", _write_outcomes, lambda path: _fields(Outcomes.load(path))),
    "result": FileKind(".json", _write_result, _read_result),
    "stored record": FileKind(".json", _write_record, _read_record),
    "training checkpoint": FileKind(".checkpoint", _write_training_checkpoint, _read_training_checkpoint),
    "evaluation checkpoint": FileKind(".checkpoint", _write_evaluation_checkpoint, _read_evaluation_checkpoint),
}


def read_content(kind: FileKind, path: Path) -> str | None:
    """Return the content of a file, or None if reading rejects it with the expected kind of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return kind.read(path)
        except ValueError:
            return None
