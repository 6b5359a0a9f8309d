"""``edgeproof certify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import edgeproof as ep
from edgeproof._files import check_writable
from edgeproof.certificates.class_counts import check_same_run
from edgeproof.certificates.sparse_smoothing import check_alpha, node_labels
from edgeproof.cli._options import Device, Quiet, Root, parse_device
from edgeproof.cli._target import Dataset, Model, SplitName, SplitSeed, check_target, load_target, result_of
from edgeproof.evaluation.result import Score

_SHOWN = 8


def certify(
    model: Model,
    p_add: Annotated[float, typer.Option(help="Noise: probability that a pair that is no edge is added.")] = 0.01,
    p_del: Annotated[float, typer.Option(help="Noise: probability that an edge is deleted.")] = 0.6,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Random graphs that bound probabilities: 100,000 by default, or with --merge those that --votes has."
        ),
    ] = None,
    choosing_samples: Annotated[int, typer.Option(help="Random graphs, others, that choose each node's class.")] = 1000,
    alpha: Annotated[float, typer.Option(help="How often a node's statement may be wrong.")] = 0.05,
    dataset: Dataset = None,
    split: SplitName = None,
    split_seed: SplitSeed = None,
    out: Annotated[
        Path, typer.Option(help="Where the certificate goes; the result goes beside it, with .json added.")
    ] = Path("certificate.safetensors"),
    memory: Annotated[float | None, typer.Option(help="Gigabytes that a batch of random graphs may take.")] = None,
    seed: Annotated[int, typer.Option(help="Which random graphs; use different ones on different machines.")] = 0,
    votes: Annotated[
        Path | None,
        typer.Option(
            help="Keep the votes in this file, and go on from it: to add samples later, or to merge those of several machines."
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Add the votes of this file, of the same question and another seed; repeatable."),
    ] = None,
    root: Root = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Certify a model's answers at its test nodes: which added and deleted edges cannot change them, whoever chooses them.

    The answers are those of the smoothed model, which asks the model about many random graphs around the one at hand. An
    interrupted run goes on where it stopped when the same command is given again.

    On several machines: give each a seed and a file of its own (--seed 1 --votes one.votes), and then one of them, once more,
    the files of the others (--seed 1 --votes one.votes --merge two.votes): the counts add up.

    Example: [bold]edgeproof certify --model model.safetensors --samples 10000[/]
    """
    place = parse_device(device)
    smoothing = ep.certificates.SparseSmoothing(p_add, p_del)
    check_alpha(alpha)
    result_file, checkpoint = out.with_name(out.name + ".json"), votes or out.with_name(out.name + ".votes")
    _check_apart((out, result_file, checkpoint), (Path(model), Path(model + ".json"), *(merge or [])))
    others = [ep.certificates.ClassCounts.load(path) for path in merge or []]
    if samples is None:
        samples = ep.certificates.ClassCounts.load(votes).samples if merge and votes and votes.exists() else 100_000
    known = check_target(model, dataset, split, [])
    aim = load_target(model, dataset, split, split_seed, known, root, place)
    view = aim.split.test
    labels = node_labels(view.data, view.nodes)
    # Whatever could be wrong is told before anything is counted.
    run, classes = smoothing.run_fingerprint(aim.model, view.data, view.nodes)
    for path, other in zip(merge or [], others, strict=True):
        check_same_run(other.run, run, str(path))
        if seed in other.streams:
            raise ValueError(f"expected votes of different seeds, got [{seed}] twice: the same samples are in {path}")
    smoothing.check_samples(samples + sum(other.samples for other in others), alpha, classes)
    try:
        counted = smoothing.sample_counts(
            aim.model,
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
            message = _what_there_is(checkpoint)
            Console(stderr=True, highlight=False).print(message, soft_wrap=True, markup=False)
        raise
    together = ep.certificates.merge_counts([counted, *others])
    certificate = smoothing.certify_counts(together, alpha, labels=labels)
    certificate.save(out)
    radii = [(r_add, 0) for r_add in range(certificate.grid.size(1))]
    radii += [(0, r_del) for r_del in range(1, certificate.grid.size(2))]
    added, deleted = certificate.average_certifiable_radius
    result_of(
        aim,
        seed,
        place,
        scores=tuple(
            Score("test", f"certified, {r_add} added, {r_del} deleted", 0.0, certificate.accuracy(r_add, r_del))
            for r_add, r_del in radii
        ),
        threat={
            "p_add": p_add,
            "p_del": p_del,
            "samples": certificate.samples,
            "streams": [[one, *counts] for one, counts in sorted(together.streams.items())],
            "alpha": alpha,
            "abstained": float(certificate.abstained.double().mean()),
            "average_certifiable_radius": {"added": added, "deleted": deleted},
        },
    ).write(result_file)
    if votes is None:
        checkpoint.unlink(missing_ok=True)
    table = Table(title=f"Certified accuracy, {aim.dataset}: added edges down, deleted edges across")
    columns = range(min(_SHOWN, certificate.grid.size(2)))
    for title in ("", *map(str, columns)):
        table.add_column(title, justify="right")
    for r_add in range(min(_SHOWN, certificate.grid.size(1))):
        table.add_row(str(r_add), *(f"{certificate.accuracy(r_add, r_del):.1%}" for r_del in columns))
    Console().print(table)
    if max(certificate.grid.shape[1:]) > _SHOWN:
        Console().print(f"Only radii below {_SHOWN} are shown; the certificate has all of them.")
    Console().print(
        f"abstained at {int(certificate.abstained.sum())} of {certificate.prediction.numel()} nodes   "
        f"certificate: {out}   result: {result_file}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _what_there_is(checkpoint: Path) -> str:
    kept = ep.certificates.ClassCounts.load(checkpoint).samples
    enough = f"; --samples {kept} makes do with them" if kept else ""
    return f"interrupted with {kept:,} samples; the same command goes on from {checkpoint}{enough}"


def _check_apart(written: tuple[Path, ...], read: tuple[Path, ...]) -> None:
    """Raise if something cannot be written, or would take the place of what is read."""
    for path in written:
        check_writable(path)
        if path.resolve() in {other.resolve() for other in read}:
            raise ValueError(f"expected another file than {path} to write to: it is read, and would be lost")
    if len({path.resolve() for path in written}) < len(written):
        raise ValueError(f"expected different files to write to, got {', '.join(map(str, written))}")
