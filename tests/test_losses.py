from __future__ import annotations

import math

import pytest
import torch

from edgeproof import losses


def test_margin_is_difference_to_best_other_class() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, -1.0]])
    assert losses.margin(logits, torch.tensor([1, 1])).tolist() == [2.0, -1.0]


def test_tanh_margin_value() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [5.0, 4.0, -1.0]])
    expected = (math.tanh(-2.0) + math.tanh(1.0)) / 2
    assert losses.tanh_margin(logits, torch.tensor([1, 1])).item() == pytest.approx(expected)


def test_margin_is_positive_iff_correctly_classified() -> None:
    logits = torch.randn(500, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 7
    correct = losses.margin(logits, labels) > 0
    assert correct.double().mean() == losses.accuracy(logits.double(), labels)


def test_losses_pass_gradcheck() -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    for name in ("tanh_margin", "cross_entropy"):
        loss = losses.get(name)
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, labels), logits)


def test_unknown_loss_suggests_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown loss 'tanhMargin': did you mean 'tanh_margin'"):
        losses.get("tanhMargin")


def test_log_margin_gradient_is_largest_near_the_boundary() -> None:
    """The gradient decreases with the margin, and is zero for nodes misclassified by more than the cutoff."""
    logits = torch.tensor([[0.1, 0.0], [1.0, 0.0], [5.0, 0.0], [-0.01, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    logits.requires_grad_()
    labels = torch.zeros(5, dtype=torch.long)
    loss = losses.log_margin(logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    magnitude = (-gradient[:, 0]).tolist()
    assert magnitude[3] > magnitude[0] > magnitude[1] > magnitude[2] > 0
    assert magnitude[4] == 0
    scaled = losses.log_margin(1e-4 * logits.detach(), labels)
    torch.testing.assert_close(loss.detach(), scaled)


def test_log_margin_is_differentiable_at_the_boundary() -> None:
    logits = torch.tensor([[1e-9, 0.0], [-1e-9, 0.0], [4.0, -4.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(losses.log_margin(logits, torch.zeros(3, dtype=torch.long)), logits)
    torch.testing.assert_close(gradient[0], gradient[1], rtol=1e-6, atol=0)
    same = torch.zeros(3, 2, dtype=torch.float64)
    assert bool(losses.log_margin(same, torch.zeros(3, dtype=torch.long)).isfinite())


def test_log_margin_cutoff_for_misclassified_nodes() -> None:
    logits = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    scale = 0.1 * float(logits.std(correction=0))
    for excess, has_gradient in ((0.15, True), (0.25, False)):
        z = logits.clone()
        z[2, 0] = -excess * scale
        z.requires_grad_()
        (gradient,) = torch.autograd.grad(losses.log_margin(z, torch.zeros(3, dtype=torch.long)), z)
        assert bool(gradient[2].any()) == has_gradient


def test_scaled_margin_is_tanh_margin_at_unit_median() -> None:
    logits = torch.tensor([[4.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(3, dtype=torch.long)
    scaled, plain = losses.scaled_margin(logits, labels), losses.tanh_margin(logits / 2, labels)
    torch.testing.assert_close(scaled, plain)
    (gradient,) = torch.autograd.grad(scaled, logits)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(plain, logits)[0], msg="the scale must be constant in the gradient"
    )


@pytest.mark.parametrize("scale", [1e-12, 1e5])
def test_scaled_margin_gradient_is_scale_invariant(scale: float) -> None:
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(50) % 4
    gradients = {}
    for name in ("scaled_margin", "tanh_margin"):
        for factor in (1.0, scale):
            scaled = (factor * logits).requires_grad_()
            gradients[name, factor] = torch.autograd.grad(losses.get(name)(scaled, labels), scaled)[0] * factor
    torch.testing.assert_close(gradients["scaled_margin", scale], gradients["scaled_margin", 1.0])
    assert gradients["tanh_margin", scale].abs().max() < 1e-3 * gradients["tanh_margin", 1.0].abs().max()


def test_scaled_margin_ignores_zero_margins_in_median() -> None:
    """Most margins may be zero, for example with dead units in the last layer."""
    logits = torch.zeros(7, 2, dtype=torch.float64)
    logits[:3, 0] = torch.tensor([4.0, -2.0, 1.0])
    labels = torch.zeros(7, dtype=torch.long)
    torch.testing.assert_close(losses.scaled_margin(logits, labels), losses.tanh_margin(logits / 2, labels))


def test_scaled_margin_of_all_zero_margins_is_finite() -> None:
    logits = torch.zeros(3, 2, requires_grad=True)
    loss = losses.scaled_margin(logits, torch.zeros(3, dtype=torch.long))
    assert loss == 0
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()
