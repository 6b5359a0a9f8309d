"""Shared helpers of the studies: stores, tables, provenance, and the command line of the scripts."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from edgeproof._names import unknown_name
from edgeproof.experiments import (
    Interrupted,
    Job,
    LocalEngine,
    Measurement,
    Record,
    Run,
    Store,
    Task,
    missing_jobs,
    run_jobs,
)
from edgeproof.experiments.export import as_text

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Entries of an environment that describe machine and versions.
MACHINE = ("edgeproof", "python", "torch", "torch_geometric", "platform", "device")
# Results of `edgeproof reproduce run`.
PROTOCOL_STORE = Store(ROOT / "results" / "experiments")


def study_store(name: str) -> Store:
    """Return the store of a study.

    Each study has its own store, because several studies trained the same models on different machines.
    """
    return Store(ROOT / "results" / name)


def stored(store: Store, run: Run, measurement: Measurement) -> Record | None:
    """Return the stored result of a measurement."""
    return store.get(Task(run, measurement).identity)


def mean_and_error(values: Sequence[float]) -> str:
    """Return mean and standard error as text.

    >>> mean_and_error([70.0, 72.0]), mean_and_error([70.0]), mean_and_error([])
    ('71.0 ± 1.0', '70.0', '-')
    """
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    header, *lines = ["| " + " | ".join(row) + " |" for row in (titles, *rows)]
    return "\n".join([header, "|" + "---|" * len(titles), *lines])


def csv_text(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as CSV, which the site shows with search and sorting."""
    return as_text(titles, list(rows), "csv")


def machine(record: Record) -> str:
    """Return the machine and the versions of a result as text."""
    return ", ".join(f"{name} {record.environment[name]}" for name in MACHINE if name in record.environment)


def provenance(records: Iterable[Record]) -> str:
    """Return a list of the commands that computed results, with machine, day and code, without repetitions."""
    return "\n".join(dict.fromkeys(f"- {_made_by(record)}" for record in records))


def _made_by(record: Record) -> str:
    environment, text = record.environment, f"`{record.command}` on {machine(record)}"
    if "threads" in environment:
        text += f", {environment['threads']} CPU threads"
    if "day" in record.notes:
        text += f", on {record.notes['day']}"
    if "source" in environment:
        text += f" with source {environment['source']}"
    return f"{text}."


def command_line(
    page: Path,
    render: Callable[[], str],
    jobs: Callable[[], Sequence[Job]] | None = None,
    store: Store | None = None,
    other_files: Callable[[], Mapping[str, str]] | None = None,
) -> typer.Typer:
    """Return the command line of a study: render the page, or ``run`` the missing jobs.

    Args:
        page: Output file.
        render: Function that returns the page.
        jobs: Function that returns the jobs of the study; None if another command computes the results.
        store: Store of the results of the jobs.
        other_files: Function that returns the content of other pages and of CSV files beside the page, by name.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.callback(invoke_without_command=True)
    def main(context: typer.Context) -> None:
        """Write the page of the study from its stored results."""
        if context.invoked_subcommand is None:
            files = {page.name: render(), **(other_files() if other_files is not None else {})}
            for name, content in files.items():
                page.with_name(name).write_text(content, encoding="utf-8")
                print(f"wrote {page.with_name(name)}")

    if jobs is None or store is None:
        return app

    @app.command()
    def run(
        dataset: Annotated[list[str] | None, typer.Option(help="Only this dataset; repeatable.")] = None,
        model: Annotated[list[str] | None, typer.Option(help="Only this model; repeatable.")] = None,
        training: Annotated[list[str] | None, typer.Option(help="Only this training; repeatable.")] = None,
        seed: Annotated[list[int] | None, typer.Option(help="Only this seed; repeatable.")] = None,
        processes: Annotated[
            int | None, typer.Option("--jobs", help="Number of processes. Default: chosen from cores and memory.")
        ] = None,
        device: Annotated[str, typer.Option(help="'cpu' or 'cuda'; several processes can share one GPU.")] = "cpu",
        threads: Annotated[int | None, typer.Option(help="Number of CPU threads per process.")] = None,
    ) -> None:
        """Run the jobs without stored results; if interrupted, the same command resumes."""
        chosen = jobs()
        for name, wanted in (("dataset", dataset), ("model", model), ("training", training), ("seed", seed)):
            known = {job: _choice(job, name) for job in chosen}
            for value in wanted or ():
                if str(value) not in known.values():
                    raise typer.BadParameter(str(unknown_name(name, value, dict.fromkeys(known.values()))))
            chosen = [job for job in chosen if not wanted or known[job] in map(str, wanted)]
        todo = missing_jobs(chosen, store)
        print(f"{len(todo)} of {len(chosen)} jobs to run", flush=True)
        command = shlex.join(["python", f"studies/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        try:
            run_jobs(LocalEngine(processes, device, threads), todo, store, command)
        except Interrupted as interrupt:
            print(interrupt, file=sys.stderr)
            raise typer.Exit(130) from None

    return app


def _choice(job: Job, name: str) -> str:
    run = job.run
    values = {
        "dataset": run.dataset.label,
        "model": run.model.name,
        "training": run.training.label,
        "seed": str(run.seed),
    }
    return values[name]
