"""``edgeproof reproduce``: the tables and figures of the paper."""

from edgeproof.cli._lazy import LazyCommand, lazy_app

COMMANDS = {
    "run": LazyCommand(
        "edgeproof.cli.reproduce.run:run", "Run missing experiments of tables and figures, and show them."
    ),
    "list": LazyCommand("edgeproof.cli.reproduce.listing:list_all", "List all tables and figures with their progress."),
    "show": LazyCommand("edgeproof.cli.reproduce.show:show", "Print tables of stored results beside the paper's."),
    "summary": LazyCommand("edgeproof.cli.reproduce.summary:summary", "Count the cells that match, table by table."),
    "figures": LazyCommand("edgeproof.cli.reproduce.figures:figures", "Draw figures of stored results."),
}

app = lazy_app(
    "reproduce",
    "Reproduce the tables and figures of the paper.",
    COMMANDS,
    epilog="Start with: edgeproof reproduce list, then edgeproof reproduce run main --dry-run",
    add_completion=False,
)


@app.callback()
def reproduce() -> None:
    """Reproduce the tables and figures of the paper.

    A table or figure needs trained models (dataset, model, training, seed) and measurements of these models. Every result is
    stored as soon as it is computed, so an interrupted run resumes.
    """
