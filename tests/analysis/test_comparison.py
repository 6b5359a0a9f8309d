"""Tests of the comparison of several models."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.analysis import compare, diffusion, self_influence, spectrum

NAMES = ("MLP", "GCN", "APPNP", "GPRGNN", "ChebNetII")


@pytest.fixture
def models() -> dict[str, torch.nn.Module]:
    return {name: ep.models.build(name, 21, 2, seed=0) for name in NAMES}


def test_compare_matches_single_model_functions(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    result = compare(models, sbm)
    assert result.names == list(NAMES)
    assert result.degrees == {}
    for name, model in models.items():
        expected = spectrum(model, sbm)
        assert torch.equal(result.spectra[name].frequency, expected.frequency)
        assert torch.equal(result.spectra[name].response, expected.response)
        assert result.self_influence[name] == self_influence(diffusion(model, sbm))
        assert result.coefficients[name].model == name


def test_table_has_one_row_per_model(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    nodes = torch.arange(40)
    results = {name: ep.attacks.DICE()(models[name], sbm, nodes, ep.Budget(10)) for name in ("GCN", "ChebNetII")}
    result = compare(models, sbm, results=results)
    assert list(result.degrees) == ["GCN", "ChebNetII"]
    head, *rows = str(result).splitlines()
    assert head.split()[:4] == ["model", "matrix", "gamma_0", "self-influence"]
    assert [row.split()[0] for row in rows] == list(NAMES)
    assert len({len(rows[0]), len(rows[2]), len(rows[3])}) == 1
    assert len(rows[1]) == len(rows[4]) == len(head)
    assert "1.000           1.000" in rows[0]
    misclassified = int(result.degrees["GCN"].misclassified.sum())
    assert rows[1].split()[7] == str(misclassified)


def test_large_graphs_use_seeded_estimates() -> None:
    data = ep.datasets.csbm("homophilous", num_nodes=3500, p=0.003, q=0.001, seed=0)
    model = ep.models.APPNP(21, 2)
    first, second = (compare({"APPNP": model}, data, seed=4) for _ in range(2))
    assert not first.spectra["APPNP"].exact
    assert first.self_influence == second.self_influence
    assert first.self_influence["APPNP"] == pytest.approx(self_influence(diffusion(model, data)), abs=0.02)


def test_invalid_arguments_raise(models: dict[str, torch.nn.Module], sbm: Data) -> None:
    with pytest.raises(ValueError, match="expected at least one model to compare, got an empty mapping"):
        compare({}, sbm)
    attacked = ep.attacks.DICE()(models["GCN"], sbm, torch.arange(9), ep.Budget(2))
    with pytest.raises(ValueError, match="unknown model 'GNC': did you mean 'GCN'"):
        compare(models, sbm, results={"GNC": attacked})
    with pytest.raises(TypeError, match="got GAT"):
        compare({"GAT": ep.models.GAT(21, 2)}, sbm)
