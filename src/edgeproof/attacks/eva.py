"""EvA: evolutionary search over sets of flips (Akhondzadeh et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeproof._checks import check_fraction, check_int
from edgeproof.attacks.base import Attack, AttackTrace, Needs, Target, num_usable_pairs
from edgeproof.attacks.candidates import Candidates
from edgeproof.attacks.predictions import Predictions
from edgeproof.budget import Budget

# Gene without a flip: a set may have fewer flips than the budget allows.
_NONE = -1


@dataclass(frozen=True, kw_only=True)
class EvA(Attack):
    r"""Evolve a population of sets of flips, with the accuracy of the model as fitness and without gradients.

    A set is stored as its list of at most :math:`\Delta` pairs. In every generation, the sets of lowest accuracy survive.
    The others are children of two parents: each parent wins a tournament, the child takes alternating segments of both lists,
    and some of its pairs are replaced at random. A new pair joins a random node to a target node that the parent does not
    misclassify yet (adaptive targeted mutation). Pairs of a child that exceed the budget are removed.

    Written from the description in `arXiv:2507.08212 <https://arxiv.org/abs/2507.08212>`_; the defaults are not the authors'.

    Args:
        population: Number of sets.
        generations: Number of generations after the first.
        elite: Fraction of the population that survives.
        tournament: Number of random sets of which the best becomes a parent.
        crossovers: Maximum number of points at which a child changes from one parent's list to the other's.
        mutation_rate: Probability that a pair of a child is replaced; at least one pair of each child on average.

    >>> from edgeproof import datasets, models
    >>> data, nodes = datasets.load("csbm"), torch.arange(50)
    >>> attack = EvA(population=8, generations=5)
    >>> result = attack(models.build("GCN", 21, 2, seed=0), data, nodes, Budget(20))
    >>> result.flips.size(1) <= 20, result.accuracy <= result.clean_accuracy, result.queries
    (True, True, 43)
    """

    population: int = 512
    generations: int = 1024
    elite: float = 0.1
    tournament: int = 2
    crossovers: int = 30
    mutation_rate: float = 0.01

    def __post_init__(self) -> None:
        check_int(2, population=self.population)
        check_int(1, generations=self.generations, tournament=self.tournament, crossovers=self.crossovers)
        check_fraction(elite=self.elite, mutation_rate=self.mutation_rate)

    @property
    def needs(self) -> Needs:
        return "predictions"

    def num_steps(self, budget: Budget) -> int:
        return self.generations + 1

    def run(self, target: Target, budget: Budget, *, generator: torch.Generator, trace: AttackTrace) -> Tensor:
        genome = _Genome(target, budget, generator, trace)
        num_elite = min(self.population - 1, max(1, round(self.elite * self.population)))
        genes, correct = genome.random(self.population), torch.ones(self.population, target.nodes.numel())
        genes, correct = genome.evaluate(genes, correct[:0].to(target.device), trace)
        for _ in range(self.generations):
            fitness = correct.sum(dim=1)
            if not bool(fitness.all()):
                # Some set misclassifies all target nodes.
                break
            elite = fitness.argsort(stable=True)[:num_elite]
            parents = self._parents(fitness, 2 * (self.population - num_elite), generator).view(2, -1)
            children = self._cross(genes[parents[0]], genes[parents[1]], generator)
            children = genome.mutate(children, correct[parents[0]], self.mutation_rate)
            genes, correct = genome.evaluate(torch.cat([genes[elite], children]), correct[elite], trace)
        return genome.flips(genes[int(correct.sum(dim=1).argmin())])

    def _parents(self, fitness: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return the winner of each of ``count`` tournaments."""
        drawn = torch.randint(fitness.numel(), (count, self.tournament), generator=generator, device=generator.device)
        return drawn.gather(1, fitness[drawn].argmin(dim=1, keepdim=True)).squeeze(1)

    def _cross(self, first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
        """Return lists that alternate between those of two parents, from a random number of random points on."""
        rows, length = first.shape
        points = torch.randint(length, (rows, self.crossovers), generator=generator, device=generator.device)
        used = torch.rand(rows, 1, generator=generator, device=generator.device) * self.crossovers
        used = torch.arange(self.crossovers, device=generator.device) < used
        changes = torch.zeros_like(first).scatter_add_(1, points, used.long())
        return torch.where(changes.cumsum(dim=1) % 2 == 0, first, second)


class _Genome:
    """Sets of flips as rows of pair keys ``u * nodes + v``, ``u < v``, within a budget.

    Args:
        target: Model, graph and nodes under attack.
        budget: Budget.
        generator: Random generator.
        trace: Receives the lowest accuracy and the number of evaluated sets.
    """

    def __init__(self, target: Target, budget: Budget, generator: torch.Generator, trace: AttackTrace) -> None:
        self._target, self._budget, self._generator = target, budget, generator
        self._predictions = Predictions(target, trace)
        self._length = min(budget.total, num_usable_pairs(target.num_nodes, budget))
        n, device = target.num_nodes, target.device
        usable = torch.arange(n, device=device) if budget.usable is None else budget.usable
        self._partners = usable
        is_usable = torch.zeros(n, dtype=torch.bool, device=device).index_fill_(0, usable, True)
        # Target nodes that may take part in flips; 0 for the others.
        self._usable_targets = is_usable[target.nodes].float()
        self._listed = None if budget.permitted is None else Candidates(budget, n).listed

    def random(self, count: int) -> Tensor:
        """Return random sets."""
        correct = torch.ones(count, self._target.nodes.numel(), device=self._target.device)
        return self._within(self._draw(correct))

    def mutate(self, genes: Tensor, correct: Tensor, rate: float) -> Tensor:
        """Replace random pairs, and fill empty places, at target nodes that are still classified correctly."""
        chance = torch.rand(genes.shape, generator=self._generator, device=genes.device)
        replaced = (chance < max(rate, 1 / genes.size(1))) | (genes == _NONE)
        return self._within(torch.where(replaced, self._draw(correct), genes))

    def evaluate(self, genes: Tensor, known: Tensor, trace: AttackTrace) -> tuple[Tensor, Tensor]:
        """Return the sets, and which target nodes the model classifies correctly under each of them.

        Args:
            genes: Sets.
            known: Results of the first sets.
            trace: Receives the lowest accuracy and the number of evaluated sets.
        """
        target, sets = self._target, [self.flips(row) for row in genes[known.size(0) :]]
        logits = [batch[:, target.nodes] for batch in self._predictions.logits_of(sets)]
        right = [(z.argmax(dim=2) == target.labels) & z.isfinite().all(dim=2) for z in logits]
        correct = torch.cat([known, *(values.float() for values in right)])
        trace.step(correct.mean(dim=1).amin())
        trace.phase("evaluation")
        return genes, correct

    def flips(self, row: Tensor) -> Tensor:
        """Return a set as pairs, shape ``[2, flips]``."""
        key, n = row[row != _NONE], self._target.num_nodes
        return torch.stack([key // n, key % n])

    def _draw(self, correct: Tensor) -> Tensor:
        """Return random pairs at target nodes that are classified correctly, shape ``[sets, length]``."""
        target, generator = self._target, self._generator
        rows, n = correct.size(0), target.num_nodes
        # Sets that misclassify all usable target nodes get pairs at any of them.
        weight = correct * self._usable_targets + 1e-6 * self._usable_targets
        if bool((self._usable_targets > 0).any()):
            position = torch.multinomial(weight, self._length, replacement=True, generator=generator)
            u = target.nodes[position]
        else:
            u = self._partner(rows)
        v = self._partner(rows)
        key = torch.where(u == v, _NONE, torch.minimum(u, v) * n + torch.maximum(u, v))
        if self._budget.permitted is None:
            return key
        flat = key.flatten()
        permitted = flat != _NONE
        pairs = torch.stack([flat // n, flat % n])[:, permitted]
        permitted[permitted.clone()] = self._budget.permits(pairs)
        other = torch.full_like(flat, _NONE)
        if self._listed is not None and len(self._listed):
            other = self._listed.key[self._integers(len(self._listed), flat.shape)]
        return torch.where(permitted, flat, other).view_as(key)

    def _partner(self, rows: int) -> Tensor:
        return self._partners[self._integers(self._partners.numel(), torch.Size((rows, self._length)))]

    def _integers(self, high: int, shape: torch.Size) -> Tensor:
        return torch.randint(high, shape, generator=self._generator, device=self._target.device)

    def _within(self, genes: Tensor) -> Tensor:
        """Remove repeated pairs, then, from first to last, those that exceed the budget."""
        key, order = genes.sort(dim=1)
        repeated = torch.zeros_like(key, dtype=torch.bool)
        repeated[:, 1:] = key[:, 1:] == key[:, :-1]
        genes = genes.masked_fill(torch.zeros_like(repeated).scatter_(1, order, repeated), _NONE)
        if self._budget.local is None and self._budget.unit_costs:
            return genes
        return self._keep_in_order(genes)

    def _keep_in_order(self, genes: Tensor) -> Tensor:
        n, (rows, length) = self._target.num_nodes, genes.shape
        present = genes != _NONE
        u, v = torch.where(present, genes // n, 0), torch.where(present, genes % n, 1)
        pairs = torch.stack([u.flatten(), v.flatten()])
        cost = torch.where(present, self._budget.cost(pairs).view(rows, length), 0)
        total = cost.new_full((rows,), self._budget.total)
        local = self._budget.local
        left = None if local is None else local.repeat(rows, 1)
        kept = present.clone()
        row = torch.arange(rows, device=genes.device)
        for i in range(length):
            room = (
                total if left is None else torch.minimum(total, torch.minimum(left[row, u[:, i]], left[row, v[:, i]]))
            )
            kept[:, i] &= cost[:, i] <= room
            spent = torch.where(kept[:, i], cost[:, i], 0)
            total = total - spent
            if left is not None:
                left[row, u[:, i]] -= spent
                left[row, v[:, i]] -= spent
        return torch.where(kept, genes, _NONE)
