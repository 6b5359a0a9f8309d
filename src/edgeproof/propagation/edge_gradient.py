r"""Gradient of the loss with respect to any edge flip, without adding the pair to the graph.

A flip of weight :math:`p_{uv}` changes the adjacency matrix from :math:`A_{uv}` to :math:`A_{uv} + (1 - 2 A_{uv}) p_{uv}`. An
attack holds few flips of non-zero weight and needs the gradient at very many pairs of weight zero. On the ``"propagate"`` path,
forward and backward run on the graph with the few flips only; the gradient at every other pair follows from each node's input,
output and output gradient (:mod:`~edgeproof.propagation.pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgeproof import losses
from edgeproof._checks import Nodes, check_data, check_int, check_not_caching, check_pairs, node_ids
from edgeproof._features import for_model
from edgeproof.kernels import dispatch, reference
from edgeproof.propagation.adjacency import Adjacency
from edgeproof.propagation.autograd_path import (
    IGNORES_EDGES,
    AutogradPath,
    EncodeDiffuse,
    batching_is_exact,
    check_inputs,
    check_labels,
    check_logits,
    check_loss,
    eval_mode,
    for_autograd,
    is_verified,
    probe_pairs,
    propagate_path_is_exact,
    weighted_logit_sum,
)
from edgeproof.propagation.layer_rules import UnsupportedLayerError, convert_pyg_layers
from edgeproof.propagation.message_rules import UnknownRuleError
from edgeproof.propagation.pairs import EdgeSet, Pairs, Scores, assemble
from edgeproof.propagation.propagate import Tape
from edgeproof.propagation.recorded_run import RecordedRun, try_record
from edgeproof.propagation.relaxation import RelaxedModel
from edgeproof.propagation.search import BestPairs, SearchOptions, search
from edgeproof.propagation.tiers import TIERS, NoEdgeGradientError, Tier

# Runs before a CUDA graph is recorded: fewer do not pay off.
_RUNS_BEFORE_RECORDING = 2
_EXACT_BATCHES: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class EdgeGradient:
    """Loss at one set of flips, and its gradient at any pair.

    A positive gradient means that flipping the pair (adding a missing edge, removing an existing one) raises the loss.

    Args:
        loss: Loss of the target nodes.
        logits: Logits of all nodes.
        path: ``"propagate"`` (from node quantities) or ``"autograd"`` (pairs added to the graph).
        engine: Engine that computed it.
        flips: Pairs, shape ``[2, m]``, and weights, shape ``[m]``, of the flips.
        scores: Terms of the gradient on the ``"propagate"`` path.
    """

    loss: Tensor
    logits: Tensor
    path: Tier
    engine: EdgeGradientEngine
    flips: tuple[Tensor, Tensor]
    scores: list[Scores]

    @torch.inference_mode(False)
    def at(self, pairs: Tensor | Pairs) -> Tensor:
        r"""Return the gradient :math:`\partial L / \partial p_{uv}` at each pair, in the given order.

        Args:
            pairs: Pairs of either direction, repeats allowed, shape ``[2, b]``; or :class:`Pairs`, which are not checked.
        """
        ordered = self._ordered(pairs)
        if self.path == "autograd":
            return self.engine.autograd.differentiate(self.flips, ordered)
        terms = [score.at(ordered, self.engine.backend) for score in self.scores]
        unsigned = sum(terms[1:], terms[0]) if terms else self.logits.new_zeros(len(ordered))
        return self.engine.edges.apply_sign(unsigned, ordered, ascending=isinstance(pairs, Pairs))

    @torch.inference_mode(False)
    def top(
        self,
        k: int,
        *,
        among: Nodes | None = None,
        exclude: Tensor | Pairs | None = None,
        options: SearchOptions | None = None,
    ) -> BestPairs:
        """Return the ``k`` pairs of largest gradient over all pairs of nodes, exactly.

        Ties are broken by ascending ``(u, v)``. The result is shorter if there are fewer than ``k`` pairs.

        Args:
            k: Number of pairs.
            among: Nodes, as ids or a boolean mask, to which both nodes of a pair must belong. Default: all nodes.
            exclude: Pairs to ignore, shape ``[2, e]``, or :class:`Pairs`.
            options: Sizes of the search, which do not affect the result.
        """
        check_int(1, k=k)
        self.check_finite()
        nodes = torch.arange(self.engine.num_nodes, device=self.logits.device)
        if among is not None:
            nodes = node_ids(among, self.engine.data, what="among").sort().values
        excluded = self.engine.edge_key[:0]
        if exclude is not None:
            excluded = self._ordered(exclude).key.unique()
        return search(self, int(k), nodes, excluded, options or SearchOptions())

    def check_finite(self) -> None:
        """Raise unless the loss is finite: gradients of others cannot be ranked."""
        if not bool(self.loss.isfinite()):
            raise ValueError(f"expected a finite loss, got {float(self.loss)}: its gradients cannot be ranked")

    def _ordered(self, pairs: Tensor | Pairs) -> Pairs:
        """Check pairs and put the smaller node id first; given as a tensor, they keep their order and repeats."""
        n = self.engine.num_nodes
        if not isinstance(pairs, Pairs):
            check_pairs(pairs, n)
            return Pairs(pairs.amin(dim=0), pairs.amax(dim=0), n)
        pairs.check_graph(n)
        return pairs


class EdgeGradientEngine:
    r"""Edge gradients of one model on one graph, with everything that does not depend on the flips computed once.

    The ``"propagate"`` path serves models of PyG's standard layers (:mod:`~edgeproof.propagation.layer_rules`), and models in
    two parts (:class:`EncodeDiffuse`) that use the graph only through :func:`~edgeproof.propagation.propagate` over matrices of
    known rule, which autograd verifies when a model is first used. The ``"autograd"`` path serves any other module called as
    ``model(x, edge_index, edge_weight)``. The model runs in evaluation mode.

    Args:
        model: Model under attack.
        data: Graph.
        nodes: Target nodes: ids, or a boolean mask.
        labels: Label of each target node. Default: those of ``data``.
        loss: Function of the logits and labels of the target nodes.
        path: ``"propagate"`` or ``"autograd"``. Default: the fastest path that is correct for the model.
        backend: Kernel backend. Default: the fastest that supports the inputs.

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
        nodes: Nodes,
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
        nodes = node_ids(nodes, data, labelled=labels is None)
        dispatch.check_name(backend)
        _checked_path(path)
        data = for_model(data, model)
        check_inputs(model, data)
        self.model, self.data, self.loss, self.backend = model, data, loss, backend
        self.nodes = for_autograd(nodes)
        self.labels = check_labels(data.y[self.nodes] if labels is None else labels, self.nodes)
        self.num_nodes = int(data.x.size(0))
        self.adjacency, self.edges = Adjacency.from_data(data), EdgeSet(data.edge_index, self.num_nodes)
        self.recorded: RecordedRun | None = None
        self._runs = 0
        self._batched_graphs: dict[int, Adjacency] = {}
        self.autograd = AutogradPath(model, data, self.nodes, self.labels, loss, backend)
        with dispatch.using(backend):
            self._conversion_problem = self._convert_layers(path)
            check_logits(self._clean_logits(), self.labels, loss, self.num_nodes, type(model).__name__)
            self.path: Tier = _checked_path(path) or ("propagate" if self._can_propagate() else "autograd")
        # Whether a GPU would wait for kernel launches. Set to False once recording fails.
        small = self.num_nodes > 1 and self.adjacency.pattern.col.numel() <= reference.FEW_ENTRIES
        self.recordable = self.path == "propagate" and data.x.is_cuda and small
        problem = self._relax(check_gradient=path is None) if self.path == "autograd" else None
        if problem is not None:
            reason = f" ({self._conversion_problem})" if self._conversion_problem else ""
            raise NoEdgeGradientError(f"{type(model).__name__} has no edge gradients: {problem}{reason}")
        # A verified model has a non-zero edge gradient, so it depends on the edges.
        if path != "propagate" and not is_verified(self.model) and self.autograd.ignores_edges():
            raise ValueError(f"{type(model).__name__} {IGNORES_EDGES}")

    @property
    def reason(self) -> str:
        """Why the model has no faster path; empty on the ``"propagate"`` path."""
        if self.path == "propagate":
            return ""
        return self._conversion_problem or "its propagated matrices do not follow from edge weights by known rules"

    def __repr__(self) -> str:
        loss = getattr(self.loss, "__name__", repr(self.loss))
        return (
            f"{type(self).__name__}({type(self.model).__name__}, {self.num_nodes} nodes, {self.edge_key.numel()} edges, "
            f"{self.nodes.numel()} targets, loss={loss}, path={self.path!r}, backend={self.backend!r})"
        )

    @torch.inference_mode(False)
    def __call__(self, pairs: Tensor | Pairs | None = None, flip: Tensor | None = None) -> EdgeGradient:
        """Return loss, logits and gradient with some pairs flipped fractionally.

        Args:
            pairs: Distinct pairs, shape ``[2, m]``; or :class:`Pairs`, not checked, nor are their weights. Default: none.
            flip: Flip weight of each pair, in [0, 1], shape ``[m]``.
        """
        both, flip = self._checked_flips(pairs, flip)
        if self.path == "autograd":
            with torch.no_grad():
                loss, logits = self.autograd.run(both, flip)
            return EdgeGradient(loss, logits, self.path, self, (both, flip), [])
        loss, logits, scores = self._run(both, flip)
        if scores is None:
            name = type(self.model).__name__
            raise UnknownRuleError(f"{name} propagates over a matrix of unknown rule: use path='autograd'")
        return EdgeGradient(loss, logits, self.path, self, (both, flip), scores)

    @torch.inference_mode(False)
    def logits(self, pairs: Tensor | Pairs | None = None, flip: Tensor | None = None) -> Tensor:
        """Return the logits of all nodes, as a call does, without the cost of the gradient."""
        both, flip = self._checked_flips(pairs, flip)
        with torch.no_grad():
            if self.path == "autograd":
                return self.autograd.run(both, flip)[1]
            assert isinstance(self.model, EncodeDiffuse)
            with dispatch.using(self.backend), eval_mode(self.model):
                adjacency = self.adjacency if not flip.numel() else self.adjacency.perturbed(both, flip)
                return self.model.diffuse(self._encoded, adjacency)

    @torch.inference_mode(False)
    def logits_over(self, adjacency: Adjacency, nodes: Tensor, *, poisoned: int | None = None) -> Tensor:
        """Return the logits over another graph, on the ``"propagate"`` path.

        Args:
            adjacency: Graph.
            nodes: Node of this graph whose features each node of the other one has.
            poisoned: Node of the other graph whose hidden states are NaN, to measure how far it reaches. Default: none.
        """
        assert isinstance(self.model, EncodeDiffuse)
        hidden = self.encoded.index_select(0, nodes)
        if poisoned is not None:
            hidden[poisoned] = torch.nan
        with torch.no_grad(), dispatch.using(self.backend), eval_mode(self.model):
            return self.model.diffuse(hidden, adjacency)

    def logits_of(self, sets: Sequence[Tensor], *, max_batch_nodes: int = 1 << 17) -> Iterator[Tensor]:
        """Yield the logits for each set of flips, in batches.

        On the ``"propagate"`` path, copies of the graph run as one disconnected graph, which saves most kernel launches.

        Args:
            sets: Sets of flips of weight 1, shape ``[2, m]`` each; not checked.
            max_batch_nodes: Largest number of nodes of all copies together.

        Yields:
            Logits of the next sets, shape ``[sets, nodes, classes]``.
        """
        batch_size = max_batch_nodes // self.num_nodes
        # The cost of some models grows faster than the number of nodes, so a batch would be slower than single graphs.
        linear = getattr(self.model, "side_by_side", True)
        batched = self.path == "propagate" and self.num_nodes > 1 and batch_size > 1 and linear
        with dispatch.using(self.backend):
            batched = batched and self._batching_is_exact()
        if not batched:
            yield from (self._logits_after(flips)[None] for flips in sets)
            return
        for start in range(0, len(sets), batch_size):
            with dispatch.using(self.backend):
                logits = self._batched_logits(sets[start : start + batch_size])
            yield logits

    @torch.inference_mode(False)
    def refresh(self) -> None:
        """Encode the features again, in place. Call this after changing the model's parameters."""
        if "_encoded" in self.__dict__:
            assert isinstance(self.model, EncodeDiffuse)
            with eval_mode(self.model), torch.no_grad():
                self._encoded.copy_(self.model.encode(self.data.x))

    @property
    def edge_key(self) -> Tensor:
        """Key of every undirected edge, ascending."""
        return self.edges.key

    def sign(self, pairs: Pairs, ascending: bool) -> Tensor:
        """Return -1 where a pair is an edge of the clean graph, 1 elsewhere."""
        return self.edges.apply_sign(self.adjacency.weight.new_ones(len(pairs)), pairs, ascending=ascending)

    def run_on_tape(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Run forward and backward on the ``"propagate"`` path without a host-device sync; return loss, logits and
        gradient terms."""
        with dispatch.using(self.backend):
            return self.run_over(self.adjacency if not flip.numel() else self.adjacency.perturbed(pairs, flip))

    def run_over(self, adjacency: Adjacency) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Return the results of :meth:`run_on_tape` for a graph that is already perturbed."""
        assert isinstance(self.model, EncodeDiffuse)
        with dispatch.using(self.backend), torch.enable_grad():
            with eval_mode(self.model), Tape() as tape:
                logits = self.model.diffuse(self._encoded, adjacency)
                # The backward of logits[nodes] would sort the nodes; that of index_select does not.
                loss = check_loss(self.loss(logits.index_select(0, self.nodes), self.labels))
            tape.differentiate(loss)
            return loss.detach(), logits.detach(), assemble(tape.calls)

    @property
    def encoded(self) -> Tensor:
        """Hidden states before the first propagation."""
        return self._encoded

    @cached_property
    def _encoded(self) -> Tensor:
        assert isinstance(self.model, EncodeDiffuse)
        with eval_mode(self.model), torch.no_grad():
            return self.model.encode(self.data.x)

    def _clean_logits(self) -> object:
        if not isinstance(self.model, EncodeDiffuse):
            return self.autograd.clean_logits()
        with dispatch.using(self.backend), eval_mode(self.model), torch.no_grad():
            return self.model.diffuse(self._encoded, self.adjacency)

    def _checked_flips(self, pairs: Tensor | Pairs | None, flip: Tensor | None) -> tuple[Tensor, Tensor]:
        like = self.adjacency.weight
        if pairs is None and flip is None:
            return self.data.edge_index.new_empty(2, 0), like.new_empty(0)
        if pairs is None or flip is None:
            raise ValueError("expected both pairs and flip weights, got only one of them")
        if not isinstance(flip, Tensor):
            raise TypeError(f"expected flip weights as a tensor, got {type(flip).__name__}")
        flip = for_autograd(flip.detach().to(like.dtype))
        if isinstance(pairs, Pairs):
            pairs.check_graph(self.num_nodes)
            if flip.shape != (len(pairs),):
                raise ValueError(f"expected {len(pairs)} flip weights, got shape {list(flip.shape)}")
            return pairs.both, flip
        ordered = Pairs.of(pairs, self.num_nodes)
        if flip.shape != (len(ordered),) or not bool(((flip >= 0) & (flip <= 1)).all()):
            raise ValueError(f"expected {len(ordered)} flip weights between 0 and 1, got {flip}")
        return pairs, flip

    def _convert_layers(self, path: str | None) -> str:
        """Convert a model of PyG layers, or return the reason why it cannot be converted."""
        if isinstance(self.model, EncodeDiffuse):
            return ""
        try:
            converted = convert_pyg_layers(self.model, self.data)
        except UnsupportedLayerError as error:
            return str(error)
        # path="autograd" differentiates the model itself if it supports edge weights.
        if path != "autograd" or self.autograd.edge_weight_problem() is not None:
            self.model = converted
            self.autograd = AutogradPath(converted, self.data, self.nodes, self.labels, self.loss, self.backend)
        return ""

    def _relax(self, check_gradient: bool) -> str | None:
        """Add edge weights to a model that has none, or has others; return why the model remains without, or None."""

        def problem_of(path: AutogradPath) -> str | None:
            return path.edge_weight_problem() or (path.gradient_problem() if check_gradient else None)

        problem = problem_of(self.autograd)
        if problem is None or isinstance(self.model, EncodeDiffuse):
            return problem
        relaxed = AutogradPath(RelaxedModel(self.model), self.data, self.nodes, self.labels, self.loss, self.backend)
        relaxed_problem = problem_of(relaxed)
        if relaxed_problem is None:
            self.autograd = relaxed
            return None
        return f"{problem}; and with its reductions over edges weighted, {relaxed_problem}"

    def _can_propagate(self) -> bool:
        """Test whether the ``"propagate"`` path is correct for the model and supports it on this graph."""
        if not propagate_path_is_exact(self.model, self.data, self._probe_gradient):
            return False
        try:
            # The rules can depend on the size of the graph, so this is tested for each.
            return self.run_on_tape(*self._checked_flips(None, None))[2] is not None
        except UnknownRuleError:
            return False

    def _probe_gradient(self, path: str, flips: Pairs, weight: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and gradient of one path, for a loss of all logits of all nodes."""
        nodes = torch.arange(self.num_nodes, device=self.data.x.device)
        engine = EdgeGradientEngine(self.model, self.data, nodes, labels=nodes, loss=weighted_logit_sum, path=path)
        gradient = engine(flips, weight)
        return gradient.logits, gradient.at(pairs)

    def _run(self, pairs: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, list[Scores] | None]:
        """Run on the tape; on a GPU, a small graph's run is recorded as a CUDA graph after a few calls, if possible."""
        self._runs += 1
        if not (self.recordable and self._runs > _RUNS_BEFORE_RECORDING):
            return self.run_on_tape(pairs, flip)
        if self.recorded is None or flip.numel() > self.recorded.capacity:
            capacity = max(1024, 2 << flip.numel().bit_length())
            self.recorded = try_record(self.run_on_tape, capacity, self.num_nodes, flip)
            if self.recorded is None:
                self.recordable = False
                return self.run_on_tape(pairs, flip)
        return self.recorded(pairs, flip)

    def _logits_after(self, flips: Tensor) -> Tensor:
        return self.logits(flips, self.adjacency.weight.new_ones(flips.size(1)))

    def _batched_logits(self, sets: Sequence[Tensor]) -> Tensor:
        """Return the logits under all sets of flips, from one graph of as many copies."""
        assert isinstance(self.model, EncodeDiffuse)
        if len(sets) not in self._batched_graphs:
            self._batched_graphs[len(sets)] = Adjacency.from_data(self.data, copies=len(sets))
        sizes = torch.tensor([flips.size(1) for flips in sets]).to(self.data.x.device)
        flips = torch.cat(list(sets), dim=1)
        copy = torch.arange(len(sets), device=sizes.device).repeat_interleave(sizes, output_size=flips.size(1))
        pairs = flips + copy * self.num_nodes
        with torch.no_grad(), eval_mode(self.model):
            graph = self._batched_graphs[len(sets)].perturbed(pairs, self.adjacency.weight.new_ones(pairs.size(1)))
            logits = self.model.diffuse(self._encoded.repeat(len(sets), 1), graph)
        return logits.view(len(sets), self.num_nodes, -1)

    def _batching_is_exact(self) -> bool:
        if self.model not in _EXACT_BATCHES:
            # Two different graphs: a mean over two copies of one graph would equal that of one.
            flips = probe_pairs(self.data).both
            sets = [flips[:, :0], flips]
            _EXACT_BATCHES[self.model] = batching_is_exact(
                lambda: torch.stack([self._logits_after(flips) for flips in sets]), lambda: self._batched_logits(sets)
            )
        return _EXACT_BATCHES[self.model]


def _checked_path(path: str | None) -> Tier | None:
    for known in TIERS[:2]:
        if path == known:
            return known
    if path is None:
        return None
    raise ValueError(f"expected path 'propagate' or 'autograd', got {path!r}")
