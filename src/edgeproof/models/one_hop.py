"""One-hop model of bounded messages, whose worst case under edge flips can be computed exactly."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgeproof._checks import check_bool, check_int, check_non_negative, check_positive
from edgeproof._features import sparse_if_faster
from edgeproof.losses import Loss, margin
from edgeproof.models.base import GraphModel
from edgeproof.models.mlp import MLP
from edgeproof.propagation import Adjacency, as_adjacency, propagate
from edgeproof.propagation.autograd_path import eval_mode
from edgeproof.propagation.one_hop import Limits, Neighbors, OneHopTerms, OneHopWorstCase


class OneHop(GraphModel):
    r"""Logits of a node's own features, changed by at most :math:`s` through bounded messages of its neighbors.

    .. math::
        z_v = f(x_v) + \frac{r(x_v)}{\max(d_v, k)} \sum_{u \in N(v)} m(x_u), \qquad
        m(x) = s \, g(x) \tanh(h(x)), \qquad |m_c(x)| \le s,

    with MLPs :math:`f` and :math:`h` and gates :math:`r(x), g(x) \in [0, 1]`. Edges change every logit by at most :math:`s`,
    and a flip changes only its two ends, so the worst case over all flips within a budget is a matter of sorting:
    :class:`edgeproof.certificates.WorstCase`. The mean of several such models without gates is again such a model.

    The training objective is the loss of the logits :math:`z`, plus weighted losses of :math:`f(x)`, of :math:`h(x)` and of the
    worst-case margins when :math:`\lfloor` ``flip_factor`` :math:`d_v \rfloor +` ``extra_flips`` edges are flipped at every
    node. The first three losses are those of each member, the last one is that of their mean.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        hidden_channels: Width of the hidden layers of all MLPs.
        num_layers: Number of linear layers of all MLPs.
        dropout: Dropout probability before every linear layer.
        bound: Maximum change of a logit through edges. With ``relative`` in units of the median margin of :math:`f` at the
            training nodes: :math:`s = c \cdot \operatorname{median}`; otherwise :math:`s` itself.
        relative: Whether ``bound`` is relative. The unit is measured during training and stored in ``scale``.
        least: Smallest denominator :math:`k`: 1 for the mean of the messages; larger for a sum that becomes a mean once a
            node has this many neighbors, so that few neighbors have less influence.
        gates: Whether the gates are learned; otherwise they are 1.
        members: Number of models of which the mean is taken.
        own_weight: Weight of the loss of the own logits in training.
        message_weight: Weight of the loss of :math:`h` in training, which makes messages carry the class of their sender.
        worst_weight: Weight of the loss of the worst case in training; 0 for training on the given graph alone. For bounds well
            below 1 it was not found to help.
        flip_factor: Flips at a node in training, as a factor of its degree, rounded down.
        extra_flips: Further flips at every node in training.

    >>> model = OneHop(10, 4, bound=0.5, relative=False)
    >>> x, edge_index = torch.ones(3, 10), torch.tensor([[0, 1], [1, 0]])
    >>> change = model.eval()(x, edge_index) - model(x, edge_index[:, :0])
    >>> bool((change.abs() <= model.influence).all())
    True
    """

    takes_sparse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.8,
        bound: float = 0.15,
        relative: bool = True,
        least: int = 1,
        gates: bool = False,
        members: int = 4,
        own_weight: float = 1.0,
        message_weight: float = 0.0,
        worst_weight: float = 0.0,
        flip_factor: float = 0.5,
        extra_flips: int = 0,
    ) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, num_layers, dropout)
        check_positive(bound=bound)
        check_bool(relative=relative, gates=gates)
        check_int(1, least=least, members=members)
        check_int(0, extra_flips=extra_flips)
        check_non_negative(own_weight=own_weight, message_weight=message_weight)
        check_non_negative(worst_weight=worst_weight, flip_factor=flip_factor)
        if gates and members > 1:
            raise ValueError(
                f"expected gates=False with several members, got members={members}: the mean has no common gate"
            )
        self.bound, self.relative, self.least, self.gates, self.members = bound, relative, least, gates, members
        self.own_weight, self.message_weight, self.worst_weight = own_weight, message_weight, worst_weight
        self.flip_factor, self.extra_flips = flip_factor, extra_flips
        self.own, self.message = (
            nn.ModuleList(
                MLP(in_channels, width, hidden_channels=hidden_channels, num_layers=num_layers, dropout=dropout)
                for _ in range(members)
            )
            for width in (out_channels, out_channels + 2 * gates)
        )
        self.register_buffer("scale", torch.ones(members))

    scale: Tensor

    @property
    def influence(self) -> float:
        """Maximum change :math:`s` of a logit through edges."""
        return self.bound * float(self.scale.mean())

    def input_weights(self) -> list[Tensor]:
        return [weight for mlp in (*self.own, *self.message) for weight in _mlp(mlp).input_weights()]

    def encode(self, x: Tensor) -> Tensor:
        x = sparse_if_faster(x)
        members = [
            self._join(_mlp(own).encode(x), _mlp(message).encode(x), scale)
            for own, message, scale in zip(self.own, self.message, self.scale, strict=True)
        ]
        return torch.stack(members).mean(dim=0)

    def diffuse(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        terms = self._split(h)
        mean = propagate(adjacency.averaged_over(self.least), terms.message)
        return terms.own + terms.gate[:, None] * mean

    def terms(self, x: Tensor) -> OneHopTerms:
        """Return own logits, messages and gates of every node."""
        return self._split(self.encode(x))

    def training_objective(
        self, x: Tensor, graph: Tensor | Adjacency, nodes: Tensor, labels: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of logits, own logits and worst case. With ``relative``, ``scale`` is measured first."""
        adjacency = as_adjacency(graph, None, num_nodes=x.size(0), dtype=x.dtype)
        x = sparse_if_faster(x)
        if self.relative:
            self.scale = self._typical_margins(x, nodes, labels)
        objectives, all_logits, hidden = [], [], []
        for own_mlp, message_mlp, scale in zip(self.own, self.message, self.scale, strict=True):
            own, raw = _mlp(own_mlp).encode(x), _mlp(message_mlp).encode(x)
            h = self._join(own, raw, scale)
            logits = self.diffuse(h, adjacency)[nodes]
            objective = loss(logits, labels)
            if self.own_weight:
                objective = objective + self.own_weight * loss(own[nodes], labels)
            if self.message_weight:
                objective = objective + self.message_weight * loss(raw[nodes, : self.out_channels], labels)
            objectives.append(objective)
            all_logits.append(logits)
            hidden.append(h)
        objective, logits = torch.stack(objectives).mean(), torch.stack(all_logits).mean(dim=0)
        if self.worst_weight:
            terms = self._split(torch.stack(hidden).mean(dim=0))
            worst = self._worst_margins(terms, adjacency, nodes, labels)
            objective = objective + self.worst_weight * loss(_as_logits(worst, labels), labels)
        return objective, logits

    def _typical_margins(self, x: Tensor, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the median margin of the own logits of each member, without dropout, which makes margins smaller."""
        with torch.no_grad(), eval_mode(self.own):
            margins = [margin(_mlp(mlp).encode(x)[nodes], labels).median() for mlp in self.own]
        return torch.stack(margins).clamp(min=torch.finfo(self.scale.dtype).tiny)

    def _worst_margins(self, terms: OneHopTerms, adjacency: Adjacency, nodes: Tensor, labels: Tensor) -> Tensor:
        neighbors = Neighbors(adjacency)
        flips = (neighbors.degree * self.flip_factor).floor().long() + self.extra_flips
        search = OneHopWorstCase(terms, neighbors, nodes, labels, flips > 0)
        return search.worst(Limits.of_total(flips[nodes])).margin

    def _join(self, own: Tensor, raw: Tensor, scale: Tensor) -> Tensor:
        classes = self.out_channels
        message = self.bound * scale * torch.tanh(raw[:, :classes])
        if not self.gates:
            return torch.cat([own, message, own.new_ones(own.size(0), 1)], dim=1)
        sender, receiver = torch.sigmoid(raw[:, classes:]).split(1, dim=1)
        return torch.cat([own, message * sender, receiver], dim=1)

    def _split(self, h: Tensor) -> OneHopTerms:
        classes = self.out_channels
        return OneHopTerms(h[:, :classes], h[:, classes : 2 * classes], h[:, 2 * classes], self.least)


def _mlp(module: nn.Module) -> MLP:
    assert isinstance(module, MLP)
    return module


def _as_logits(margins: Tensor, labels: Tensor) -> Tensor:
    """Return logits with these margins: 0 for the own class, minus the margin for the others."""
    return -margins.scatter(1, labels[:, None], 0.0)
