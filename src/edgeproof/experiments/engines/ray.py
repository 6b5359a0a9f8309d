"""An existing Ray cluster: models and results travel through Ray, so its nodes share nothing but the network.

The driver hands out every training as a task of its own, keeps the model that comes back, and hands it on to the tasks that
measure it. A certificate's random graphs are spread over several tasks, and one more decides what follows from their votes. A
task whose worker or node dies is given to another one, by Ray; a model or a measurement that has come back is in the driver's
store, and never asked for again. ClassCounts are in no store before all of a certificate's have come back.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgeproof.experiments.engines.base import EngineWarning, Report, raise_if_failed, unusable_graphs
from edgeproof.experiments.plan import Job
from edgeproof.experiments.store import Store
from edgeproof.experiments.work import Product, certified, counted, keep, known_model, measured, trained

# Attempts at a task whose worker or node died, beyond the first.
_RETRIES = 3


class RayEngine:
    """Tasks on a Ray cluster.

    Args:
        address: of the cluster, as ``ray start`` prints it; none for the one that this machine belongs to, or a new one on this
            machine.
        cpus: cores that a task takes.
        gpus: share of a GPU that a task takes; above 0, tasks compute there.
        log_dir: where TensorBoard will look for how trainings went, on the driver's machine; by default nowhere.
    """

    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, log_dir: Path | None = None
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("the Ray engine needs Ray: pip install 'edgeproof[ray]'") from error
        if cpus <= 0 or gpus < 0:
            raise ValueError(f"expected cpus > 0 and gpus >= 0, got {cpus} and {gpus}")
        self.ray: Any = ray
        self.address, self.cpus, self.gpus, self.log_dir = address, cpus, gpus, log_dir
        self.device, self.threads = "cuda" if gpus else "cpu", max(1, int(cpus))

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """See :class:`~edgeproof.experiments.engines.Engine`."""
        ray = self.ray
        ours = not ray.is_initialized()
        if ours:
            _check_answers(self.address)
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        run = _Run(self, jobs, store, command, report)
        try:
            self._look_for_nodes()
            run.all()
        except BaseException:
            for reference in (*run.waiting, *run.shares):
                ray.cancel(reference, force=True)
            raise
        finally:
            if ours:
                ray.shutdown()
        raise_if_failed(run.failures, len(jobs))

    def _look_for_nodes(self) -> None:
        """Say so where tasks would wait for ever, unless another node joins."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus for node in nodes):
            there = "; ".join(f"{node.get('CPU', 0):g} cores, {node.get('GPU', 0):g} GPUs" for node in nodes)
            warnings.warn(
                f"no node of the cluster has {self.cpus:g} cores and {self.gpus:g} GPUs for a task ({there or 'no nodes'}): "
                "everything waits until one joins",
                EngineWarning,
                stacklevel=3,
            )


def _check_answers(address: str | None) -> None:
    """Raise now if nobody listens there: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        # A name that Ray knows, such as "auto", or none.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"expected a Ray cluster at {address}, got no answer ({error}); ray start --head prints its address"
        ) from error


class _Run:
    """What is under way."""

    def __init__(
        self, engine: RayEngine, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]
    ) -> None:
        self.engine, self.ray, self.jobs, self.store, self.report = engine, engine.ray, jobs, store, report
        options = {"num_cpus": engine.cpus, "num_gpus": engine.gpus, "max_retries": _RETRIES}
        self.train, self.measure, self.count = (
            self.ray.remote(**options)(function) for function in (trained, measured, counted)
        )
        # Needs no GPU.
        self.certify = self.ray.remote(**{**options, "num_gpus": 0})(certified)
        self.place, self.command = (engine.device, engine.threads), command
        # What each task is about: a job, and whether it is its training.
        self.waiting: dict[Any, tuple[Job, bool]] = {}
        # Tasks that others wait for.
        self.shares: list[Any] = []
        self.left = {job: len(job.measures) for job in jobs}
        self.failures: list[Report] = []
        # Sent to the cluster once.
        self.graphs: dict[str, Any] = {}

    def all(self) -> None:
        """Start everything, and take what comes back until nothing is left."""
        unusable = unusable_graphs(self.jobs, self.store)
        for job in self.jobs:
            # What needs other graphs goes on.
            name = job.row.dataset
            if name not in unusable and name not in self.graphs:
                try:
                    self.graphs[name] = self.ray.put(job.recipe.data())
                except (OSError, ValueError, ImportError) as error:
                    unusable[name] = error
            if name in unusable:
                self._fail(job, unusable[name])
                continue
            graph = self.graphs[name]
            model = known_model(job, self.store)
            if model is None:
                self.waiting[self.train.remote(job.recipe, graph, *self.place, self.command)] = (job, True)
            else:
                self._measure(job, model)
        while self.waiting:
            (reference,), _ = self.ray.wait(list(self.waiting), num_returns=1)
            job, is_training = self.waiting.pop(reference)
            try:
                product: Product = self.ray.get(reference)
            except (self.ray.exceptions.RayError, self.ray.exceptions.RayTaskError) as error:
                self._fail(job, error)
                continue
            keep(product, self.store, self.engine.log_dir)
            if is_training:
                assert product.model is not None
                self._measure(job, product.model)
            elif job in self.left:
                self.left[job] -= 1
                if not self.left[job]:
                    self.report(Report(job))

    def _measure(self, job: Job, model: bytes) -> None:
        # Put by the driver: a node that dies takes no model with it.
        reference = self.ray.put(model)
        missing = [measure for measure in job.measures if self.store.get(measure.identity) is None]
        self.left[job] = len(missing)
        if not missing:
            self.report(Report(job))
        for measure in missing:
            about = (measure, self.graphs[job.row.dataset], reference)
            if measure.shares == 1:
                task = self.measure.remote(*about, *self.place, self.command)
            else:
                shares = [self.count.remote(*about, *self.place, one, measure.shares) for one in range(measure.shares)]
                task = self.certify.remote(*about, self.command, *shares)
                self.shares += shares
            self.waiting[task] = (job, False)

    def _fail(self, job: Job, error: Exception) -> None:
        """Say so once; what else there is of the job is still taken."""
        if self.left.pop(job, None) is not None:
            # Ray's errors hold the worker's whole traceback; its last line is what went wrong.
            reason = str(error).strip().splitlines()[-1]
            self.failures.append(Report(job, reason))
            self.report(self.failures[-1])
