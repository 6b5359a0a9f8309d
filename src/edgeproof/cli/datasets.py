"""``edgeproof datasets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

import edgeproof as ep
from edgeproof.cli._options import Root
from edgeproof.cli._printing import print_table

if TYPE_CHECKING:
    from torch_geometric.data import Data


def datasets(root: Root = None) -> None:
    """List the datasets: statistics and location of those on this machine.

    Statistics are those of the largest connected component, which training uses by default. Homophily is the fraction of
    edges between nodes of the same class. Datasets that are not on this machine are downloaded on first use.

    Example: [bold]edgeproof datasets --root ~/graphs[/]
    """
    table = Table(title="Datasets")
    table.add_column("name")
    for column in ("nodes", "edges", "features", "classes", "homophily"):
        table.add_column(column, justify="right")
    table.add_column("location", overflow="fold")
    for name in ep.datasets.available():
        path = ep.datasets.find(name, root)
        if path is None and name != "csbm":
            table.add_row(name, *["-"] * 5, "downloaded on first use")
            continue
        try:
            statistics = _statistics(ep.datasets.load(name, root))
        except ValueError as error:
            table.add_row(name, *["-"] * 5, escape(f"unusable: {error}"))
        else:
            table.add_row(name, *statistics, escape(str(path.parent)) if path else "generated")
    print_table(table)


def _statistics(data: Data) -> list[str]:
    row, col = data.edge_index
    labelled = (data.y[row] != ep.graph.UNKNOWN) & (data.y[col] != ep.graph.UNKNOWN)
    homophily = float((data.y[row] == data.y[col])[labelled].float().mean())
    counts = (data.x.size(0), ep.graph.num_edges(data), data.num_features, ep.num_classes(data))
    return [*(f"{count:,}" for count in counts), f"{homophily:.3f}"]
