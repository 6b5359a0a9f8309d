"""Several models side by side."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.analysis import compare, diffusion, own_share, spectrum

NAMES = ("MLP", "GCN", "APPNP", "GPRGNN", "ChebNetII")


@pytest.fixture
def models() -> dict[str, torch.nn.Module]:
    return {name: ep.models.build(name, 21, 2, seed=0) for name in NAMES}


def test_each_model_is_as_alone(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    found = compare(models, sbm)
    assert found.names == list(NAMES)
    assert found.degrees == {}
    for name, model in models.items():
        alone = spectrum(model, sbm)
        assert torch.equal(found.spectra[name].frequency, alone.frequency)
        assert torch.equal(found.spectra[name].response, alone.response)
        assert found.own_shares[name] == own_share(diffusion(model, sbm))
        assert found.coefficients[name].model == name


def test_the_table_has_a_row_per_model(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    nodes = torch.arange(40)
    results = {name: ep.attacks.DICE()(models[name], sbm, nodes, ep.Budget(10)) for name in ("GCN", "ChebNetII")}
    found = compare(models, sbm, results=results)
    assert list(found.degrees) == ["GCN", "ChebNetII"]
    head, *rows = str(found).splitlines()
    assert head.split()[:4] == ["model", "matrix", "gamma_0", "own"]
    assert [row.split()[0] for row in rows] == list(NAMES)
    assert len({len(rows[0]), len(rows[2]), len(rows[3])}) == 1
    assert len(rows[1]) == len(rows[4]) == len(head)
    assert "1.000      1.000" in rows[0]
    fell = int(found.degrees["GCN"].fell.sum())
    assert rows[1].split()[7] == str(fell)


def test_large_graphs_are_estimated() -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=3500, p=0.003, q=0.001, seed=0)
    model = ep.models.APPNP(21, 2)
    one, again = (compare({"APPNP": model}, data, seed=4) for _ in range(2))
    assert not one.spectra["APPNP"].exact
    assert one.own_shares == again.own_shares
    assert one.own_shares["APPNP"] == pytest.approx(own_share(diffusion(model, data)), abs=0.02)


def test_mistakes(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    with pytest.raises(ValueError, match="expected at least one model to compare, got none"):
        compare({}, sbm)
    result = ep.attacks.DICE()(models["GCN"], sbm, torch.arange(9), ep.Budget(2))
    with pytest.raises(ValueError, match="unknown model 'GNC': did you mean 'GCN'"):
        compare(models, sbm, results={"GNC": result})
    with pytest.raises(TypeError, match="got GAT"):
        compare({"GAT": ep.models.GAT(21, 2)}, sbm)
