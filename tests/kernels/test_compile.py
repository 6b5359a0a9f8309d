"""Numba's cache on disk: missing, read-only and damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import edgeproof
from edgeproof.kernels._compile import compiled

IMPORT_ALL = """
import edgeproof as ep
from edgeproof.kernels import numba_cpu
import torch
assert ep.__file__.startswith({folder!r})
for name in ep.__all__:
    getattr(ep, name)
print(numba_cpu.merge(torch.tensor([2]), torch.tensor([1, 3]))[0].tolist())
"""
SQUARE = """
from edgeproof.kernels._compile import compiled

@compiled()
def square(x):
    return x * x

print(square(3), sum(square.stats.cache_hits.values()))
"""


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    return subprocess.run(
        [sys.executable, "-B", "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, **environment},
        check=False,
    )


def test_library_runs_without_any_writable_folder(tmp_path: Path) -> None:
    """Also for root, whom permissions do not stop: files take the places of all folders for caches."""
    installed = tmp_path / "edgeproof"
    shutil.copytree(Path(edgeproof.__file__).parent, installed, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [installed, *(path for path in installed.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    process = run(
        IMPORT_ALL.format(folder=str(tmp_path)),
        tmp_path,
        PYTHONPATH=str(tmp_path),
        HOME="/dev/null",
        NUMBA_CACHE_DIR="/dev/null/cache",
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "[1, 2, 3]\n"


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "squares.py").write_text(SQUARE)
    return "import squares"


def test_folder_in_numba_cache_dir_is_used(script: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(script, tmp_path, NUMBA_CACHE_DIR=str(cache)).stdout == "9 0\n"
    assert list(cache.rglob("*.nbi"))
    assert run(script, tmp_path, NUMBA_CACHE_DIR=str(cache)).stdout == "9 1\n"


def test_damaged_cache_is_compiled_again(script: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run(script, tmp_path, NUMBA_CACHE_DIR=str(cache))
    for path in (*cache.rglob("*.nbi"), *cache.rglob("*.nbc")):
        path.write_bytes(path.read_bytes()[:40])
    process = run(script, tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert process.stdout == "9 0\n", process.stderr


def test_cache_that_cannot_be_written_is_skipped(script: str, tmp_path: Path) -> None:
    """As on a full disk: the folder exists, but files cannot grow."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n{script}"
    process = run(limited, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert process.stdout == "9 0\n", process.stderr


def test_options_are_those_of_njit() -> None:
    @compiled(parallel=True)
    def total(values):  # type: ignore[no-untyped-def]
        return values.sum()

    assert total(np.arange(5)) == 10
    assert total.targetoptions["parallel"]
