"""``edgeproof certify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import edgeproof as ep
from edgeproof.cli._groups import TargetOptions, grouped
from edgeproof.cli._options import (
    Force,
    Quiet,
    parse_device,
)
from edgeproof.cli._printing import print_table
from edgeproof.cli._worst_case import EPSILONS, LOCAL, certify_worst_case

if TYPE_CHECKING:
    import torch

    from edgeproof.certificates import Certificate, ClassCounts, SparseSmoothing
    from edgeproof.cli._target import EvalTarget

# Largest radius shown, plus one.
_SHOWN = 8
_DEFAULT_SAMPLES = 100_000


@grouped
def certify(
    target_options: TargetOptions,
    worst_case: Annotated[
        bool,
        typer.Option(
            "--worst-case",
            help="Compute the worst case of a OneHop or BoundedInfluence model instead of smoothing; without samples.",
        ),
    ] = False,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            "--epsilon",
            "-e",
            help="With --worst-case: budget as a fraction of the edges at the test nodes; repeatable. Default: 0.05, 0.1, "
            "0.25.",
        ),
    ] = None,
    local: Annotated[
        float | None,
        typer.Option(help="With --worst-case: local budgets as a fraction of each node's degree. Default: 0.5."),
    ] = None,
    p_add: Annotated[float, typer.Option(help="Noise: probability that a missing edge is added.")] = 0.01,
    p_del: Annotated[float, typer.Option(help="Noise: probability that an edge is deleted.")] = 0.6,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Number of Monte Carlo samples for the confidence bounds. Default: 100,000, or with --merge the number "
            "in --counts."
        ),
    ] = None,
    choosing_samples: Annotated[
        int, typer.Option(help="Number of separate samples that choose the predicted class of each node.")
    ] = 1000,
    alpha: Annotated[float, typer.Option(help="Error probability of each node's certificate.")] = 0.05,
    out: Annotated[
        Path, typer.Option(help="File of the certificate; its result file has the same name with .json added.")
    ] = Path("certificate.safetensors"),
    memory: Annotated[float | None, typer.Option(help="Gigabytes available for a batch of samples.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the samples; use a different one on each machine.")] = 0,
    counts_file: Annotated[
        Path | None,
        typer.Option(
            "--counts",
            help="File of the class counts, to add samples later or to merge the counts of several machines.",
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="File of class counts to add, from the same run with another seed; repeatable."),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Certify predictions at the test nodes against added and deleted edges, by sparse randomized smoothing.

    The certified predictions are those of the smoothed classifier: the majority vote of the model over random perturbations of
    the graph. If it is interrupted, the same command resumes.

    On several machines, use a seed and a file per machine (--seed 1 --counts one.counts), then repeat one of the commands with
    the other files (--seed 1 --counts one.counts --merge two.counts); the counts are added.

    With --worst-case, the accuracy under the strongest perturbation is computed, for models made for it: the guaranteed
    accuracy and that under matching flips, with local budgets and without.

    Example: [bold]edgeproof certify --model model.safetensors --samples 10000[/]

    A model with bounded messages: [bold]edgeproof certify --model one-hop.safetensors --worst-case[/]
    """
    from edgeproof.certificates.sparse_smoothing import check_alpha, node_labels
    from edgeproof.cli._target import check_target, check_target_outputs, load_target

    torch_device = parse_device(target_options.device)
    smoothing = ep.certificates.SparseSmoothing(p_add, p_del)
    check_alpha(alpha)
    merge = merge or []
    result_file, checkpoint = out.with_name(out.name + ".json"), counts_file or out.with_name(out.name + ".counts")
    _check_worst_case(worst_case, epsilon, local, merge or counts_file or samples)
    trained = check_target(target_options)
    check_target_outputs(
        (out, result_file),
        target_options,
        trained,
        merge,
        force=force,
        progress=checkpoint,
        resumed=counts_file is None and checkpoint.exists(),
    )
    others = {path: ep.certificates.ClassCounts.load(path) for path in merge}
    if samples is None:
        can_reuse = merge and counts_file is not None and counts_file.exists()
        samples = ep.certificates.ClassCounts.load(checkpoint).samples if can_reuse else _DEFAULT_SAMPLES
    target = load_target(target_options, trained, torch_device)
    if worst_case:
        chosen = list(EPSILONS) if epsilon is None else epsilon
        certify_worst_case(target, out, chosen, LOCAL if local is None else local, seed, torch_device)
        return
    view = target.split.test
    labels = node_labels(view.data, view.nodes)
    _check_counts(smoothing, target, others, seed=seed, samples=samples, alpha=alpha)
    try:
        counts = smoothing.sample_counts(
            target.model,
            view.data,
            view.nodes,
            samples,
            seed,
            choosing_samples=choosing_samples,
            memory=memory,
            checkpoint=checkpoint,
            progress=not quiet,
        )
    except KeyboardInterrupt:
        if checkpoint.exists():
            raise KeyboardInterrupt(_how_to_resume(checkpoint)) from None
        raise
    merged = ep.certificates.merge_counts([counts, *others.values()])
    certificate = smoothing.certify_counts(merged, alpha, labels=labels)
    certificate.save(out)
    _write_result(result_file, target, certificate, merged, seed=seed, alpha=alpha, device=torch_device)
    if counts_file is None:
        checkpoint.unlink(missing_ok=True)
    _print(certificate, target.dataset)
    print(
        f"abstained at {int(certificate.abstained.sum())} of {certificate.prediction.numel()} nodes   "
        f"certificate: {out}   result: {result_file}"
    )


