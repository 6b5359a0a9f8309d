"""Number of threads of torch and Numba."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KERNEL = """
from edgeproof.kernels import numba_cpu
x, u = torch.randn(300, 64), torch.randint(0, 300, (100_000,))
numba_cpu.gathered_dot(x, x, u, u)
"""
CERTIFICATE = """
data = ep.datasets.load("csbm")
model = ep.models.build("GCN", data.num_features, ep.num_classes(data), seed=0).eval()
smoothing = ep.certificates.SparseSmoothing(p_add=0.01, p_del=0.4)
smoothing.certify(model, data, torch.arange(5), samples=300, choosing_samples=20, progress=False)
"""


@pytest.mark.parametrize("use", ["", KERNEL, CERTIFICATE], ids=["import", "kernel", "certificate"])
def test_numba_does_not_change_torch_threads(use: str) -> None:
    program = f"""
import torch
import edgeproof as ep
{use}
print(torch.get_num_threads())
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert int(run.stdout) == 1
