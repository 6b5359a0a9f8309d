from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.report import Filter, describe_filter


def test_a_filter_survives_a_result_file(cycle: Data) -> None:
    model = ep.models.APPNP(3, 2, K=1, alpha=0.5)
    found = Filter.of(model, cycle)
    assert found is not None
    assert found == Filter.read(describe_filter(model, cycle)["filter"])
    assert found.gamma == (0.5, 0.5)
    assert sum(found.density) == pytest.approx(1)
    # On a ring with self-loops T = I / 2 + Â / 2 with Â = 1/3: a node hears (1/2 + 1/6) of 1 from itself.
    assert found.own_share == pytest.approx(2 / 3)
    # g(λ) = 1/2 + (1 - λ) / 2 = 1 - λ / 2, its largest size at the first bin.
    first = found.response()[0]
    for frequency, response in found.response():
        assert response == pytest.approx((1 - frequency / 2) / (1 - first[0] / 2))


def test_models_without_a_filter_have_none(cycle: Data) -> None:
    assert describe_filter(torch.nn.Linear(3, 2), cycle) == {}
    silent = ep.models.GPRGNN(3, 2)
    torch.nn.init.zeros_(silent.gamma)
    assert describe_filter(silent, cycle) == {}


def test_damage_is_told(cycle: Data) -> None:
    values = asdict(Filter((1.0,), True, 1.0, 1.0, (1.0,)))
    for change in ({"gamma": ["a"]}, {"density": None}):
        with pytest.raises(ValueError, match="its filter is damaged"):
            Filter.read({**values, **change})
    del values["mean_frequency"]
    with pytest.raises(ValueError, match="its filter is damaged: KeyError"):
        Filter.read(values)
