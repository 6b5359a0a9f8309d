"""Compiled CPU loops for stacks of graph convolutions: the margins after each of many single flips."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeproof.kernels._compile import compiled

Array = np.ndarray[Any, Any]


@compiled()
def _margin(logits: Array, label: int) -> float:
    largest = -np.inf
    for c in range(logits.size):
        if np.isnan(logits[c]):
            return np.nan
        if c != label and logits[c] > largest:
            largest = logits[c]
    margin: float = logits[label] - largest
    return margin


@compiled()
def _find_row(w: int, slot: Array, rows: Array, num_rows: int, total: Array, sums: Array) -> int:
    """Return the number of rows after row ``w`` is among them; a new row starts from its sums."""
    if slot[w] < 0:
        slot[w], rows[num_rows] = num_rows, w
        for c in range(sums.shape[1]):
            total[num_rows, c] = sums[w, c]
        num_rows += 1
    return num_rows


@compiled()
def _dense(x: Array, weights: Array, out: Array) -> None:
    """Compute the product of ReLU(x) and the weights."""
    out[:] = 0
    for c in range(x.size):
        # Not `> 0`, so that NaN is kept.
        if not x[c] <= 0:
            for d in range(out.size):
                out[d] += x[c] * weights[c, d]


@compiled(nogil=True)
def scan_stack(
    rowptr: Array,
    col: Array,
    scale: Array,
    scaled: Array,
    sums: Array,
    start: Array,
    weights: Array,
    weight_start: Array,
    bias: Array,
    target: Array,
    near: Array,
    labels: Array,
    u: Array,
    v: Array,
    is_edge: Array,
    offset: Array,
    capacity: int,
    count: Array,
    position: Array,
    margin: Array,
) -> None:
    """Compute the margins of all target nodes that each single flip can change.

    With inputs :math:`X_l` of layer ``l``, ``scaled`` is :math:`G_l = s X_l` and ``sums`` is the sum of :math:`G_l` over each
    row's neighbors and itself; the columns of layer ``l`` are ``start[l]`` to ``start[l + 1]``. A flip changes the scales of
    its two nodes, and with them :math:`G_1`; from layer to layer, only rows with a changed neighbor are computed.

    Args:
        rowptr: Row pointers of the graph with self-loops.
        col: Neighbors of each row.
        scale: :math:`s = d^{-1/2}`.
        scaled: :math:`G`.
        sums: Sums of :math:`G` over neighbors.
        start: First column of each layer.
        weights: Weights between the layers, flat.
        weight_start: Start of the weights after each layer.
        bias: Biases of all layers.
        target: Position of each node among the target nodes, or -1.
        near: Whether a target node is a neighbor of each node, or the node itself.
        labels: Label of each target node.
        u: First node of each flip.
        v: Second node of each flip.
        is_edge: Whether each flip removes an edge.
        offset: Start of each flip's entries in the results.
        capacity: Largest number of rows of a flip in a layer.
        count: Receives the number of target nodes of each flip.
        position: Receives positions of target nodes.
        margin: Receives their margins.
    """
    num_layers, widest = start.size - 1, np.diff(start).max()
    slot = np.full(scale.size, -1, dtype=np.int64)
    nodes, rows = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    delta, total = np.empty((capacity, widest), dtype=scaled.dtype), np.empty((capacity, widest), dtype=scaled.dtype)
    out = np.empty(widest, dtype=scaled.dtype)
    for i in range(u.size):
        a, b, removed = u[i], v[i], is_edge[i]
        step = -1 if removed else 1
        scale_a = 1 / np.sqrt(rowptr[a + 1] - rowptr[a] + step)
        scale_b = 1 / np.sqrt(rowptr[b + 1] - rowptr[b] + step)
        num_nodes, at_a, at_b = 2, 0, 1
        nodes[0], nodes[1] = a, b
        for c in range(start[1]):
            delta[0, c] = (scale_a / scale[a] - 1) * scaled[a, c]
            delta[1, c] = (scale_b / scale[b] - 1) * scaled[b, c]
        # Whether a target node depends on rows a and b, one layer before the last: they may have it as a new neighbor.
        near_a, near_b = near[a] or target[b] >= 0, near[b] or target[a] >= 0
        num_rows = 0
        for layer in range(num_layers):
            first, width = start[layer], start[layer + 1] - start[layer]
            x, x_sums = scaled[:, first : first + width], sums[:, first : first + width]
            last = layer == num_layers - 1
            num_rows = 0
            for j in range(num_nodes):
                for e in range(rowptr[nodes[j]], rowptr[nodes[j] + 1]):
                    w = col[e]
                    if last:
                        if target[w] < 0:
                            continue
                    elif layer == num_layers - 2 and not (near_a if w == a else near_b if w == b else near[w]):
                        # No target node depends on this row.
                        continue
                    if removed and ((nodes[j] == a and w == b) or (nodes[j] == b and w == a)):
                        continue
                    num_rows = _find_row(w, slot, rows, num_rows, total, x_sums)
                    for c in range(width):
                        total[slot[w], c] += delta[j, c]
            # Messages along the flipped pair.
            for sender, w, j in ((a, b, at_a), (b, a, at_b)):
                if last and target[w] < 0:
                    continue
                if layer == num_layers - 2 and not (near_a if w == a else near_b):
                    continue
                num_rows = _find_row(w, slot, rows, num_rows, total, x_sums)
                for c in range(width):
                    total[slot[w], c] += -x[sender, c] if removed else x[sender, c] + delta[j, c]
            if not last:
                at_a, at_b = slot[a], slot[b]
                next_width = start[layer + 2] - start[layer + 1]
                matrix = weights[weight_start[layer] : weight_start[layer + 1]].reshape(width, next_width)
            for k in range(num_rows):
                w = rows[k]
                slot[w] = -1
                own = scale_a if w == a else (scale_b if w == b else scale[w])
                for c in range(width):
                    total[k, c] = own * total[k, c] + bias[first + c]
                if last:
                    position[offset[i] + k] = target[w]
                    margin[offset[i] + k] = _margin(total[k, :width], labels[target[w]])
                else:
                    _dense(total[k, :width], matrix, out[:next_width])
                    for d in range(next_width):
                        delta[k, d] = own * out[d] - scaled[w, start[layer + 1] + d]
            nodes, rows, num_nodes = rows, nodes, num_rows
        count[i] = num_rows
