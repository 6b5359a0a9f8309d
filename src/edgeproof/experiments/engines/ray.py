"""Engine for a Ray cluster. Graphs, models and results are sent through Ray, so nodes need no shared file system.

Every training is a task. The driver stores the returned model and sends it to the tasks that measure it. The samples of a
certificate are divided among several tasks, and one more task combines their counts. Ray retries a task whose worker or node
dies; results that have reached the driver are stored and never recomputed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgeproof._warnings import warn
from edgeproof.experiments.engines.base import EngineWarning, Graph, Report, raise_if_failed, unusable_graphs
from edgeproof.experiments.graphs import load_graph
from edgeproof.experiments.measurements import CertifiedAccuracy
from edgeproof.experiments.plan import remaining
from edgeproof.experiments.store import Store
from edgeproof.experiments.sweep import Job, Run, Task
from edgeproof.experiments.worker import (
    Product,
    Setup,
    combine_counts,
    count_samples,
    keep,
    measure_model,
    stored_model,
    train_model,
)
from edgeproof.models.factory import Factory, load_factory

# Maximum number of retries of a task whose worker or node dies.
_RETRIES = 3
# Seconds to connect, and to wait for an answer.
_TIMEOUT = 4.0
# gRPC is based on HTTP/2: after the client's preface and an empty frame of settings, a server sends its settings.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_BYTES, _SETTINGS = 9, 4


class RayEngine:
    """Tasks on a Ray cluster.

    Args:
        address: Address of the cluster, as printed by ``ray start``. Default: the cluster of this machine, or a new one.
        cpus: Number of cores per task.
        gpus: Number of GPUs per task, possibly a fraction. If above 0, tasks run on the GPU.
        log_dir: Folder for TensorBoard logs of trainings on the driver's machine; None for no logs.
        min_samples: Smallest number of samples in a task of a certificate.
        train: Function that runs a training task.
    """

    def __init__(
        self,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        log_dir: Path | None = None,
        *,
        min_samples: int = 1_000,
        train: Callable[..., Product] = train_model,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("the Ray engine needs Ray: pip install 'edgeproof[ray]'") from error
        if cpus <= 0 or gpus < 0:
            raise ValueError(f"expected cpus > 0 and gpus >= 0, got {cpus} and {gpus}")
        self.ray: Any = ray
        self.address, self.cpus, self.gpus, self.log_dir = address, cpus, gpus, log_dir
        self.min_samples, self.train = min_samples, train
        self.device, self.threads = "cuda" if gpus else "cpu", max(1, int(cpus))

    def run(self, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]) -> None:
        """See :class:`~edgeproof.experiments.engines.Engine`."""
        ray = self.ray
        initialize = not ray.is_initialized()
        if initialize:
            _check_reachable(self.address or os.environ.get("RAY_ADDRESS"))
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        scheduler = _Scheduler(self, jobs, store, command, report)
        try:
            self._check_resources()
            scheduler.run_all()
        except BaseException:
            for reference in (*scheduler.waiting, *scheduler.parts):
                ray.cancel(reference, force=True)
            raise
        finally:
            if initialize:
                ray.shutdown()
        raise_if_failed(scheduler.failures, len(jobs))

    def _check_resources(self) -> None:
        """Warn if no node of the cluster can run a task."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus for node in nodes):
            listed = "; ".join(f"{node.get('CPU', 0):g} cores, {node.get('GPU', 0):g} GPUs" for node in nodes)
            warn(
                "EP206",
                f"no node of the cluster has {self.cpus:g} cores and {self.gpus:g} GPUs for a task ({listed or 'no nodes'}): "
                "all tasks wait until one joins",
                EngineWarning,
                stacklevel=2,
            )


