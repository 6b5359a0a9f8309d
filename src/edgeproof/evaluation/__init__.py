"""How well a model does on nodes that it is asked about, on the graph as it is and under attack."""

from edgeproof.evaluation.checks import EvaluationWarning
from edgeproof.evaluation.clean import clean_accuracy, clean_scores
from edgeproof.evaluation.evaluate import Evaluation, Row, evaluate
from edgeproof.models.model_probe import ModelCheck, check_model

__all__ = [
    "Evaluation",
    "EvaluationWarning",
    "ModelCheck",
    "Row",
    "check_model",
    "clean_accuracy",
    "clean_scores",
    "evaluate",
]
