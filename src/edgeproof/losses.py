r"""Losses of node classification, all functions of logits :math:`z` and labels :math:`y`.

Every loss is a mean over nodes, and every one grows as the model does worse: training lowers them, attacks
raise them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from edgeproof._names import look_up

Loss = Callable[[Tensor, Tensor], Tensor]

# Of the log margin: which margin counts as near, as a share of the logits' spread; and how far beyond the boundary an attack
# still pushes, as a share of that.
_NEAR, _BEYOND = 0.1, 0.2


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""By how much the true class leads, per node: :math:`\psi_i = z_{i y_i} - \max_{c \ne y_i} z_{ic}`.

    A node is classified correctly where the margin is positive.

    >>> margin(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor([ 2., -2.])
    """
    true = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return true - others.amax(dim=1)


def tanh_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean of :math:`\tanh(-\psi_i)`, the loss of the paper in training and in attack (Geisler et al. 2021).

    It saturates on both sides: an attack spends nothing on nodes already lost, nor on those out of reach.

    >>> tanh_margin(torch.tensor([[9.0, -9.0]]), torch.tensor([0]))
    tensor(-1.)
    """
    return torch.tanh(-margin(logits, labels)).mean()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean of :math:`-\log \mathrm{softmax}(z_i)_{y_i}`."""
    return F.cross_entropy(logits, labels)


def log_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean of :math:`-\log(1 + \psi_i / c)` where :math:`\psi_i \ge 0`, and of :math:`-\psi_i / c` a little way beyond.

    Where the budget is for all nodes together, what counts is how many of them fall. A step towards falling is worth
    :math:`1 / (c + \psi_i)` here: most at the node that is nearest to it, something at every other that stands, and nothing
    once a node has fallen by a margin of :math:`0.2 c`. :math:`c` is a tenth of the spread of the logits, so their scale does
    not matter; unlike :func:`tanh_margin` it leaves a gradient at nodes of any confidence. Greedy attacks are much stronger
    for it.

    >>> z = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    >>> torch.allclose(log_margin(z, torch.tensor([0, 0])), log_margin(1000 * z, torch.tensor([0, 0])))
    True
    """
    spread = logits.detach().std(correction=0)
    psi = margin(logits, labels) / (_NEAR * spread).clamp(min=torch.finfo(logits.dtype).tiny)
    return torch.where(psi > 0, -torch.log1p(psi.clamp(min=0)), -psi.clamp(min=-_BEYOND)).mean()


def scaled_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean of :math:`\tanh(-\psi_i / s)`, where :math:`s` is the median of :math:`|\psi_j|`.

    :func:`tanh_margin` of logits that have been divided by one number, so that half of the margins, zeros left out, are at most
    1 in size. A factor common to all logits changes no prediction, but the tanh margin: with a large one it is flat, with a
    tiny one its gradients are too small for steps of a fixed length. This one does not see such a factor. A model whose
    confidence varies over orders of magnitude from node to node still hides from both.

    >>> z = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    >>> torch.allclose(scaled_margin(z, torch.tensor([0, 0])), scaled_margin(1e-6 * z, torch.tensor([0, 0])))
    True
    """
    psi = margin(logits, labels)
    sizes = psi.detach().abs().sort().values
    zeros = (sizes == 0).sum()
    # By hand, because a median without zeros would be looked at on the host, which recorded steps do not allow.
    middle = (zeros + (sizes.numel() - 1 - zeros) // 2).clamp(max=sizes.numel() - 1)
    scale = sizes.gather(0, middle[None]).clamp(min=torch.finfo(logits.dtype).tiny)
    return torch.tanh(-psi / torch.where(zeros == sizes.numel(), 1, scale)).mean()


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Share of nodes with :math:`\arg\max_c z_{ic} = y_i`, that is :math:`1 - L_{0/1}`; no gradient.

    A node with logits that are no numbers is not classified correctly, whatever its label.

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


def is_known(loss: Loss) -> bool:
    """Whether it is one of these, which take labels for classes."""
    return loss in _LOSSES.values()


def get(name: str) -> Loss:
    """A loss by name: ``tanh_margin``, ``cross_entropy``, ``log_margin`` or ``scaled_margin``."""
    return look_up("loss", name, _LOSSES)
