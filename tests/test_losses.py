from __future__ import annotations

import math

import pytest
import torch

from edgeproof import losses


def test_margin_is_the_lead_over_the_best_other_class() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, -1.0]])
    assert losses.margin(logits, torch.tensor([1, 1])).tolist() == [2.0, -1.0]


def test_tanh_margin_by_hand() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, -1.0]])
    expected = (math.tanh(-2.0) + math.tanh(1.0)) / 2
    assert losses.tanh_margin(logits, torch.tensor([1, 1])).item() == pytest.approx(expected)


def test_margin_is_positive_just_where_the_prediction_is_right() -> None:
    logits = torch.randn(500, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 7
    right = losses.margin(logits, labels) > 0
    assert right.double().mean() == losses.accuracy(logits.double(), labels)


def test_losses_have_gradients() -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    for name in ("tanh_margin", "cross_entropy"):
        loss = losses.get(name)
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, labels), logits)


def test_an_unknown_loss_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown loss 'tanhMargin': did you mean 'tanh_margin'"):
        losses.get("tanhMargin")


def test_the_log_margin_values_the_nearest_node_most() -> None:
    """Its slope falls with the margin where a node stands, and is zero once it has fallen a little way."""
    logits = torch.tensor([[0.1, 0.0], [1.0, 0.0], [5.0, 0.0], [-0.01, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    logits.requires_grad_()
    labels = torch.zeros(5, dtype=torch.long)
    loss = losses.log_margin(logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    worth = (-gradient[:, 0]).tolist()
    assert worth[3] > worth[0] > worth[1] > worth[2] > 0
    assert worth[4] == 0
    scaled = losses.log_margin(1e-4 * logits.detach(), labels)
    torch.testing.assert_close(loss.detach(), scaled)


def test_the_log_margin_is_smooth_at_the_boundary() -> None:
    logits = torch.tensor([[1e-9, 0.0], [-1e-9, 0.0], [4.0, -4.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(losses.log_margin(logits, torch.zeros(3, dtype=torch.long)), logits)
    torch.testing.assert_close(gradient[0], gradient[1], rtol=1e-6, atol=0)
    same = torch.zeros(3, 2, dtype=torch.float64)
    assert bool(losses.log_margin(same, torch.zeros(3, dtype=torch.long)).isfinite())


def test_the_log_margin_lets_go_a_fifth_of_the_near_margin_beyond_the_boundary() -> None:
    logits = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    near = 0.1 * float(logits.std(correction=0))
    for beyond, pushed in ((0.15, True), (0.25, False)):
        z = logits.clone()
        z[2, 0] = -beyond * near
        z.requires_grad_()
        (gradient,) = torch.autograd.grad(losses.log_margin(z, torch.zeros(3, dtype=torch.long)), z)
        assert bool(gradient[2].any()) == pushed


def test_the_scaled_margin_is_the_tanh_margin_at_a_median_margin_of_one() -> None:
    logits = torch.tensor([[4.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(3, dtype=torch.long)
    scaled, plain = losses.scaled_margin(logits, labels), losses.tanh_margin(logits / 2, labels)
    torch.testing.assert_close(scaled, plain)
    (gradient,) = torch.autograd.grad(scaled, logits)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(plain, logits)[0], msg="the scale is no part of the gradient"
    )


@pytest.mark.parametrize("scale", [1e-12, 1e5])
def test_no_scale_hides_from_the_scaled_margin(scale: float) -> None:
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(50) % 4
    gradients = {}
    for name in ("scaled_margin", "tanh_margin"):
        for factor in (1.0, scale):
            seen = (factor * logits).requires_grad_()
            gradients[name, factor] = torch.autograd.grad(losses.get(name)(seen, labels), seen)[0] * factor
    torch.testing.assert_close(gradients["scaled_margin", scale], gradients["scaled_margin", 1.0])
    assert gradients["tanh_margin", scale].abs().max() < 1e-3 * gradients["tanh_margin", 1.0].abs().max()


def test_the_scaled_margin_leaves_out_margins_of_zero() -> None:
    """Most nodes may have none, as where a model's last layer is dead for them."""
    logits = torch.zeros(7, 2, dtype=torch.float64)
    logits[:3, 0] = torch.tensor([4.0, -2.0, 1.0])
    labels = torch.zeros(7, dtype=torch.long)
    torch.testing.assert_close(losses.scaled_margin(logits, labels), losses.tanh_margin(logits / 2, labels))


def test_the_scaled_margin_bears_margins_of_zero() -> None:
    logits = torch.zeros(3, 2, requires_grad=True)
    loss = losses.scaled_margin(logits, torch.zeros(3, dtype=torch.long))
    assert loss == 0
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()
