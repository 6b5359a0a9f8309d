from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgeproof as ep
from edgeproof.certificates import Certificate, ClassCounts
from edgeproof.certificates.smoothed_sampler import SmoothedSampler
from edgeproof.evaluation.result import Result

Run = Callable[..., tuple[int, str, str]]
TRAIN = ("train", "--dataset", "csbm", "--model", "GPRGNN", "--max-epochs", "30", "--device", "cpu", "-q")
CERTIFY = (
    "certify",
    "--model",
    "model.safetensors",
    "--samples",
    "300",
    "--choosing-samples",
    "20",
    "--p-add",
    "0.001",
)


def test_certify_matches_python_api(run: Run) -> None:
    assert run(*TRAIN)[0] == 0
    code, out, err = run(*CERTIFY, "--p-del", "0.4", "--seed", "3")
    assert code == 0, err
    assert "Certified accuracy, csbm" in out
    certificate, result = Certificate.load("certificate.safetensors"), Result.read("certificate.safetensors.json")
    assert (certificate.p_add, certificate.p_del, certificate.samples) == (0.001, 0.4, 300)
    assert result.score("test", "certified, 0 added, 1 deleted") == certificate.accuracy(0, 1)
    assert result.threat["average_certifiable_radius"]["deleted"] == certificate.average_certifiable_radius[1]
    split = ep.splits.inductive(ep.datasets.load("csbm"), 0)
    again = ep.certificates.SparseSmoothing(0.001, 0.4).certify(
        ep.load("model.safetensors"),
        split.test.data,
        split.test.nodes,
        300,
        seed=3,
        choosing_samples=20,
        progress=False,
    )
    assert (again.grid == certificate.grid).all()
    assert not Path("certificate.safetensors.counts").exists()
    certificate.plot("grid.png")
    assert Path("grid.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--p-del", "1.5"), "expected 0 <= p_del < 1, got 1.5"),
        (("--samples", "2"), "samples to certify anything"),
        (("--alpha", "2"), "expected 0 < alpha < 1"),
        (("--out", "/dev/null/x"), "cannot write /dev/null/x"),
        (("--out", "model.safetensors"), "expected an output file other than model.safetensors"),
        (("--out", "c", "--counts", "c.json"), "expected different output files"),
        (("--alpha", "nan"), "expected 0 < alpha < 1"),
        (("--merge", "none.counts"), "none.counts"),
    ],
)
def test_invalid_certify_options_are_one_line_errors(run: Run, arguments: tuple[str, ...], message: str) -> None:
    run(*TRAIN)
    code, _, err = run(*CERTIFY, *arguments)
    assert code == 1
    assert message in err
    # The error precedes sampling.
    assert not list(Path().glob("*.counts"))


def test_merge_counts_of_two_seeds(run: Run) -> None:
    run(*TRAIN)
    for seed in ("1", "2"):
        assert (
            run(
                *CERTIFY,
                "--force",
                "--p-del",
                "0.4",
                "--seed",
                seed,
                "--counts",
                f"{seed}.counts",
                "--out",
                f"{seed}.cert",
            )[0]
            == 0
        )
    code, _, err = run(
        *CERTIFY, "--force", "--p-del", "0.4", "--seed", "1", "--counts", "1.counts", "--merge", "2.counts"
    )
    assert code == 0, err
    both = Certificate.load("certificate.safetensors")
    assert both.samples == 600
    assert Result.read("certificate.safetensors.json").threat["samples"] == 600
    counts = ep.certificates.merge_counts([ep.certificates.ClassCounts.load(f"{seed}.counts") for seed in (1, 2)])
    assert (ep.certificates.SparseSmoothing(0.001, 0.4).certify_counts(counts).grid == both.grid).all()
    # More samples extend the stored counts.
    assert run(*CERTIFY, "--force", "--p-del", "0.4", "--seed", "1", "--counts", "1.counts", "--samples", "400")[0] == 0
    assert ep.certificates.ClassCounts.load("1.counts").samples == 400
    code, _, err = run(
        *CERTIFY, "--force", "--p-del", "0.4", "--seed", "2", "--counts", "2b.counts", "--merge", "2.counts"
    )
    assert code == 1
    assert "expected class counts of different seeds, got [2] twice: the same samples are in 2.counts" in err
    code, _, err = run(
        *CERTIFY, "--force", "--p-del", "0.5", "--seed", "3", "--counts", "3.counts", "--merge", "2.counts"
    )
    assert code == 1
    assert "expected class counts for noise [0.001, 0.5], got noise [0.001, 0.4] in 2.counts" in err
    assert not Path("2b.counts").exists()
    assert not Path("3.counts").exists()
    code, _, err = run(*CERTIFY, "--force", "--p-del", "0.5", "--seed", "2", "--counts", "2.counts")
    assert code == 1
    assert "got noise [0.001, 0.4] in 2.counts: delete it, or use another file" in err


def test_merge_without_samples_option_uses_stored_counts(run: Run) -> None:
    run(*TRAIN)
    for seed in ("1", "2"):
        run(*CERTIFY, "--force", "--p-del", "0.4", "--seed", seed, "--counts", f"{seed}.counts")
    without_samples = (*CERTIFY[:3], *CERTIFY[5:])
    code, _, err = run(
        *without_samples, "--force", "--p-del", "0.4", "--seed", "1", "--counts", "1.counts", "--merge", "2.counts"
    )
    assert code == 0, err
    assert ep.certificates.ClassCounts.load("1.counts").samples == 300
    assert Certificate.load("certificate.safetensors").samples == 600
    threat = Result.read("certificate.safetensors.json").threat
    assert threat["streams"] == [[1, 20, 300], [2, 20, 300]]
    assert 0 <= threat["abstained"] < 1


def test_interrupted_certify_prints_how_to_resume(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*TRAIN)
    extend = SmoothedSampler.extend

    def interrupted(self: SmoothedSampler, *arguments: Any) -> Iterator[ClassCounts]:
        for counts in extend(self, *arguments):
            yield counts
            if counts.samples:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SmoothedSampler, "extend", interrupted)
        code, _, err = run(*CERTIFY, "--p-del", "0.4", "--memory", "0.001")
    assert code == 130
    kept = ClassCounts.load("certificate.safetensors.counts").samples
    assert 0 < kept < 300
    assert f"interrupted after {kept} samples; the same command resumes from certificate.safetensors.counts" in err
    assert f"or finish with --samples {kept}" in err
