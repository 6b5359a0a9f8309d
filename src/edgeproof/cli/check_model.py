"""``edgeproof check-model``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeproof.cli._options import (
    Device,
    DropWeights,
    MergeDuplicates,
    RemoveSelfLoops,
    Root,
    ToUndirected,
    check_dataset,
    complete_model_file,
    parse_device,
)
from edgeproof.cli._printing import print_error, print_line, print_table

if TYPE_CHECKING:
    from edgeproof.models import ModelTier

# Steps of PR-BCD and LR-BCD.
_STEPS = 400


def check_model(
    model: Annotated[
        str,
        typer.Argument(
            help="module:factory, a function without arguments that returns a torch.nn.Module, or a model file.",
            autocompletion=complete_model_file,
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Name or file of a graph of the kind that the model is used on.")],
    to_undirected: ToUndirected = False,
    remove_self_loops: RemoveSelfLoops = False,
    merge_duplicates: MergeDuplicates = False,
    drop_weights: DropWeights = False,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Show how a model is called, the tier of each layer, the expected time, and what to change for a faster tier.

    Exits with status 1 if attacks cannot be trusted on the model.

    Example: [bold]edgeproof check-model my_module:build --dataset citeseer[/]
    """
    check_dataset(dataset)
    if not Path(model).exists() and ":" not in model:
        raise FileNotFoundError(f"no model at {model}: expected a model file of edgeproof train, or module:factory")

    import edgeproof as ep
    from edgeproof.cli._target import GraphSource, load_model
    from edgeproof.datasets import Fixes

    torch_device = parse_device(device)
    fixes = Fixes(to_undirected, remove_self_loops, merge_duplicates, drop_weights)
    data = GraphSource(dataset, fixes).load(root).to(torch_device)
    network = load_model(model).to(torch_device).eval()
    count = sum(parameter.numel() for parameter in network.parameters())
    print_line(f"{type(network).__name__} with {count:,} parameters on {dataset} ({data.num_nodes:,} nodes)")
    check = ep.evaluation.check_model(network, data)
    print_line(str(check))
    if not check.ok:
        for problem in check.problems:
            print_error(problem)
        raise typer.Exit(1)
    _print_tier(ep.models.tier_of(network, data))
    _print_seconds(ep.models.expected_seconds(network, data))


def _print_tier(found: ModelTier) -> None:
    from rich.table import Table

    if found.layers:
        table = Table("module", "layer", "tier", "why no faster tier", title="Layers")
        for layer in found.layers:
            table.add_row(layer.name or "(the model)", layer.layer, layer.tier or "not called", layer.reason)
        print_table(table)
    print(f"tier: {found.tier}" + (f" ({found.reason})" if found.reason else ""))
    if found.advice:
        print(f"for a faster tier: {found.advice}")


def _print_seconds(seconds: dict[str, float]) -> None:
    for name, value in seconds.items():
        print(f"{name}: {value:.3g} s")
    step = next((value for name, value in seconds.items() if "step" in name), None)
    if step is not None:
        print(f"LRBCD of {_STEPS} steps: about {_STEPS * step:.0f} s")
