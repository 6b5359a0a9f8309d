"""Checks for signs that an evaluation overestimates robustness.

Each check is a function of measured values and returns messages; :func:`edgeproof.evaluate` adds the warning codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof._warnings import EdgeproofWarning
from edgeproof.attacks.base import Target
from edgeproof.attacks.blocks import sample_block
from edgeproof.budget import NO_FLIPS, Budget
from edgeproof.models.base import predict
from edgeproof.models.model_probe import same_logits

# Gradients below this fraction of one node's largest contribution to the loss count as zero.
_NEAR_ZERO = 1e-6
_NUM_RANDOM_PAIRS = 10_000
# Median margins at which the tanh margin is neither saturated at most nodes nor too small for steps of a fixed length.
_USUAL_MARGINS = (0.05, 10.0)


class EvaluationWarning(EdgeproofWarning):
    """Sign that an evaluation overestimates robustness or is unreliable."""


def budget_problems(budgets: Sequence[Budget], epsilons: Sequence[float]) -> list[tuple[str, str]]:
    """Return codes and messages of budgets that allow no flip (EP007), and of epsilons above 1 (EP008).

    Args:
        budgets: Budgets.
        epsilons: The same budgets as fractions of the edges.

    >>> budget_problems([Budget(3)], [0.1])
    []
    >>> [code for code, message in budget_problems([Budget(0), Budget(90)], [0.0, 5.0])]
    ['EP007', 'EP008']
    """
    problems = []
    for epsilon, budget in zip(epsilons, budgets, strict=True):
        if not budget.allows_flips:
            problems.append(("EP007", f"at epsilon {epsilon:g}, {NO_FLIPS}"))
        if epsilon > 1:
            message = (
                f"epsilon {epsilon:g} allows more flips than there are edges at the target nodes. Epsilon is a fraction, not a "
                f"percentage: did you mean {epsilon / 100:g}?"
            )
            problems.append(("EP008", message))
    return problems


def random_output(model: nn.Module, data: Data) -> str | None:
    """Return a message if two runs on the same graph give different logits, beyond rounding (EP001)."""
    first, second = predict(model, data), predict(model, data)
    # Equal up to rounding, because GPUs add in varying order.
    if torch.equal(first, second) or same_logits(first, second):
        return None
    changed = float((first.argmax(dim=1) != second.argmax(dim=1)).double().mean())
    return (
        f"the model has random outputs: two runs on the same graph give different logits and {changed:.1%} different "
        "predictions, so gradients of one run are not valid for the next. Remove the randomness in evaluation mode"
    )


def vanishing_gradient(target: Target, *, seed: int) -> str | None:
    """Return a message if the gradient of the tanh margin is (nearly) zero at all edges and at random pairs (EP002)."""
    if target.num_nodes < 2:
        return None
    gradient = target.engine("tanh_margin")()
    generator = torch.Generator(target.device).manual_seed(seed)
    row, col = target.data.edge_index
    edges = target.data.edge_index[:, row < col]
    random_pairs = sample_block(target.num_nodes, _NUM_RANDOM_PAIRS, generator=generator).pairs.both
    largest = float(gradient.at(torch.cat([edges, random_pairs], dim=1)).abs().max())
    if largest > _NEAR_ZERO / target.nodes.numel():
        return None
    return (
        f"the gradient is (nearly) zero: at most {largest:.1e} at any edge or random pair. Either the model does not use the "
        "graph, or its gradient is masked, for example by very large logits"
    )


def unusual_scale(margins: Tensor, attack_losses: Mapping[str, str | None]) -> str | None:
    """Return a message if the scale of the logits weakens attacks with the tanh margin (EP003).

    Args:
        margins: Margins of the target nodes on the clean graph.
        attack_losses: Loss of each attack by the attack's name; None for attacks without a loss.
    """
    affected = [name for name, loss in attack_losses.items() if loss == "tanh_margin"]
    median = float(margins.abs().median())
    low, high = _USUAL_MARGINS
    if not affected or low <= median <= high:
        return None
    return (
        f"the logits are {'small' if median < low else 'large'}: the median size of a margin is {median:.1e}, where attacks "
        f"with the tanh margin may be weak ({', '.join(affected)}). Use loss='scaled_margin', which does not depend on the "
        "scale"
    )


def weak_beats_strong(weak: Mapping[str, Tensor], strong: Mapping[str, Tensor], epsilons: Sequence[float]) -> list[str]:
    """Return a message for each budget at which an attack without gradients beats all attacks with gradients (EP004).

    Args:
        weak: Accuracies of each attack without gradients, shape ``[epsilons]``.
        strong: Accuracies of the other attacks, likewise.
        epsilons: Budgets, in the same order.
    """
    if not weak or not strong:
        return []
    best = torch.stack(list(strong.values())).amin(dim=0)
    return [
        f"{name} beats all attacks that use gradients at epsilon {epsilon:g}: accuracy {float(accuracy):.1%} against "
        f"{float(lowest):.1%}"
        for name, accuracies in weak.items()
        for epsilon, accuracy, lowest in zip(epsilons, accuracies, best, strict=True)
        if accuracy < lowest
    ]


def rising_accuracy(accuracies: Mapping[str, Tensor], epsilons: Sequence[float]) -> list[str]:
    """Return a message for each attack that is weaker with a larger budget, which allows the same flips (EP005).

    Args:
        accuracies: Accuracies of each attack, shape ``[epsilons]``.
        epsilons: Budgets, in the same order.
    """
    messages = []
    order = sorted(range(len(epsilons)), key=lambda i: epsilons[i])
    for name, values in accuracies.items():
        for small, large in pairwise(order):
            if values[large] > values[small]:
                messages.append(
                    f"{name} is weaker with a larger budget: accuracy {float(values[small]):.1%} at epsilon "
                    f"{epsilons[small]:g}, {float(values[large]):.1%} at epsilon {epsilons[large]:g}"
                )
    return messages


def transfer_beats_adaptive(transfer: Tensor, adaptive: Tensor, epsilons: Sequence[float]) -> list[str]:
    """Return a message for each budget at which transferred flips beat all flips found on the model itself (EP006).

    Args:
        transfer: Accuracies under the transferred flips, shape ``[epsilons]``.
        adaptive: Lowest accuracies under attacks on the model itself, likewise.
        epsilons: Budgets, in the same order.
    """
    return [
        f"flips transferred from another model beat all flips found on this model at epsilon {epsilon:g}: accuracy "
        f"{float(accuracy):.1%} against {float(lowest):.1%}. The model's gradients mislead attacks"
        for epsilon, accuracy, lowest in zip(epsilons, transfer, adaptive, strict=True)
        if accuracy < lowest
    ]


def still_improving(traces: Sequence[Sequence[float]], epsilons: Sequence[float]) -> list[str]:
    """Return a message for each budget at which the last quarter of a search still found a lower accuracy (EP009).

    Args:
        traces: Accuracy after every move of the search at each budget.
        epsilons: Budgets, in the same order.

    >>> found = still_improving([[0.5, 0.5, 0.5, 0.4], [0.3, 0.3, 0.3, 0.3]], [0.1, 0.2])
    >>> len(found), "accuracy 50.0% after three quarters of its moves, 40.0% at the end" in found[0]
    (1, True)
    """
    messages = []
    for trace, epsilon in zip(traces, epsilons, strict=False):
        three_quarters = len(trace) * 3 // 4
        before, after = min(trace[:three_quarters], default=0.0), min(trace, default=0.0)
        if after < before:
            messages.append(
                f"the exact search was still improving when it ended at epsilon {epsilon:g}: accuracy {before:.1%} after three "
                f'quarters of its moves, {after:.1%} at the end. Use effort="thorough"'
            )
    return messages
