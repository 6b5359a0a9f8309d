"""Detection of failed training runs, with advice."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from edgeproof.splits import Split
from edgeproof.training.history import Epoch, History

# A run fails if its validation accuracy is this far below that of its own warm-up.
_MAX_LOSS_OF_WARMUP = 0.1
# Gap between training and validation accuracy above which a warning is issued.
_MAX_MISMATCH = 0.5


class Problem(NamedTuple):
    """Reason to doubt a trained model.

    Args:
        code: Code of the warning.
        message: What is wrong and what to try.
        failed: Whether the run is repeated with another seed.
    """

    code: str
    message: str
    failed: bool


def find_problem(history: History, warmup: History | None, split: Split) -> Problem | None:
    """Return the most serious problem of a run, or None.

    Args:
        history: Record of the main run.
        warmup: Record of the separate warm-up, if there was one.
        split: Split that the model was trained on.
    """
    val_labels = split.val.data.y[split.val.nodes]
    best = history.best
    val_accuracy = clean_val_accuracy(best)
    if is_near_constant(val_accuracy, val_labels):
        return Problem(
            "EP104",
            f"the model is not better than a constant prediction on the validation nodes ({val_accuracy:.1%}, constant "
            f"{constant_accuracy(val_labels):.1%}): check features and labels, try a lower "
            "learning rate (lr), more labelled nodes, or another architecture",
            failed=True,
        )
    if warmup is not None and val_accuracy < clean_val_accuracy(warmup.best) - _MAX_LOSS_OF_WARMUP:
        return Problem(
            "EP105",
            f"the main run ended far below its own warm-up on the clean validation nodes ({val_accuracy:.1%} after "
            f"{clean_val_accuracy(warmup.best):.1%}): try loss='cross_entropy', a lower learning rate (lr), a smaller epsilon, "
            "or clean_weight=0.5",
            failed=True,
        )
    train_accuracy = best.train_accuracy if best.clean_train_accuracy is None else best.clean_train_accuracy
    if train_accuracy - val_accuracy > _MAX_MISMATCH:
        return Problem(
            "EP106",
            f"the model fits its training nodes much better than the validation nodes ({train_accuracy:.1%} and "
            f"{val_accuracy:.1%}): try more labelled nodes, self_training=True, a larger weight_decay or more dropout, and "
            "check that both come from the same distribution",
            failed=False,
        )
    return None


def clean_val_accuracy(record: Epoch) -> float:
    """Return the accuracy on the clean validation graph."""
    accuracy = record.val_accuracy if record.clean_val_accuracy is None else record.clean_val_accuracy
    assert accuracy is not None
    return accuracy


def constant_accuracy(labels: Tensor) -> float:
    """Return the accuracy of the best constant prediction.

    >>> constant_accuracy(torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    return int(torch.bincount(labels).max()) / labels.numel()


def is_near_constant(accuracy: float, labels: Tensor) -> bool:
    """Return whether an accuracy is at most two standard errors above that of the best constant prediction.

    >>> is_near_constant(0.6, torch.tensor([0, 1] * 20)), is_near_constant(0.7, torch.tensor([0, 1] * 20))
    (True, False)
    """
    constant = constant_accuracy(labels)
    return accuracy <= constant + 2 * math.sqrt(constant * (1 - constant) / labels.numel())
