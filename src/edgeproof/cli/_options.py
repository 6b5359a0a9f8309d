"""Options shared by several commands, and parsers of their values. Nothing here imports torch before it is called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeproof._catalog import ATTACKS, DATASETS, FORMATS, MODELS, PROTOCOLS, SPLITS
from edgeproof._files import is_graph_file
from edgeproof._names import unknown_name

if TYPE_CHECKING:
    import torch


def complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a completion function for a fixed set of names.

    >>> complete(["GCN", "GAT", "MLP"])("G")
    ['GCN', 'GAT']
    """

    def completion(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return completion


def complete_model_file(incomplete: str) -> list[str]:
    """Return the model files (``.safetensors``) and folders whose path begins with ``incomplete``.

    >>> folder = getfixture("tmp_path")
    >>> (folder / "runs").mkdir(), (folder / "robust.safetensors").touch(), (folder / "robust.safetensors.json").touch()
    (None, None, None)
    >>> [path.removeprefix(f"{folder}/") for path in complete_model_file(f"{folder}/r")]
    ['robust.safetensors', 'runs/']
    """
    folder, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(f"{folder}{slash}" or ".").iterdir())
    except OSError:
        return []
    found = [entry for entry in entries if entry.name.startswith(start) and (start or not entry.name.startswith("."))]
    return [
        f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in found
        if entry.is_dir() or entry.suffix == ".safetensors"
    ]


def names(values: Iterable[str]) -> str:
    """Join names for a help text."""
    return ", ".join(values)


Root = Annotated[
    Path | None,
    typer.Option(help="Folder of dataset archives, searched before $EDGEPROOF_DATA and the user's cache."),
]
Device = Annotated[str, typer.Option(help="'auto' (the GPU if there is one), 'cpu', 'cuda' or 'cuda:1'.")]
LogDir = Annotated[
    Path | None,
    typer.Option(help="Folder of TensorBoard logs of every epoch; requires pip install 'edgeproof\\[logging]'."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar.")]
Model = Annotated[
    str,
    typer.Option(
        help="Model file of edgeproof train, or module:factory for your own model: a function without arguments, in an "
        "installed module or one in this folder, that returns a trained torch.nn.Module with "
        "forward(x, edge_index, edge_weight=None).",
        autocompletion=complete_model_file,
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        help=f"Name of the dataset: {names(DATASETS)}; or a graph file. Default: the dataset in the model's result file.",
        autocompletion=complete(DATASETS),
    ),
]
ToUndirected = Annotated[
    bool, typer.Option("--to-undirected", help="Graph files: add the reverse of each edge without one.")
]
RemoveSelfLoops = Annotated[
    bool, typer.Option("--remove-self-loops", help="Graph files: remove edges from a node to itself.")
]
MergeDuplicates = Annotated[
    bool, typer.Option("--merge-duplicates", help="Graph files: keep one of several equal edges.")
]
DropWeights = Annotated[
    bool,
    typer.Option("--drop-weights", help="Graph files: give all edges the weight 1; edges of weight 0 are removed."),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        "--split",
        help=f"Setting of the split: {names(SPLITS)}. Default: the split used in training.",
        autocompletion=complete(SPLITS),
    ),
]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of the split. Default: the seed used in training.")]
Epsilons = Annotated[
    list[float],
    typer.Option("--epsilon", "-e", help="Budget as a fraction of the edges at the test nodes; repeatable."),
]
Local = Annotated[
    float | None, typer.Option(help="Local budget as a fraction of each node's degree, such as 0.5. Default: None.")
]
AdditionsOnly = Annotated[bool, typer.Option("--additions-only", help="Let the adversary only add edges.")]
DeletionsOnly = Annotated[bool, typer.Option("--deletions-only", help="Let the adversary only delete edges.")]
AllowedFile = Annotated[
    Path | None,
    typer.Option(
        "--allowed",
        help="Text file of the pairs that may be flipped, two node ids of the dataset per line. Default: all pairs.",
    ),
]
COUNT = typer.Option(
    help="Edges that epsilon is a fraction of: incident (as in the paper's tables) or half_degree (as in its text)."
)
Count = Annotated[str, COUNT]
AttackName = Annotated[
    str, typer.Option(help=f"Name of the attack: {names(ATTACKS)}.", autocompletion=complete(ATTACKS))
]
DATASET_FILTER = typer.Option(
    "--dataset", help="Only rows of this dataset; repeatable.", autocompletion=complete(DATASETS)
)
MODEL_FILTER = typer.Option("--model", help="Only rows of this model; repeatable.", autocompletion=complete(MODELS))
Protocol = Annotated[
    str,
    typer.Option(
        help="Protocol of inductive splits: strict (no test node is in a graph used in training), or as_released (the "
        "splits of the paper's released scripts, where most test nodes of GPRGNN are training or validation nodes; only to "
        "compare with the paper).",
        autocompletion=complete(PROTOCOLS),
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Print csv, latex or markdown instead of a terminal table.",
        autocompletion=complete(FORMATS),
    ),
]
StoreOption = Annotated[Path, typer.Option(help="Folder of stored results.")]
DEFAULT_STORE = Path("results") / "experiments"


def check_store(store: Path) -> None:
    """Raise unless ``store`` is a folder: a misspelt path would look like an empty store."""
    if not store.is_dir():
        raise ValueError(
            f"expected a folder of results, got {store}; edgeproof sweep and edgeproof reproduce run create one"
        )


def check_name(kind: str, name: str | None, known: Iterable[str]) -> None:
    """Raise an error that suggests the nearest known name unless ``name`` is known or None."""
    if name is not None and name not in (known := list(known)):
        raise unknown_name(kind, name, known)


def check_dataset(name: str | None) -> None:
    """Raise unless ``name`` is a dataset, an existing graph file, or None."""
    if name is not None and is_graph_file(name):
        if not Path(name).exists():
            raise FileNotFoundError(f"no such graph file: {name}")
        return
    check_name("dataset", name, DATASETS)


def check_names(kind: str, values: Iterable[str] | None, known: Iterable[str]) -> None:
    """Check every name; see :func:`check_name`."""
    known = list(known)
    for value in values or ():
        check_name(kind, value, known)


def parse_device(name: str, *, check_available: bool = True) -> torch.device:
    """Return the device, or raise if its name is invalid or this machine does not have it.

    Args:
        name: Value of ``--device``.
        check_available: Whether this machine must have the device.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if check_available:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"expected a device of this machine, such as 'cpu', got {name!r}: {reason}") from error
    return device


def parse_settings(texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse ``name=value`` settings; values are parsed as JSON or float if possible, else kept as strings.

    >>> parse_settings(["K=5", "init=ppr"])
    {'K': 5, 'init': 'ppr'}
    >>> parse_settings(["dropout=.5"])
    {'dropout': 0.5}
    """
    settings: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"expected a setting as name=value, such as K=5, got {text!r}")
        if name in settings:
            raise ValueError(f"expected one value of {name}, got two, the second as {text!r}")
        settings[name] = _parse_value(value)
    return settings


def _parse_value(text: str) -> Any:
    # Numbers such as .5 are not valid JSON.
    for parse in (json.loads, float):
        try:
            return parse(text)
        except ValueError:
            pass
    return text
