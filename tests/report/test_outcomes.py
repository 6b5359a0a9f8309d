from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.report import Outcomes


@pytest.fixture
def outcomes(graph: Data) -> Outcomes:
    """Outcomes of two edge flips at node 0."""
    model, nodes = ep.models.build("GCN", 5, 3, seed=0), torch.tensor([3, 0, 6])
    attack = ep.attacks.FixedFlips(flips=torch.tensor([[0, 0], [1, 3]]))
    result = attack(model, graph, nodes, ep.Budget(2))
    return Outcomes.of({("given", 0.5): result}, graph, nodes, torch.tensor([30, 0, 60]))


def test_outcomes_hold_degrees_flips_and_labels_of_target_nodes(outcomes: Outcomes, graph: Data) -> None:
    assert outcomes.nodes.tolist() == [30, 0, 60]
    assert outcomes.degree.tolist() == [1, 2, 0]
    assert outcomes.flips.tolist() == [[1, 2, 0]]
    assert outcomes.labels is not None
    assert outcomes.labels.tolist() == graph.y[[3, 0, 6]].tolist()


def test_save_and_load_round_trip(outcomes: Outcomes, tmp_path: Path) -> None:
    outcomes.save(tmp_path / "a.nodes")
    loaded = Outcomes.load(tmp_path / "a.nodes")
    assert loaded.keys == (("given", 0.5),)
    for name in ("nodes", "degree", "labels", "clean_margins", "margins", "flips"):
        assert torch.equal(getattr(loaded, name), getattr(outcomes, name))


def test_outcomes_without_labels_round_trip(outcomes: Outcomes, tmp_path: Path) -> None:
    unlabelled = Outcomes(
        outcomes.nodes, outcomes.degree, None, outcomes.clean_margins, outcomes.keys, outcomes.margins, outcomes.flips
    )
    unlabelled.save(tmp_path / "a.nodes")
    assert Outcomes.load(tmp_path / "a.nodes").labels is None


def test_load_rejects_other_files(outcomes: Outcomes, tmp_path: Path) -> None:
    ep.save(ep.models.GCN(2, 2), tmp_path / "model")
    with pytest.raises(ValueError, match="does not contain node outcomes of format 1"):
        Outcomes.load(tmp_path / "model")
    (tmp_path / "text").write_text("no")
    with pytest.raises(ValueError, match="is damaged"):
        Outcomes.load(tmp_path / "text")
    with pytest.raises(ValueError, match=r"expected margins of shape \[2, 3\], got \[1, 3\]"):
        Outcomes(
            outcomes.nodes,
            outcomes.degree,
            None,
            outcomes.clean_margins,
            (("a", 0.1), ("b", 0.1)),
            outcomes.margins,
            outcomes.flips,
        )
