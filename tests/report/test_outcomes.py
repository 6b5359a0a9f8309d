from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.report import Outcomes


@pytest.fixture
def outcomes(graph: Data) -> Outcomes:
    """Two pairs flipped around a triangle with a tail."""
    model, nodes = ep.models.build("GCN", 5, 3, seed=0), torch.tensor([3, 0, 6])
    attack = ep.attacks.FixedFlips(flips=torch.tensor([[0, 0], [1, 3]]))
    result = attack(model, graph, nodes, ep.Budget(2))
    return Outcomes.of({("given", 0.5): result}, graph, nodes, torch.tensor([30, 0, 60]))


def test_flips_degrees_and_classes_are_those_of_the_nodes(outcomes: Outcomes, graph: Data) -> None:
    assert outcomes.nodes.tolist() == [30, 0, 60]
    assert outcomes.degree.tolist() == [1, 2, 0]
    assert outcomes.flips.tolist() == [[1, 2, 0]]
    assert outcomes.labels is not None
    assert outcomes.labels.tolist() == graph.y[[3, 0, 6]].tolist()


def test_saving_and_loading(outcomes: Outcomes, tmp_path: Path) -> None:
    outcomes.save(tmp_path / "a.nodes")
    found = Outcomes.load(tmp_path / "a.nodes")
    assert found.keys == (("given", 0.5),)
    for name in ("nodes", "degree", "labels", "clean_margins", "margins", "flips"):
        assert torch.equal(getattr(found, name), getattr(outcomes, name))


def test_without_labels(outcomes: Outcomes, tmp_path: Path) -> None:
    bare = Outcomes(
        outcomes.nodes, outcomes.degree, None, outcomes.clean_margins, outcomes.keys, outcomes.margins, outcomes.flips
    )
    bare.save(tmp_path / "a.nodes")
    assert Outcomes.load(tmp_path / "a.nodes").labels is None


def test_other_files_are_refused(outcomes: Outcomes, tmp_path: Path) -> None:
    ep.save(ep.models.GCN(2, 2), tmp_path / "model")
    with pytest.raises(ValueError, match="holds no outcomes"):
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
