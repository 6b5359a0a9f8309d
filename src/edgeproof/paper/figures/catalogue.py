"""All figures of the paper, as data."""

from __future__ import annotations

from edgeproof._names import look_up
from edgeproof.experiments.graphs import STAND_IN
from edgeproof.paper.figures.base import PaperFigure
from edgeproof.paper.figures.curves import Curve, Curves, Panel
from edgeproof.paper.figures.degrees import Degrees
from edgeproof.paper.figures.diffusion import Diffusions
from edgeproof.paper.figures.learned import Learned
from edgeproof.paper.numbers import PaperRow, paper_numbers
from edgeproof.paper.recipes import seeds_of

# The paper's study of self-training has ten splits.
_TEN_SEEDS = (0, 1, *range(5, 13))
_TITLES = {"citeseer": "Citeseer", "cora": "Cora", "cora_ml": "Cora-ML", "pubmed": "Pubmed"}
_ATTACKS = {"LRBCD": "LR-BCD", "PRBCD": "PR-BCD"}


def _row(dataset: str, model: str, training: str, setting: str = "inductive") -> PaperRow:
    """Return the row of a training: ``"regular"``, ``"self"``, or the attack of adversarial training on pseudo-labels."""
    if training in ("regular", "self"):
        return PaperRow(setting, dataset, model, training == "self", None, None)
    return PaperRow(setting, dataset, model, True, training, 0.2)


_TRAININGS = {"regular": "regular", "self-trained": "self", "LR-BCD-trained": "LRBCD", "PR-BCD-trained": "PRBCD"}


def _teaser() -> Curves:
    trained = {
        f"{model}, {name}": _row("cora_ml", model, _TRAININGS[name])
        for model in ("GCN", "GPRGNN")
        for name in ("regular", "LR-BCD-trained")
    }
    panels = (
        Panel(f"under {title}", tuple(Curve(name, row, attack) for name, row in trained.items()))
        for attack, title in _ATTACKS.items()
    )
    return Curves(tuple(panels), columns=2)


def _all_of_a_table(label: str) -> Curves:
    """Show every training of a table: one column per model, one row per attack."""
    rows = list(dict.fromkeys(cell.row for cell in paper_numbers(label)))
    models = list(dict.fromkeys(row.model for row in rows))
    names = {_row(row.dataset, row.model, training): name for row in rows for name, training in _TRAININGS.items()}
    panels = (
        Panel(f"{model}, {title}", tuple(Curve(names[row], row, attack) for row in rows if row.model == model))
        for attack, title in _ATTACKS.items()
        for model in models
    )
    return Curves(tuple(panels), columns=len(models))


def _schemes(dataset: str, models: tuple[str, ...], epsilon: float) -> Curves:
    """Show self-training and adversarial training, each with and without the other."""

    def panel(model: str) -> Panel:
        against = ("PGD", epsilon)
        trained = {
            "regular": PaperRow("transductive", dataset, model, False, None, None),
            "adversarial": PaperRow("transductive", dataset, model, False, *against),
            "self-training": PaperRow("transductive", dataset, model, True, None, None),
            "self- and adversarial": PaperRow("transductive", dataset, model, True, *against),
        }
        return Panel(f"{model}, under PGD", tuple(Curve(name, row, "PGD") for name, row in trained.items()))

    return Curves(tuple(panel(model) for model in models), columns=len(models))


def _perfect() -> Curves:
    curves = (
        Curve(model, PaperRow("transductive", "cora", model, True, "PGD", 1.0), "PGD") for model in ("GPRGNN", "GCN")
    )
    return Curves((Panel("under PGD", tuple(curves)),), columns=1)


def _karate() -> Diffusions:
    return Diffusions(
        tuple((name, _row("karate", "GPRGNN", training, "transductive")) for name, training in _TRAININGS.items())
    )


def _learned(view: str, datasets: tuple[str, ...]) -> Learned:
    names = ("regular", "LR-BCD-trained", "PR-BCD-trained")
    graphs = (
        (_TITLES[dataset], tuple((name, _row(dataset, "GPRGNN", _TRAININGS[name])) for name in names))
        for dataset in datasets
    )
    return Learned(tuple(graphs), view, columns=min(len(datasets), 2))


def _arxiv(dataset: str) -> Curves:
    trained = {"regular": PaperRow("inductive", dataset, "GPRGNN", False, None, None)} | {
        f"LR-BCD-trained, {epsilon:.0%}": PaperRow("inductive", dataset, "GPRGNN", False, "LRBCD", epsilon)
        for epsilon in (0.01, 0.05, 0.1)
    }
    curves = [Curve(name, row, "LRBCD") for name, row in trained.items()]
    curves.append(Curve("MLP", PaperRow("inductive", dataset, "MLP", False, None, None), "clean"))
    return Curves((Panel("GPRGNN, under LR-BCD", tuple(curves)),), columns=1)


