"""Groups of options that several commands share, as dataclasses. Nothing here imports torch before it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from edgeproof._catalog import PROTOCOLS, SPLITS
from edgeproof.cli._options import (
    PANEL,
    Dataset,
    Device,
    DropWeights,
    FactoryName,
    MergeDuplicates,
    Model,
    RemoveSelfLoops,
    Root,
    SplitName,
    SplitSeed,
    ToUndirected,
    check_name,
)

if TYPE_CHECKING:
    from edgeproof.datasets import Fixes

SplitIndex = Annotated[int | None, typer.Option(help="Index of the provided split. Default: 0.", rich_help_panel=PANEL)]
TestOnVal = Annotated[
    bool,
    typer.Option(
        "--test-on-val",
        help="Provided splits without a test mask: test on the validation nodes.",
        rich_help_panel=PANEL,
    ),
]
Masks = Annotated[
    Path | None,
    typer.Option(
        help="File of the split of all nodes of the dataset, used as provided split: text with train, val, test or nothing in "
        "the line of each node, or an .npz archive with train_mask, val_mask and test_mask.",
        rich_help_panel=PANEL,
    ),
]
TrainPerClass = Annotated[
    int | None, typer.Option(help="Number of labelled training nodes per class. Default: 20.", rich_help_panel=PANEL)
]
ValPerClass = Annotated[
    int | None, typer.Option(help="Number of validation nodes per class. Default: 20.", rich_help_panel=PANEL)
]
TestShare = Annotated[
    float | None,
    typer.Option(
        help="Inductive splits: fraction of each class used as test nodes. Default: 0.1.", rich_help_panel=PANEL
    ),
]


@dataclass(frozen=True)
class SplitOptions:
    """Options that choose the split, all optional.

    Args:
        split: Setting.
        split_index: Index of the provided split.
        test_on_val: Whether to test on the validation nodes of a provided split.
        masks: File of a provided split.
        train_per_class: Number of labelled training nodes per class.
        val_per_class: Number of validation nodes per class.
        test_share: Fraction of each class used as test nodes.
    """

    split: SplitName = None
    split_index: SplitIndex = None
    test_on_val: TestOnVal = False
    masks: Masks = None
    train_per_class: TrainPerClass = None
    val_per_class: ValPerClass = None
    test_share: TestShare = None

    @property
    def sizes(self) -> dict[str, float]:
        """The given sizes of a sampled split, by their name in :mod:`edgeproof.splits`."""
        names = ("train_per_class", "val_per_class", "test_share")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def is_given(self) -> bool:
        """Whether any option is given."""
        return any(getattr(self, entry.name) not in (None, False) for entry in fields(self))

    def setting(self, default: str) -> str:
        """Return the setting; masks are a provided split.

        Raises:
            ValueError: For options without effect on this split.
        """
        check_name("split", self.split, SPLITS)
        of_provided = {
            "--masks": self.masks is not None,
            "--split-index": self.split_index is not None,
            "--test-on-val": self.test_on_val,
        }
        given = [name for name, is_given in of_provided.items() if is_given]
        chosen = self.split or ("provided" if self.masks is not None else default)
        if chosen != "provided" and given:
            raise ValueError(f"expected {given[0]} with --split provided only, got {chosen}")
        without_effect = {"provided": [*self.sizes], "transductive": ["test_share"]}.get(chosen, [])
        for name in without_effect:
            if name in self.sizes:
                raise ValueError(
                    f"expected no --{name.replace('_', '-')} with {chosen} splits, which it has no effect on"
                )
        return chosen


@dataclass(frozen=True)
class FixOptions:
    """Options that change the edges of graph files."""

    to_undirected: ToUndirected = False
    remove_self_loops: RemoveSelfLoops = False
    merge_duplicates: MergeDuplicates = False
    drop_weights: DropWeights = False

    @property
    def fixes(self) -> Fixes:
        """The changes."""
        from edgeproof.datasets import Fixes

        return Fixes(self.to_undirected, self.remove_self_loops, self.merge_duplicates, self.drop_weights)


@dataclass(frozen=True, kw_only=True)
class TargetOptions(SplitOptions, FixOptions):
    """Options of ``attack``, ``evaluate`` and ``certify``: the model, and the graph and nodes it is tested on.

    Args:
        model: Model file, or ``module:factory`` of a trained model.
        factory: ``module:factory`` of the model in the file.
        dataset: Name or path of the graph. Default: that of the training, as for the split.
        split_seed: Seed of a sampled split.
        root: Folder of dataset archives.
        device: Device.
    """

    model: Model
    factory: FactoryName = None
    dataset: Dataset = None
    split_seed: SplitSeed = None
    root: Root = None
    device: Device = "auto"

    @property
    def is_split_given(self) -> bool:
        """Whether any option chooses a split."""
        return self.split_seed is not None or self.splitting.is_given

    @property
    def splitting(self) -> SplitOptions:
        """The options that choose a split."""
        return SplitOptions(**{entry.name: getattr(self, entry.name) for entry in fields(SplitOptions)})


def check_protocol(protocol: str, setting: str, sizes: dict[str, float]) -> None:
    """Raise unless a protocol is known and fits the split."""
    check_name("protocol", protocol, PROTOCOLS)
    if protocol == "as_released" and (setting != "inductive" or sizes):
        got = f"--{next(iter(sizes)).replace('_', '-')}" if sizes else setting
        raise ValueError(
            f"expected protocol as_released with inductive splits only, and with their default sizes, got {got}"
        )


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command whose type is a dataclass by one option per field, those of base classes last.

    >>> @grouped
    ... def command(fixes: FixOptions, seed: int = 0) -> None:
    ...     print(fixes.fixes.names, seed)
    >>> command(to_undirected=True, seed=1)
    ['to_undirected'] 1
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)
    }
    parameters, annotations = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters.append(parameter)
            continue
        if name not in groups:
            entries = {name: (hints[name], parameter.default)}
        else:
            own = get_type_hints(groups[name], include_extras=True)
            entries = {entry.name: (own[entry.name], entry.default) for entry in _ordered_fields(groups[name])}
        for key, (annotation, default) in entries.items():
            default = inspect.Parameter.empty if default is MISSING else default
            annotations[key] = annotation
            parameters.append(
                inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )

    @wraps(function)
    def command(**values: Any) -> None:
        built = {
            name: cls(**{entry.name: values.pop(entry.name) for entry in fields(cls) if entry.name in values})
            for name, cls in groups.items()
        }
        function(**built, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = annotations
    return command


def _ordered_fields(group: type[Any]) -> list[Field[Any]]:
    """Return the fields of a dataclass, its own before those of its base classes."""
    order = [name for cls in group.__mro__ for name in inspect.get_annotations(cls)]
    return sorted(fields(group), key=lambda entry: order.index(entry.name))
