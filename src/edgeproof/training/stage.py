"""One stage of training: a graph, the nodes that count in it, and who attacks it."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof.attacks.base import AttackTrace
from edgeproof.graph import flip_pairs
from edgeproof.losses import Loss
from edgeproof.models import WithObjective, graph_of
from edgeproof.propagation import Adjacency
from edgeproof.training.adversarial import Adversary, Threat


class Stage:
    """What a model is trained or validated on.

    Args:
        model: the model that is looked at here.
        data: the graph.
        nodes: the nodes that count.
        labels: their labels, true or not, in the same order.
        threat: what attacks the graph before every look at it; none for clean training.
        seed: of the attacks.
    """

    def __init__(
        self, model: nn.Module, data: Data, nodes: Tensor, labels: Tensor, threat: Threat | None, seed: int
    ) -> None:
        self.model, self.data, self.nodes, self.labels = model, data, nodes, labels
        self.graph = graph_of(model, data)
        self.adversary = None if threat is None else Adversary(threat, model, data, nodes, labels, seed)

    def attacked(self, epoch: int, share: float, trace: AttackTrace, start: Tensor | None = None) -> Tensor | None:
        """Flips of the adversary, with this share of its budget; none where there is no adversary."""
        return None if self.adversary is None else self.adversary.find(epoch, share, trace, start)

    def logits(self, flips: Tensor | None = None) -> Tensor:
        """Logits of the nodes that count, on the graph with these flips."""
        logits: Tensor = self.model(self.data.x, self._graph_with(flips))
        return logits.index_select(0, self.nodes)

    def objective(self, loss: Loss, flips: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What training lowers on the graph with these flips, and the logits of the nodes that count.

        The objective is the model's own, if it has one, and the loss otherwise.
        """
        if isinstance(self.model, WithObjective):
            graph = self._graph_with(flips)
            return self.model.training_objective(self.data.x, graph, self.nodes, self.labels, loss)
        logits = self.logits(flips)
        return loss(logits, self.labels), logits

    def _graph_with(self, flips: Tensor | None) -> Tensor | Adjacency:
        if flips is None or not flips.numel():
            return self.graph
        if isinstance(self.graph, Adjacency):
            return self.graph.perturbed(flips, self.graph.weight.new_ones(flips.size(1)))
        return graph_of(self.model, flip_pairs(self.data, flips))
