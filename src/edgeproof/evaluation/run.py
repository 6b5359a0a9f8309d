"""Run the steps of an evaluation, or take their results from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from torch import Tensor, nn

from edgeproof.attacks.base import Attack, AttackResult, Refining, Target, make_target
from edgeproof.attacks.fixed import FixedFlips
from edgeproof.attacks.surrogate import fit_surrogate
from edgeproof.budget import Budget
from edgeproof.evaluation.checkpoint import Checkpoint, Record
from edgeproof.evaluation.estimate import Meter
from edgeproof.evaluation.plan import Step


def run_steps(
    target: Target,
    steps: Sequence[Step],
    budgets: Sequence[Budget],
    *,
    checkpoint: Checkpoint,
    meter: Meter,
    surrogate: nn.Module | None = None,
    seed: int = 0,
) -> list[list[AttackResult]]:
    """Run every step at every budget, in order; searches in the checkpoint are not repeated.

    Args:
        target: Model, graph and nodes under attack.
        steps: Steps.
        budgets: Budgets.
        checkpoint: Finished searches; the others are added to it.
        meter: Receives the progress.
        surrogate: Model to transfer flips from; by default one is fitted to the predictions of the model.
        seed: Seed of all random choices.

    Returns:
        Results of each step, one per budget.
    """
    searches = _Searches(target, checkpoint, meter)
    done: list[list[AttackResult]] = []
    for number, step in enumerate(steps):
        meter.start_step(number)
        if step.kind == "attack":
            done.append(searches.attack(step, budgets, seed + step.seed))
        elif step.kind == "transfer":
            done.append(searches.transfer(step, budgets, seed + step.seed, surrogate))
        else:
            done.append(searches.local_search(step, budgets, seed + step.seed, known=done))
    return done


class _Searches:
    """Searches in a fixed order; the first ones are taken from the checkpoint."""

    def __init__(self, target: Target, checkpoint: Checkpoint, meter: Meter) -> None:
        self._target, self._checkpoint, self._meter = target, checkpoint, meter
        self._finished = iter(list(checkpoint.records))

    def attack(self, step: Step, budgets: Sequence[Budget], seed: int) -> list[AttackResult]:
        """Run an attack."""

        def rest(left: Sequence[Budget]) -> Iterator[AttackResult]:
            return step.attack.each_on_target(self._target, left, seed=seed, advance=self._meter.inner())

        return self._complete(budgets, seed, lambda flips: step.attack, rest, step.work)

    def transfer(
        self, step: Step, budgets: Sequence[Budget], seed: int, surrogate: nn.Module | None
    ) -> list[AttackResult]:
        """Find flips on the surrogate, and apply them to the target."""
        target = self._target

        def fixed(flips: Tensor) -> Attack:
            return FixedFlips(flips=flips, origin="another model")

        def rest(left: Sequence[Budget]) -> Iterator[AttackResult]:
            model = fit_surrogate(target.model, target.data, seed=seed) if surrogate is None else surrogate
            source = make_target(model, target.data, target.nodes, target.labels, target.backend)
            found = step.attack.each_on_target(source, left, seed=seed, advance=self._meter.inner())
            for budget, result in zip(left, found, strict=True):
                yield from fixed(result.flips).each_on_target(target, [budget], seed=seed)

        return self._complete(budgets, seed, fixed, rest, step.work)

    def local_search(
        self, step: Step, budgets: Sequence[Budget], seed: int, known: Sequence[Sequence[AttackResult]]
    ) -> list[AttackResult]:
        """Return the best local search per budget, started at the results of lowest accuracy, at most a few of them."""
        assert isinstance(step.attack, Refining)
        best = []
        for budget in budgets:
            allowed = [result for results in known for result in results if result.budget.total <= budget.total]
            lowest = min(result.accuracy for result in allowed)
            starts = {tuple(result.flips.flatten().tolist()): result for result in allowed if result.accuracy == lowest}
            chosen = list(starts.values())[: step.starts]
            found: list[AttackResult] = []
            for start in chosen:
                attack = replace(step.attack, start=FixedFlips(flips=start.flips, origin=repr(start.attack)))
                found += self._search_from(attack, budget, seed, step.work(budget) / len(chosen))
            best.append(min(found, key=accuracy_of))
        return best

    def _search_from(self, attack: Attack, budget: Budget, seed: int, work: float) -> list[AttackResult]:
        def rest(left: Sequence[Budget]) -> Iterator[AttackResult]:
            return attack.each_on_target(self._target, left, seed=seed, advance=self._meter.inner())

        return self._complete([budget], seed, lambda flips: attack, rest, lambda _: work)

    def _complete(
        self,
        budgets: Sequence[Budget],
        seed: int,
        attack_with: Callable[[Tensor], Attack],
        rest: Callable[[Sequence[Budget]], Iterator[AttackResult]],
        work: Callable[[Budget], float],
    ) -> list[AttackResult]:
        """Return one result per budget: the next finished searches, then those that ``rest`` runs.

        Args:
            budgets: Budgets.
            seed: Seed of the attack.
            attack_with: Returns the attack of a result, given its flips.
            rest: Runs the attack at the given budgets.
            work: Returns the planned work at a budget.
        """
        results: list[AttackResult] = []
        for budget, record in zip(budgets, self._finished, strict=False):
            results.append(record.restore(attack_with(record.flips), self._target, budget, seed))
            self._meter.finish_search(work(budget), record.elapsed)
        if len(results) == len(budgets):
            return results
        for result in rest(budgets[len(results) :]):
            elapsed = self._meter.restart_timer()
            self._checkpoint.add(Record.of(result, elapsed))
            self._meter.finish_search(work(result.budget), elapsed)
            results.append(result)
        return results


def combine_worst(
    steps: Sequence[Step], results: Sequence[Sequence[AttackResult]], epsilons: Sequence[float]
) -> list[AttackResult]:
    """Return the worst result within each budget over all steps; of equally strong results, the first one."""
    worst: list[AttackResult] = []
    for _, group in groupby(zip(steps, results, strict=True), key=lambda pair: pair[0].kind == "search"):
        worst = cumulative_worst([*([worst] if worst else []), *(found for _, found in group)], epsilons)
    return worst


def cumulative_worst(runs: Sequence[Sequence[AttackResult]], epsilons: Sequence[float]) -> list[AttackResult]:
    """Return the worst result within each budget; results of smaller budgets count.

    Args:
        runs: Results of each run, one per epsilon.
        epsilons: Budgets, in the same order.
    """
    return [
        min((run[j] for run in runs for j in range(len(epsilons)) if epsilons[j] <= epsilon), key=accuracy_of)
        for epsilon in epsilons
    ]


def accuracy_of(result: AttackResult) -> float:
    """Return the accuracy under an attack."""
    return result.accuracy
