"""Small jobs that run in tests."""

from __future__ import annotations

from edgeproof.experiments import (
    AttackSpec,
    CertifiedAccuracy,
    CleanAccuracy,
    DatasetSpec,
    Job,
    ModelSpec,
    RobustAccuracy,
    Run,
    SplitSpec,
    TrainingSpec,
    as_settings,
)
from edgeproof.experiments.graphs import with_fingerprint

# More epochs than between two checkpoints.
FAST = as_settings({"max_epochs": 30, "warmup_epochs": 10})
MEASUREMENTS = (
    CleanAccuracy(),
    RobustAccuracy(AttackSpec("LRBCD", as_settings({"steps": 10, "block_size": 10_000})), (0.1, 0.25), 0.5),
)
CERTIFICATE = CertifiedAccuracy(samples=600, choosing_samples=50)


def small_run(model: str = "GCN", attack: str | None = None, seed: int = 0) -> Run:
    """A run on a generated graph that takes about a second."""
    training = TrainingSpec(config=FAST)
    if attack is not None:
        against = AttackSpec.for_training(attack, {"steps": 2, "block_size": 10_000})
        training = TrainingSpec(config=FAST, attack=against, epsilon=0.2, local=0.5)
    dataset = with_fingerprint(DatasetSpec("csbm"), masks=True)
    return Run(dataset, SplitSpec("provided", test_on_val=True), ModelSpec(model), training, seed)


def small_jobs() -> list[Job]:
    """A clean and an adversarial training, with two measurements each."""
    return [Job(small_run(), MEASUREMENTS), Job(small_run("GPRGNN", "LRBCD"), MEASUREMENTS)]
