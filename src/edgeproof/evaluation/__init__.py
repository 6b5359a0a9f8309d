"""How well a model does on nodes that it is asked about."""

from edgeproof.evaluation.clean import clean_accuracy, clean_scores

__all__ = ["clean_accuracy", "clean_scores"]
