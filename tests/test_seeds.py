"""One check of seeds in every function that draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.datasets import arxiv_stand_in, attributed_sbm, csbm
from edgeproof.experiments.plain_training import build_plain

INVALID = [1.5, "0", None, float("nan"), True, -1, 1 << 32, 1 << 70, [0], torch.tensor(0)]

FUNCTIONS: dict[str, Callable[[Data, ep.models.GraphModel, object], object]] = {
    "attack": lambda data, model, seed: ep.attacks.RandomFlips()(model, data, [0, 1], ep.Budget(1), seed=seed),
    "evaluate": lambda data, model, seed: ep.evaluate(model, data, [0, 1], [0.1], ["RandomFlips"], seed=seed),
    "train": lambda data, model, seed: ep.train(model, ep.splits.inductive(data), max_epochs=1, seed=seed),
    "inductive": lambda data, model, seed: ep.splits.inductive(data, seed),
    "by_protocol": lambda data, model, seed: ep.splits.by_protocol(data, seed, model="GCN"),
    "transductive": lambda data, model, seed: ep.splits.transductive(data, seed),
    "build": lambda data, model, seed: ep.models.build("GCN", 5, 2, seed=seed),
    "plain": lambda data, model, seed: build_plain("GCN", 5, 2, seed=seed),
    "init_seed": lambda data, model, seed: ep.models.GPRGNN(5, 2, init="random", init_seed=seed),
    "csbm": lambda data, model, seed: csbm(num_nodes=50, seed=seed),
    "attributed_sbm": lambda data, model, seed: attributed_sbm(num_nodes=50, seed=seed),
    "stand-in": lambda data, model, seed: arxiv_stand_in(num_nodes=50, num_edges=80, num_classes=2, seed=seed),
    "certify": lambda data, model, seed: ep.certificates.SparseSmoothing().certify(
        model, data, [0], samples=100, choosing_samples=10, seed=seed
    ),
    "predict": lambda data, model, seed: ep.certificates.SparseSmoothing().predict(model, data, [0], 100, seed=seed),
    "compare": lambda data, model, seed: ep.analysis.compare({"MLP": ep.models.MLP(21, 2)}, data, seed=seed),
    "spectrum": lambda data, model, seed: ep.analysis.spectrum(ep.models.APPNP(21, 2), data, seed=seed),
}
# Here None is the default: a seed from torch's generator.
OPTIONAL = ("build", "init_seed")


@pytest.mark.parametrize("seed", INVALID, ids=repr)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_invalid_seeds_give_one_message(name: str, seed: object, sbm: Data) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    if seed is None and name in OPTIONAL:
        FUNCTIONS[name](sbm, model, seed)
        return
    with pytest.raises(ValueError, match=r"^expected (init_)?seed to be an integer from 0 to 4294967295, got "):
        FUNCTIONS[name](sbm, model, seed)


@pytest.mark.parametrize("name", ["attack", "evaluate", "train", "inductive", "build", "csbm", "certify"])
def test_numpy_integers_are_seeds(name: str, sbm: Data) -> None:
    FUNCTIONS[name](sbm, ep.models.build("GCN", 21, 2, seed=0), np.int64(3))
