from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.report import Filter, describe_filter


def test_filter_round_trips_through_result_file(cycle: Data) -> None:
    model = ep.models.APPNP(3, 2, K=1, alpha=0.5)
    learned = Filter.of(model, cycle)
    assert learned is not None
    assert learned == Filter.read(describe_filter(model, cycle)["filter"])
    assert learned.gamma == (0.5, 0.5)
    assert sum(learned.density) == pytest.approx(1)
    # On a ring with self-loops T = I / 2 + Â / 2, where all entries of Â are 1/3: the own weight is 1/2 + 1/6.
    assert learned.own_share == pytest.approx(2 / 3)
    # g(λ) = 1/2 + (1 - λ) / 2 = 1 - λ / 2, largest in the first bin.
    first = learned.response()[0]
    for frequency, response in learned.response():
        assert response == pytest.approx((1 - frequency / 2) / (1 - first[0] / 2))


def test_models_without_filter_have_no_entry(cycle: Data) -> None:
    assert describe_filter(torch.nn.Linear(3, 2), cycle) == {}
    zero_filter = ep.models.GPRGNN(3, 2)
    torch.nn.init.zeros_(zero_filter.gamma)
    assert describe_filter(zero_filter, cycle) == {}


def test_invalid_filter_raises(cycle: Data) -> None:
    values = asdict(Filter((1.0,), True, 1.0, 1.0, (1.0,)))
    for change in ({"gamma": ["a"]}, {"density": None}):
        with pytest.raises(ValueError, match="invalid filter: "):
            Filter.read({**values, **change})
    del values["mean_frequency"]
    with pytest.raises(ValueError, match="invalid filter: KeyError"):
        Filter.read(values)
