"""Attacks by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgeproof._names import look_up, unknown_name
from edgeproof.attacks.base import Attack
from edgeproof.attacks.dice import DICE, RandomFlips
from edgeproof.attacks.eva import EvA
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.node_selection import NodeSelection
from edgeproof.attacks.query_gain import QueryGain
from edgeproof.attacks.rbcd import LRBCD, PGD, PRBCD

_ATTACKS: dict[str, type[Attack]] = {
    attack.__name__: attack
    for attack in (DICE, EvA, ExactGain, FGSM, GreedyRBCD, LRBCD, NodeSelection, PGD, PRBCD, QueryGain, RandomFlips)
}


def available() -> list[str]:
    """Return the names of all attacks.

    >>> available()
    ['DICE', 'EvA', 'ExactGain', 'FGSM', 'GreedyRBCD', 'LRBCD', 'NodeSelection', 'PGD', 'PRBCD', 'QueryGain', 'RandomFlips']
    """
    return list(_ATTACKS)


def build(name: str, settings: Mapping[str, Any] | None = None) -> Attack:
    """Construct an attack by name.

    Args:
        name: One of :func:`available`.
        settings: Keyword arguments of the constructor.

    Raises:
        ValueError: If the name or a setting is unknown; the message suggests the nearest known one.

    >>> build("LRBCD", {"steps": 20})
    LRBCD(steps=20, block_size=500000, lr=100.0, samples=20, loss='tanh_margin')
    """
    constructor = look_up("attack", name, _ATTACKS)
    settings = dict(settings or {})
    valid = [field.name for field in fields(constructor)]
    for key in settings:
        if key not in valid:
            raise unknown_name(f"setting of {name}", key, valid)
    return constructor(**settings)