def _check_worst_case(worst_case: bool, epsilons: list[float] | None, local: float | None, sampling: object) -> None:
    """Raise for options that have no effect on this kind of certificate."""
    from edgeproof.budget import check_epsilon, check_factor

    if not worst_case and (epsilons is not None or local is not None):
        raise ValueError("expected --worst-case with --epsilon and --local: certificates by smoothing are for radii")
    if worst_case and sampling:
        raise ValueError("expected no --samples, --counts or --merge with --worst-case, which draws no samples")
    for epsilon in epsilons or ():
        check_epsilon(epsilon)
    if local is not None:
        check_factor(local)


def _check_counts(
    smoothing: SparseSmoothing,
    target: EvalTarget,
    others: dict[Path, ClassCounts],
    *,
    seed: int,
    samples: int,
    alpha: float,
) -> None:
    """Raise before sampling if counts cannot be merged, or if there are too few samples to certify anything."""
    from edgeproof.certificates.class_counts import check_same_run

    view = target.split.test
    run, classes = smoothing.run_fingerprint(target.model, view.data, view.nodes)
    for path, other in others.items():
        check_same_run(other.run, run, str(path))
        if seed in other.streams:
            raise ValueError(
                f"expected class counts of different seeds, got [{seed}] twice: the same samples are in {path}"
            )
    smoothing.check_samples(samples + sum(other.samples for other in others.values()), alpha, classes)


def _write_result(
    path: Path,
    target: EvalTarget,
    certificate: Certificate,
    counts: ClassCounts,
    *,
    seed: int,
    alpha: float,
    device: torch.device,
) -> None:
    from edgeproof.cli._target import result_of
    from edgeproof.evaluation.result import Score

    radii = [(r_add, 0) for r_add in range(certificate.grid.size(1))]
    radii += [(0, r_del) for r_del in range(1, certificate.grid.size(2))]
    added, deleted = certificate.average_certifiable_radius
    threat: dict[str, Any] = {
        "p_add": certificate.p_add,
        "p_del": certificate.p_del,
        "samples": certificate.samples,
        "streams": [[stream, *sizes] for stream, sizes in sorted(counts.streams.items())],
        "alpha": alpha,
        "abstained": float(certificate.abstained.double().mean()),
        "average_certifiable_radius": {"added": added, "deleted": deleted},
    }
    scores = tuple(
        Score("test", f"certified, {r_add} added, {r_del} deleted", 0.0, certificate.accuracy(r_add, r_del))
        for r_add, r_del in radii
    )
    result_of(target, seed, device, scores=scores, threat=threat).write(path)


def _print(certificate: Certificate, dataset: str) -> None:
    from rich.table import Table

    table = Table(title=f"Certified accuracy, {dataset}: added edges down, deleted edges across")
    columns = range(min(_SHOWN, certificate.grid.size(2)))
    for title in ("", *map(str, columns)):
        table.add_column(title, justify="right")
    for r_add in range(min(_SHOWN, certificate.grid.size(1))):
        table.add_row(str(r_add), *(f"{certificate.accuracy(r_add, r_del):.1%}" for r_del in columns))
    print_table(table)
    if max(certificate.grid.shape[1:]) > _SHOWN:
        print(f"Radii of {_SHOWN} and more are in the certificate only.")


def _how_to_resume(checkpoint: Path) -> str:
    done = ep.certificates.ClassCounts.load(checkpoint).samples
    finish = f", or finish with --samples {done}" if done else ""
    return f"interrupted after {done:,} samples; the same command resumes from {checkpoint}{finish}"
