r"""Edge weights for models that have none: an edge of weight :math:`w` counts :math:`w` times wherever edges are reduced.

A model gathers messages along ``edge_index`` and reduces them with a few tensor operations: sums, maxima, counts, and the
construction of matrices. :class:`EdgeRelaxation` replaces exactly these operations while the model runs:

======================  =====================================================================================
operation               with edge weights
======================  =====================================================================================
sum, count              :math:`\sum_e w_e m_e`, :math:`\sum_e w_e`
mean                    quotient of the two
maximum, minimum        :func:`~edgeproof.propagation.expected_max.expected_max`
product                 :math:`\prod_e (1 + w_e (m_e - 1))`
matrix entry            :math:`(1 - w) \, \mathrm{old} + w \, \mathrm{new}`; for sparse matrices :math:`w \, \mathrm{new}`
======================  =====================================================================================

Everything made of them follows: degrees and normalizations count weights, a variance is that of weighted moments, and attention
is :math:`w_e e^{s_e} / \sum_f w_f e^{s_f}`, a softmax of :math:`s + \log w`. At weights of 0 and 1 every operation equals the
original one on the graph without the edges of weight 0. Operations that are not replaced (medians, sorting, other libraries)
ignore weights, which the probes of :class:`~edgeproof.propagation.autograd_path.AutogradPath` detect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from edgeproof.propagation.expected_max import expected_max

# Constants up to this size are added to a sum to avoid a division by zero.
_TINY = 1e-6


class RelaxedModel(nn.Module):
    """Model without edge weights, called with edge weights.

    It shares the parameters of the model.

    Args:
        model: Module called as ``model(x, edge_index)``.

    >>> from torch_geometric.nn import SAGEConv
    >>> model = RelaxedModel(SAGEConv(1, 1, aggr="max", root_weight=False, bias=False))
    >>> x, edge_index = torch.tensor([[1.0], [2.0], [0.0]]), torch.tensor([[0, 1], [2, 2]])
    >>> weight = torch.tensor([1.0, 0.0], requires_grad=True)
    >>> torch.equal(model(x, edge_index, weight), model(x, edge_index[:, :1]))
    True
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the logits of every node. An edge of weight 0 equals no edge."""
        if edge_weight is None:
            return self._run(x, edge_index)
        with EdgeRelaxation(edge_index, edge_weight):
            return self._run(x, edge_index)

    def _run(self, x: Tensor, edge_index: Tensor) -> Tensor:
        # Compiled parts of a model would keep their operations.
        with torch.compiler.set_stance("force_eager"):
            logits: Tensor = self.model(x, edge_index)
        return logits


class _Edges(NamedTuple):
    """Tensor of node ids (or of numbers computed from them) with one entry per edge along an axis.

    Args:
        tensor: The tensor; kept, so that its ``id`` stays valid.
        weight: Weight of each edge.
        axis: Axis of the edges.
    """

    tensor: Tensor
    weight: Tensor
    axis: int


class _Sum(NamedTuple):
    """Weighted sum over edges.

    Args:
        tensor: The sum; kept, so that its ``id`` stays valid.
        weight: Weight of each edge.
        group: Group of each edge.
        dim: Dimension of the groups.
    """

    tensor: Tensor
    weight: Tensor
    group: Tensor
    dim: int


class EdgeRelaxation(TorchFunctionMode):
    """Context manager in which reductions over the given edges are weighted.

    Tensors made from ``edge_index`` are followed through indexing, reshaping, concatenation and arithmetic, so edges may be
    sorted, filtered or extended by self-loops, which get weight 1.

    Args:
        edge_index: Edges, the very tensor that the model receives, shape ``[2, edges]``.
        weight: Weight of each edge, shape ``[edges]``.
    """

    def __init__(self, edge_index: Tensor, weight: Tensor) -> None:
        super().__init__()
        self._edges: dict[int, _Edges] = {}
        self._sums: dict[int, _Sum] = {}
        self._follow(edge_index, weight, edge_index.dim() - 1)

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, weighted if it reduces edges."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _REDUCTIONS:
            weighted = _REDUCTIONS[name](self, func, *args, **kwargs)
            if weighted is not None:
                return weighted
        out = func(*args, **kwargs)
        if name in _FOLLOWED:
            _FOLLOWED[name](self, out, args, kwargs)
        return out

    def of(self, tensor: object) -> _Edges | None:
        """Return the edges of a tensor, or None if it does not come from ``edge_index``."""
        return self._edges.get(id(tensor))

    def _follow(self, tensor: Tensor, weight: Tensor, axis: int) -> None:
        if tensor.dim() and tensor.size(axis) == weight.numel():
            self._edges[id(tensor)] = _Edges(tensor, weight, axis)

    # Reductions. Each returns None if no edges are involved.

    def scatter_add(self, func: Any, out: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor | None:
        edges = self._along(index, dim)
        if edges is None or not out.is_floating_point():
            return None
        sized = src[tuple(slice(size) for size in index.shape)]
        result: Tensor = func(out, dim, index, sized * _along_axis(edges.weight, edges.axis, sized))
        return self._summed(result, _Sum(result, edges.weight, _groups(index, dim), dim % out.dim()))

    def index_add(
        self, func: Any, out: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
    ) -> Tensor | None:
        edges = self.of(index)
        if edges is None or not out.is_floating_point():
            return None
        weight = _along_axis(edges.weight, dim % source.dim(), source) if source.dim() else edges.weight
        result: Tensor = func(out, dim, index, source * weight, alpha=alpha)
        return self._summed(result, _Sum(result, edges.weight, index, dim % max(1, out.dim())))

    def add(self, func: Any, first: Any, second: Any, **kwargs: Any) -> Tensor | None:
        """Denominator of a softmax: a sum over edges plus a tiny constant.

        Without edges, the first edge would get all the attention whatever its weight. There the missing weight counts as an
        edge of score 0, which changes nothing for weights of 0 and 1.
        """
        total = self._sums.get(id(first))
        if total is None or not isinstance(second, float) or not 0 < second <= _TINY:
            return None
        count = total.weight.new_zeros(first.size(total.dim)).index_add(0, total.group, total.weight)
        missing = _along_axis((1 - count).relu(), total.dim, first)
        result: Tensor = func(first, second + missing, **kwargs)
        return result

    def scatter_reduce(
        self, func: Any, out: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
    ) -> Tensor | None:
        edges = self._along(index, dim)
        if edges is None or not out.is_floating_point():
            return None
        dim, weight = dim % out.dim(), _along_axis(edges.weight, edges.axis, src)
        if reduce == "prod":
            result: Tensor = func(out, dim, index, 1 + weight * (src - 1), "prod", include_self=include_self)
            return result
        if include_self or (reduce != "sum" and bool(out.any())):
            return None
        sums = torch.zeros_like(out).scatter_add(dim, index, src * weight)
        if reduce == "mean":
            counts = torch.zeros_like(out).scatter_add(dim, index, weight.expand_as(src))
            sums = sums / torch.where(counts > 0, counts, 1.0)
        elif reduce != "sum":
            sign = 1 if reduce == "amax" else -1
            rows = (sign * src).movedim(dim, 0)
            if not rows.numel():
                return out
            maxima = expected_max(rows.reshape(rows.size(0), -1), edges.weight, _groups(index, dim), out.size(dim))
            sums = sign * maxima.view(-1, *rows.shape[1:]).movedim(0, dim)
        return out.copy_(sums) if func.__name__.endswith("_") else sums

    def bincount(self, func: Any, values: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor | None:
        edges = self.of(values)
        if edges is None:
            return None
        counted = edges.weight if weights is None else edges.weight * weights
        size = max(minlength, int(values.max()) + 1 if values.numel() else 0)
        return counted.new_zeros(size).index_add(0, values, counted)

    def index_put(
        self, func: Any, out: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False
    ) -> Tensor | None:
        edges = self._in_indices(indices)
        if edges is None or not out.is_floating_point():
            return None
        values = torch.as_tensor(values, dtype=out.dtype, device=out.device)
        weight = edges.weight if not values.dim() else _along_axis(edges.weight, 0, values)
        old = 0.0 if accumulate else (1 - weight) * out[tuple(indices)]
        result: Tensor = func(out, tuple(indices), old + weight * values, accumulate)
        return result

    def setitem(self, func: Any, out: Tensor, indices: Any, values: Any) -> bool | None:
        if not isinstance(indices, tuple):
            indices = (indices,)
        weighted = self.index_put(Tensor.index_put_, out, indices, values)
        # The result of an assignment is not used.
        return None if weighted is None else True

    def sparse_coo_tensor(self, func: Any, indices: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        edges = self.of(indices)
        if edges is None:
            return None
        matrix: Tensor = func(indices, values * _along_axis(edges.weight, 0, values), *args, **kwargs)
        return matrix

    def sparse_csr_tensor(
        self, func: Any, crow_indices: Tensor, col_indices: Tensor, values: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor | None:
        edges = self.of(col_indices)
        if edges is None:
            return None
        weighted = values * _along_axis(edges.weight, 0, values)
        matrix: Tensor = func(crow_indices, col_indices, weighted, *args, **kwargs)
        return matrix

    def _summed(self, result: Tensor, total: _Sum) -> Tensor:
        self._sums[id(result)] = total
        if result.requires_grad:
            # At nodes without edges, 1 / sqrt(d) has no derivative, and models replace its infinite value by 0.
            result.register_hook(lambda grad: torch.where((result == 0) & grad.isnan(), 0.0, grad))
        return result

    def _along(self, index: object, dim: int) -> _Edges | None:
        edges = self.of(index)
        return edges if edges is not None and edges.axis == dim % edges.tensor.dim() else None

    def _in_indices(self, indices: Sequence[Any]) -> _Edges | None:
        """Return the edges of index tensors that all belong to the same edges."""
        found = [self.of(index) for index in indices]
        first = next((edges for edges in found if edges is not None), None)
        if first is None or any(edges is None or edges.tensor.dim() != 1 for edges in found):
            return None
        return first if all(edges is not None and _same(edges.weight, first.weight) for edges in found) else None

    # Operations whose results are followed.

    def keep(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        """Copies: the edges stay on their axis."""
        edges = self.of(args[0])
        if edges is not None:
            self._follow(out, edges.weight, edges.axis)

    def reshape(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is None or not out.numel():
            return
        before = edges.tensor.shape[: edges.axis].numel()
        for axis, size in enumerate(out.shape):
            if size == edges.weight.numel() and out.shape[:axis].numel() == before:
                self._follow(out, edges.weight, axis)
                return

    def expand(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is not None:
            self._follow(out, edges.weight, out.dim() - edges.tensor.dim() + edges.axis)

    def transpose(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is not None and out.dim() == 2:
            self._follow(out, edges.weight, 1 - edges.axis)

    def unbind(self, out: Sequence[Tensor], args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        if edges is not None and dim % edges.tensor.dim() == 0 and edges.axis > 0:
            for row in out:
                self._follow(row, edges.weight, edges.axis - 1)

    def select(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        self.unbind((out,), args, kwargs)

    def getitem(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges, key = self.of(args[0]), args[1]
        if edges is None or not out.dim():
            return
        if isinstance(key, int):
            self._follow(out, edges.weight, edges.axis - 1)
        elif edges.axis == edges.tensor.dim() - 1 and edges.tensor.dim() <= 2:
            # Index the positions of the edges in the same way.
            position = torch.arange(edges.weight.numel(), device=out.device).expand(edges.tensor.shape)[key]
            if out.numel() and edges.tensor.dim() == 2 and out.dim() == 2:
                self._follow(out, edges.weight[position[0]], 1)
            elif out.numel() == max(out.shape):
                self._follow(out, edges.weight[position.flatten()], out.shape.index(max(out.shape)))

    def index_select(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is None:
            return
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        index = args[2] if len(args) > 2 else kwargs["index"]
        along = dim % edges.tensor.dim() == edges.axis
        self._follow(out, edges.weight[index] if along else edges.weight, edges.axis)

    def sort(self, out: Any, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is not None and edges.tensor.dim() == 1:
            self._follow(out[0], edges.weight[out[1]], 0)

    def flip(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        edges = self.of(args[0])
        if edges is None:
            return
        dims = args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:] or kwargs["dims"]
        flipped = edges.axis in [dim % edges.tensor.dim() for dim in dims]
        self._follow(out, edges.weight.flip(0) if flipped else edges.weight, edges.axis)

    def cat(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        tensors = args[0] if args else kwargs["tensors"]
        dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % max(1, out.dim())
        found = [self.of(tensor) for tensor in tensors]
        first = next((edges for edges in found if edges is not None), None)
        if first is None:
            return
        if first.axis != dim:
            self._follow(out, first.weight, first.axis)
            return
        # Edges that the model adds, such as self-loops, have weight 1.
        parts = [
            first.weight.new_ones(tensor.size(dim)) if edges is None else edges.weight
            for tensor, edges in zip(tensors, found, strict=True)
        ]
        self._follow(out, torch.cat(parts), dim)

    def stack(self, out: Tensor, args: Sequence[Any], kwargs: Any) -> None:
        tensors = args[0] if args else kwargs["tensors"]
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        edges = self.of(tensors[0])
        if edges is not None and dim == 0:
            self._follow(out, edges.weight, edges.axis + 1)

    def arithmetic(self, out: Any, args: Sequence[Any], kwargs: Any) -> None:
        """Numbers computed from node ids, such as positions in a flat matrix."""
        found = [edges for edges in map(self.of, args) if edges is not None]
        if not found or not isinstance(out, Tensor) or out.is_floating_point():
            return
        first = found[0]
        if out.shape == first.tensor.shape and all(_same(edges.weight, first.weight) for edges in found):
            self._follow(out, first.weight, first.axis)


def _groups(index: Tensor, dim: int) -> Tensor:
    """Return the group of each edge; the index of a reduction repeats it for every channel."""
    return index if index.dim() == 1 or not index.numel() else index.movedim(dim, 0).flatten(1)[:, 0]


def _same(first: Tensor, second: Tensor) -> bool:
    return first is second or torch.equal(first, second)


def _along_axis(weight: Tensor, axis: int, like: Tensor) -> Tensor:
    """Return the weights in a shape that broadcasts along an axis, in the dtype of ``like``."""
    shape = [1] * like.dim()
    shape[axis] = -1
    return weight.to(like.dtype).view(shape)


_Reduction = Callable[..., Any]
_REDUCTIONS: dict[str, _Reduction] = {
    "scatter_add": EdgeRelaxation.scatter_add,
    "scatter_add_": EdgeRelaxation.scatter_add,
    "index_add": EdgeRelaxation.index_add,
    "index_add_": EdgeRelaxation.index_add,
    "scatter_reduce": EdgeRelaxation.scatter_reduce,
    "scatter_reduce_": EdgeRelaxation.scatter_reduce,
    "add": EdgeRelaxation.add,
    "__add__": EdgeRelaxation.add,
    "bincount": EdgeRelaxation.bincount,
    "index_put": EdgeRelaxation.index_put,
    "index_put_": EdgeRelaxation.index_put,
    "__setitem__": EdgeRelaxation.setitem,
    "sparse_coo_tensor": EdgeRelaxation.sparse_coo_tensor,
    "sparse_csr_tensor": EdgeRelaxation.sparse_csr_tensor,
}
_FOLLOWED: dict[str, Callable[[EdgeRelaxation, Any, Sequence[Any], Any], None]] = {
    **dict.fromkeys(("clone", "contiguous", "detach", "to", "long", "int", "type", "cpu", "cuda"), EdgeRelaxation.keep),
    **dict.fromkeys(("view", "reshape", "unsqueeze", "squeeze", "flatten", "view_as"), EdgeRelaxation.reshape),
    **dict.fromkeys(("expand", "expand_as", "repeat", "broadcast_to"), EdgeRelaxation.expand),
    **dict.fromkeys(("t", "transpose"), EdgeRelaxation.transpose),
    **dict.fromkeys(("cat", "concat", "concatenate"), EdgeRelaxation.cat),
    **dict.fromkeys(
        (
            "add",
            "sub",
            "mul",
            "add_",
            "sub_",
            "mul_",
            "__add__",
            "__radd__",
            "__iadd__",
            "__sub__",
            "__mul__",
            "__rmul__",
        ),
        EdgeRelaxation.arithmetic,
    ),
    "unbind": EdgeRelaxation.unbind,
    "select": EdgeRelaxation.select,
    "__getitem__": EdgeRelaxation.getitem,
    "index_select": EdgeRelaxation.index_select,
    "sort": EdgeRelaxation.sort,
    "flip": EdgeRelaxation.flip,
    "stack": EdgeRelaxation.stack,
}
