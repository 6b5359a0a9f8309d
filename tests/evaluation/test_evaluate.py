"""Robustness evaluation: the suite, its warnings and its errors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import DICE, FGSM, LRBCD, PRBCD, Attack, FixedFlips, GreedyRBCD
from edgeproof.attacks.base import Target, make_target
from edgeproof.attacks.suite import Entry, standard
from edgeproof.evaluation import EvaluationWarning, checks
from edgeproof.evaluation.checkpoint import Checkpoint
from edgeproof.evaluation.estimate import Meter
from edgeproof.evaluation.plan import attack_steps
from edgeproof.evaluation.run import cumulative_worst, run_steps


@pytest.fixture(scope="module")
def trained() -> tuple[ep.models.GraphModel, ep.splits.Split]:
    data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)
    split = ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)
    model = ep.models.build("GCN", data.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    return model, split


@pytest.mark.parametrize("local", [None, 0.5])
def test_standard_suite(trained: tuple[ep.models.GraphModel, ep.splits.Split], local: float | None) -> None:
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    found = ep.evaluate(model, data, nodes, [0.1, 0.05], local=local)
    names = {row.attack for row in found.rows}
    assert names == {
        "RandomFlips",
        "DICE",
        "PRBCD" if local is None else "LRBCD",
        "GreedyRBCD, log margin",
        "exact greedy, log margin",
        "transfer",
        "local search",
        "EvA",
        "ExactGain",
        "NodeSelection",
        "exact search",
    }
    assert len(found.rows) == 2 * len(names)
    assert found.epsilons == [0.1, 0.05]
    for epsilon in found.epsilons:
        budget = ep.Budget.from_epsilon(data, nodes, epsilon, local=local)
        worst = found.worst[epsilon]
        budget.check(worst.flips)
        assert found.accuracy(epsilon) == min(row.accuracy for row in found.rows if row.epsilon <= epsilon)
        logits = ep.models.predict(model, worst.data)[nodes]
        assert worst.accuracy == float(ep.losses.accuracy(logits, data.y[nodes]))
    assert found.accuracy(0.1) <= found.accuracy(0.05) < found.clean_accuracy
    assert {score.attack for score in found.scores()} == names | {"clean", "worst"}
    assert "worst" in str(found)


def test_custom_list_of_attacks(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    attacks = [FGSM(), FGSM(loss="log_margin"), "DICE"]
    found = ep.evaluate(model, split.test.data, split.test.nodes, [0.1], attacks)
    assert [row.attack for row in found.rows] == ["FGSM(loss='tanh_margin')", "FGSM(loss='log_margin')", "DICE"]


def test_standard_suite_depends_on_budget_and_model() -> None:
    small, large = [ep.Budget(10)], [ep.Budget(10**6)]
    assert {entry.name for entry in standard(small, 1000, "propagate")} > {"exact greedy, log margin", "PRBCD"}
    assert "exact greedy, log margin" not in {entry.name for entry in standard(large, 100_000, "propagate")}
    assert "exact greedy, log margin" not in {entry.name for entry in standard([ep.Budget(100)], 3000, "autograd")}
    local = [ep.Budget(10, torch.ones(1000, dtype=torch.long))]
    assert LRBCD() in {entry.attack for entry in standard(local, 1000, "propagate")}
    assert PRBCD() in {entry.attack for entry in standard(small, 1000, "propagate")}


class Scaled(nn.Module):
    """Model with scaled logits, which flatten the tanh margin if they are very large or very small."""

    def __init__(self, model: nn.Module, scale: float = 1e6) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return self.scale * out


class Noisy(Scaled):
    """Model with noise on its logits."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return out + self.scale * torch.randn_like(out)


