"""Where experiments run: on this machine, or on a cluster."""

from edgeproof.experiments.engines.base import Engine, EngineWarning, JobFailedError, Report
from edgeproof.experiments.engines.local import LocalEngine
from edgeproof.experiments.engines.ray import RayEngine

__all__ = ["Engine", "EngineWarning", "JobFailedError", "LocalEngine", "RayEngine", "Report"]
