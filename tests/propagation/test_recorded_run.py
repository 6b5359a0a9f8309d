"""Recorded runs. They need a GPU: ``python -m pytest tests/propagation/test_recorded_run.py``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import project_global, resample, sample_block
from edgeproof.kernels.cuda_graph import record
from edgeproof.propagation import EdgeGradientEngine, Pairs

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)


@pytest.fixture
def data() -> Data:
    return ep.datasets.csbm("homophilous", num_nodes=300, p=0.05, q=0.01, seed=3).to("cuda")


@pytest.mark.parametrize("name", ["GCN", "APPNP", "GPRGNN", "GRAND", "ChebNetII", "GAT"])
def test_replay_equals_run(name: str, data: Data) -> None:
    model = ep.models.build(name, 21, 2, seed=0).to("cuda")
    nodes = torch.arange(0, 300, 2, device="cuda")
    recorded, plain = (EdgeGradientEngine(model, data, nodes) for _ in range(2))
    plain.recordable = False
    everything = Pairs.from_number(torch.arange(300 * 299 // 2, device="cuda"), 300)
    generator = torch.Generator("cuda").manual_seed(0)
    earlier = []
    for count in (0, 5, 700, 0, 40, 3000, 17):
        number = torch.randperm(len(everything), device="cuda", generator=generator)[:count].sort().values
        pairs, flip = everything[number], torch.rand(count, device="cuda", generator=generator)
        expected, result = plain(pairs, flip), recorded(pairs, flip)
        assert plain.recorded is None
        torch.testing.assert_close(result.loss, expected.loss)
        torch.testing.assert_close(result.logits, expected.logits)
        gradient = expected.at(everything)
        assert float((result.at(everything) - gradient).abs().max()) <= 1e-4 * float(gradient.abs().max())
        earlier.append((result, gradient))
    assert recorded.recorded is not None
    # Later replays do not overwrite returned results.
    for result, gradient in earlier:
        assert float((result.at(everything) - gradient).abs().max()) <= 1e-4 * float(gradient.abs().max())


def test_blocks_and_projections_on_the_gpu() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    block = sample_block(500, 20_000, generator=generator)
    assert bool((block.number.diff() > 0).all())
    p = torch.randn(block.number.numel(), device="cuda", generator=generator)
    for budget in (0.0, 3.0, 1000.0, 1e9):
        torch.testing.assert_close(project_global(p, budget).cpu(), project_global(p.cpu(), budget), rtol=0, atol=1e-5)
    block.flip[:] = project_global(p, 50.0)
    fresh = resample(block, 20_000, generator=generator)
    assert bool((fresh.number.diff() > 0).all())
    assert float(fresh.flip.sum()) == pytest.approx(float(block.flip.sum()), rel=1e-5)


def test_generators_work_after_failed_recording() -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    value = torch.ones((), device="cuda")

    def causes_sync() -> Tensor:
        torch.rand(4, device="cuda")
        torch.rand(4, device="cuda", generator=generator)
        return value * float(value)

    with pytest.raises(RuntimeError):
        record(causes_sync, torch.device("cuda"), generator)
    for seed in (3, 4):
        torch.manual_seed(seed)
        generator.manual_seed(seed)
        drawn = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda", generator=generator)
        assert torch.equal(*drawn)
        assert 0.4 < float(drawn[0].mean()) < 0.6
