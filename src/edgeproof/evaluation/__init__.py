"""Accuracy of models on the clean graph and under attack."""

from edgeproof.evaluation.baselines import majority, mlp_accuracy
from edgeproof.evaluation.checks import EvaluationWarning
from edgeproof.evaluation.clean import clean_accuracy, clean_scores
from edgeproof.evaluation.evaluate import evaluate
from edgeproof.evaluation.evaluation import AttackScore, Evaluation
from edgeproof.evaluation.explanation import Explanation, Neighbor, explain
from edgeproof.evaluation.fragility import fragility
from edgeproof.evaluation.fragility_result import Fragility, NodeFragility
from edgeproof.models.model_probe import ModelCheck, check_model

__all__ = [
    "AttackScore",
    "Evaluation",
    "EvaluationWarning",
    "Explanation",
    "Fragility",
    "ModelCheck",
    "Neighbor",
    "NodeFragility",
    "check_model",
    "clean_accuracy",
    "clean_scores",
    "evaluate",
    "explain",
    "fragility",
    "majority",
    "mlp_accuracy",
]