def test_vanishing_gradient_gives_warning_and_log_margin_still_works(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    with pytest.warns(EvaluationWarning, match=r"^EP002: the gradient is \(nearly\) zero"):
        hidden = ep.evaluate(
            Scaled(model), data, nodes, [0.1], [PRBCD(steps=20, fine_tune_steps=0), GreedyRBCD(loss="log_margin")]
        )
    plain = ep.evaluate(model, data, nodes, [0.1], [GreedyRBCD(loss="log_margin")])
    # The log margin does not depend on the scale.
    assert hidden.rows[1].accuracy == pytest.approx(plain.rows[0].accuracy, abs=1 / nodes.numel())
    assert hidden.warnings[0].startswith("EP002: the gradient is (nearly) zero")


@pytest.mark.parametrize(("scale", "size"), [(1e-6, "small"), (6.0, "large")])
def test_unusual_scale_of_logits_gives_warning(
    scale: float, size: str, trained: tuple[ep.models.GraphModel, ep.splits.Split]
) -> None:
    """The warning comes before the gradient vanishes, and only for attacks that depend on the scale."""
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    attack, scaled = PRBCD(steps=20, fine_tune_steps=0), PRBCD(steps=20, fine_tune_steps=0, loss="scaled_margin")
    with pytest.warns(EvaluationWarning, match=f"^EP003: the logits are {size}.*may be weak .PRBCD"):
        found = ep.evaluate(Scaled(model, scale), data, nodes, [0.1], [attack, "DICE"])
    assert not [problem for problem in found.warnings if "gradient" in problem]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        plain = ep.evaluate(Scaled(model, scale), data, nodes, [0.1], [scaled])
    assert plain.rows[0].accuracy < found.rows[0].accuracy


class Stepped(Scaled):
    """Model that rounds edge weights: it uses all edges, but its gradient is zero everywhere."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else (edge_weight > 0.5).to(x.dtype)
        out: Tensor = self.model(x, edge_index, weight)
        return out


def test_model_without_gradient_is_broken_by_transfer_from_surrogate(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    found = ep.evaluate(Stepped(model), split.test.data, split.test.nodes, [0.1])
    assert found.tier == "black_box"
    transferred = found.results["transfer", 0.1].accuracy
    assert transferred < found.results["DICE", 0.1].accuracy
    assert found.accuracy(0.1) <= transferred < found.clean_accuracy - 0.1


def test_model_that_ignores_graph_gives_warning(sbm: Data) -> None:
    with pytest.warns(EvaluationWarning, match="Either the model does not use the graph"):
        found = ep.evaluate(ep.models.build("MLP", 21, 2, seed=0), sbm, torch.arange(30), [0.1], ["FGSM"])
    assert found.accuracy(0.1) == found.clean_accuracy


def test_random_output_gives_warning(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    with pytest.warns(EvaluationWarning, match="^EP001: the model has random outputs: two runs on the same graph"):
        ep.evaluate(Noisy(model, 5e-4), split.test.data, split.test.nodes, [0.1], ["DICE"])
    message = checks.random_output(Noisy(model, 1.0), split.test.data)
    assert message is not None
    assert " 0.0% different predictions" not in message
    assert checks.random_output(model, split.test.data) is None


def test_checks_of_order_of_accuracies() -> None:
    epsilons = [0.1, 0.05]
    strong = {"PRBCD": torch.tensor([0.5, 0.6]), "FGSM": torch.tensor([0.55, 0.5])}
    assert checks.weak_beats_strong({"DICE": torch.tensor([0.5, 0.5])}, strong, epsilons) == []
    (message,) = checks.weak_beats_strong({"DICE": torch.tensor([0.4, 0.5])}, strong, epsilons)
    assert "DICE beats all attacks that use gradients at epsilon 0.1: accuracy 40.0% against 50.0%" in message
    assert checks.weak_beats_strong({}, strong, epsilons) == []
    (message,) = checks.rising_accuracy(strong, epsilons)
    assert "FGSM is weaker with a larger budget: accuracy 50.0% at epsilon 0.05, 55.0% at epsilon 0.1" in message
    adaptive = torch.tensor([0.5, 0.5])
    (message,) = checks.transfer_beats_adaptive(torch.tensor([0.6, 0.4]), adaptive, epsilons)
    assert "at epsilon 0.05: accuracy 40.0% against 50.0%" in message


def test_custom_surrogate(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    surrogate = ep.models.build("GPRGNN", 21, 2, seed=1)
    found = ep.evaluate(model, split.test.data, split.test.nodes, [0.1], [DICE()], surrogate=surrogate)
    assert [row.attack for row in found.rows] == ["DICE", "transfer"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"epsilons": []}, ValueError, "distinct epsilons, at least one"),
        ({"epsilons": [0.1, 0.1]}, ValueError, "distinct epsilons"),
        ({"epsilons": 0.1}, TypeError, "a list of epsilons"),
        ({"epsilons": [-1.0]}, ValueError, "epsilon to be a finite number >= 0"),
        ({"attacks": "standrad"}, ValueError, "did you mean 'standard'"),
        ({"attacks": ["PRBC"]}, ValueError, "did you mean 'PRBCD'"),
        ({"attacks": []}, ValueError, "expected attacks"),
        ({"count": "all"}, ValueError, "unknown count"),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, object], error: type[Exception], message: str, sbm: Data) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    with pytest.raises(error, match=message):
        ep.evaluate(model, sbm, torch.arange(10), **{"epsilons": [0.1], **arguments})  # type: ignore[arg-type]


def test_ordinary_model_gives_no_warning(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        found = ep.evaluate(model, split.test.data, split.test.nodes, [0.05, 0.2], ["FGSM", "RandomFlips"])
    assert found.warnings == ()


def test_weak_attack_that_beats_strong_ones_gives_warning(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    """The only strong attack flips one pair of nodes that are not targets."""
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    weak = FixedFlips(flips=torch.tensor([[0], [1]]))
    with pytest.warns(EvaluationWarning, match="^EP004: DICE beats all attacks that use gradients at epsilon 0.5"):
        ep.evaluate(model, data, nodes, [0.5], [weak, "DICE"])


@dataclass(frozen=True, kw_only=True)
class SmallBudgetOnly(Attack):
    """Attack that finds nothing with a large budget; it records the seed of each run."""

    largest: int
    seeds: list[int] = field(default_factory=list)

    def num_steps(self, budget: ep.Budget) -> int:
        return 0

    def run(self, target: Target, budget: ep.Budget, *, generator: torch.Generator, trace: object) -> Tensor:
        self.seeds.append(generator.initial_seed())
        if budget.total > self.largest:
            return target.data.edge_index[:, :0]
        return FGSM(loss="log_margin").run(target, budget, generator=generator, trace=trace)  # type: ignore[arg-type]


def test_attack_that_is_weaker_with_larger_budget_gives_warning(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    attack = SmallBudgetOnly(largest=ep.Budget.from_epsilon(data, nodes, 0.2).total)
    with pytest.warns(EvaluationWarning, match="^EP005: SmallBudgetOnly is weaker with a larger budget"):
        found = ep.evaluate(model, data, nodes, [0.2, 0.4], [attack])
    assert found.accuracy(0.4) == found.accuracy(0.2) < found.clean_accuracy


def test_labels_can_replace_those_of_graph(sbm: Data) -> None:
    """One of the classes occurs neither in the graph nor in the predictions."""
    model, nodes = ep.models.build("GCN", 21, 3, seed=0), torch.arange(20)
    labels = torch.arange(20) % 3
    unlabelled = Data(x=sbm.x, edge_index=sbm.edge_index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        found = ep.evaluate(model, unlabelled, nodes, [0.02], labels=labels)
    assert "DICE" not in {row.attack for row in found.rows}
    assert found.accuracy(0.02) <= found.clean_accuracy


def test_graph_of_one_node() -> None:
    data = Data(x=torch.ones(1, 3), edge_index=torch.empty(2, 0, dtype=torch.long))
    labels = torch.tensor([1])
    found = ep.evaluate(ep.models.build("GCN", 3, 2, seed=0), data, torch.tensor([0]), [0.5], ["FGSM"], labels=labels)
    assert found.accuracy(0.5) == found.clean_accuracy


def test_restarts_use_different_seeds(sbm: Data) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(20)
    attack = SmallBudgetOnly(largest=5)
    steps, budgets = attack_steps([Entry("attack", attack, seeds=(0, 1, 2))]), [ep.Budget(5)]
    meter = Meter(steps, budgets, lambda done, text: None)
    target = make_target(model, sbm, nodes, None, None)
    found = run_steps(target, steps, budgets, checkpoint=Checkpoint(None, {}), meter=meter, seed=7)
    assert attack.seeds == [7, 8, 9] == [results[0].seed for results in found]
    (greedy,) = (entry for entry in standard([ep.Budget(5)], 200, "propagate") if isinstance(entry.attack, GreedyRBCD))
    assert greedy.seeds == (0, 1, 2)


def test_shared_target_gives_same_results_as_single_calls(sbm: Data) -> None:
    model, nodes = ep.models.build("GPRGNN", 21, 2, seed=0).eval(), torch.arange(40)
    target, budgets = make_target(model, sbm, nodes, None, None), [ep.Budget(5), ep.Budget(10)]
    for attack in (PRBCD(steps=5, block_size=500), DICE(), FGSM(loss="log_margin"), PRBCD(steps=5, block_size=500)):
        shared = attack.on_target(target, budgets, seed=3)
        single = attack(model, sbm, nodes, budgets, seed=3)
        assert all(torch.equal(a.flips, b.flips) for a, b in zip(shared, single, strict=True))
        assert [(a.accuracy, a.trace, a.path) for a in shared] == [(b.accuracy, b.trace, b.path) for b in single]


def test_results_of_smaller_budget_count_for_larger_one(sbm: Data) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(40)
    bad = ep.attacks.RandomFlips()(model, sbm, nodes, ep.Budget(20))
    good = FGSM(loss="log_margin")(model, sbm, nodes, ep.Budget(20))
    assert good.accuracy < bad.accuracy
    worst = cumulative_worst([[bad, good]], [0.1, 0.05])
    assert worst == [good, good]
    assert cumulative_worst([[good, bad]], [0.1, 0.05]) == [good, bad]


@pytest.mark.parametrize("local", [None, torch.zeros(200, dtype=torch.long)])
def test_budget_without_flips_gives_warning(sbm: Data, local: Tensor | None) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(20)
    epsilon = 1e-5 if local is None else 0.1
    with pytest.warns(EvaluationWarning, match=rf"^EP007: at epsilon {epsilon:g}, the budget allows no flip"):
        found = ep.evaluate(model, sbm, nodes, [epsilon], ["FGSM"], local=local)
    assert found.warnings[0].startswith("EP007")
    budget = ep.Budget.from_epsilon(sbm, nodes, epsilon, local=local)
    with pytest.warns(UserWarning, match=r"^EP007: the budget allows no flip") as caught:
        FGSM()(model, sbm, nodes, budget)
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]


def test_epsilon_above_one_gives_warning(sbm: Data) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(5)
    with pytest.warns(EvaluationWarning, match="^EP008: epsilon 5 allows more flips .* did you mean 0.05"):
        ep.evaluate(model, sbm, nodes, [1.0, 5], ["DICE"])
