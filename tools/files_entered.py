"""Measure how much code a reader has to follow: files entered and call depth of public calls, import layers, long functions.

Run it on any checkout, since it only uses the public API::

    PYTHONPATH=src python tools/files_entered.py
"""

from __future__ import annotations

import argparse
import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple


class Trace(NamedTuple):
    """Code of one package that a call executed.

    Args:
        files: Files with at least one executed function, relative to the package.
        functions: Number of executed functions.
        depth: Maximum number of the package's functions on the stack.
    """

    files: tuple[str, ...]
    functions: int
    depth: int


def trace(call: Callable[[], object], package: Path) -> Trace:
    """Run ``call`` and record which functions of the package it enters, except during imports.

    >>> trace(lambda: longest_path({"a": set()}), Path(__file__).parent).files
    ('files_entered.py',)
    """
    prefix = f"{package.resolve()}/"
    entered: set[CodeType] = set()
    depth = max_depth = imports = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth, max_depth, imports
        if event not in ("call", "return"):
            return
        change, code = (1 if event == "call" else -1), frame.f_code
        if code.co_name == "_find_and_load" and "importlib" in code.co_filename:
            imports += change
        elif not imports and code.co_filename.startswith(prefix):
            depth += change
            max_depth = max(depth, max_depth)
            entered.add(code)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Trace(tuple(sorted({code.co_filename.removeprefix(prefix) for code in entered})), len(entered), max_depth)


def public_calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield small versions of the main public calls, on the generated dataset and the CPU."""
    import edgeproof as ep

    data = ep.datasets.load("csbm")
    split = ep.splits.inductive(data, seed=0)
    model = ep.models.build("GPRGNN", data.num_features, ep.num_classes(data), seed=0)
    graph, nodes = split.test.data, split.test.nodes
    budget = ep.Budget.from_epsilon(graph, nodes, 0.1, local=0.5)
    attack = ep.attacks.LRBCD(steps=3, block_size=2_000)
    smoothing = ep.certificates.SparseSmoothing(p_add=0.001, p_del=0.4)
    yield "LRBCD()(model, ...)", lambda: attack(model, graph, nodes, budget, seed=0, progress=False)
    # Subpackages are loaded on first use.
    train = ep.train
    options: dict[str, Any] = {"attack": attack, "epsilon": 0.1, "local": 0.5, "max_epochs": 60, "progress": False}
    yield "ep.train(attack=LRBCD)", lambda: train(model, split, self_training=False, **options)
    yield "... with pseudo-labels", lambda: train(model, split, **options)
    yield "ep.evaluate(attacks=[LRBCD])", lambda: ep.evaluate(model, graph, nodes, [0.1], [attack], progress=False)
    yield "ep.evaluate()", lambda: ep.evaluate(model, graph, nodes, [0.02], progress=False)
    yield (
        "SparseSmoothing().certify()",
        lambda: smoothing.certify(model, graph, nodes, samples=200, choosing_samples=20, progress=False),
    )


def package_imports(package: Path) -> dict[str, set[str]]:
    """Return the imports between the subpackages of a package, including those inside of functions."""
    subpackages = {path.parent.name for path in package.glob("*/__init__.py")}
    imports: dict[str, set[str]] = {name: set() for name in subpackages}
    for name in subpackages:
        for path in (package / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                imports[name] |= {target for target in _imported(node, package.name) if target in subpackages}
        imports[name].discard(name)
    return imports


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the second components of absolute imports from a package."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        first, _, rest = name.partition(".")
        if first == package and rest:
            yield rest.partition(".")[0]


def longest_path(graph: dict[str, set[str]]) -> list[str]:
    """Return a longest path of a directed graph; raise if it has a cycle.

    >>> longest_path({"cli": {"attacks", "models"}, "attacks": {"models"}, "models": set()})
    ['cli', 'attacks', 'models']
    """
    active: list[str] = []

    @cache
    def path_from(node: str) -> tuple[str, ...]:
        if node in active:
            raise ValueError(f"expected imports without cycles, got {' -> '.join([*active, node])}")
        active.append(node)
        longest = max((path_from(target) for target in sorted(graph[node])), key=len, default=())
        active.pop()
        return (node, *longest)

    return list(max((path_from(node) for node in sorted(graph)), key=len))


def longest_functions(package: Path, count: int = 5) -> list[tuple[int, str]]:
    """Return the longest functions: their number of lines without the docstring, and their location."""
    functions = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                if body:
                    assert node.end_lineno is not None
                    lines = node.end_lineno - body[0].lineno + 1
                    functions.append((lines, f"{path.relative_to(package)}:{node.lineno} {node.name}"))
    return sorted(functions, key=lambda function: (-function[0], function[1]))[:count]


def main() -> None:
    """Print all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files that each call enters")
    arguments = parser.parse_args()
    import edgeproof

    package = Path(edgeproof.__file__).parent
    print(f"{package}\n\n{'call':<32}{'files':>7}{'functions':>11}{'depth':>7}")
    warnings.simplefilter("ignore")
    for name, call in public_calls():
        result = trace(call, package)
        print(f"{name:<32}{len(result.files):>7}{result.functions:>11}{result.depth:>7}")
        if arguments.files:
            print("".join(f"    {file}\n" for file in result.files), end="")
    path = longest_path(package_imports(package))
    print(f"\nimport layers: {len(path)} ({' -> '.join(path)})")
    print("longest functions (lines without docstring):")
    for lines, location in longest_functions(package):
        print(f"{lines:>6}  {location}")


if __name__ == "__main__":
    main()
