"""Graph random neural network (Feng et al., NeurIPS 2020): random propagation with consistency regularization."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeproof._checks import check_fraction, check_int, check_non_negative, is_number
from edgeproof._features import to_dense
from edgeproof.losses import Loss
from edgeproof.models.base import MAX_STEPS, GraphModel
from edgeproof.propagation import Adjacency, as_adjacency, propagate


class GRAND(GraphModel):
    r"""MLP of two layers on randomly dropped and propagated features.

    .. math::
        Z = \mathrm{MLP}(\bar X), \qquad \bar X = \tfrac{1}{K + 1} \sum_{k=0}^K \hat A^k \tilde X, \qquad
        \hat A = D^{-1/2} (A + I) D^{-1/2}.

    DropNode: during training, each row of :math:`\tilde X` is zero with probability :math:`\delta`, and the row of :math:`X`
    otherwise; in evaluation mode :math:`\tilde X = (1 - \delta) X`, its mean. The training objective averages over several
    random propagations and penalizes their disagreement, see :meth:`training_objective`.

    The defaults are the paper's for Citeseer. For Cora it uses ``K=8, input_dropout=0.5, dropout=0.5, samples=4,
    temperature=0.5, consistency=1.0``.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the MLP's hidden layer.
        K: Highest order of propagation.
        dropnode: Probability :math:`\delta` that a node is dropped during training.
        input_dropout: Dropout probability of the propagated features. If it is not 0, training propagates all features instead
            of the narrower hidden states, which is slower.
        dropout: Dropout probability of the hidden units.
        samples: Number of random propagations :math:`S` per training step.
        temperature: Sharpening temperature :math:`T`, in (0, 1]. Lower values give a more confident target.
        consistency: Weight :math:`\lambda` of the consistency loss.

    >>> model, x, edge_index = GRAND(10, 4).eval(), torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> torch.equal(model(x, edge_index), model(x, edge_index))
    True
    """

    takes_sparse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 32,
        K: int = 2,
        dropnode: float = 0.5,
        input_dropout: float = 0.0,
        dropout: float = 0.2,
        samples: int = 2,
        temperature: float = 0.3,
        consistency: float = 0.7,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, 2, dropout)
        check_int(1, MAX_STEPS, K=K, samples=samples)
        check_fraction(dropnode=dropnode, input_dropout=input_dropout)
        if not is_number(temperature) or not 0 < temperature <= 1:
            raise ValueError(f"expected 0 < temperature <= 1, got {temperature!r}")
        check_non_negative(consistency=consistency)
        self.K, self.dropnode, self.input_dropout = K, dropnode, input_dropout
        self.samples, self.temperature, self.consistency = samples, temperature, consistency
        self.first, self.last = (nn.Linear(*size) for size in self.layer_sizes)

    @property
    def _drops_inputs(self) -> bool:
        return self.training and self.input_dropout > 0

    def input_weights(self) -> list[Tensor]:
        return [self.first.weight.T]

    def encode(self, x: Tensor) -> Tensor:
        # The first layer commutes with DropNode and propagation, and hidden states are narrower than features. Only input
        # dropout, which comes between them, needs the order of the paper.
        return to_dense(x) if self._drops_inputs else F.linear(x, self.first.weight)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        h = mixed_order(self.drop_nodes(h), adjacency.normalized(self_loops=True), self.K)
        if self._drops_inputs:
            h = F.linear(F.dropout(h, self.input_dropout), self.first.weight)
        h = F.dropout((h + self.first.bias).relu(), self.dropout, self.training)
        logits: Tensor = self.last(h)
        return logits

    def drop_nodes(self, h: Tensor) -> Tensor:
        """Apply DropNode: zero random rows during training, scale all rows by the mean in evaluation mode."""
        if not self.training:
            return h * (1 - self.dropnode)
        return h * h.new_empty(h.size(0), 1).bernoulli_(1 - self.dropnode)

    def training_objective(
        self, x: Tensor, graph: Tensor | Adjacency, nodes: Tensor, labels: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensor]:
        r"""Compute the supervised loss plus the consistency loss.

        With the logits :math:`Z^{(s)}` of :math:`S` random propagations and :math:`p_i^{(s)} = \mathrm{softmax}(Z_i^{(s)})`,

        .. math::
            \tfrac{1}{S} \sum_s L(Z^{(s)}, y) + \lambda \tfrac{1}{S} \sum_s \tfrac{1}{n} \sum_i
            \lVert \bar p'_i - p_i^{(s)} \rVert^2, \qquad
            \bar p'_{ic} \propto \Bigl(\tfrac{1}{S} \sum_s p_{ic}^{(s)}\Bigr)^{1 / T}.

        The supervised loss uses the training nodes, the consistency loss all nodes. No gradient flows through
        :math:`\bar p'`.

        Returns:
            Objective, and the mean logits of the samples at the training nodes.
        """
        h, adjacency = self.encode(x), as_adjacency(graph, None, num_nodes=x.size(0), dtype=x.dtype)
        logits = torch.stack([self.diffuse(h, adjacency) for _ in range(self.samples)])
        supervised = torch.stack([loss(sample[nodes], labels) for sample in logits]).mean()
        p = logits.softmax(dim=2)
        disagreement = (sharpen(p.detach().mean(dim=0), self.temperature) - p).square().sum(dim=2).mean()
        return supervised + self.consistency * disagreement, logits.mean(dim=0)[nodes]


def mixed_order(h: Tensor, adjacency: Adjacency, K: int) -> Tensor:
    r"""Return the mean :math:`\tfrac{1}{K + 1} \sum_{k=0}^K \hat A^k H` of all orders of propagation up to ``K``."""
    total = h
    for _ in range(K):
        h = propagate(adjacency, h)
        total = total + h
    return total / (K + 1)


def sharpen(p: Tensor, temperature: float) -> Tensor:
    r"""Sharpen probabilities: :math:`p_{ic}^{1 / T} / \sum_j p_{ij}^{1 / T}`.

    >>> sharpen(torch.tensor([[0.5, 0.25, 0.25]]), 0.5)
    tensor([[0.6667, 0.1667, 0.1667]])
    """
    return (p.log() / temperature).softmax(dim=1)
