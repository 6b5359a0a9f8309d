from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeproof.kernels import dispatch, reference
from edgeproof.propagation import Adjacency, propagate


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 8), edges=st.integers(0, 25), channels=st.integers(1, 5))
def test_propagate_and_gradients_match_dense_product(seed: int, nodes: int, edges: int, channels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    weight = torch.randn(edges, generator=generator, dtype=torch.float64).requires_grad_()
    x = torch.randn(nodes, channels, generator=generator, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(nodes, channels, generator=generator, dtype=torch.float64)

    adjacency = Adjacency.from_edge_index(edge_index, weight, num_nodes=nodes, dtype=torch.float64)
    ours = propagate(adjacency, x)
    plain = adjacency.dense() @ x
    torch.testing.assert_close(ours, plain)
    for mine, expected in zip(
        torch.autograd.grad(ours, (weight, x), upstream, retain_graph=True),
        torch.autograd.grad(plain, (weight, x), upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected)


def test_propagate_passes_gradcheck() -> None:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 3], [1, 0, 2, 1, 3, 0]])
    weight = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def function(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return propagate(Adjacency.from_edge_index(edge_index, weight, num_nodes=5, dtype=torch.float64), x)

    assert torch.autograd.gradcheck(function, (weight, x))


def test_gathered_dot_of_many_pairs_matches_dense_product() -> None:
    """More pairs than the reference gathers at once."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 9, 4, generator=generator)
    left, right = torch.randint(0, 9, (2, (1 << 18) + 7), generator=generator)
    torch.testing.assert_close(reference.gathered_dot(a, b, left, right), (a @ b.T)[left, right])


def test_wrong_shape_raises() -> None:
    adjacency = Adjacency.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
    with pytest.raises(ValueError, match=r"x of shape \[3, channels\], got \[4, 1\]"):
        propagate(adjacency, torch.zeros(4, 1))


def test_backend_can_be_forced_and_error_lists_reasons() -> None:
    adjacency = Adjacency.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
    assert propagate(adjacency, torch.ones(3, 1), backend="reference").flatten().tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="unknown backend 'referense': did you mean 'reference'"):
        propagate(adjacency, torch.ones(3, 1), backend="referense")
    with pytest.raises(ValueError, match=r"no kernel backend supports .*reference: needs float32 or float64"):
        propagate(adjacency, torch.ones(3, 1, dtype=torch.float16))


def test_first_backend_without_reasons_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast:
        name, summary, devices = "fast", "", ()

        @staticmethod
        def not_supported_reasons(tensors: list[torch.Tensor]) -> list[str]:
            return ["needs a GPU"] if tensors[0].dtype == torch.float64 else []

    monkeypatch.setattr(dispatch, "BACKENDS", (Fast, reference))
    assert dispatch.choose([torch.ones(1)]) is Fast
    assert dispatch.choose([torch.ones(1, dtype=torch.float64)]) is reference
    assert dispatch.choose([torch.ones(1)], "reference") is reference
    with pytest.raises(ValueError, match="fast: needs a GPU"):
        dispatch.choose([torch.ones(1, dtype=torch.float64)], "fast")
