"""Structure attacks: edge flips within a budget that minimize a model's accuracy."""

from edgeproof.attacks.base import Attack, AttackResult
from edgeproof.attacks.blocks import Block, resample, sample_block
from edgeproof.attacks.dice import DICE, RandomFlips
from edgeproof.attacks.eva import EvA
from edgeproof.attacks.exact_gain import ExactGain
from edgeproof.attacks.exact_search import ExactSearch
from edgeproof.attacks.fgsm import FGSM
from edgeproof.attacks.fixed import FixedFlips
from edgeproof.attacks.greedy_rbcd import GreedyRBCD
from edgeproof.attacks.local_search import LocalSearch
from edgeproof.attacks.node_selection import NodeSelection
from edgeproof.attacks.projections import discretize, project_global, project_local
from edgeproof.attacks.query_gain import QueryGain
from edgeproof.attacks.rbcd import LRBCD, PGD, PRBCD
from edgeproof.attacks.registry import available, build

__all__ = [
    "DICE",
    "FGSM",
    "LRBCD",
    "PGD",
    "PRBCD",
    "Attack",
    "AttackResult",
    "Block",
    "EvA",
    "ExactGain",
    "ExactSearch",
    "FixedFlips",
    "GreedyRBCD",
    "LocalSearch",
    "NodeSelection",
    "QueryGain",
    "RandomFlips",
    "available",
    "build",
    "discretize",
    "project_global",
    "project_local",
    "resample",
    "sample_block",
]
