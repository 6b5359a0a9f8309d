"""Lookup by name with suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")

# Names here, each with names that other libraries have for it. The first one that is known is suggested.
_SYNONYMS: Mapping[str, str] = {
    "lr": "learning_rate eta step_size",
    "max_epochs": "epochs epoch num_epochs n_epochs nb_epochs",
    "steps": "epochs num_steps n_steps iterations num_iterations iters n_iter max_iter max_iterations attack_steps",
    "weight_decay": "wd l2 l2_reg l2_penalty decay",
    "patience": "early_stopping early_stop n_iter_no_change",
    "warmup_epochs": "warmup warm_up warmup_steps",
    "averaging": "ema ema_decay swa",
    "select": "monitor",
    "hidden_channels": "hidden hidden_dim hidden_size hidden_features num_hidden nhid width",
    "num_layers": "layers n_layers depth",
    "heads": "num_heads n_heads",
    "dropout": "p drop dropout_rate drop_rate drop_prob",
    "seed": "seeds random_state random_seed rng",
    "seeds": "seed random_state random_seed",
    "epsilon": "eps epsilons budget budgets perturbation_rate",
    "epsilons": "eps epsilon budget budgets",
    "local": "local_budget",
    "samples": "num_samples n_samples mc_samples",
    "test_share": "test_fraction test_size test_ratio",
    "test_fraction": "test_share test_size test_ratio",
    "train_per_class": "num_train_per_class train_size",
    "val_per_class": "num_val num_val_per_class val_size",
    "config": "settings",
    "dataset": "data graph input datasets",
    "split": "splits",
    "model": "models network checkpoint",
    "training": "trainings train",
    "measurement": "measurements attack evaluate metric metrics",
    "out": "output output_file out_file",
    "device": "gpu cuda",
    "quiet": "silent no_progress",
    "force": "overwrite",
    "set": "setting settings",
    "fail_below": "threshold min_accuracy fail_under",
    "masks": "mask mask_file",
}
# A name of lower similarity is more likely to mislead.
_SIMILAR = 0.65
# A name of this similarity differs by a letter or two.
_MISSPELT = 0.9


def nearest_name(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None.

    That is the name for the same thing here, the only name with the same words, or a similarly spelt one.

    >>> nearest_name("learning_rate", ["lr", "label_models"]), nearest_name("epochs", ["min_epochs", "max_epochs"])
    ('lr', 'max_epochs')
    >>> nearest_name("restarts", ["max_restarts", "seed"]), nearest_name("optimizer", ["lr", "seed"]) is None
    ('max_restarts', True)
    """
    known = list(known)
    spelling = {_plain(candidate): candidate for candidate in known}
    plain = _plain(name)
    if plain in spelling:
        return spelling[plain]
    for here, others in _SYNONYMS.items():
        if here in spelling and plain.replace("_", "") in others.replace("_", "").split():
            return spelling[here]
    misspelt = difflib.get_close_matches(plain, spelling, n=1, cutoff=_MISSPELT)
    if misspelt:
        return spelling[misspelt[0]]
    same_words = [candidate for key, candidate in spelling.items() if f"_{plain}_" in f"_{key}_"]
    same_start = [candidate for key, candidate in spelling.items() if len(plain) > 2 and key.startswith(plain)]
    for found in (same_words, same_start):
        if len(found) == 1:
            return found[0]
    near = difflib.get_close_matches(plain, spelling, n=1, cutoff=_SIMILAR)
    return spelling[near[0]] if near else None


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for an unknown name; its message lists the known names and suggests the nearest one.

    >>> print(unknown_name("model", "GPRGN", ["GCN", "GPRGNN"]))
    unknown model 'GPRGN': did you mean 'GPRGNN'? Known: GCN, GPRGNN
    """
    known = list(known)
    near = nearest_name(name, known)
    hint = f": did you mean {near!r}?" if near is not None else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def look_up(kind: str, name: object, table: Mapping[str, T]) -> T:
    """Return ``table[name]``, or raise the :class:`ValueError` of :func:`unknown_name`."""
    if not isinstance(name, str) or name not in table:
        raise unknown_name(kind, name, table)
    return table[name]


def _plain(name: object) -> str:
    return str(name).casefold().replace("-", "_")
