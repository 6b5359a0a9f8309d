"""Result of :class:`~edgeproof.certificates.WorstCase`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from edgeproof._tables import Layout, Record, TabularResult
from edgeproof.serialization import read_tensors, write_tensors

# Version of the file format, and the entry of the header that tells these certificates from others.
_FORMAT, KIND = 1, "worst case"
_NODE_TENSORS = ("nodes", "classes", "margin", "any_edges_margin", "any_nodes_margin")
_BUDGET_TENSORS = ("fewest_flips", "most_flips", "flips")
_BUDGET_NUMBERS = ("total", "guaranteed", "attained", "lost", "name")


@dataclass(frozen=True, eq=False)
class BudgetCertificate:
    """Worst case within one budget.

    Args:
        name: Short description of the budget.
        total: Global budget.
        fewest_flips: Fewest flips that misclassify each node, within its own budget: 0 for nodes that are misclassified
            without flips, ``most_flips + 1`` for nodes that are proven correct. Shape ``[nodes]``.
        most_flips: Largest number of flips at each node that the budget allows, shape ``[nodes]``.
        lost: Upper bound on the number of correct nodes that are misclassified together.
        guaranteed: Accuracy that no perturbation within the budget falls below.
        attained: Accuracy at ``flips``, so the worst case is at most this; None without a search.
        flips: Flips within the budget, shape ``[2, flips]``.
    """

    name: str
    total: int
    fewest_flips: Tensor
    most_flips: Tensor
    lost: int
    guaranteed: float
    attained: float | None
    flips: Tensor

    @property
    def proven(self) -> Tensor:
        """Mask of the nodes that stay correct under every perturbation within the budget, each on its own."""
        return self.fewest_flips > self.most_flips


@dataclass(frozen=True, eq=False, repr=False)
class WorstCaseCertificate(TabularResult):
    """Proven worst case of a model at some nodes.

    Args:
        nodes: Certified nodes.
        classes: Class that each node has to keep: its label, or its prediction if there are no labels.
        has_labels: Whether the classes are labels, so that fractions are accuracies.
        exact: Whether the worst case of each node is exact (one-hop models), or only a bound for any edges.
        margin: Margin of each node on the given graph; positive where it is classified correctly.
        any_edges_margin: Margin that each node keeps for all edges between the nodes of the graph.
        any_nodes_margin: Margin that each node keeps for all edges, also to new nodes with any features.
        budgets: One entry per budget.
    """

    nodes: Tensor
    classes: Tensor
    has_labels: bool
    exact: bool
    margin: Tensor
    any_edges_margin: Tensor
    any_nodes_margin: Tensor
    budgets: tuple[BudgetCertificate, ...]

    @property
    def clean_accuracy(self) -> float:
        """Fraction of nodes that are correct on the given graph."""
        return _fraction(self.margin > 0)

    @property
    def any_edges_accuracy(self) -> float:
        """Fraction of nodes that are correct for all edges between the nodes of the graph."""
        return _fraction(self.any_edges_margin > 0)

    @property
    def any_nodes_accuracy(self) -> float:
        """Fraction of nodes that are correct for all edges, also to new nodes with any features."""
        return _fraction(self.any_nodes_margin > 0)

    def __repr__(self) -> str:
        return (
            f"WorstCaseCertificate({self.nodes.numel()} nodes, clean={self.clean_accuracy:.3f}, "
            f"any_edges={self.any_edges_accuracy:.3f}, {len(self.budgets)} budgets)"
        )

    def summary(self) -> Record:
        """Return the values that occur once, as numbers, text, lists and dictionaries."""
        return {
            "nodes": self.nodes.numel(),
            "exact": self.exact,
            "has_labels": self.has_labels,
            "clean": self.clean_accuracy,
            "any_edges": self.any_edges_accuracy,
            "any_nodes": self.any_nodes_accuracy,
        }

    def _records(self) -> list[Record]:
        return [
            {
                "budget": part.name,
                "total": part.total,
                "proven_nodes": _fraction(part.proven),
                "guaranteed": part.guaranteed,
                "attained": part.attained,
                "flips": part.flips.size(1),
            }
            for part in self.budgets
        ]

    def _layout(self) -> Layout:
        what = "accuracy" if self.has_labels else "unchanged predictions"
        lines = [("given graph", "-", f"{self.clean_accuracy:.1%}", f"{self.clean_accuracy:.1%}")]
        for part in self.budgets:
            attained = "-" if part.attained is None else f"{part.attained:.1%}"
            lines.append((part.name, f"{part.total:,}", f"{part.guaranteed:.1%}", attained))
        lines.append(("any edges", "-", f"{self.any_edges_accuracy:.1%}", "-"))
        lines.append(("any edges and nodes", "-", f"{self.any_nodes_accuracy:.1%}", "-"))
        return Layout(
            title=f"worst-case {what}, computed",
            header=("edges", "flips", "guaranteed", "attained by an attack"),
            lines=lines,
            notes=[] if self.exact else ["only the bound for any edges is known for this model"],
        )

    def save(self, path: str | Path) -> None:
        """Write the certificate to a file, atomically."""
        tensors = {name: getattr(self, name).cpu() for name in _NODE_TENSORS}
        for index, part in enumerate(self.budgets):
            tensors |= {f"{index}.{name}": getattr(part, name).cpu().contiguous() for name in _BUDGET_TENSORS}
        header = {
            "format": _FORMAT,
            "certificate": KIND,
            "has_labels": self.has_labels,
            "exact": self.exact,
            "budgets": [{name: getattr(part, name) for name in _BUDGET_NUMBERS} for part in self.budgets],
        }
        write_tensors(path, tensors, header)

    @classmethod
    def load(cls, path: str | Path) -> WorstCaseCertificate:
        """Read a file written by :meth:`save`.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If it is damaged, or not such a certificate.
        """
        header, tensors = read_tensors(path)
        if header.get("certificate") != KIND or header.get("format") != _FORMAT:
            raise ValueError(f"expected a certificate of WorstCase in format {_FORMAT}, got {path}")
        try:
            budgets = tuple(
                BudgetCertificate(**{**numbers, **{name: tensors[f"{index}.{name}"] for name in _BUDGET_TENSORS}})
                for index, numbers in enumerate(header["budgets"])
            )
            found = cls(
                **{name: tensors[name] for name in _NODE_TENSORS},
                has_labels=bool(header["has_labels"]),
                exact=bool(header["exact"]),
                budgets=budgets,
            )
            found.check()
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a valid certificate: {error!r}") from error
        return found

    def check(self) -> None:
        """Raise ``ValueError`` unless tensors and numbers fit together."""
        count = self.nodes.numel()
        parts = [getattr(self, name) for name in _NODE_TENSORS]
        parts += [getattr(part, name) for part in self.budgets for name in ("fewest_flips", "most_flips")]
        if any(part.shape != (count,) for part in parts):
            raise ValueError(f"expected tensors of {count} nodes, got shapes {[list(part.shape) for part in parts]}")
        for part in self.budgets:
            fractions = [part.guaranteed] + ([] if part.attained is None else [part.attained])
            if not all(0 <= fraction <= 1 for fraction in fractions) or part.flips.size(0) != 2:
                raise ValueError(f"expected accuracies from 0 to 1 and pairs of nodes, got {fractions}")


def _fraction(mask: Tensor) -> float:
    return float(mask.double().mean())
