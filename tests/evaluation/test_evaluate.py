from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.attacks import DICE, FGSM, LRBCD, PRBCD, GreedyRBCD
from edgeproof.attacks.suite import standard
from edgeproof.evaluation import EvaluationWarning, checks
from edgeproof.evaluation.evaluate import _cumulative_worst


@pytest.fixture(scope="module")
def trained() -> tuple[ep.models.GraphModel, ep.splits.Split]:
    data = ep.datasets.csbm("homophilous", num_nodes=200, p=0.05, q=0.01, K=4.0, seed=3)
    split = ep.splits.inductive(data, seed=0, train_per_class=20, val_per_class=20, test_share=0.2)
    model = ep.models.build("GCN", data.num_features, 2, seed=0)
    ep.train(model, split, max_epochs=100, seed=0, progress=False)
    return model, split


@pytest.mark.parametrize("local", [None, 0.5])
def test_the_standard_suite(trained: tuple[ep.models.GraphModel, ep.splits.Split], local: float | None) -> None:
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


def test_own_choice_of_attacks(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    chosen = [FGSM(), FGSM(loss="log_margin"), "DICE"]
    found = ep.evaluate(model, split.test.data, split.test.nodes, [0.1], chosen)
    assert [row.attack for row in found.rows] == ["FGSM(loss='tanh_margin')", "FGSM(loss='log_margin')", "DICE"]


def test_the_suite_fits_the_budget_and_the_model() -> None:
    small, large = [ep.Budget(10)], [ep.Budget(10**6)]
    assert {entry.name for entry in standard(small, 1000, "propagate")} > {"exact greedy, log margin", "PRBCD"}
    assert "exact greedy, log margin" not in {entry.name for entry in standard(large, 100_000, "propagate")}
    assert "exact greedy, log margin" not in {entry.name for entry in standard([ep.Budget(100)], 3000, "autograd")}
    local = [ep.Budget(10, torch.ones(1000, dtype=torch.long))]
    assert LRBCD() in {entry.attack for entry in standard(local, 1000, "propagate")}
    assert PRBCD() in {entry.attack for entry in standard(small, 1000, "propagate")}


class Scaled(nn.Module):
    """Hides its gradient behind enormous logits, where the tanh margin is flat, or behind tiny ones."""

    def __init__(self, model: nn.Module, scale: float = 1e6) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return self.scale * out


class Noisy(Scaled):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.model(x, edge_index, edge_weight)
        return out + torch.randn_like(out)


def test_hidden_gradients_are_noticed_and_do_not_help(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    with pytest.warns(EvaluationWarning, match=r"the gradient is \(nearly\) zero"):
        hidden = ep.evaluate(
            Scaled(model), data, nodes, [0.1], [PRBCD(steps=20, fine_tune_steps=0), GreedyRBCD(loss="log_margin")]
        )
    plain = ep.evaluate(model, data, nodes, [0.1], [GreedyRBCD(loss="log_margin")])
    # The log margin knows no scale: it finds as much behind the large logits.
    assert hidden.rows[1].accuracy == pytest.approx(plain.rows[0].accuracy, abs=1 / nodes.numel())
    assert hidden.warnings


@pytest.mark.parametrize(("scale", "word"), [(1e-6, "small"), (6.0, "large")])
def test_a_scale_that_misleads_is_noticed(
    scale: float, word: str, trained: tuple[ep.models.GraphModel, ep.splits.Split]
) -> None:
    """Long before the gradient vanishes; attacks that do not depend on the scale are not doubted."""
    model, split = trained
    data, nodes = split.test.data, split.test.nodes
    usual, aware = PRBCD(steps=20, fine_tune_steps=0), PRBCD(steps=20, fine_tune_steps=0, loss="scaled_margin")
    with pytest.warns(EvaluationWarning, match=f"the logits are {word}.*may find little there .PRBCD"):
        found = ep.evaluate(Scaled(model, scale), data, nodes, [0.1], [usual, "DICE"])
    assert not [problem for problem in found.warnings if "gradient" in problem]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        plain = ep.evaluate(Scaled(model, scale), data, nodes, [0.1], [aware])
    assert plain.rows[0].accuracy < found.rows[0].accuracy


class Stepped(Scaled):
    """Rounds edge weights, so that its gradient is zero everywhere, though it listens to every edge."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else (edge_weight > 0.5).to(x.dtype)
        out: Tensor = self.model(x, edge_index, weight)
        return out


def test_a_model_that_hides_its_gradient_falls_to_flips_of_its_imitation(
    trained: tuple[ep.models.GraphModel, ep.splits.Split],
) -> None:
    model, split = trained
    with pytest.warns(EvaluationWarning) as caught:
        found = ep.evaluate(Stepped(model), split.test.data, split.test.nodes, [0.1])
    messages = [str(warning.message) for warning in caught]
    assert any("the gradient is (nearly) zero" in message for message in messages)
    assert any("flips found on another model beat all found on this one" in message for message in messages)
    assert found.accuracy(0.1) < found.clean_accuracy - 0.1


def test_a_model_without_a_graph_is_noticed(sbm: Data) -> None:
    with pytest.warns(EvaluationWarning, match="either the model does not use the graph"):
        found = ep.evaluate(ep.models.build("MLP", 21, 2, seed=0), sbm, torch.arange(30), [0.1], ["FGSM"])
    assert found.accuracy(0.1) == found.clean_accuracy


def test_random_answers_are_noticed(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    message = checks.random_output(Noisy(model), split.test.data)
    assert message is not None
    assert "answers at random" in message
    assert checks.random_output(model, split.test.data) is None


def test_orders_that_should_not_be_are_noticed() -> None:
    epsilons = [0.1, 0.05]
    strong = {"PRBCD": torch.tensor([0.5, 0.6]), "FGSM": torch.tensor([0.55, 0.5])}
    assert checks.weak_beats_strong({"DICE": torch.tensor([0.5, 0.5])}, strong, epsilons) == []
    (message,) = checks.weak_beats_strong({"DICE": torch.tensor([0.4, 0.5])}, strong, epsilons)
    assert "DICE beats all attacks that use gradients at epsilon 0.1: 40.0% against 50.0%" in message
    assert checks.weak_beats_strong({}, strong, epsilons) == []
    (message,) = checks.rising_accuracy(strong, epsilons)
    assert "FGSM does worse with a larger budget: 50.0% at epsilon 0.05, 55.0% at 0.1" in message
    adaptive = torch.tensor([0.5, 0.5])
    (message,) = checks.transfer_beats_adaptive(torch.tensor([0.6, 0.4]), adaptive, epsilons)
    assert "at epsilon 0.05: 40.0% against 50.0%" in message


def test_a_surrogate_can_be_given(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    other = ep.models.build("GPRGNN", 21, 2, seed=1)
    found = ep.evaluate(model, split.test.data, split.test.nodes, [0.1], [DICE()], surrogate=other)
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
def test_bad_calls_are_refused(arguments: dict[str, object], error: type[Exception], message: str, sbm: Data) -> None:
    model = ep.models.build("GCN", 21, 2, seed=0)
    with pytest.raises(error, match=message):
        ep.evaluate(model, sbm, torch.arange(10), **{"epsilons": [0.1], **arguments})  # type: ignore[arg-type]


def test_nothing_is_warned_about_a_plain_model(trained: tuple[ep.models.GraphModel, ep.splits.Split]) -> None:
    model, split = trained
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        found = ep.evaluate(model, split.test.data, split.test.nodes, [0.05, 0.2], ["FGSM", "RandomFlips"])
    assert found.warnings == ()


@pytest.mark.parametrize(
    "check",
    [
        *("random_output", "vanishing_gradient", "unusual_scale"),
        *("weak_beats_strong", "rising_accuracy", "transfer_beats_adaptive"),
    ],
)
def test_every_check_is_asked(check: str, sbm: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "odd" if check in ("random_output", "vanishing_gradient", "unusual_scale") else ["odd"]
    monkeypatch.setattr(checks, check, lambda *_, **__: answer)
    model, other = (ep.models.build("GCN", 21, 2, seed=seed) for seed in (0, 1))
    with pytest.warns(EvaluationWarning, match="odd"):
        found = ep.evaluate(model, sbm, torch.arange(20), [0.02], ["FGSM", "DICE"], surrogate=other)
    assert "odd" in found.warnings


def test_labels_may_be_given_where_the_graph_has_none(sbm: Data) -> None:
    """One of them a class that neither the graph nor the model's answers have."""
    model, nodes = ep.models.build("GCN", 21, 3, seed=0), torch.arange(20)
    labels = torch.arange(20) % 3
    bare = Data(x=sbm.x, edge_index=sbm.edge_index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        found = ep.evaluate(model, bare, nodes, [0.02], labels=labels)
    assert "DICE" not in {row.attack for row in found.rows}
    assert found.accuracy(0.02) <= found.clean_accuracy


def test_a_graph_of_one_node() -> None:
    data = Data(x=torch.ones(1, 3), edge_index=torch.empty(2, 0, dtype=torch.long))
    labels = torch.tensor([1])
    found = ep.evaluate(ep.models.build("GCN", 3, 2, seed=0), data, torch.tensor([0]), [0.5], ["FGSM"], labels=labels)
    assert found.accuracy(0.5) == found.clean_accuracy


def test_restarts_have_seeds_of_their_own(sbm: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    original = GreedyRBCD.run

    def run(self: GreedyRBCD, *arguments: object, generator: torch.Generator, **others: object) -> Tensor:
        seeds.append(generator.initial_seed())
        return original(self, *arguments, generator=generator, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(GreedyRBCD, "run", run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)
        ep.evaluate(ep.models.build("GCN", 21, 2, seed=0), sbm, torch.arange(20), [0.02], seed=7)
    # The last one is the attack on the imitation.
    assert seeds == [7, 8, 9, 7]


def test_what_a_smaller_budget_found_counts_for_a_larger_one(sbm: Data) -> None:
    model, nodes = ep.models.build("GCN", 21, 2, seed=0), torch.arange(40)
    bad = ep.attacks.RandomFlips()(model, sbm, nodes, ep.Budget(20))
    good = FGSM(loss="log_margin")(model, sbm, nodes, ep.Budget(20))
    assert good.accuracy < bad.accuracy
    worst = _cumulative_worst([[bad, good]], [0.1, 0.05])
    assert worst == [good, good]
    assert _cumulative_worst([[good, bad]], [0.1, 0.05]) == [good, bad]
