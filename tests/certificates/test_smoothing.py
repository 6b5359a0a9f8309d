"""Certificates: never wrong where everything can be counted, rarely unsure where it must be sampled."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.stats import binom
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN as PyGGCN

import edgeproof as ep
from edgeproof.certificates import Certificate, ClassCounts, Share, SparseSmoothing, join, merge, samples_needed
from edgeproof.certificates.regions import Noise, certified_grid, clopper_pearson
from edgeproof.certificates.smoothed_sampler import SmoothedSampler

SMOOTHING = SparseSmoothing(p_add=0.02, p_del=0.5)


def build(name: str = "GCN", seed: int = 0) -> nn.Module:
    return ep.models.build(name, 21, 2, {"hidden_channels": 8}, seed=seed).eval()


@pytest.fixture
def trained(split: ep.splits.Split) -> nn.Module:
    model = build("GPRGNN")
    ep.train(model, split, max_epochs=60, progress=False)
    return model


@pytest.mark.parametrize("noise", [(0.2, 0.3), (0.1, 0.6), (0.0, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_no_certificate_is_ever_wrong_on_graphs_small_enough_to_count(noise: tuple[float, float], seed: int) -> None:
    """All graphs of five nodes, each with its exact smoothed probabilities, and all changes within each radius."""
    generator = torch.Generator().manual_seed(seed)
    n, classes = 5, 3
    pairs = list(combinations(range(n), 2))
    x = torch.randn(n, 4, generator=generator)
    model = ep.models.build("GCN", 4, classes, {"hidden_channels": 8}, seed=seed).double().eval()
    graphs = list(product([0, 1], repeat=len(pairs)))
    # All of them side by side in one call.
    copy, pair = np.nonzero(np.array(graphs))
    one, two = np.array(pairs)[pair].T + copy * n
    edges = torch.from_numpy(np.stack([np.append(one, two), np.append(two, one)]))
    answers = model(3 * x.double().repeat(len(graphs), 1), edges).argmax(dim=1).view(-1, n).numpy()
    onehot = np.eye(classes)[answers]

    # From every graph to every other: a product over the pairs.
    step = np.array([[1 - noise[0], noise[0]], [noise[1], 1 - noise[1]]])
    bits = np.array(graphs)
    probability = np.ones((len(graphs), len(graphs)))
    for pair in range(len(pairs)):
        probability *= step[bits[:, pair][:, None], bits[:, pair][None]]
    smoothed = np.einsum("gh,hnc->gnc", probability, onehot)
    order = np.sort(smoothed, axis=2)
    best = smoothed.argmax(axis=2)
    certified_somewhere = 0
    for index in np.random.default_rng(seed).choice(len(graphs), 40, replace=False):
        grid = certified_grid(Noise(*noise), order[index, :, -1], order[index, :, -2], most_radius=6)
        added = ((bits == 1) & (bits[index] == 0)).sum(axis=1)
        deleted = ((bits == 0) & (bits[index] == 1)).sum(axis=1)
        for r_add, r_del in product(range(grid.shape[1]), range(grid.shape[2])):
            reached = best[(added <= r_add) & (deleted <= r_del)]
            certified = grid[:, r_add, r_del]
            assert (reached[:, certified] == best[index][certified]).all()
            certified_somewhere += int(certified.sum()) if r_add + r_del else 0
    assert certified_somewhere > 0


def test_bounds_hold_together_as_often_as_they_say() -> None:
    """A thousand votes of each of several distributions over classes: how often any bound is wrong."""
    random = np.random.default_rng(0)
    samples, alpha, classes = 200, 0.05, 4
    for truth in ([0.7, 0.1, 0.1, 0.1], [0.4, 0.35, 0.2, 0.05], [0.98, 0.01, 0.005, 0.005]):
        counts = random.multinomial(samples, truth, size=1000)
        votes = ClassCounts(
            torch.tensor([[9, 1, 0, 0]]).repeat(1000, 1),
            torch.from_numpy(counts),
            {0: (10, samples)},
            {"noise": [0.02, 0.5]},
        )
        certificate = SMOOTHING.decide(votes, alpha)
        wrong = (certificate.p_lower > truth[0]) | (certificate.p_upper < max(truth[1:]))
        assert float(wrong.double().mean()) <= alpha
        # By the definition of the bounds, from binomial tails.
        for row in (0, 500, 999):
            own, *others = counts[row]
            lower, runner_up = float(certificate.p_lower[row]), float(certificate.p_upper[row])
            assert binom.sf(own - 1, samples, lower) == pytest.approx(alpha / classes, rel=1e-6)
            tails = [brentq(lambda p, k=k: binom.cdf(k, samples, p) - alpha / classes, 1e-9, 1 - 1e-9) for k in others]
            assert runner_up == pytest.approx(min(max(tails), 1 - lower), rel=1e-6)


def test_the_runner_up_may_be_far_below_all_that_is_left() -> None:
    """Then its own bound tells that the first is first, which the rest of the first one's probability would not."""
    counts = torch.tensor([[520, 120, 120, 120, 120]])
    votes = ClassCounts(counts, counts, {0: (1000, 1000)}, {"noise": [0.02, 0.5]})
    certificate = SMOOTHING.decide(votes, 0.05)
    assert not certificate.abstained.any()
    p_lower = certificate.p_lower.numpy()
    assert not certified_grid(Noise(0.02, 0.5), p_lower, 1 - p_lower).any()


