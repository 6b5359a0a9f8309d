"""Measure and improve the robustness of graph neural networks to edge perturbations.

Attributes are loaded on first use, so that ``import edgeproof`` and the command line start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgeproof._version import __version__

if TYPE_CHECKING:
    from edgeproof import (
        analysis,
        attacks,
        certificates,
        datasets,
        evaluation,
        losses,
        models,
        propagation,
        report,
        splits,
    )
    from edgeproof import budget as budget
    from edgeproof import graph as graph
    from edgeproof import kernels as kernels
    from edgeproof import serialization as serialization
    from edgeproof import training as training
    from edgeproof._checks import check_data
    from edgeproof.budget import Budget
    from edgeproof.constraints import Constraints
    from edgeproof.evaluation.evaluate import evaluate
    from edgeproof.graph import num_classes
    from edgeproof.models.io import load, save
    from edgeproof.training.train import train

__all__ = [
    "Budget",
    "Constraints",
    "__version__",
    "analysis",
    "attacks",
    "certificates",
    "check_data",
    "datasets",
    "evaluate",
    "evaluation",
    "load",
    "losses",
    "models",
    "num_classes",
    "propagation",
    "report",
    "save",
    "splits",
    "train",
]

_FUNCTIONS = {
    "Budget": "edgeproof.budget",
    "Constraints": "edgeproof.constraints",
    "check_data": "edgeproof._checks",
    "evaluate": "edgeproof.evaluation.evaluate",
    "load": "edgeproof.models.io",
    "num_classes": "edgeproof.graph",
    "save": "edgeproof.models.io",
    "train": "edgeproof.training.train",
}
_MODULES = {
    "analysis",
    "attacks",
    "budget",
    "certificates",
    "datasets",
    "evaluation",
    "graph",
    "kernels",
    "losses",
    "models",
    "propagation",
    "report",
    "serialization",
    "splits",
    "training",
}


if not TYPE_CHECKING:  # a module-level __getattr__ would hide misspelt attributes from type checkers

    def __getattr__(name: str) -> Any:
        """Load a public attribute on first use (PEP 562)."""
        if name in _MODULES:
            return import_module(f"edgeproof.{name}")
        if name in _FUNCTIONS:
            value = getattr(import_module(_FUNCTIONS[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'edgeproof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
