"""``edgeproof datasets``."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof.cli._options import Root
from edgeproof.graph import UNKNOWN, num_edges


def datasets(root: Root = None) -> None:
    """List all datasets: whether they are on this machine, and the statistics of those that are.

    Statistics are those of the largest connected component, which is what training uses. A dataset that is not here is
    downloaded when it is first used; homophily is the share of edges within a class.
    """
    table = Table(title="Datasets")
    table.add_column("name")
    for column in ("nodes", "edges", "features", "classes", "homophily"):
        table.add_column(column, justify="right")
    table.add_column("where", overflow="fold")
    for name in ep.datasets.available():
        path = ep.datasets.find(name, root)
        if path is None and name != "csbm":
            table.add_row(name, *["-"] * 5, "not here: downloaded on first use")
            continue
        try:
            table.add_row(
                name, *_statistics(ep.datasets.load(name, root)), escape(str(path.parent)) if path else "generated"
            )
        except ValueError as error:
            table.add_row(name, *["-"] * 5, escape(f"unusable: {error}"))
    Console().print(table)


def _statistics(data: Data) -> list[str]:
    row, col = data.edge_index
    known = (data.y[row] != UNKNOWN) & (data.y[col] != UNKNOWN)
    homophily = float((data.y[row] == data.y[col])[known].float().mean())
    counts = (data.x.size(0), num_edges(data), data.num_features, ep.num_classes(data))
    return [*(f"{count:,}" for count in counts), f"{homophily:.3f}"]