def _attacks() -> Curves:
    kinds = {
        "PR-BCD": "PRBCD",
        "LR-BCD, no local budgets": "LRBCD-global",
        "LR-BCD": "LRBCD",
        "LR-BCD, no local budgets,\nlearning rate 3": "LRBCD-global-slow",
    }
    panels = (
        Panel(model, tuple(Curve(name, _row("cora_ml", model, "self"), kind) for name, kind in kinds.items()))
        for model in ("GPRGNN", "APPNP", "GCN")
    )
    return Curves(tuple(panels), columns=3)


_THREE = ("GCN", "APPNP", "GPRGNN")
_SEEN = "The training graph contains the test nodes: accuracy under attack may show memorization of the clean graph."
_RANDOM = "Initial coefficients are random: with a best epoch near 0 they are hardly trained."
FIGURES = (
    PaperFigure("fig:starplot", 1, "teaser", "Cora-ML: GCN and GPRGNN, regular and adversarial training", _teaser()),
    PaperFigure(
        *("fig:self_training_causes_rob", 2, "self-training", "Cora: GCN under four training schemes"),
        *(_schemes("cora", ("GCN",), 0.1), _TEN_SEEDS),
        caveat=_SEEN,
    ),
    PaperFigure(
        *("fig:adv_trn_causes_overfitting", 3, "perfect", "Cora: trained against as many flips as edges"),
        _perfect(),
        caveat=_SEEN,
    ),
    PaperFigure(
        *("fig:karate", 4, "karate", "GPRGNN's diffusion on the Karate club", _karate(), (0,)),
        caveat="Marker shapes show classes. One node per class is labelled, and one is used for validation.",
    ),
    PaperFigure(
        *("fig:pert_per_node", 5, "degrees", "Cora-ML: nodes of a self-trained GCN misclassified under PR-BCD"),
        Degrees(_row("cora_ml", "GCN", "self")),
    ),
    PaperFigure(
        *("fig:inductive_gammas", 6, "gamma", "Coefficients of GPRGNN, Citeseer", _learned("gamma", ("citeseer",))),
        caveat=_RANDOM,
    ),
    PaperFigure(
        *("fig:inductive_spectrum", 7, "spectrum", "Filters of GPRGNN, Citeseer", _learned("spectrum", ("citeseer",))),
        caveat=_RANDOM,
    ),
    PaperFigure("fig:arxiv", 8, "arxiv-curves", "ogbn-arxiv: GPRGNN trained against LR-BCD", _arxiv("ogbn-arxiv")),
    PaperFigure(
        *("fig:arxiv_stand_in", None, "arxiv-stand-in", "Stand-in for ogbn-arxiv: GPRGNN trained against LR-BCD"),
        *(_arxiv(STAND_IN), seeds_of(STAND_IN)),
        caveat="A SYNTHETIC GRAPH of ogbn-arxiv's size: these are not results on ogbn-arxiv.",
    ),
    PaperFigure(
        *("fig:app_selftrn_cora_eps01", 9, "self-training-cora", "Cora: training schemes, trained with 10 %"),
        *(_schemes("cora", _THREE, 0.1), _TEN_SEEDS),
        caveat=_SEEN,
    ),
    PaperFigure(
        *("fig:app_selftrn_cora_eps05", 10, "self-training-cora-5", "Cora: training schemes, trained with 5 %"),
        *(_schemes("cora", _THREE, 0.05), _TEN_SEEDS),
        caveat=_SEEN,
    ),
    PaperFigure(
        *(
            "fig:app_selftrn_citeseer_eps01",
            11,
            "self-training-citeseer",
            "Citeseer: training schemes, trained with 10 %",
        ),
        *(_schemes("citeseer", _THREE, 0.1), _TEN_SEEDS),
        caveat=_SEEN,
    ),
    PaperFigure(
        *(
            "fig:selftrn_citeseer_eps05",
            None,
            "self-training-citeseer-5",
            "Citeseer: training schemes, trained with 5 % (not in the paper)",
        ),
        _schemes("citeseer", _THREE, 0.05),
        caveat=_SEEN,
    ),
    PaperFigure(
        *("fig:app_gammas", 12, "gamma-all", "Coefficients of GPRGNN", _learned("gamma", tuple(_TITLES))),
        caveat=_RANDOM,
    ),
    PaperFigure(
        *("fig:app_gammas_spectral", 13, "spectrum-all", "Filters of GPRGNN", _learned("spectrum", tuple(_TITLES))),
        caveat=_RANDOM,
    ),
    PaperFigure(
        *("fig:app_comparison_att", 14, "attacks", "Cora-ML: PR-BCD and LR-BCD on self-trained models", _attacks()),
        caveat="The learning rate of LR-BCD is 100 unless stated otherwise, not scaled by the budget.",
    ),
    *(
        PaperFigure(
            *(
                f"fig:curves_{dataset}",
                None,
                f"curves-{dataset.replace('_', '-')}",
                f"{title}: all trainings under attack",
            ),
            _all_of_a_table(f"tab:app_results_{dataset}"),
        )
        for dataset, title in _TITLES.items()
    ),
)


def find_figure(name: str) -> PaperFigure:
    """Return a figure by label, number (as ``"fig4"``) or nickname.

    >>> find_figure("fig4") is find_figure("karate") is find_figure("fig:karate")
    True
    """
    return look_up("figure", name, {known: figure for figure in FIGURES for known in figure.names})
