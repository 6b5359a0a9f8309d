"""Free memory of machines, containers and batch jobs, and limits of declared sizes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import edgeproof as ep
from edgeproof._memory import check_expansion, free_main_memory


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_free_memory_of_a_machine(tmp_path: Path) -> None:
    write(tmp_path, proc__meminfo="MemTotal: 4000 kB\nMemAvailable:    3000 kB\n")
    assert free_main_memory(tmp_path) == 3000 * 1024


def test_free_memory_of_a_control_group(tmp_path: Path) -> None:
    write(tmp_path, proc__meminfo="MemAvailable: 3000 kB\n")
    group = tmp_path / "sys/fs/cgroup"
    write(group, memory_dot_max="max\n")
    assert free_main_memory(tmp_path) == 3000 * 1024
    write(group, memory_dot_max="900000\n", memory_dot_current="500000\n", memory_dot_stat="inactive_file 1000\n")
    assert free_main_memory(tmp_path) == 900_000 - 500_000 + 1000
    write(group, memory_dot_current="950000\n")
    assert free_main_memory(tmp_path) == 0


def test_free_memory_of_a_control_group_of_version_1(tmp_path: Path) -> None:
    write(tmp_path, proc__meminfo="MemAvailable: 3000 kB\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    write(group, memory_dot_limit_in_bytes="900000\n", memory_dot_usage_in_bytes="500000\n")
    write(group, memory_dot_stat="cache 5\ntotal_inactive_file 1000\n")
    assert free_main_memory(tmp_path) == 900_000 - 500_000 + 1000


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_free_memory_respects_the_limit_of_the_address_space() -> None:
    program = (
        "import resource; from edgeproof._memory import free_main_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); print(free_main_memory())"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0 < float(process.stdout) < 1 << 30


def test_declared_sizes_are_limited_by_file_size_and_memory(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(bytes(1000))
    check_expansion(1e6, path)
    with pytest.raises(ValueError, match=r"has 1,000 bytes and declares 1,000,000,000, over 200 times as many"):
        check_expansion(1e9, path, available=math.inf)
    with pytest.raises(ValueError, match=r"small is rejected: expected its content to fit into 0\.0 GB"):
        check_expansion(1e6, path, available=1e3)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("GCN", {"num_layers": 10**6}, "expected num_layers to be an integer from 1 to 1000, got 1000000"),
        ("GAT", {"num_layers": 10**9}, "expected num_layers to be an integer from 1 to 1000"),
        ("GPRGNN", {"K": 10**9}, "expected K to be an integer from 1 to 10000"),
        ("APPNP", {"K": 10**9}, "expected K to be an integer from 1 to 10000"),
        ("MLP", {"hidden_channels": 10**13}, "expected the parameters of MLP to fit into .* GB of free memory"),
        ("GCN", {"hidden_channels": 10**7, "num_layers": 3}, "expected the parameters of GCN to fit into"),
    ],
)
def test_huge_models_are_rejected_before_memory_is_allocated(name: str, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ep.models.build(name, 100, 3, settings)
