"""Signs that an evaluation overestimates a model: each a function of what was measured, with a warning or nothing as answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof.attacks.blocks import sample_block
from edgeproof.attacks.target import Target
from edgeproof.models.base import predict

# A gradient below this share of what one node can add to the loss moves nothing.
_NEAR_ZERO = 1e-6
_PAIRS_LOOKED_AT = 10_000
# Median sizes of margins within which the tanh margin is neither flat at most nodes nor too small a thing to step by.
_USUAL_MARGINS = (0.05, 10.0)


class EvaluationWarning(UserWarning):
    """A reason not to trust an evaluation."""


def random_output(model: nn.Module, data: Data) -> str | None:
    """Whether the model answers differently when asked twice."""
    first, second = predict(model, data), predict(model, data)
    if torch.equal(first, second):
        return None
    changed = float((first.argmax(dim=1) != second.argmax(dim=1)).double().mean())
    if torch.allclose(first, second, rtol=1e-4, atol=1e-5 * float(first.abs().max())):
        # Additions in another order, as GPUs make them.
        return None
    return (
        f"the model answers at random: asked twice, {changed:.1%} of its predictions differ; gradients of one answer say "
        "little about the next"
    )


def vanishing_gradient(target: Target, *, seed: int) -> str | None:
    """Whether the gradient of the paper's loss is (nearly) zero at edges and at random pairs of the clean graph."""
    if target.num_nodes < 2:
        return None
    gradient = target.engine("tanh_margin")()
    generator = torch.Generator(target.device).manual_seed(seed)
    row, col = target.data.edge_index
    edges = target.data.edge_index[:, row < col]
    others = sample_block(target.num_nodes, _PAIRS_LOOKED_AT, generator=generator).pairs.both
    largest = float(gradient.at(torch.cat([edges, others], dim=1)).abs().max())
    if largest > _NEAR_ZERO / target.nodes.numel():
        return None
    return (
        f"the gradient is (nearly) zero: at most {largest:.1e} at any edge or random pair; either the model does not use the "
        "graph, or it hides its gradient, as very large logits do"
    )


def unusual_scale(margins: Tensor, attacks: Mapping[str, str | None]) -> str | None:
    """Whether logits are so large or so small that attacks with the tanh margin see little of the model.

    Args:
        margins: of the target nodes in the clean graph.
        attacks: the loss of each attack, if it has one.
    """
    misled = [name for name, loss in attacks.items() if loss == "tanh_margin"]
    size = float(margins.abs().median())
    least, most = _USUAL_MARGINS
    if not misled or least <= size <= most:
        return None
    return (
        f"the logits are {'small' if size < least else 'large'}: half of the margins are at most {size:.1e} in size; with "
        f"the tanh margin attacks may find little there ({', '.join(misled)}); loss='scaled_margin' does not depend on it"
    )


def weak_beats_strong(weak: Mapping[str, Tensor], strong: Mapping[str, Tensor], epsilons: Sequence[float]) -> list[str]:
    """Where an attack without gradients does better than all with them.

    Args:
        weak: accuracies of each such attack, one per epsilon.
        strong: those of the others.
        epsilons: in the same order.
    """
    if not weak or not strong:
        return []
    best = torch.stack(list(strong.values())).amin(dim=0)
    return [
        f"{name} beats all attacks that use gradients at epsilon {epsilon:g}: {float(found):.1%} against {float(least):.1%}"
        for name, accuracies in weak.items()
        for epsilon, found, least in zip(epsilons, accuracies, best, strict=True)
        if found < least
    ]


def rising_accuracy(accuracies: Mapping[str, Tensor], epsilons: Sequence[float]) -> list[str]:
    """Where an attack does worse with a larger budget, which could have been spent on the same flips.

    Args:
        accuracies: of each attack, one per epsilon.
        epsilons: in the same order.
    """
    found = []
    order = sorted(range(len(epsilons)), key=lambda i: epsilons[i])
    for name, values in accuracies.items():
        for small, large in pairwise(order):
            if values[large] > values[small]:
                found.append(
                    f"{name} does worse with a larger budget: {float(values[small]):.1%} at epsilon {epsilons[small]:g}, "
                    f"{float(values[large]):.1%} at {epsilons[large]:g}"
                )
    return found


def transfer_beats_adaptive(transfer: Tensor, adaptive: Tensor, epsilons: Sequence[float]) -> list[str]:
    """Where flips found on another model do better than all found on the model itself."""
    return [
        f"flips found on another model beat all found on this one at epsilon {epsilon:g}: {float(found):.1%} against "
        f"{float(least):.1%}; its gradients mislead"
        for epsilon, found, least in zip(epsilons, transfer, adaptive, strict=True)
        if found < least
    ]
