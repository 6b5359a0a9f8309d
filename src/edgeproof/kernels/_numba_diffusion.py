"""Compiled CPU loops for linear diffusion: the margins after each of many single flips."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeproof.kernels._compile import compiled

Array = np.ndarray[Any, Any]


@compiled(nogil=True)
def diffusion_margins(
    gamma: Array,
    terms: Array,
    degree: Array,
    logits: Array,
    columns: Array,
    diagonal: Array,
    crossing: Array,
    u: Array,
    v: Array,
    at_u: Array,
    at_v: Array,
    sign: Array,
    target: Array,
    labels: Array,
    margins: Array,
) -> None:
    """Compute the margins of all target nodes after each single flip.

    The formula, and the names of its terms, are those of :mod:`edgeproof.propagation.incremental.diffusion`.

    Args:
        gamma: Coefficients.
        terms: Powers of the matrix times the input, shape ``[nodes, K + 1, classes]``.
        degree: Degree of each node.
        logits: Logits of the target nodes, shape ``[classes, targets]``.
        columns: Columns of the powers at the target nodes, shape ``[ends, K + 1, targets]``.
        diagonal: Diagonal of the powers, shape ``[ends, K + 1]``.
        crossing: Entries of the powers at the pairs, shape ``[pairs, K + 1]``.
        u: First node of each flip.
        v: Second node of each flip.
        at_u: Position of the first node among the ends.
        at_v: Position of the second node among the ends.
        sign: 1 where a flip adds an edge, -1 where it removes one.
        target: Position of each node among the target nodes, or -1.
        labels: Label of each target node.
        margins: Receives the margins, shape ``[pairs, targets]``.
    """
    count, classes, targets = gamma.size, terms.shape[2], labels.size
    left, right = np.empty((count, classes)), np.empty((count, classes))
    y_u, y_v = np.empty((count, classes)), np.empty((count, classes))
    start_u, start_v = np.empty(classes), np.empty(classes)
    z = np.empty((classes, targets))
    for e in range(u.size):
        a, b = u[e], v[e]
        p_uu, p_vv, p_uv = diagonal[at_u[e]], diagonal[at_v[e]], crossing[e]
        beta_u, beta_v = degree[a] / (degree[a] + sign[e]) - 1, degree[b] / (degree[b] + sign[e]) - 1
        tau = sign[e] / np.sqrt(degree[a] * degree[b])
        cross_u, cross_v = tau * (1 + beta_u), tau * (1 + beta_v)
        for c in range(classes):
            start_u[c] = (1 / np.sqrt(1 + beta_u) - 1) * terms[a, 0, c]
            start_v[c] = (1 / np.sqrt(1 + beta_v) - 1) * terms[b, 0, c]
            for k in range(count):
                left[k, c], right[k, c] = gamma[k] * start_u[c], gamma[k] * start_v[c]
        for k in range(count):
            for c in range(classes):
                y_u[k, c] = terms[a, k, c] + p_uu[k] * start_u[c] + p_uv[k] * start_v[c]
                y_v[k, c] = terms[b, k, c] + p_uv[k] * start_u[c] + p_vv[k] * start_v[c]
            for j in range(k):
                i = k - j
                uu, uv = beta_u * p_uu[i] + cross_u * p_uv[i - 1], beta_v * p_uv[i] + cross_v * p_uu[i - 1]
                vu, vv = beta_u * p_uv[i] + cross_u * p_vv[i - 1], beta_v * p_vv[i] + cross_v * p_uv[i - 1]
                for c in range(classes):
                    y_u[k, c] += uu * y_u[j, c] + uv * y_v[j, c]
                    y_v[k, c] += vu * y_u[j, c] + vv * y_v[j, c]
                    left[i, c] += gamma[k] * beta_u * y_u[j, c]
                    left[i - 1, c] += gamma[k] * cross_v * y_v[j, c]
                    right[i, c] += gamma[k] * beta_v * y_v[j, c]
                    right[i - 1, c] += gamma[k] * cross_u * y_u[j, c]
        z[:] = logits
        for k in range(count):
            column_u, column_v = columns[at_u[e], k], columns[at_v[e], k]
            for c in range(classes):
                factor_u, factor_v = left[k, c], right[k, c]
                row = z[c]
                for t in range(targets):
                    row[t] += factor_u * column_u[t] + factor_v * column_v[t]
        # At both ends, the scale of the node itself has changed.
        for node, beta, y in ((a, beta_u, y_u), (b, beta_v, y_v)):
            t = target[node]
            if t >= 0:
                for c in range(classes):
                    total = 0.0
                    for k in range(count):
                        total += gamma[k] * y[k, c]
                    z[c, t] = np.sqrt(1 + beta) * total
        for t in range(targets):
            largest = -np.inf
            finite = True
            for c in range(classes):
                finite = finite and np.isfinite(z[c, t])
                if c != labels[t] and z[c, t] > largest:
                    largest = z[c, t]
            margins[e, t] = z[labels[t], t] - largest if finite else np.nan
