"""What the steps of an ascent have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    r"""Steps :math:`p \leftarrow \Pi(p + \alpha_t \nabla_p L)`.

    Args:
        count: how many.
        loss: :math:`L`, the loss to raise, by name.
        learning_rate: :math:`\alpha_t` of step :math:`t = 1, 2, \dots`
        greedy: whether the projection :math:`\Pi` is :func:`~edgeproof.attacks.project_local`, which knows of local budgets, or
            :func:`~edgeproof.attacks.project_global`, which does not.
        size: of a block with other pairs, drawn after every step but the last; none to keep the pairs.
        keep_block: whether the last block is needed whole, and not only what is flipped of it.
    """

    count: int
    loss: str
    learning_rate: Callable[[int], float]
    greedy: bool
    size: int | None = None
    keep_block: bool = False

    def draws(self, total: int) -> bool:
        """Whether pairs are drawn anew, where there are so many in all: a block of all pairs stays."""
        return self.size is not None and self.size < total
