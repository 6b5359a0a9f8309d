"""Every attack by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgeproof._names import look_up, unknown_name
from edgeproof.attacks.base import Attack
from edgeproof.attacks.dice import DICE, RandomFlips
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.lrbcd import LRBCD
from edgeproof.attacks.pgd import PGD
from edgeproof.attacks.prbcd import PRBCD

_ATTACKS: dict[str, type[Attack]] = {
    attack.__name__: attack for attack in (DICE, FGSM, GreedyRBCD, LRBCD, PGD, PRBCD, RandomFlips)
}


def available() -> list[str]:
    """Names of all attacks.

    >>> available()
    ['DICE', 'FGSM', 'GreedyRBCD', 'LRBCD', 'PGD', 'PRBCD', 'RandomFlips']
    """
    return list(_ATTACKS)


def build(name: str, settings: Mapping[str, Any] | None = None) -> Attack:
    """An attack by name.

    Args:
        name: one of :func:`available`.
        settings: arguments of its constructor.

    >>> build("LRBCD", {"steps": 20})
    LRBCD(steps=20, block_size=500000, lr=100.0, samples=20, loss='tanh_margin')
    """
    constructor = look_up("attack", name, _ATTACKS)
    settings = dict(settings or {})
    known = [field.name for field in fields(constructor)]
    for key in settings:
        if key not in known:
            raise unknown_name(f"setting of {name}", key, known)
    return constructor(**settings)
