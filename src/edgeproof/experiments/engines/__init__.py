"""Engines that run experiments: processes on this machine, or a Ray cluster."""

from edgeproof.experiments.engines.base import Engine, EngineWarning, JobFailedError, Report
from edgeproof.experiments.engines.local import LocalEngine
from edgeproof.experiments.engines.ray import RayEngine

__all__ = ["Engine", "EngineWarning", "JobFailedError", "LocalEngine", "RayEngine", "Report"]
