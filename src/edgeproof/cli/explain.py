"""``edgeproof explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import edgeproof as ep
from edgeproof.cli._groups import TargetOptions, grouped
from edgeproof.cli._options import AdditionsOnly, AllowedFile, DeletionsOnly, Force, parse_device


@grouped
def explain(
    target_options: TargetOptions,
    node: Annotated[int, typer.Option(help="Id of the node in the dataset.")],
    max_flips: Annotated[int, typer.Option(help="Largest number of flips.")] = 5,
    direct: Annotated[bool, typer.Option("--direct", help="Only flip pairs with the node itself.")] = False,
    additions_only: AdditionsOnly = False,
    deletions_only: DeletionsOnly = False,
    allowed: AllowedFile = None,
    local: Annotated[
        float | None, typer.Option(help="Largest number of flips at each node, as a fraction of its degree.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Result file (.json), which edgeproof report shows with drawings.")
    ] = None,
    force: Force = False,
) -> None:
    """Search for the smallest change of edges that changes the prediction for a node, and show what each neighbor contributes.

    The graph is the one that the test nodes are evaluated on, so the node must be in it.

    Example: [bold]edgeproof explain --model model.safetensors --node 17 --max-flips 3[/]
    """
    import torch

    from edgeproof._checks import check_int
    from edgeproof.cli._constraints import local_ids, make_constraints, parse_flip_kind, read_pairs
    from edgeproof.cli._target import check_target, check_target_outputs, load_target, result_of

    torch_device = parse_device(target_options.device)
    check_int(0, node=node)
    kind, pairs = parse_flip_kind(additions_only, deletions_only), read_pairs(allowed)
    trained = check_target(target_options, [])
    read = [] if allowed is None else [allowed]
    check_target_outputs([] if out is None else [out], target_options, trained, read, force=force)
    target = load_target(target_options, trained, torch_device)
    view = target.split.test
    constraints = make_constraints(kind, pairs, view)
    explanation = ep.evaluation.explain(
        target.model,
        view.data,
        int(local_ids(torch.tensor([node]), view)),
        max_flips=max_flips,
        scope="direct" if direct else "influence",
        allowed=None if constraints is None else constraints.allowed,
        local=local,
    ).with_ids(view.ids)
    print(explanation)
    if out is not None:
        threat = {"local": local, "explanation": explanation.to_dict()}
        result_of(target, 0, torch_device, scores=(), threat=threat).write(out)
        print(f"result: {out}")