def _check_reachable(address: str | None) -> None:
    """Raise if no gRPC server answers at the address within about 8 seconds, because Ray itself retries for longer."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        # A name that Ray resolves, such as "auto", or None.
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT) as connection:
            connection.sendall(_HTTP2_GREETING)
            answer = connection.recv(_FRAME_BYTES, socket.MSG_WAITALL)
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"expected a Ray cluster at {address}, got no answer ({error}); ray start --head prints its address"
        ) from error
    if len(answer) < _FRAME_BYTES or answer[3] != _SETTINGS:
        raise ConnectionError(
            f"expected a Ray cluster at {address}, got another server; ray start --head prints its address"
        )


class _Scheduler:
    """Submits the tasks of all jobs and collects their results."""

    def __init__(
        self, engine: RayEngine, jobs: Sequence[Job], store: Store, command: str, report: Callable[[Report], None]
    ) -> None:
        self.engine, self.ray, self.jobs, self.store, self.report = engine, engine.ray, jobs, store, report
        options = {"num_cpus": engine.cpus, "num_gpus": engine.gpus, "max_retries": _RETRIES}
        self.train, self.measure, self.count = (
            self.ray.remote(**options)(function) for function in (engine.train, measure_model, count_samples)
        )
        # Combining needs no GPU.
        self.combine = self.ray.remote(**{**options, "num_gpus": 0})(combine_counts)
        self.setup = Setup(engine.device, engine.threads, command)
        # The job of each task, and whether the task is its training.
        self.waiting: dict[Any, tuple[Job, bool]] = {}
        # Unfinished tasks of which combining tasks need the results.
        self.parts: list[Any] = []
        self.left = {job: len(job.measurements) for job in jobs}
        self.failures: list[Report] = []
        # Objects that are sent to the cluster once.
        self.graphs: dict[Graph, Any] = {}
        self.factories: dict[str, Any] = {}

    def run_all(self) -> None:
        """Submit all jobs, and collect results until all are done."""
        self._submit_all()
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
                self._submit_measurements(job, product.model)
            elif job in self.left:
                self.left[job] -= 1
                if not self.left[job]:
                    self.report(Report(job))

    def _submit_all(self) -> None:
        unusable = unusable_graphs(self.jobs, self.store)
        for job in self.jobs:
            try:
                if job.run.graph in unusable:
                    raise unusable[job.run.graph]
                graph, factory = self._sent_graph(job.run.graph), self._sent_factory(job.run)
            except (OSError, ValueError, ImportError) as error:
                # Jobs on other graphs still run.
                self._fail(job, error)
                continue
            model = stored_model(job.run, self.store)
            if model is None:
                task = self.train.remote(job.run, graph, self.setup, None, factory)
                self.waiting[task] = (job, True)
            else:
                self._submit_measurements(job, model)

    def _sent_graph(self, graph: Graph) -> Any:
        if graph not in self.graphs:
            self.graphs[graph] = self.ray.put(load_graph(*graph))
        return self.graphs[graph]

    def _sent_factory(self, run: Run) -> Any:
        """Send the factory of a user's model by value, because nodes may not have its module."""
        name = run.model.name
        if not run.model.is_factory:
            return None
        if name not in self.factories:
            factory: Factory = load_factory(name)
            self.ray.cloudpickle.register_pickle_by_value(sys.modules[factory.__module__])
            self.factories[name] = self.ray.put(factory)
        return self.factories[name]

    def _submit_measurements(self, job: Job, model: bytes) -> None:
        # Stored by the driver, so that no model is lost when a node dies.
        reference = self.ray.put(model)
        tasks = remaining(job, self.store).tasks
        self.left[job] = len(tasks)
        if not tasks:
            self.report(Report(job))
        graph, factory = self._sent_graph(job.run.graph), self._sent_factory(job.run)
        for task in tasks:
            self.waiting[self._submit(task, graph, reference, factory)] = (job, False)

    def _submit(self, task: Task, graph: Any, model: Any, factory: Any) -> Any:
        number = 1
        if isinstance(task.measurement, CertifiedAccuracy):
            number = task.measurement.num_parts(self.engine.min_samples)
        if number == 1:
            return self.measure.remote(task, graph, model, self.setup, None, factory)
        parts = [self.count.remote(task, graph, model, self.setup, part, number, factory) for part in range(number)]
        self.parts += parts
        return self.combine.remote(task, graph, model, self.setup, *parts)

    def _fail(self, job: Job, error: Exception) -> None:
        """Report a failure once; other results of the job are still collected."""
        if self.left.pop(job, None) is not None:
            # Errors of Ray contain the traceback of the worker, whose last line is the reason.
            reason = str(error).strip().splitlines()[-1]
            self.failures.append(Report(job, reason))
            self.report(self.failures[-1])
