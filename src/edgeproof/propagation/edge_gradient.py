r"""The gradient of the loss with respect to any flip, without putting it in the graph.

A flip of weight :math:`p_{uv}` takes the adjacency matrix from :math:`A_{uv}` to :math:`A_{uv} + (1 - 2 A_{uv}) p_{uv}`. An
attack holds a few flips of non-zero weight and asks for the gradient at very many pairs of weight zero. Forward and backward
pass run on the graph with the few flips only; the gradient at every other pair then follows from what each node said, heard
and was blamed for (:mod:`~edgeproof.propagation.pair_scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import check_data, check_nodes, check_not_caching, check_pairs
from edgeproof._modules import eval_mode
from edgeproof.kernels import dispatch, reference
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.autograd_path import (
    AGREE,
    HOLDS_A_GRAPH,
    AutogradPath,
    check_differentiable,
    checked_loss,
    described,
    every_logit,
    for_autograd,
    some_pairs,
)
from edgeproof.propagation.batched_graphs import BatchedGraphs, EncodeDiffuse
from edgeproof.propagation.best_pairs import BestPairs, Running
from edgeproof.propagation.layer_rules import UnsupportedLayerError, convert_pyg_layers
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.pair_scores import Scores, assemble
from edgeproof.propagation.pairs import Pairs, contained
from edgeproof.propagation.propagate import Tape
from edgeproof.propagation.recorded_run import RecordedRun
from edgeproof.propagation.search import search

# Recording pays off after so many runs.
_RUNS_BEFORE_CAPTURE = 2


@dataclass(frozen=True, eq=False)
class EdgeGradient:
    """The loss at one set of flips, and its gradient at any other.

    A positive gradient means that flipping the pair (adding it if it is no edge, removing it if it is one) raises the loss.

    Args:
        loss: the loss of the target nodes.
        logits: logits of all nodes.
        path: ``"propagate"`` where node quantities gave the gradient, ``"autograd"`` where the pairs had to join the graph.
        engine: what made it.
        flips: the flips' pairs, shape ``[2, m]``, and weights, shape ``[m]``.
        scores: the terms of the gradient on the ``"propagate"`` path.
    """

    loss: Tensor
    logits: Tensor
    path: str
    engine: EdgeGradientEngine
    flips: tuple[Tensor, Tensor]
    scores: list[Scores]

    @torch.inference_mode(False)
    def at(self, pairs: Tensor | Pairs) -> Tensor:
        r"""The gradient :math:`\partial L / \partial p_{uv}` at each of the pairs, in their order.

        Args:
            pairs: shape ``[2, b]``, ends in either order, repeats allowed; or :class:`Pairs`, which are trusted to be
                distinct and sorted, and need no check.
        """
        if not isinstance(pairs, Pairs):
            check_pairs(pairs, self.engine.num_nodes)
            pairs = Pairs(pairs.amin(dim=0), pairs.amax(dim=0), self.engine.num_nodes)
            ascending = False
        else:
            self.engine._check_same_graph(pairs)
            ascending = True
        if self.path == "autograd":
            return self.engine.differentiate_in_graph(self.flips, pairs)
        return self.engine.signed(self._unsigned(pairs), pairs, ascending)

    @torch.inference_mode(False)
    def top(self, k: int, *, among: Tensor | None = None, exclude: Tensor | Pairs | None = None) -> BestPairs:
        """The ``k`` pairs of largest gradient, over all pairs of nodes; exact.

        Equal gradients are taken in ascending order of ``(u, v)``. Fewer come back if there are fewer pairs.

        Args:
            k: how many.
            among: nodes that both ends must belong to; all by default.
            exclude: pairs that do not count, shape ``[2, e]``, or :class:`Pairs`.
        """
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise ValueError(f"expected k to be a whole number >= 1, got {k!r}")
        k = int(k)
        if not bool(self.loss.isfinite()):
            raise ValueError(f"expected a finite loss to search by, got {float(self.loss)}")
        nodes = torch.arange(self.engine.num_nodes, device=self.logits.device)
        if among is not None:
            check_nodes(among, self.engine.data, what="among")
            nodes = among.sort().values
        excluded = torch.empty(0, dtype=torch.long, device=nodes.device)
        if isinstance(exclude, Pairs):
            self.engine._check_same_graph(exclude)
            excluded = exclude.key.unique()
        elif exclude is not None:
            check_pairs(exclude, self.engine.num_nodes)
            excluded = (exclude.amin(dim=0) * self.engine.num_nodes + exclude.amax(dim=0)).unique()
        running = Running(k, self.logits)
        search(self, running, nodes, excluded)
        best = running.best(self.engine.num_nodes)
        # The gradients of the winners as `at` gives them: by autograd they depend on what else is asked for.
        again = Running(k, self.logits)
        again.offer(self.at(best.pairs), best.pairs[0] * self.engine.num_nodes + best.pairs[1])
        return again.best(self.engine.num_nodes)

    def _unsigned(self, pairs: Pairs) -> Tensor:
        terms = [score.at(pairs, self.engine.backend) for score in self.scores]
        return sum(terms[1:], terms[0]) if terms else self.logits.new_zeros(len(pairs))


class EdgeGradientEngine:
    r"""Everything about a model and a graph that stays the same while an attack looks for flips.

    The features are encoded once. A model in two halves whose every use of the graph is a call of
    :func:`~edgeproof.propagation.propagate` over a matrix of known rule takes the ``"propagate"`` path; that this holds is
    verified against autograd on some pairs when a model is first seen. So does a model of PyG's standard layers, as it is
    (:mod:`~edgeproof.propagation.layer_rules`). Any other module called as ``model(x, edge_index, edge_weight)`` takes the
    ``"autograd"`` path: the pairs asked for join the graph with weight 0.

    The model is used in evaluation mode. Whoever changes its parameters calls :meth:`refresh`.

    Args:
        model: the model under attack.
        data: the graph.
        nodes: the target nodes.
        labels: their labels, in the same order; by default those of ``data``.
        loss: a function of their logits and labels.
        path: ``"propagate"`` or ``"autograd"``; by default the first that is right for the model.
        backend: the kernels to use; by default the fastest that fit.

    >>> from edgeproof import datasets, models
    >>> data = datasets.load("csbm")
    >>> engine = EdgeGradientEngine(models.GCN(21, 2), data, torch.arange(10))
    >>> gradient = engine(torch.tensor([[0], [1]]), torch.tensor([0.5]))
    >>> gradient.path, gradient.at(torch.tensor([[0, 3], [1, 7]])).shape, gradient.top(5).pairs.shape
    ('propagate', torch.Size([2]), torch.Size([2, 5]))
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        model: nn.Module,
        data: Data,
        nodes: Tensor,
        *,
        labels: Tensor | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = losses.tanh_margin,
        path: str | None = None,
        backend: str | None = None,
    ) -> None:
        check_not_caching(model)
        if not callable(loss):
            raise TypeError(f"expected a loss function, got {loss!r}")
        check_data(data, labels=labels is None)
        check_nodes(nodes, data, labelled=labels is None)
        dispatch.check_name(backend)
        if path not in (None, "propagate", "autograd"):
            raise ValueError(f"expected path 'propagate' or 'autograd', got {path!r}")
        check_differentiable(model, data)
        self.model, self.data, self.loss, self.backend, self.path = model, data, loss, backend, path or "undecided"
        self.nodes = nodes = for_autograd(nodes)
        self.labels = data.y[nodes] if labels is None else labels
        if not isinstance(self.labels, Tensor) or self.labels.dtype != torch.long or self.labels.shape != nodes.shape:
            found = described(self.labels)
            raise ValueError(f"expected one int64 label per node, shape {list(nodes.shape)}, got {found}")
        if int(self.labels.min()) < 0:
            raise ValueError(f"expected labels from 0, got {int(self.labels.min())}")
        self.labels = for_autograd(self.labels)
        types = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()} | {data.x.dtype}
        if len(types) > 1:
            raise ValueError(f"expected model and features of one type, got {', '.join(sorted(map(str, types)))}")
        width = getattr(model, "in_channels", data.x.size(1))
        if isinstance(width, int) and isinstance(model, EncodeDiffuse) and width != data.x.size(1):
            raise ValueError(f"expected features x of shape [nodes, {width}], got {list(data.x.shape)}")
        self.num_nodes = int(data.x.size(0))
        self.adjacency = Adjacency.from_data(data)
        self._runs = 0
        self._captured: RecordedRun | None = None
        self._edges_among: tuple[Pairs, Tensor, Tensor] | None = None
        self._in_graph = self._slow_path()
        with dispatch.using(backend):
            reason = self._adopt(path)
            self._in_graph.check_answers(self._answers(), type(model).__name__)
            self._copies = BatchedGraphs(self.model, data)
            self.path = path or ("propagate" if _propagates(self.model, data) and self._knows_rules() else "autograd")
        # Whether a GPU would wait for the host; false once something in the model was found to need the host.
        small = self.num_nodes > 1 and self.adjacency.pattern.col.numel() <= reference.FEW_ENTRIES
        self.recordable = self.path == "propagate" and data.x.is_cuda and small
        why_not = self._in_graph.why_not_weighed() if self.path == "autograd" else None
        if why_not is not None:
            raise ValueError(
                f"{type(model).__name__} does not take an edge of weight 0 for no edge, so no gradient can say what "
                f"a flip does: {why_not}{reason}"
            )
        # One that was verified has a gradient, so it listens.
        if path != "propagate" and self.model not in _VERIFIED and self._in_graph.holds_a_graph():
            raise ValueError(f"{type(model).__name__} {HOLDS_A_GRAPH}")

    def __repr__(self) -> str:
        loss = getattr(self.loss, "__name__", repr(self.loss))
        return (
            f"{type(self).__name__}({type(self.model).__name__}, {self.num_nodes} nodes, {self.edge_key.numel()} edges, "
            f"{self.nodes.numel()} targets, loss={loss}, path={self.path!r}, backend={self.backend!r})"
        )

    @property
    def edge_key(self) -> Tensor:
        """Keys of all edges, once each: ascending."""
        return self._in_graph.edge_key

    @cached_property
    def _edge_number(self) -> Tensor:
        """Numbers of all edges, once each: ascending."""
        return Pairs.from_key(self.edge_key, self.num_nodes).number

    @cached_property
    def _encoded(self) -> Tensor:
        assert isinstance(self.model, EncodeDiffuse)
        with eval_mode(self.model), torch.no_grad():
            return self.model.encode(self.data.x)

    def _answers(self) -> object:
        """Of the model on the clean graph."""
        if not isinstance(self.model, EncodeDiffuse):
            return self._in_graph.answers()
        with dispatch.using(self.backend), eval_mode(self.model), torch.no_grad():
            return self.model.diffuse(self._encoded, self.adjacency)

    @torch.inference_mode(False)
    def refresh(self) -> None:
        """The parameters of the model have changed: encode the features anew, in the memory that a recorded run reads."""
        if "_encoded" in self.__dict__:
            assert isinstance(self.model, EncodeDiffuse)
            with eval_mode(self.model), torch.no_grad():
                self._encoded.copy_(self.model.encode(self.data.x))

    @torch.inference_mode(False)
    def __call__(self, pairs: Tensor | Pairs | None = None, flip: Tensor | None = None) -> EdgeGradient:
        """Loss, logits and gradient with some pairs flipped in part.

        Args:
            pairs: distinct pairs, shape ``[2, m]``, or :class:`Pairs`, which are not checked, nor are their weights; none for
                the clean graph.
            flip: the weight of each flip, between 0 and 1, shape ``[m]``.
        """
        both, flip = self._flips(pairs, flip)
        if self.path == "autograd":
            with torch.no_grad():
                loss, logits = self._in_graph.run(both, flip)
            return EdgeGradient(loss, logits, self.path, self, (both, flip), [])
        loss, logits, scores = self._run(both, flip)
        if scores is None:
            raise UnknownRuleError(
                f"{type(self.model).__name__} propagates over a matrix whose rule is unknown: use path='autograd'"
            )
        return EdgeGradient(loss, logits, self.path, self, (both, flip), scores)

    @torch.inference_mode(False)
    def logits(self, pairs: Tensor | Pairs | None = None, flip: Tensor | None = None) -> Tensor:
        """Logits of all nodes with some pairs flipped in part: what a call gives, without the gradient and its cost."""
        both, flip = self._flips(pairs, flip)
        with torch.no_grad():
            if self.path == "autograd":
                return self._in_graph.run(both, flip)[1]
            assert isinstance(self.model, EncodeDiffuse)
            with dispatch.using(self.backend), eval_mode(self.model):
                adjacency = self.adjacency if not flip.numel() else self.adjacency.perturbed(both, flip)
                return self.model.diffuse(self._encoded, adjacency)

    def logits_of(self, sets: Sequence[Tensor]) -> Iterator[Tensor]:
        """Logits under each of several sets of whole flips, shape ``[2, m]`` each, in their order, a few sets at a time.

        On the ``"propagate"`` path several copies of the graph run side by side as one, which spares a GPU most launches. The
        flips are not checked.

        Returns:
            Logits of some of the sets, shape ``[sets, nodes, classes]``, again and again.
        """

        def alone(flips: Tensor) -> Tensor:
            return self.logits(flips, self.adjacency.weight.new_ones(flips.size(1)))

        copies = self._copies
        with dispatch.using(self.backend):
            together = self.path == "propagate" and self.num_nodes > 1
            together = together and copies.are_apart(
                self._encoded, alone, lambda: some_pairs(self.data).both, AGREE[self.data.x.dtype]
            )
        if not together:
            yield from (alone(flips)[None] for flips in sets)
            return
        for start in range(0, len(sets), copies.most):
            with dispatch.using(self.backend):
                logits = copies.logits(self._encoded, sets[start : start + copies.most])
            yield logits

    def sign(self, pairs: Pairs, ascending: bool) -> Tensor:
        """-1 where a pair is an edge of the clean graph, 1 elsewhere."""
        return self.signed(self.adjacency.weight.new_ones(len(pairs)), pairs, ascending)

    def signed(self, values: Tensor, pairs: Pairs, ascending: bool) -> Tensor:
        """Values of pairs, with the other sign where a pair is an edge of the clean graph; the tensor given may be changed.

        Where the edges are is remembered for the pairs last asked for.
        """
        if not self.edge_key.numel() or not len(pairs):
            return values
        if not ascending or len(pairs) <= self.edge_key.numel():
            return torch.where(contained(pairs.key, self.edge_key), values.neg(), values)
        # Fewer edges than pairs: look for the edges among the pairs.
        if self._edges_among is None or self._edges_among[0] is not pairs:
            number = pairs.number
            place = torch.searchsorted(number, self._edge_number).clamp_(max=number.numel() - 1)
            change = torch.where(number[place] == self._edge_number, -1.0, 1.0).to(values.dtype)
            self._edges_among = pairs, place, change
        # Edges that are not there may come to any place, and change nothing.
        return values.scatter_reduce_(0, *self._edges_among[1:], "prod")

    def differentiate_in_graph(self, flips: tuple[Tensor, Tensor], pairs: Pairs) -> Tensor:
        """The gradient at each pair by autograd: flips and pairs join the graph."""
        return self._in_graph.differentiate(flips, pairs)

    def _flips(self, pairs: Tensor | Pairs | None, flip: Tensor | None) -> tuple[Tensor, Tensor]:
        like = self.adjacency.weight
        if pairs is None and flip is None:
            return self.data.edge_index.new_empty(2, 0), like.new_empty(0)
        if pairs is None or flip is None:
            raise ValueError("expected pairs and the weight of each flip, got only one of the two")
        if not isinstance(flip, Tensor):
            raise TypeError(f"expected the weights of flips in a tensor, got {type(flip).__name__}")
        flip = for_autograd(flip.detach().to(like.dtype))
        if isinstance(pairs, Pairs):
            self._check_same_graph(pairs)
            if flip.shape != (len(pairs),):
                raise ValueError(f"expected {len(pairs)} weights, got shape {list(flip.shape)}")
            return pairs.both, flip
        ordered = Pairs.of(pairs, self.num_nodes)
        if flip.shape != (len(ordered),) or not bool(((flip >= 0) & (flip <= 1)).all()):
            raise ValueError(f"expected {len(ordered)} weights between 0 and 1, got {flip}")
        return pairs, flip

    def _adopt(self, path: str | None) -> str:
        """Put a model of PyG's layers in place of the user's, where that serves; otherwise the reason, for an error's end."""
        model = self.model
        if isinstance(model, EncodeDiffuse):
            return ""
        try:
            adopted = convert_pyg_layers(model, self.data)
        except UnsupportedLayerError as error:
            return f" ({error})"
        # Whoever asks for autograd gets it on the model itself, if that has edge weights.
        if path != "autograd" or self._in_graph.why_not_weighed() is not None:
            self.model = adopted
            self._in_graph = self._slow_path()
        return ""

    def _slow_path(self) -> AutogradPath:
        return AutogradPath(self.model, self.data, self.nodes, self.labels, self.loss, self.backend)

    def _check_same_graph(self, pairs: Pairs) -> None:
        if pairs.num_nodes != self.num_nodes:
            raise ValueError(f"expected pairs of a graph of {self.num_nodes} nodes, got {pairs.num_nodes}")

    def _run(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """On the tape; on a GPU a small graph is recorded after a few runs, where the model allows it."""
        self._runs += 1
        if not (self.recordable and self._runs > _RUNS_BEFORE_CAPTURE):
            return self.run_on_tape(pairs, flip)
        if self._captured is None or flip.numel() > self._captured.capacity:
            try:
                self._captured = RecordedRun(
                    self.run_on_tape, max(1024, 2 << flip.numel().bit_length()), self.num_nodes, flip
                )
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                # Something in the model needs the host, as a weighted median does.
                self.recordable = False
                return self.run_on_tape(pairs, flip)
        return self._captured(pairs, flip)

    def run_on_tape(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Loss, logits and the terms of the gradient on the ``"propagate"`` path; the host need not know the flips."""
        with dispatch.using(self.backend):
            return self.run_over(self.adjacency if not flip.numel() else self.adjacency.perturbed(pairs, flip))

    def run_over(self, adjacency: Adjacency) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """As :meth:`run_on_tape`, over a graph whose pairs have been flipped."""
        assert isinstance(self.model, EncodeDiffuse)
        with dispatch.using(self.backend), torch.enable_grad():
            with eval_mode(self.model), Tape() as tape:
                logits = self.model.diffuse(self._encoded, adjacency)
                # Not by subscript: its gradient would sort the nodes, not knowing that each is there only once.
                loss = checked_loss(self.loss(logits.index_select(0, self.nodes), self.labels))
            tape.differentiate(loss)
            return loss.detach(), logits.detach(), assemble(tape.calls)

    def _knows_rules(self) -> bool:
        """Whether the model propagates over matrices of known rule only, on this graph: on a larger one it may not."""
        try:
            return self.run_on_tape(*self._flips(None, None))[2] is not None
        except UnknownRuleError:
            return False


# Models whose gradient was compared with autograd once, and those where it differed: the slow path stays right for them.
_VERIFIED: WeakSet[nn.Module] = WeakSet()
_REFUSED: WeakSet[nn.Module] = WeakSet()


def _propagates(model: nn.Module, data: Data) -> bool:
    """Whether node quantities give this model's gradient: all its rules are known, and autograd agrees on some pairs."""
    if not isinstance(model, EncodeDiffuse) or model in _REFUSED:
        return False
    if model in _VERIFIED:
        return True
    nodes = torch.arange(data.x.size(0), device=data.x.device)
    if nodes.numel() < 2:
        return True
    pairs = some_pairs(data)
    flips = pairs[torch.arange(0, len(pairs), 8, device=nodes.device)]
    weight = data.x.new_full((len(flips),), 0.5)
    asked = torch.cat([pairs.both, data.edge_index[:, :64]], dim=1)
    # All logits of all nodes count, so that nothing hides behind the targets or the loss at hand.
    try:
        fast, slow = (
            EdgeGradientEngine(model, data, nodes, labels=nodes, loss=every_logit, path=path)(flips, weight)
            for path in ("propagate", "autograd")
        )
        pairs_of_results = ((fast.logits, slow.logits), (fast.at(asked), slow.at(asked)))
    except UnknownRuleError:
        # On this graph; on a smaller one they may be known.
        return False
    for mine, expected in pairs_of_results:
        if not bool((mine - expected).abs().max() <= AGREE[mine.dtype] * expected.abs().max() + 1e-12):
            _REFUSED.add(model)
            return False
    # A gradient of zero everywhere shows nothing: such a model is looked at again next time.
    if bool(pairs_of_results[1][1].any()):
        _VERIFIED.add(model)
    return True
