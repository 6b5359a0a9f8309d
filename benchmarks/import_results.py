"""Results of robust_training.py and certificates.py, put into the store of ``edgeproof reproduce``.

    python benchmarks/import_results.py

They were trained and measured with the settings of the paper's tables, before there was a store; each record keeps the command
and the machine that made it. What is in the store already stays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgeproof.experiments import TABLES, Record, Store
from edgeproof.experiments.measure import Measure
from edgeproof.experiments.plan import measures

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> None:
    store, imported = Store(RESULTS / "experiments"), 0
    for measure in measures(TABLES):
        if store.get(measure.identity) is None:
            found = _found(measure)
            if found is not None:
                store.put(found)
                imported += 1
    print(f"imported {imported} results into {store.root}")


def _found(measure: Measure) -> Record | None:
    recipe = measure.recipe
    row = recipe.row
    if row.setting != "inductive" or row.epsilon not in (None, 0.2):
        return None
    way = f"{row.model}-{row.attack or ('self' if row.self_training else 'regular')}"
    name = f"{row.dataset}-{way}-{recipe.protocol}-{recipe.seed}.json"
    if measure.kind == "smoothing":
        path = RESULTS / "certificates" / name
        return _record(measure, path, _certified) if path.exists() else None
    path = RESULTS / "robust_training" / f"paper-{name}"
    return _record(measure, path, _attacked) if path.exists() else None


def _record(measure: Measure, path: Path, read: Any) -> Record | None:
    content = json.loads(path.read_text(encoding="utf-8"))
    values = read(measure, content)
    if values is None:
        return None
    notes = {"imported_from": str(path.relative_to(RESULTS.parent)), "training": content["training"]}
    seconds = content.get("seconds", 0.0)
    return Record(measure.identity, values, content["command"], content["environment"], seconds, notes)


def _attacked(measure: Measure, content: dict[str, Any]) -> dict[str, Any] | None:
    scores = {(one["attack"], one["epsilon"]): one["accuracy"] for one in content["scores"] if one["nodes"] == "test"}
    wanted = (0.0,) if measure.kind == "clean" else measure.epsilons
    if any((measure.kind, epsilon) not in scores for epsilon in wanted):
        return None
    return {"accuracy": [[epsilon, scores[measure.kind, epsilon]] for epsilon in wanted]}


def _certified(_: Measure, content: dict[str, Any]) -> dict[str, Any]:
    radius = content["average_certifiable_radius"]
    return {
        "certified_accuracy": content["certified_accuracy"] + content["joint"],
        "average_certifiable_radius": [radius["added"], radius["deleted"]],
        "abstained": content["abstained"],
    }


if __name__ == "__main__":
    main()
