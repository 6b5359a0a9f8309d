"""``edgeproof certify --worst-case``: the computed worst case of models with bounded messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import edgeproof as ep
from edgeproof.cli._printing import print_table

if TYPE_CHECKING:
    import torch

    from edgeproof.certificates import WorstCaseCertificate
    from edgeproof.cli._target import EvalTarget

EPSILONS = (0.05, 0.1, 0.25)
LOCAL = 0.5


def certify_worst_case(
    target: EvalTarget, out: Path, epsilons: list[float], local: float, seed: int, device: torch.device
) -> None:
    """Certify the test nodes with and without local budgets, write certificate and result file, and print a table.

    Args:
        target: Model and test nodes.
        out: File of the certificate.
        epsilons: Global budgets as fractions of the edges at the test nodes.
        local: Local budgets as a factor of the degree.
        seed: Seed to record; the certificate is deterministic.
        device: Device to record.
    """
    from edgeproof.cli._target import result_of
    from edgeproof.evaluation.result import Score

    view = target.split.test
    kinds = [(factor, epsilon) for factor in (local, None) for epsilon in epsilons]
    budgets = [ep.Budget.from_epsilon(view.data, view.nodes, epsilon, local=factor) for factor, epsilon in kinds]
    certificate = ep.certificates.WorstCase().certify(target.model, view.data, view.nodes, budgets)
    certificate.save(out)
    scores = [
        Score("test", "clean", 0.0, certificate.clean_accuracy),
        Score("test", "guaranteed, any edges", 0.0, certificate.any_edges_accuracy),
        Score("test", "guaranteed, any edges and nodes", 0.0, certificate.any_nodes_accuracy),
    ]
    for (factor, epsilon), bound in zip(kinds, certificate.budgets, strict=True):
        scores.append(Score("test", f"guaranteed, local {factor}", epsilon, bound.guaranteed))
        if bound.attained is not None:
            scores.append(Score("test", f"attained, local {factor}", epsilon, bound.attained))
    threat: dict[str, Any] = {
        "kind": "worst case",
        "exact": certificate.exact,
        "count": "incident",
        "budgets": {str(epsilon): bound.total for (_, epsilon), bound in zip(kinds, certificate.budgets, strict=True)},
    }
    result_file = out.with_name(out.name + ".json")
    result_of(target, seed, device, scores=tuple(scores), threat=threat).write(result_file)
    _print(certificate, target.dataset, kinds)
    print(f"certificate: {out}   result: {result_file}")


def _print(certificate: WorstCaseCertificate, dataset: str, kinds: list[tuple[float | None, float]]) -> None:
    from rich.table import Table

    table = Table(title=f"Worst-case accuracy, computed, {dataset}")
    for title in ("local budget", "epsilon", "flips", "guaranteed", "attained by an attack"):
        table.add_column(title, justify="right")
    table.add_row("", "0", "0", *[f"{certificate.clean_accuracy:.1%}"] * 2)
    for (factor, epsilon), bound in zip(kinds, certificate.budgets, strict=True):
        attained = "-" if bound.attained is None else f"{bound.attained:.1%}"
        table.add_row(
            "none" if factor is None else f"{factor:g} x degree",
            f"{epsilon:g}",
            f"{bound.total:,}",
            f"{bound.guaranteed:.1%}",
            attained,
        )
    table.add_row("none", "any edges", "", f"{certificate.any_edges_accuracy:.1%}", "-")
    print_table(table)
    if not certificate.exact:
        print("Only the bound for any edges is known for this model, so it stands for every budget.")