def test_votes_are_the_models_answers_on_the_samples(trained: nn.Module, split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    votes = SMOOTHING.vote(trained, graph, nodes, 60, seed=3, choosing_samples=20, progress=False, memory=0.001)
    assert votes.streams == {3: (20, 60)}
    sampler = ep.certificates.sampling.Sampler.of(graph, Noise(0.02, 0.5), seed=3)
    for counts, first, samples in ((votes.bounding, 0, 60), (votes.choosing, 1 << 48, 20)):
        expected = torch.zeros_like(counts)
        for index in range(samples):
            adjacency = sampler.draw(first + index, 1)
            with torch.no_grad():
                answer = trained(graph.x, adjacency)[nodes].argmax(dim=1)
            expected[torch.arange(nodes.numel()), answer] += 1
        assert torch.equal(counts, expected)


def test_no_attack_within_the_radius_changes_a_certified_answer(trained: nn.Module, split: ep.splits.Split) -> None:
    """Every attack of the library; where the votes around the attacked graph are unsure, they say nothing either way."""
    graph, nodes = split.test.data, split.test.nodes
    certificate = SMOOTHING.certify(trained, graph, nodes, 3000, progress=False)
    assert float(certificate.certified(1, 1).double().mean()) > 0.3
    cheaper = {"steps": 5, "fine_tune_steps": 2, "block_size": 5000}
    for attack, total in product(ep.attacks.available(), (1, 2)):
        chosen = ep.attacks.build(attack)
        small = {name: value for name, value in cheaper.items() if hasattr(chosen, name)}
        result = replace(chosen, **small)(trained, graph, nodes, ep.Budget(total))
        before = {tuple(pair) for pair in graph.edge_index.T.tolist()}
        deleted = sum(tuple(pair) in before for pair in result.flips.T.tolist())
        added = result.flips.size(1) - deleted
        held = certificate.certified(added, deleted)
        moved = SMOOTHING.certify(trained, result.data, nodes, 500, seed=1, choosing_samples=100, progress=False)
        sure = held & ~moved.abstained
        assert bool(sure.any()) or total > 1
        assert torch.equal(moved.prediction[sure], certificate.prediction[sure])


def test_a_certificate_and_its_figures(trained: nn.Module, split: ep.splits.Split, tmp_path: Path) -> None:
    graph, nodes = split.test.data, split.test.nodes
    certificate = SMOOTHING.certify(trained, graph, nodes, 2000, progress=False)
    correct = certificate.prediction == graph.y[nodes]
    for r_add, r_del in ((0, 0), (0, 1), (1, 0), (1, 2)):
        expected = float((correct & certificate.certified(r_add, r_del)).double().mean())
        assert certificate.accuracy(r_add, r_del) == expected
    assert certificate.accuracy() > 0.7
    assert torch.equal(certificate.abstained, ~certificate.certified())
    assert not certificate.certified(10**6, 0).any()
    added, deleted = certificate.average_certifiable_radius
    by_hand = sum(certificate.accuracy(radius, 0) for radius in range(1, certificate.grid.size(1)))
    assert added == pytest.approx(by_hand)
    assert deleted == pytest.approx(
        sum(certificate.accuracy(0, radius) for radius in range(1, certificate.grid.size(2)))
    )
    assert deleted > added
    path = tmp_path / "certificate.safetensors"
    certificate.save(path)
    again = Certificate.load(path)
    assert torch.equal(again.grid, certificate.grid)
    assert (again.alpha, again.samples, again.accuracy(1, 1)) == (0.05, 2000, certificate.accuracy(1, 1))
    unlabeled = replace(certificate, labels=None)
    with pytest.raises(ValueError, match="expected labels to judge the answers by"):
        unlabeled.accuracy()
    assert unlabeled.average_certifiable_radius[0] >= added
    with pytest.raises(ValueError, match="expected r_del to be a whole number >= 0, got -1"):
        certificate.certified(0, -1)


@pytest.mark.parametrize("name", ["GAT", "APPNP", "ChebNetII", "GRAND", "MLP", "SoftMedianGDC"])
def test_every_model_can_be_certified(name: str, split: ep.splits.Split) -> None:
    certificate = SMOOTHING.certify(
        build(name), split.test.data, split.test.nodes, 50, alpha=0.3, choosing_samples=10, progress=False
    )
    assert certificate.prediction.shape == split.test.nodes.shape
    if name == "MLP":
        # Without edges nothing can change: all samples agree.
        assert bool(certificate.certified(0, 1).all())


def test_a_model_that_diffuses_the_graph_is_asked_about_one_at_a_time(
    split: ep.splits.Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side, it would solve for every node of every graph over all of them."""
    graph, nodes = split.test.data, split.test.nodes
    sizes = []

    def convolve(model: ep.models.SoftMedianGDC, h: Tensor, values: Tensor, index: Tensor) -> Tensor:
        sizes.append(h.size(0))
        return h[:, :2]

    monkeypatch.setattr(ep.models.SoftMedianGDC, "convolve", convolve)
    SMOOTHING.certify(build("SoftMedianGDC"), graph, nodes, 50, alpha=0.3, choosing_samples=10, progress=False)
    assert set(sizes) == {graph.num_nodes}
    assert len(sizes) >= 60


def test_a_users_own_model_can_be_certified(split: ep.splits.Split) -> None:
    torch.manual_seed(0)
    theirs = PyGGCN(21, 8, 2, 2).eval()
    options: dict[str, Any] = {"samples": 50, "alpha": 0.3, "choosing_samples": 10, "progress": False}
    certificate = SMOOTHING.certify(theirs, split.test.data, split.test.nodes, **options)
    assert certificate.grid.size(0) == split.test.nodes.numel()


class Theirs(nn.Module):
    """A user's model; if ``mixing``, its logits are centred over all nodes that it sees. Counts its calls."""

    def __init__(self, mixing: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.mixing, self.calls = PyGGCN(21, 8, 2, 2), mixing, 0

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.calls += 1
        logits: Tensor = self.net(x, edge_index, edge_weight)
        return logits - logits.mean(dim=0) if self.mixing else logits


@pytest.mark.parametrize("mixing", [False, True])
def test_a_users_model_looks_at_many_graphs_at_once_where_it_keeps_them_apart(
    mixing: bool, split: ep.splits.Split
) -> None:
    model = Theirs(mixing)
    graph, nodes = split.test.data, split.test.nodes
    options: dict[str, Any] = {"samples": 100, "choosing_samples": 10, "progress": False}
    votes = SMOOTHING.vote(model, graph, nodes, **options)
    assert (model.calls > 110) == mixing
    one_by_one = SMOOTHING.vote(model, graph, nodes, memory=1e-6, **options)
    assert torch.equal(votes.bounding, one_by_one.bounding)
    assert torch.equal(votes.choosing, one_by_one.choosing)


# ClassCounts come and go.


def test_votes_of_several_machines_add_up(trained: nn.Module, split: ep.splits.Split, tmp_path: Path) -> None:
    graph, nodes = split.test.data, split.test.nodes
    parts = [
        SMOOTHING.vote(trained, graph, nodes, 100, seed=seed, choosing_samples=10, progress=False) for seed in (1, 2)
    ]
    for index, part in enumerate(parts):
        part.save(tmp_path / f"{index}.votes")
    both = merge([ClassCounts.load(tmp_path / f"{index}.votes") for index in (0, 1)])
    assert both.samples == 200
    assert torch.equal(both.bounding, parts[0].bounding + parts[1].bounding)
    assert torch.equal(both.choosing, parts[0].choosing + parts[1].choosing)
    assert SMOOTHING.decide(both).samples == 200
    with pytest.raises(ValueError, match=r"expected votes of different seeds, got \[1\] twice"):
        merge([parts[0], parts[0]])
    other = SparseSmoothing(0.05, 0.5).vote(trained, graph, nodes, 100, seed=3, choosing_samples=10, progress=False)
    with pytest.raises(ValueError, match="expected votes for noise"):
        merge([parts[0], other])
    with pytest.raises(ValueError, match="expected votes for noise"):
        SMOOTHING.decide(other)
    elsewhere = SMOOTHING.vote(build(), graph, nodes, 100, seed=3, choosing_samples=10, progress=False)
    with pytest.raises(
        ValueError, match=r"expected votes for the same model, got those for another in the votes of seeds \[3\]"
    ):
        merge([parts[0], elsewhere])
    fewer = Data(x=graph.x, edge_index=graph.edge_index[:, (graph.edge_index > 50).all(dim=0)], y=graph.y)
    for key, asked in (("graph", (fewer, nodes)), ("nodes", (graph, nodes[:-1]))):
        other = SMOOTHING.vote(trained, *asked, 100, seed=3, choosing_samples=10, progress=False)
        other = replace(other, run={**other.run, "answers": parts[0].run["answers"]})
        with pytest.raises(ValueError, match=f"expected votes for the same {key}"):
            merge([parts[0], other])
    with pytest.raises(ValueError, match="expected votes to merge, got none"):
        merge([])


@pytest.mark.parametrize("shares", [1, 3, 16, 120])
def test_shares_of_one_seed_are_its_votes(shares: int, trained: nn.Module, split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    counts: dict[str, Any] = {"samples": 100, "seed": 4, "choosing_samples": 10}
    parts = [SMOOTHING.vote_share(trained, graph, nodes, share, shares, **counts) for share in range(shares)]
    votes = SMOOTHING.vote(trained, graph, nodes, **counts, progress=False)
    joined = join(reversed(parts))
    assert joined.streams == votes.streams == {4: (10, 100)}
    assert torch.equal(joined.choosing, votes.choosing)
    assert torch.equal(joined.bounding, votes.bounding)
    # Each has its own, and about as many as the others.
    sizes = [len(part.samples[1]) for part in parts]
    assert sum(sizes) == 100
    assert max(sizes) - min(sizes) <= 1


def test_shares_that_do_not_belong_together_are_refused(trained: nn.Module, split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes

    def share(number: int, seed: int = 4, model: nn.Module = trained) -> Share:
        return SMOOTHING.vote_share(model, graph, nodes, number, 3, 60, seed, choosing_samples=9)

    with pytest.raises(ValueError, match="expected shares to join, got none"):
        join([])
    with pytest.raises(ValueError, match="expected the samples from number 3 on, got those from 6 to 9"):
        join([share(0), share(2)])
    with pytest.raises(
        ValueError, match=r"expected shares of \(9, 60\) samples in all, got those of the first \(6, 40\)"
    ):
        join([share(0), share(1)])
    more = SMOOTHING.vote_share(trained, graph, nodes, 2, 3, 90, 4, choosing_samples=9)
    with pytest.raises(ValueError, match=r"expected shares of as many samples in all, got \(9, 60\) and \(9, 90\)"):
        join([share(0), share(1), more])
    with pytest.raises(TypeError, match="expected Shares to join, got Share, int"):
        join([share(0), 1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="expected the samples from number 3 on, got those from 0 to 3"):
        join([share(0), share(0), share(1), share(2)])
    with pytest.raises(ValueError, match="expected the samples from number 0 on, got those from 3 to 6"):
        join([share(1), share(2)])
    with pytest.raises(ValueError, match="expected shares of one seed, got 4 and 5"):
        join([share(0), share(1, seed=5)])
    with pytest.raises(ValueError, match="expected votes for the same model"):
        join([share(0), share(1, model=build())])
    with pytest.raises(ValueError, match="expected one of 3 shares, from 0 on, got 3"):
        share(3)


def test_voting_goes_on_where_it_stopped(
    trained: nn.Module, split: ep.splits.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    path = tmp_path / "votes"
    options: dict[str, Any] = {"seed": 5, "choosing_samples": 30, "progress": False, "memory": 0.003}
    whole = SMOOTHING.vote(trained, graph, nodes, 200, **options)
    module = ep.certificates.sparse_smoothing
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    save, written = ClassCounts.save, []

    def interrupted(self: ClassCounts, file: Path) -> None:
        save(self, file)
        written.append(self.samples)
        if self.samples > 50:
            raise KeyboardInterrupt

    monkeypatch.setattr(ClassCounts, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SMOOTHING.vote(trained, graph, nodes, 200, checkpoint=path, **options)
    assert len(written) > 2
    monkeypatch.undo()
    kept = ClassCounts.load(path)
    assert 50 < kept.samples < 200
    resumed = SMOOTHING.vote(trained, graph, nodes, 200, checkpoint=path, **options)
    assert torch.equal(resumed.bounding, whole.bounding)
    assert torch.equal(resumed.choosing, whole.choosing)
    with pytest.raises(ValueError, match="expected votes of seed 6"):
        SMOOTHING.vote(trained, graph, nodes, 200, checkpoint=path, **{**options, "seed": 6})
    with pytest.raises(
        ValueError, match=r"expected votes for the same model, got those for another in .*votes: delete it"
    ):
        SMOOTHING.vote(build(), graph, nodes, 200, checkpoint=path, **options)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    votes = ClassCounts(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2, dtype=torch.long), {0: (2, 2)}, {})
    good, bad = tmp_path / "good", tmp_path / "bad"
    votes.save(good)
    assert ClassCounts.load(good).samples == 2
    replace(votes, streams={0: (2, 3)}).save(bad)
    with pytest.raises(ValueError, match="damaged: bounding votes that are not 3 at every node"):
        ClassCounts.load(bad)
    with pytest.raises(ValueError, match="holds no certificate"):
        Certificate.load(good)
    certificate = Certificate(
        *(torch.zeros(2, dtype=torch.long), torch.zeros(2, 1, 1, dtype=torch.bool), torch.zeros(2), torch.zeros(2)),
        *(None, 0.05, 100, 0.02, 0.5),
    )
    for wrong, found in (
        ({"grid": torch.zeros(2, 1, dtype=torch.bool)}, "damaged: a grid of shape"),
        ({"prediction": torch.zeros(3)}, "damaged: not one prediction, bound and label for each of 2 nodes"),
        ({"alpha": 7.0}, "damaged: alpha 7.0"),
        ({"p_del": -1.0}, "damaged: expected 0 <= p_del < 1"),
    ):
        replace(certificate, **wrong).save(bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=found):
            Certificate.load(bad)
    bad.write_bytes(good.read_bytes()[:-20])
    with pytest.raises(ValueError, match=str(bad)):
        ClassCounts.load(bad)


def test_what_was_counted_is_kept_however_it_ended(
    trained: nn.Module, split: ep.splits.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, nodes, path = split.test.data, split.test.nodes, tmp_path / "votes"
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False, "memory": 0.003}
    ask, asked = SmoothedSampler._ask, []

    def interrupted(self: SmoothedSampler, *arguments: int) -> Tensor:
        asked.append(arguments)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return ask(self, *arguments)

    monkeypatch.setattr(SmoothedSampler, "_ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SMOOTHING.vote(trained, graph, nodes, 500, checkpoint=path, **options)
    monkeypatch.undo()
    assert 0 < ClassCounts.load(path).samples < 500
    resumed = SMOOTHING.vote(trained, graph, nodes, 500, checkpoint=path, **options)
    assert torch.equal(resumed.bounding, SMOOTHING.vote(trained, graph, nodes, 500, **options).bounding)


def test_too_little_memory_means_smaller_batches(
    trained: nn.Module, split: ep.splits.Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    expected = SMOOTHING.vote(trained, graph, nodes, 100, **options)
    ask = SmoothedSampler._ask

    def short_of_memory(self: SmoothedSampler, first: int, count: int, classes: int) -> Tensor:
        if count > 7:
            raise torch.OutOfMemoryError
        return ask(self, first, count, classes)

    monkeypatch.setattr(SmoothedSampler, "_ask", short_of_memory)
    assert torch.equal(SMOOTHING.vote(trained, graph, nodes, 100, **options).bounding, expected.bounding)
    monkeypatch.setattr(SmoothedSampler, "_ask", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    with pytest.raises(torch.OutOfMemoryError):
        SMOOTHING.vote(trained, graph, nodes, 100, **options)


def test_a_batch_is_bounded_by_what_is_free(
    trained: nn.Module, split: ep.splits.Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, nodes = split.test.data, split.test.nodes
    sampler = ep.certificates.sampling.Sampler.of(graph, Noise(0.02, 0.5), seed=0)
    module, sizes = ep.certificates.electorate, []
    for free in (2e6, 4e6, 1e12):
        monkeypatch.setattr(module, "_free_in_main_memory", lambda free=free: free)
        sizes.append(SmoothedSampler(trained, graph, nodes, sampler, None).batch)
    assert 1 < sizes[0] < sizes[1] < sizes[2]
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=1)
    assert sizes[2] == SmoothedSampler(trained, graph, nodes, sampler, module._ON_CPU / 1e9).batch
    monkeypatch.undo()
    assert 1e6 < module._free_in_main_memory() < 1e14


def test_a_batch_of_a_users_model_is_bounded_by_what_it_makes(split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    sampler = ep.certificates.sampling.Sampler.of(graph, Noise(0.02, 0.5), seed=0)
    narrow, wide = (SmoothedSampler(PyGGCN(21, hidden, 2, 2), graph, nodes, sampler, 0.1) for hidden in (4, 256))
    # Hidden states of one graph alone, before and after each step, take more than 16 of its width.
    one = graph.num_nodes * 256 * 4 * 4
    assert wide.batch <= 0.1e9 / one
    assert narrow.batch > 4 * wide.batch


def test_models_whose_votes_differ_are_told_apart(split: ep.splits.Split) -> None:
    """With equal parameters: settings and class count, too."""
    graph, nodes = split.test.data, split.test.nodes
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    one, two = (ep.models.build("APPNP", 21, 2, {"hidden_channels": 8, "alpha": alpha}, seed=0) for alpha in (0.1, 0.9))
    votes = [SMOOTHING.vote(model, graph, nodes, 50, seed=seed, **options) for seed, model in enumerate((one, two))]
    with pytest.raises(ValueError, match="expected votes for the same model"):
        merge(votes)
    # Settings that a model does not print show in its answers.
    one, two = PyGGCN(21, 8, 2, 2, act="relu"), PyGGCN(21, 8, 2, 2, act="tanh")
    two.load_state_dict(one.state_dict())
    votes = [SMOOTHING.vote(model, graph, nodes, 50, seed=seed, **options) for seed, model in enumerate((one, two))]
    with pytest.raises(ValueError, match="expected votes for the same model, got those for one that answers otherwise"):
        merge(votes)


def test_numpys_numbers_are_numbers(trained: nn.Module, split: ep.splits.Split, tmp_path: Path) -> None:
    graph, nodes = split.test.data, split.test.nodes
    smoothing = SparseSmoothing(np.float32(0.02), np.float32(0.5))
    certificate = smoothing.certify(
        *(trained, graph, nodes, np.int64(100), np.float32(0.05), np.int64(3)),
        choosing_samples=np.int64(10),
        checkpoint=tmp_path / "votes",
        progress=False,
    )
    certificate.save(tmp_path / "certificate")
    assert Certificate.load(tmp_path / "certificate").samples == ClassCounts.load(tmp_path / "votes").samples == 100
    assert torch.equal(certificate.certified(np.int64(1)), certificate.certified(1))


def test_a_drawing_has_whole_numbers_of_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = torch.zeros(4, 1, 3, dtype=torch.bool)
    grid[:3, 0, :2] = True
    certificate = Certificate(
        *(torch.zeros(4, dtype=torch.long), grid, torch.zeros(4), torch.zeros(4), None, 0.05, 100, 0.02, 0.5)
    )
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    certificate.plot(tmp_path / "grid.png")
    axes = drawn[0].axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        ticks = axis.get_majorticklocs()
        assert np.array_equal(ticks, ticks.round())
    assert axes.images[0].get_array().tolist() == [[75.0, 75.0, 0.0]]


class Contrary(ep.models.GCN):
    """Answers the opposite of what its halves say."""

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        return -super().forward(x, edge_index, edge_weight)


def test_a_model_is_more_than_its_halves_where_it_says_so(split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    torch.manual_seed(0)
    contrary = Contrary(21, 2, hidden_channels=8)
    plain = ep.models.GCN(21, 2, hidden_channels=8)
    plain.load_state_dict(contrary.state_dict())
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    votes, opposite = (SMOOTHING.vote(model, graph, nodes, 50, **options) for model in (plain, contrary))
    assert torch.equal(votes.bounding.flip(1), opposite.bounding)


class PerNode(nn.Module):
    """Has a parameter for every node of one graph; if ``lost``, no number for nodes without neighbours."""

    def __init__(self, nodes: int, lost: bool = False) -> None:
        super().__init__()
        self.own, self.net, self.lost = nn.Parameter(torch.randn(nodes, 2)), PyGGCN(21, 8, 2, 2), lost

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        logits: Tensor = self.net(x, edge_index, edge_weight) + self.own
        if self.lost:
            logits[torch.bincount(edge_index[0], minlength=len(x)) == 0] = torch.nan
        return logits


def test_a_model_of_the_graphs_size_is_asked_about_one_graph_at_a_time(split: ep.splits.Split) -> None:
    graph, nodes = split.test.data, split.test.nodes
    torch.manual_seed(0)
    options: dict[str, Any] = {"choosing_samples": 10, "progress": False}
    votes = SMOOTHING.vote(PerNode(graph.num_nodes), graph, nodes, 50, **options)
    assert votes.samples == 50
    with pytest.raises(ValueError, match="expected finite logits from PerNode, got NaN or Inf on a random graph"):
        SMOOTHING.vote(PerNode(graph.num_nodes, lost=True), graph, graph.edge_index[0].unique(), 200, **options)


# Mistakes.


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.full((100,), -1), "expected labels >= 0, got -1"),
        (torch.zeros(7, dtype=torch.long), "expected labels y of shape"),
        (torch.zeros(100), "expected one int64 label for each of 5 nodes"),
        ([0] * 100, "expected labels y of shape"),
    ],
)
def test_bad_labels_are_told_before_anything_is_counted(
    y: Any, message: str, sbm: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmoothedSampler, "_ask", lambda *_: pytest.fail("asked"))
    graph = sbm.clone()
    graph.y = y[:1].repeat(graph.num_nodes) if isinstance(y, Tensor) and len(y) == 100 else y
    with pytest.raises(ValueError, match=message):
        SMOOTHING.certify(build(), graph, torch.arange(5), 100, progress=False)
    votes = ClassCounts(torch.tensor([[9, 1]]), torch.tensor([[90, 10]]), {0: (10, 100)}, {"noise": [0.02, 0.5]})
    with pytest.raises(ValueError, match="expected one int64 label for each of 1 nodes"):
        SMOOTHING.decide(votes, labels=sbm.y)


def test_what_is_no_model_is_refused(sbm: Data) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        SMOOTHING.certify("GCN", sbm, torch.arange(5), 100)  # type: ignore[arg-type]
    for answer in (lambda x: (x, x), lambda x: x[:, 0], lambda x: x[:, :1], lambda x: x[:5]):
        model = build()
        model.forward = lambda x, *_, answer=answer: answer(x)  # type: ignore[method-assign]
        with pytest.raises(ValueError, match=r"expected logits of shape \[\d+, classes\] from GCN, got"):
            SMOOTHING.certify(model, sbm, torch.arange(5), 100)
    with pytest.raises(ValueError, match="GCN has a layer GCNConv with cached=True"):
        SMOOTHING.certify(PyGGCN(21, 8, 2, 2, cached=True), sbm, torch.arange(5), 100)
    model = build()
    model.forward = lambda x, *_: x[:, :2] * torch.nan  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="expected finite logits from GCN, got NaN or Inf on the clean graph"):
        SMOOTHING.certify(model, sbm, torch.arange(5), 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "expected 0 < alpha < 1, got 0.0"),
        ({"alpha": 1.0}, "expected 0 < alpha < 1"),
        ({"alpha": float("nan")}, "expected 0 < alpha < 1, got nan"),
        ({"alpha": "x"}, "expected 0 < alpha < 1, got 'x'"),
        ({"samples": 0}, "expected samples to be a whole number >= 1, got 0"),
        ({"samples": 3}, "samples to certify anything at alpha=0.05 with 2 classes"),
        ({"choosing_samples": 0}, "expected choosing_samples"),
        ({"seed": -1}, "expected seed to be a whole number >= 0"),
        ({"seed": 2**63}, "expected seed < 9223372036854775808, got 9223372036854775808: larger ones begin again"),
        ({"memory": 0}, "expected memory in gigabytes"),
        ({"memory": True}, "expected memory in gigabytes"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str, sbm: Data) -> None:
    with pytest.raises(ValueError, match=message):
        SMOOTHING.certify(build(), sbm, torch.arange(5), **{"samples": 100, "progress": False, **options})


def test_how_many_samples_are_needed() -> None:
    noise = Noise(0.02, 0.5)
    needed = samples_needed(noise, 0.05, 3)

    def grid(samples: int) -> np.ndarray[Any, Any]:
        lower = clopper_pearson(np.array([samples]), samples, 0.05 / 3)[0]
        return certified_grid(noise, lower, 1 - lower)

    assert grid(needed).shape != (1, 1, 1)
    assert grid(needed - 1).shape == (1, 1, 1)
    # The noise is the same whatever the edges are: all radii are certified, or none.
    assert samples_needed(Noise(0.5, 0.5), 0.05, 2) > 0


def test_the_noise_is_checked() -> None:
    with pytest.raises(ValueError, match="expected 0 <= p_del < 1"):
        SparseSmoothing(0.1, 1.0)


def test_a_tensor_stays_where_it_belongs(sbm: Data) -> None:
    unlabeled = Data(x=sbm.x, edge_index=sbm.edge_index)
    certificate = SMOOTHING.certify(
        build(), unlabeled, torch.arange(4), 50, alpha=0.3, choosing_samples=5, progress=False
    )
    assert certificate.labels is None
    assert isinstance(certificate.p_lower, Tensor)
