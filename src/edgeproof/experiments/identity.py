"""Identities of results: explicit, versioned dictionaries that omit everything equal to its default.

Results are stored under the hash of their identity. An omitted setting has its value in :data:`DEFAULTS`, even if the default
in the code has changed since. Therefore a new option with a default changes no identity, and after a change of a default the
identities of new results contain the setting, so that they are not confused with old results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from edgeproof.experiments.defaults import DEFAULTS

VERSION = 3


def key_of(identity: Mapping[str, Any]) -> str:
    """Return the key of a result: a hash of its identity that does not depend on the order of entries.

    >>> key_of({"model": "GCN", "seed": 0}) == key_of({"seed": 0, "model": "GCN"})
    True
    >>> key_of({"model": "GCN", "seed": 0}) == key_of({"model": "GCN", "seed": 1})
    False
    """
    return hashlib.sha256(canonical(identity).encode()).hexdigest()[:20]


def canonical(value: Mapping[str, Any]) -> str:
    """Return the JSON text that is hashed; raises ``ValueError`` for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def non_default(owner: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults, which identities contain.

    Args:
        owner: Key of :data:`DEFAULTS`.
        values: All settings of the owner.
        defaults: Defaults in the code, used only for settings that :data:`DEFAULTS` does not list.

    >>> non_default("TrainConfig", {"lr": 0.1, "patience": 200, "new_option": None}, {"new_option": None})
    {'lr': 0.1}
    """
    omitted = {**defaults, **DEFAULTS.get(owner, {})}
    entries = {name: plain(value, omitted.get(name)) for name, value in sorted(values.items())}
    return {name: value for name, value in entries.items() if name not in omitted or not _same(value, omitted[name])}


def plain(value: Any, like: object = None) -> Any:
    """Convert a value to its JSON form: tuples become lists, and integers become floats where ``like`` is a float."""
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(like, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def without_empty(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Drop entries that are None, False, or an empty dictionary."""
    return {name: value for name, value in entries.items() if value is not None and value is not False and value != {}}


def _same(value: Any, default: Any) -> bool:
    """Whether two values are equal; unlike ``==``, 1 and True differ."""
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == plain(default))
