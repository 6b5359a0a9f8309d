r"""Losses for node classification, as functions of logits :math:`z` and labels :math:`y`.

Each loss is a mean over nodes that grows with the classification error: training minimizes it, attacks maximize it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof._names import look_up

Loss = Callable[[Tensor, Tensor], Tensor]

# Constants of the log margin: c as a fraction of the logits' standard deviation, and the cutoff as a fraction of c.
_SCALE, _CUTOFF = 0.1, 0.2


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the classification margin of each node, :math:`\psi_i = z_{i y_i} - \max_{c \ne y_i} z_{ic}`.

    A node is classified correctly if its margin is positive.

    >>> margin(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor([ 2., -2.])
    """
    true = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return true - others.amax(dim=1)


def tanh_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the mean of :math:`\tanh(-\psi_i)`, the paper's loss for training and attacks (Geisler et al. 2021).

    The loss saturates on both sides: neither misclassified nodes nor nodes with a large margin receive a gradient.

    >>> tanh_margin(torch.tensor([[9.0, -9.0]]), torch.tensor([0]))
    tensor(-1.)
    """
    return torch.tanh(-margin(logits, labels)).mean()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the mean of :math:`-\log \mathrm{softmax}(z_i)_{y_i}`."""
    return F.cross_entropy(logits, labels)


def log_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the mean of :math:`-\log(1 + \psi_i / c)` for :math:`\psi_i \ge 0`, else of :math:`\min(-\psi_i / c, 0.2)`.

    With a global budget, an attack should misclassify as many nodes as possible. The gradient magnitude
    :math:`1 / (c + \psi_i)` is largest at the decision boundary, positive for every correctly classified node, and zero once
    a node is misclassified by more than :math:`0.2 c`. With :math:`c` a tenth of the standard deviation of the logits, the
    loss is invariant to their scale; unlike :func:`tanh_margin` it gives gradients at any confidence. Greedy attacks are
    much stronger with it.

    >>> z = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    >>> torch.allclose(log_margin(z, torch.tensor([0, 0])), log_margin(1000 * z, torch.tensor([0, 0])))
    True
    """
    return log_margin_terms(margin(logits, labels) / log_margin_unit(logits)).mean()


def log_margin_unit(logits: Tensor) -> Tensor:
    """Return the unit :math:`c` in which :func:`log_margin` measures margins; not differentiable."""
    std = logits.detach().std(correction=0)
    return (_SCALE * std).clamp(min=torch.finfo(logits.dtype).tiny)


def log_margin_terms(psi: Tensor) -> Tensor:
    """Return the term of :func:`log_margin` for each margin, measured in its unit."""
    return torch.where(psi > 0, -torch.log1p(psi.clamp(min=0)), -psi.clamp(min=-_CUTOFF))


def scaled_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the mean of :math:`\tanh(-\psi_i / s)`, where :math:`s` is the median of all non-zero :math:`|\psi_j|`.

    This is :func:`tanh_margin` made invariant to the scale of the logits. Scaling all logits changes no prediction, but it
    flattens the tanh margin (large scale) or makes its gradients too small for steps of a fixed length (small scale). A model
    whose confidence varies over orders of magnitude between nodes still masks its gradients under both losses.

    >>> z = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    >>> torch.allclose(scaled_margin(z, torch.tensor([0, 0])), scaled_margin(1e-6 * z, torch.tensor([0, 0])))
    True
    """
    psi = margin(logits, labels)
    magnitudes = psi.detach().abs().sort().values
    zeros = (magnitudes == 0).sum()
    # Indexing by hand instead of masking avoids a host-device sync, which CUDA graphs do not allow.
    middle = (zeros + (magnitudes.numel() - 1 - zeros) // 2).clamp(max=magnitudes.numel() - 1)
    scale = magnitudes.gather(0, middle[None]).clamp(min=torch.finfo(logits.dtype).tiny)
    return torch.tanh(-psi / torch.where(zeros == magnitudes.numel(), 1, scale)).mean()


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return the fraction of nodes with :math:`\arg\max_c z_{ic} = y_i`, that is :math:`1 - L_{0/1}`; not differentiable.

    Nodes with non-finite logits count as misclassified.

    >>> accuracy(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor(0.5000)
    """
    correct = (logits.argmax(dim=1) == labels) & logits.isfinite().all(dim=1)
    return correct.to(logits.dtype).mean()


_LOSSES: dict[str, Loss] = {
    "tanh_margin": tanh_margin,
    "cross_entropy": cross_entropy,
    "log_margin": log_margin,
    "scaled_margin": scaled_margin,
}


def is_builtin(loss: Loss) -> bool:
    """Whether ``loss`` is one of this module's losses, which interpret labels as class indices."""
    return loss in _LOSSES.values()


def get(name: str) -> Loss:
    """Return a loss by name: ``tanh_margin``, ``cross_entropy``, ``log_margin`` or ``scaled_margin``."""
    return look_up("loss", name, _LOSSES)
