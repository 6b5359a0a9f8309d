"""What is measured of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeproof.attacks import DICE, FGSM, LRBCD, PGD, PRBCD, Attack, GreedyRBCD
from edgeproof.budget import Budget
from edgeproof.certificates import Certificate, CountsPart, SparseSmoothing, join_parts
from edgeproof.certificates.sparse_smoothing import node_labels
from edgeproof.evaluation import clean_accuracy
from edgeproof.experiments.looks import BINS, degrees_of, diffusion_of, filter_of
from edgeproof.experiments.paper import Column, epsilons, is_large
from edgeproof.experiments.recipe import Recipe, local_share
from edgeproof.experiments.values import radii
from edgeproof.models import GraphModel
from edgeproof.splits import Split

_SMOOTHING = SparseSmoothing(p_add=0.01, p_del=0.6)
SAMPLES, _CHOOSING, _ALPHA = 100_000, 1_000, 0.05
# Where every random graph costs a diffusion of its own, fewer of them vote: the certificate stays valid and says a little less.
FEWER_SAMPLES = {"SoftMedianGDC": 10_000}
# Tasks of a cluster that a certificate's samples are spread over, and how many each of them has at least.
_TASKS, _LEAST_SAMPLES = 10, 1_000
# Measurements for figures that are an attack under another name: which attack.
_ATTACKS = {"LRBCD-global": "LRBCD", "LRBCD-global-slow": "LRBCD", "degrees": "PRBCD"}
_DEGREES_AT = (0.1, 0.25)
# Where it is not the attack's own.
_LEARNING_RATES = {"LRBCD-global-slow": 3.0}


@dataclass(frozen=True)
class Measure:
    """One kind of measurement of one trained model, at all budgets or radii of its kind.

    Args:
        recipe: how the model is trained.
        kind: ``"clean"``, the name of an attack, or ``"smoothing"``. For figures also ``"LRBCD-global"``, LR-BCD without local
            budgets, and ``"LRBCD-global-slow"``, the same with a smaller learning rate; ``"degrees"``, at which nodes PR-BCD
            succeeds; ``"filter"``, the learned coefficients; ``"diffusion"``, on a small graph, who hears whom.
    """

    recipe: Recipe
    kind: str

    @classmethod
    def of(cls, recipe: Recipe, column: Column) -> Measure:
        """The measurement that a cell of a table is part of."""
        return cls(recipe, column.attack)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the outcome."""
        about: dict[str, Any] = {"kind": self.kind, "training": self.recipe.identity}
        if self.kind == "smoothing":
            samples = self.samples
            return {**about, "smoothing": repr(_SMOOTHING), "samples": samples, "choosing": _CHOOSING, "alpha": _ALPHA}
        if self.kind == "filter":
            return {**about, "bins": BINS}
        if self.kind not in ("clean", "diffusion"):
            about |= {
                "attack": repr(self.attack),
                "epsilons": list(self.epsilons),
                "local": self.local,
                "count": "incident",
            }
        return about

    @property
    def samples(self) -> int:
        return 1_000 if self.recipe.fast else FEWER_SAMPLES.get(self.recipe.row.model, SAMPLES)

    @property
    def epsilons(self) -> tuple[float, ...]:
        return _DEGREES_AT if self.kind == "degrees" else epsilons(self.recipe.row, self.attack_name)

    @property
    def local(self) -> float | None:
        return local_share(self.recipe.row.dataset) if self.kind == "LRBCD" else None

    @property
    def attack_name(self) -> str:
        return _ATTACKS.get(self.kind, self.kind)

    @property
    def attack(self) -> Attack:
        name, large, fast = self.attack_name, is_large(self.recipe.row.dataset), self.recipe.fast
        block_size = 10_000 if fast else 3_000_000 if large else 500_000
        if name == "LRBCD":
            lr = _LEARNING_RATES.get(self.kind, LRBCD.lr)
            return LRBCD(steps=10 if fast else 400, block_size=block_size, lr=lr)
        if name == "PRBCD":
            attack = PRBCD(block_size=block_size)
            return replace(attack, steps=8, fine_tune_steps=2) if fast else attack
        if name == "GreedyRBCD":
            return replace(GreedyRBCD(), steps=5) if fast else GreedyRBCD()
        return {"PGD": PGD(steps=10 if fast else 400), "FGSM": FGSM(), "DICE": DICE()}[name]

    def run(self, model: GraphModel, split: Split, votes: Path | None = None) -> dict[str, Any]:
        """Accuracies on the test nodes, between 0 and 1, or what else the kind asks for.

        Args:
            model: trained by the recipe.
            split: whose test nodes.
            votes: where a certificate keeps the votes that it has, to go on with.
        """
        graph, nodes, seed = split.test.data, split.test.nodes, self.recipe.seed
        if self.kind == "clean":
            return {"accuracy": [[0.0, clean_accuracy(model, graph, nodes)]]}
        if self.kind == "smoothing":
            certificate = _SMOOTHING.certify(
                *(model, graph, nodes, self.samples, _ALPHA, seed),
                choosing_samples=_CHOOSING,
                checkpoint=votes,
                progress=False,
            )
            return _certified(certificate)
        if self.kind == "filter":
            return filter_of(model, graph)
        if self.kind == "diffusion":
            return diffusion_of(model, graph)
        budgets = Budget.from_epsilons(graph, nodes, list(self.epsilons), local=self.local)
        results = self.attack(model, graph, nodes, budgets, seed=seed)
        if self.kind == "degrees":
            return degrees_of(results, self.epsilons, graph)
        return {"accuracy": [[epsilon, one.accuracy] for epsilon, one in zip(self.epsilons, results, strict=True)]}

    @property
    def shares(self) -> int:
        """Into how many tasks a cluster may divide it."""
        return max(1, min(_TASKS, self.samples // _LEAST_SAMPLES)) if self.kind == "smoothing" else 1

    def vote(self, model: GraphModel, split: Split, share: int, shares: int) -> CountsPart:
        """A share of what a certificate takes; :meth:`decide` gives from all of them what :meth:`run` would."""
        graph, nodes, seed = split.test.data, split.test.nodes, self.recipe.seed
        given = (model, graph, nodes, share, shares, self.samples, seed)
        return _SMOOTHING.sample_part(*given, choosing_samples=_CHOOSING)

    def decide(self, shares: Sequence[CountsPart], split: Split) -> dict[str, Any]:
        """What :meth:`run` would have found."""
        labels = node_labels(split.test.data, split.test.nodes)
        return _certified(_SMOOTHING.certify_counts(join_parts(shares), _ALPHA, labels=labels))


def _certified(certificate: Certificate) -> dict[str, Any]:
    added, deleted = certificate.average_certifiable_radius
    return {
        "certified_accuracy": [[*radius, certificate.accuracy(*radius)] for radius in radii()],
        "average_certifiable_radius": [added, deleted],
        "abstained": float(certificate.abstained.double().mean()),
    }


def value(values: dict[str, Any], column: Column) -> float:
    """What a measurement found for one column, in percent."""
    if column.attack == "smoothing":
        found = {(added, deleted): accuracy for added, deleted, accuracy in values["certified_accuracy"]}
        return 100 * float(found[column.r_add, column.r_del])
    return 100 * float(dict(values["accuracy"])[column.epsilon])
