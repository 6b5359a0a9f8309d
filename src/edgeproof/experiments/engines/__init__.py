"""Where experiments run: on this machine, or on a cluster."""

from edgeproof.experiments.engines.base import Engine, JobFailedError, Report
from edgeproof.experiments.engines.local import LocalEngine
from edgeproof.experiments.engines.ray import RayEngine

__all__ = ["Engine", "JobFailedError", "LocalEngine", "RayEngine", "Report"]
