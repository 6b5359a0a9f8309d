r"""Scales of features, by which training divides them.

Adam changes all weights by steps of similar size, so features of very different or extreme scales slow training down or make it
diverge. Training therefore replaces :math:`x_j` by :math:`x_j / s_j`, and afterwards the weights :math:`W_j` of feature
:math:`j` by :math:`W_j / s_j`: the trained model takes the features as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from edgeproof import losses
from edgeproof._features import column_means, divide_columns
from edgeproof.models import GraphModel, predict
from edgeproof.splits import Split, View
from edgeproof.training.failures import is_near_constant

# Range of the root mean square of the rows' norms in which no global factor is applied. Bags of words have norms from about 0.2
# (rows of sum 1) to 20 (many words); 64 standardized features have norm 8.
_NORMAL = (0.1, 30.0)
# The norm that features outside this range are scaled to.
_TYPICAL = 3.0
# Features that are non-zero at more than this fraction of the nodes get a scale of their own. Rare words do not: they would
# get a large weight.
_DENSE = 0.5
# Scales of dense features that differ by less than this factor are left as they are.
_SIMILAR = 10.0


def feature_scale(x: Tensor) -> Tensor | None:
    """Return the scale of each feature, or None if no scaling is needed.

    Dense features whose root mean squares differ by a factor of more than 10 get their root mean square as scale, all others 1.
    If the rows then have a typical norm below 0.1 or above 30, all scales are multiplied by one factor that makes it 3.

    Args:
        x: Features of the training graph, shape ``[nodes, features]``.

    >>> feature_scale(torch.tensor([[1.0, 2.0], [-1.0, 3.0]]))
    >>> feature_scale(torch.tensor([[1.0, 2000.0], [-1.0, 2000.0]]))
    tensor([   1., 2000.])
    """
    mean_square, density = column_means(x)
    scale = _dense_scale(density, mean_square.sqrt())
    norm = float((mean_square / scale.square()).sum().sqrt())
    if norm > 0 and not _NORMAL[0] <= norm <= _NORMAL[1]:
        scale = scale * (norm / _TYPICAL)
    return None if bool((scale == 1).all()) else scale.to(x.dtype)


def _dense_scale(density: Tensor, root_mean_square: Tensor) -> Tensor:
    """Return the root mean square of dense features if these differ much, and 1 for all others."""
    is_dense = density > _DENSE
    scale = torch.ones_like(root_mean_square)
    dense = root_mean_square[is_dense]
    if dense.numel() and float(dense.max()) > _SIMILAR * float(dense.min()):
        scale[is_dense] = dense
    return scale


def divide_features(split: Split, scale: Tensor) -> Split:
    """Return the split with all features divided by ``scale``."""

    def divided(view: View) -> View:
        data = view.data.clone()
        data.x = divide_columns(data.x, scale)
        return replace(view, data=data)

    return replace(split, train=divided(split.train), val=divided(split.val), test=divided(split.test))


@contextmanager
def weights_of_scaled_features(model: nn.Module, scale: Tensor | None, split: Split) -> Iterator[None]:
    """Let a model take features divided by ``scale`` within the context, and unscaled ones after it.

    On entry, the first weights of a trained model are multiplied by the scale, so that its predictions do not change. Those of
    an untrained model, which is no better than a constant prediction, keep the size they were initialized with.

    Args:
        model: Model.
        scale: Scale of each feature; None for no change.
        split: Split with scaled features, to tell whether the model has been trained.
    """
    if scale is None:
        yield
        return
    assert isinstance(model, GraphModel)
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scale_input_weights(model, scale)
    val_labels = split.val.data.y[split.val.nodes]
    accuracy = float(losses.accuracy(predict(model, split.val.data)[split.val.nodes], val_labels))
    if is_near_constant(accuracy, val_labels):
        model.load_state_dict(initial)
    try:
        yield
    finally:
        scale_input_weights(model, 1 / scale)


@torch.no_grad()
def scale_input_weights(model: GraphModel, factor: Tensor) -> None:
    """Multiply the weights of each feature by ``factor``, shape ``[features]``, in place."""
    for weight in model.input_weights():
        weight.mul_(factor[:, None])
