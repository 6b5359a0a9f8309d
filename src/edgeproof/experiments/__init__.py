"""Experiments: declared runs (dataset x split x model x training x seed) and measurements, engines, and a store of results."""

from edgeproof.experiments.analyses import AttackedDegrees, DiffusionMatrix, LearnedFilter, LogitMargins
from edgeproof.experiments.comparisons import ClassAccuracy, MemorizingAccuracy, PlainAccuracy, PygRobustAccuracy
from edgeproof.experiments.engines import Engine, EngineWarning, JobFailedError, LocalEngine, RayEngine, Report
from edgeproof.experiments.measurements import CertifiedAccuracy, CleanAccuracy, Evaluated, RobustAccuracy
from edgeproof.experiments.plan import missing_jobs
from edgeproof.experiments.proven import ProvenAccuracy
from edgeproof.experiments.runner import Interrupted, run_jobs
from edgeproof.experiments.spec import AttackSpec, DatasetSpec, ModelSpec, SplitSpec, TrainingSpec, as_settings
from edgeproof.experiments.store import Record, Store, StoreWarning
from edgeproof.experiments.summary import SeedMean, SweepTable, summarize
from edgeproof.experiments.sweep import Job, Measurement, Run, Sweep, Task, register
from edgeproof.experiments.toml import read_sweep
from edgeproof.experiments.worst_case import WorstCase

__all__ = [
    "AttackSpec",
    "AttackedDegrees",
    "CertifiedAccuracy",
    "ClassAccuracy",
    "CleanAccuracy",
    "DatasetSpec",
    "DiffusionMatrix",
    "Engine",
    "EngineWarning",
    "Evaluated",
    "Interrupted",
    "Job",
    "JobFailedError",
    "LearnedFilter",
    "LocalEngine",
    "LogitMargins",
    "Measurement",
    "MemorizingAccuracy",
    "ModelSpec",
    "PlainAccuracy",
    "ProvenAccuracy",
    "PygRobustAccuracy",
    "RayEngine",
    "Record",
    "Report",
    "RobustAccuracy",
    "Run",
    "SeedMean",
    "SplitSpec",
    "Store",
    "StoreWarning",
    "Sweep",
    "SweepTable",
    "Task",
    "TrainingSpec",
    "WorstCase",
    "as_settings",
    "missing_jobs",
    "read_sweep",
    "register",
    "run_jobs",
    "summarize",
]
