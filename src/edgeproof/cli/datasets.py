"""``edgeproof datasets``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof._catalog import DATASETS
from edgeproof._files import is_graph_file
from edgeproof.cli._lazy import LazyCommand, lazy_app
from edgeproof.cli._options import Root, check_dataset, complete
from edgeproof.cli._printing import print_table

if TYPE_CHECKING:
    from torch_geometric.data import Data

COMMANDS = {
    "describe": LazyCommand("edgeproof.cli.datasets:describe", "Show statistics and possible trouble of one graph."),
}

app = lazy_app(
    "datasets", "List the datasets, or describe a graph.", COMMANDS, no_args_is_help=False, add_completion=False
)


HELP = """List the datasets: statistics and location of those on this machine; or describe one graph.

Statistics are those of the largest connected component, which training uses by default. Homophily is the fraction of edges
between nodes of the same class. Datasets that are not on this machine are downloaded on first use.

Example: [bold]edgeproof datasets --root ~/graphs[/]

Your own graph: [bold]edgeproof datasets describe graph.npz[/]
"""


@app.callback(invoke_without_command=True, help=HELP)
def datasets(context: typer.Context, root: Root = None) -> None:
    """List the datasets."""
    if context.invoked_subcommand is not None:
        return
    from rich.markup import escape
    from rich.table import Table

    import edgeproof as ep

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


def describe(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="Graph file (.npz, .csv, .parquet, .graphml, .mtx), folder of tables, or name of a dataset.",
            autocompletion=complete(DATASETS),
            show_default=False,
        ),
    ],
    root: Root = None,
) -> None:
    """Show counts, homophily and statistics of features of one graph, and possible trouble.

    Example: [bold]edgeproof datasets describe graph.npz[/]
    """
    from rich.markup import escape
    from rich.table import Table

    import edgeproof as ep
    from edgeproof.datasets.files import read_file

    check_dataset(dataset)
    # Edges of a file are described as they are.
    is_file = is_graph_file(dataset)
    data = read_file(Path(dataset)) if is_file else ep.datasets.load(dataset, root, largest_component=False)
    description = ep.datasets.describe(data)
    table = Table(title=escape(dataset), show_header=False)
    for name, text in description.rows:
        table.add_row(name, escape(text))
    print_table(table)
    for text in description.trouble:
        print(f"possible trouble: {text}")
    if not description.trouble:
        print("possible trouble: none found")


def _statistics(data: Data) -> list[str]:
    import edgeproof as ep

    description = ep.datasets.describe(data)
    counts = (description.nodes, description.edges, description.features, len(description.classes))
    return [*(f"{count:,}" for count in counts), f"{description.homophily:.3f}"]
