"""Warnings with stable codes. ``docs/warnings.md`` has one section per code: what it means and what to do."""

from __future__ import annotations

import warnings

# Where the documentation is published; docs/warnings.md has an anchor per code.
DOCS_URL = "https://edgeproof.github.io/edgeproof"

TITLES = {
    # Evaluation.
    "EP001": "Random outputs",
    "EP002": "Vanishing gradients",
    "EP003": "Unusual scale of the logits",
    "EP004": "A weak attack beats a strong one",
    "EP005": "Robust accuracy rises with the budget",
    "EP006": "A transferred attack beats the adaptive ones",
    "EP007": "Budget without flips",
    "EP008": "Epsilon above 1",
    "EP009": "Search still improving",
    # Training.
    "EP101": "Weak label model",
    "EP102": "Label models disagree or miss classes",
    "EP103": "Label models keep trained parameters",
    "EP104": "Model no better than a constant prediction",
    "EP105": "Main run far below its own warm-up",
    "EP106": "Training nodes fitted much better than validation nodes",
    "EP107": "Training restarted with another seed",
    # Experiments.
    "EP201": "Damaged stored result",
    "EP202": "Stored result under a wrong name",
    "EP203": "Training restarted from the beginning",
    "EP204": "Sampling restarted from the beginning",
    "EP205": "Stored model does not match its result",
    "EP206": "Job cannot be scheduled on the cluster",
    # Datasets.
    "EP301": "Graph changed when it was read",
}


class EdgeproofWarning(UserWarning):
    """Base class of all warnings of the library.

    Args:
        code: One of :data:`TITLES`.
        message: What is wrong and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(with_code(code, message))
        self.code = code


def with_code(code: str, message: str) -> str:
    """Put the code before the message and a link to its section of the documentation behind it.

    >>> print(with_code("EP001", "two runs on the same graph give different logits"))
    EP001: two runs on the same graph give different logits (https://edgeproof.github.io/edgeproof/warnings.html#ep001)
    """
    if code not in TITLES:
        raise KeyError(code)
    return f"{code}: {message} ({DOCS_URL}/warnings.html#{code.lower()})"


def warn(code: str, message: str, category: type[EdgeproofWarning] = EdgeproofWarning, *, stacklevel: int = 1) -> None:
    """Issue a warning with a code; ``stacklevel=1`` names the caller of this function."""
    warnings.warn(category(code, message), stacklevel=stacklevel + 1)
