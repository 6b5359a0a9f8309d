"""The store of results: packed and loose files, damage, concurrent writers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeproof.experiments import Record, Store, StoreWarning
from edgeproof.experiments.identity import VERSION, key_of
from edgeproof.experiments.measurements import radii
from edgeproof.experiments.store import SCHEMA
from edgeproof.serialization import json_digest


def identity(kind: str = "clean", seed: int = 0, dataset: str = "csbm", **entries: Any) -> dict[str, Any]:
    run = {"dataset": {"name": dataset}, "model": {"name": "GCN"}, "seed": seed}
    return {"version": VERSION, "kind": kind, "run": run, **entries}


def record(seed: int = 0, accuracy: float = 0.5, dataset: str = "csbm") -> Record:
    about = identity(seed=seed, dataset=dataset)
    return Record(about, {"accuracy": [[0.0, accuracy]]}, "a command", {"device": "cpu"}, 1.5, {})


def damage_file(path: Path, damage: Callable[[str], str]) -> None:
    """Change the text of a file, and update its digest, which would detect every change first."""
    content = json.loads(path.read_text())
    assert content.pop("digest")
    text = damage(json.dumps(content, indent=1))
    try:
        changed = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        path.write_text(text)
        return
    digest = json_digest({name: value for name, value in changed.items() if name != "schema"})
    path.write_text(json.dumps({**changed, "digest": digest}))


def test_stored_record_is_found_by_its_identity(store: Store) -> None:
    assert store.get(record().identity) is None
    store.put(record())
    assert store.get(record().identity) == record()
    assert store.get(record(seed=1).identity) is None
    store.put(record(seed=1))
    assert {found.key for found in store.records()} == {record().key, record(seed=1).key}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
identities = st.dictionaries(st.text(max_size=2), json_values, max_size=3)


@settings(max_examples=100, deadline=None)
@given(one=identities, other=identities)
def test_keys_are_equal_exactly_for_equal_identities(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key_of(dict(reversed(one.items()))) == key_of(one)
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (key_of(one) == key_of(other)) == same


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA - 1}'),
        lambda text: text.replace('"seconds": 1.5', '"seconds": "long"'),
        lambda text: text.replace('"notes": {}', '"notes": {}, "extra": 1'),
        lambda text: "[1, 2]",
        lambda text: json.dumps({**json.loads(text), "values": {}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": []}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[0.0, float("nan")]]}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[0.0, 7.2]]}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[]]}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[0.0, 0.5, 0.5]]}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[0.1, 0.5]]}}),
        lambda text: json.dumps({**json.loads(text), "values": {"accuracy": [[0.0, True]]}}),
        lambda text: json.dumps({**json.loads(text), "identity": {"kind": "clean", "run": float("nan")}}),
        lambda text: json.dumps({**json.loads(text), "environment": {"device": 5}}),
        lambda text: json.dumps({**json.loads(text), "seconds": float("nan")}),
        lambda text: "[" * 100_000,
    ],
)
def test_damaged_file_is_reported_and_ignored(damage: Any, store: Store) -> None:
    path = store.put(record())
    damage_file(path, damage)
    with pytest.warns(StoreWarning, match=r"EP201: .* is damaged and is ignored"):
        assert store.get(record().identity) is None
    with pytest.warns(StoreWarning):
        assert list(store.records()) == []
    with pytest.warns(StoreWarning):
        assert store.pack() == (0, 0)
    assert path.exists()
    store.put(record())
    assert store.get(record().identity) == record()


def test_changed_digit_is_detected(store: Store) -> None:
    path = store.put(record())
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.warns(StoreWarning, match="its content has changed since it was written"):
        assert store.get(record().identity) is None


def test_file_without_digest_is_ignored(store: Store) -> None:
    path = store.put(record())
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(json.dumps(content))
    with pytest.warns(StoreWarning, match="its content has changed"):
        assert store.get(record().identity) is None


def test_keys_that_are_not_text_are_stored_as_text(store: Store) -> None:
    stored = replace(record(), notes={"epochs": {2: 0.5, 10: 0.25}})
    store.put(stored)
    found = store.get(stored.identity)
    assert found is not None
    assert found.notes == {"epochs": {"2": 0.5, "10": 0.25}}


def test_file_under_another_name_is_reported_and_ignored(store: Store) -> None:
    store.put(record(seed=1)).rename(store.path(record().identity))
    with pytest.warns(StoreWarning, match=r"EP202: .* does not belong to its file name"):
        assert store.get(record().identity) is None
    with pytest.warns(StoreWarning, match="does not belong to its file name"):
        assert list(store.records()) == []


def test_concurrent_writers_leave_complete_files(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: store.put(record(index % 5)), range(200)))
    assert len(list(store.records())) == 5
    assert not [path for path in store.root.iterdir() if path.suffix != ".json" and path.is_file()]


def test_accuracies_must_be_at_the_budgets_of_the_identity(store: Store) -> None:
    about = identity("attack", attack={"name": "LRBCD"}, epsilons=[0.1, 0.25])
    path = store.put(Record(about, {"accuracy": [[0.1, 0.5], [0.25, 0.4]]}, "a command", {"device": "cpu"}, 1.0, {}))
    assert store.get(about) is not None
    damage_file(path, lambda text: text.replace("0.25,\n    0.4", "0.5,\n    0.4"))
    with pytest.warns(StoreWarning, match="expected accuracies at"):
        assert store.get(about) is None


GRID = [[added, deleted, 0.5] for added, deleted in radii()]
VALID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "smoothing": ({}, {"certified_accuracy": GRID, "average_certifiable_radius": [1.0, 2.0], "abstained": 0.1}),
    "filter": ({"bins": 2}, {"gamma": [0.5, 0.5], "self_loops": True, "density": [0.4, 0.6], "mean_frequency": 1.0}),
    "diffusion": ({}, {"matrix": [[1.0, 0.0], [0.0, 1.0]], "edges": [[0, 1]], "classes": [0, 1]}),
    "degrees": ({"epsilons": [0.1]}, {"nodes": [[0.1, [[3, 1, 0, 2]]]]}),
    "evaluate": ({"epsilons": [0.1]}, {"clean": 0.7, "accuracy": [[0.1, 0.5]], "attacks": [["DICE", 0.1, 0.5]]}),
    "worst_case": (
        {"epsilons": [0.1]},
        {"clean": 0.7, "accuracy": [[0.1, 0.5]], "attacks": [["DICE", 0.1, 0.5, 10, 1.5]]},
    ),
    "training": ({}, {"best_epoch": 3, "epochs": 5, "stopped": "patience"}),
}
NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *(
            ("smoothing", {"certified_accuracy": rows})
            for rows in (GRID[:8], [row[1:] for row in GRID], GRID[::-1], [])
        ),
        *(
            ("smoothing", wrong)
            for wrong in (
                {"average_certifiable_radius": [1.0]},
                {"average_certifiable_radius": [-1.0, 0.0]},
                {"abstained": NAN},
                {"abstained": 7},
            )
        ),
        *(("filter", wrong) for wrong in ({"gamma": []}, {"gamma": [NAN]}, {"density": [1.0]}, {"self_loops": 1})),
        *(
            ("diffusion", wrong)
            for wrong in ({"matrix": [[1.0, 0.0]]}, {"edges": [[0, 2]]}, {"classes": [], "matrix": [], "edges": []})
        ),
        *(("degrees", wrong) for wrong in ({"nodes": []}, {"nodes": [[0.2, []]]}, {"nodes": [[0.1, [[3, 1, 0]]]]})),
        *(("worst_case", {"attacks": [["DICE", 0.1, 0.5, *wrong]]}) for wrong in ((), (1,), (-1, 2.0), (NAN, 2.0))),
        *(("evaluate", wrong) for wrong in ({"clean": 2}, {"accuracy": []}, {"attacks": [["DICE", 0.1, -1]]})),
        *(
            ("training", wrong)
            for wrong in ({"best_epoch": "3"}, {"epochs": None}, {"epochs": True}, {"epochs": 0}, {"best_epoch": -1})
        ),
    ],
)
def test_values_of_every_kind_are_checked(kind: str, damage: dict[str, Any], store: Store) -> None:
    more, values = VALID[kind]
    about = identity(kind, **more)
    store.put(Record(about, values, "a command", {"device": "cpu"}, 1.0, {}))
    assert store.get(about) is not None
    store.put(Record(about, {**values, **damage}, "a command", {"device": "cpu"}, 1.0, {}))
    with pytest.warns(StoreWarning, match="is damaged and is ignored"):
        assert store.get(about) is None


def test_missing_entries_and_unknown_kinds_are_named(store: Store) -> None:
    for about, reason in (
        (identity("attack"), "no entry 'epsilons'"),
        (identity("atack"), "unknown kind 'atack'"),
    ):
        store.put(Record(about, {"accuracy": [[0.1, 0.5]]}, "a command", {"device": "cpu"}, 1.0, {}))
        with pytest.warns(StoreWarning, match=f"is damaged and is ignored: {reason}"):
            assert store.get(about) is None


def test_failed_write_keeps_the_previous_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(record())
    write = Path.write_bytes

    def fails(self: Path, content: bytes) -> int:
        write(self, content[:20])
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fails)
        with pytest.raises(OSError, match="no space left"):
            store.put(record(accuracy=0.9))
    assert store.get(record().identity) == record()


def packed_files(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.root.iterdir() if path.is_file()}


def test_packing_keeps_every_record_in_one_file_per_dataset_and_kind(store: Store) -> None:
    records = [record(seed, dataset=dataset) for seed in range(3) for dataset in ("csbm", "cora")]
    for stored in records:
        store.put(stored)
    before = list(store.records())
    assert store.pack() == (6, 2)
    assert sorted(packed_files(store)) == ["cora-clean.jsonl", "csbm-clean.jsonl"]
    for reader in (store, Store(store.root)):
        assert list(reader.records()) == before
        assert [reader.get(stored.identity) for stored in records] == records
    lines = [json.loads(line) for line in (store.root / "cora-clean.jsonl").read_text().splitlines()]
    keys = [key_of(line["identity"]) for line in lines]
    assert keys == sorted(keys)
    assert all(list(line) == sorted(line) for line in lines)


def test_packed_files_do_not_depend_on_the_order_of_writes(tmp_path: Path) -> None:
    stores = [Store(tmp_path / name) for name in ("a", "b")]
    for store, seeds in zip(stores, (range(4), reversed(range(4))), strict=True):
        for seed in seeds:
            store.put(record(seed))
            if store is stores[0]:
                store.pack()
        store.pack()
    assert packed_files(stores[0]) == packed_files(stores[1])
    assert stores[0].pack() == (0, 1)


def test_loose_file_takes_precedence_over_packed_line(store: Store) -> None:
    store.put(record(accuracy=0.5))
    store.pack()
    store.put(record(accuracy=0.6))
    assert store.get(record().identity) == record(accuracy=0.6)
    assert list(store.records()) == [record(accuracy=0.6)]
    store.pack()
    assert Store(store.root).get(record().identity) == record(accuracy=0.6)
    assert len((store.root / "csbm-clean.jsonl").read_text().splitlines()) == 1


def test_reader_notices_packing_by_another_process(store: Store) -> None:
    store.put(record(0))
    store.pack()
    assert store.get(record(1).identity) is None
    other = Store(store.root)
    other.put(record(1))
    other.pack()
    assert store.get(record(1).identity) == record(1)


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b"", b"[1]"])
def test_damaged_line_is_reported_and_other_lines_are_used(damage: bytes, store: Store) -> None:
    for seed in range(3):
        store.put(record(seed))
    store.pack()
    path = store.root / "csbm-clean.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], damage, lines[2]]) + b"\n")
    with pytest.warns(StoreWarning, match=r"EP201: line 2 of .*csbm-clean.jsonl is damaged"):
        assert len(list(store.records())) == 2
    path.write_bytes(lines[0] + b"\n" + lines[1][: len(lines[1]) // 2])
    with pytest.warns(StoreWarning, match="line 2 of"):
        assert len(list(store.records())) == 1
    path.write_bytes(b"\n".join([lines[0], lines[1].replace(b"0.5", b"0.6"), lines[2]]) + b"\n")
    with pytest.warns(StoreWarning, match="its content has changed"):
        assert len(list(store.records())) == 2


def test_line_in_the_wrong_file_is_reported_and_ignored(store: Store) -> None:
    store.put(record())
    store.pack()
    (store.root / "csbm-clean.jsonl").rename(store.root / "cora-clean.jsonl")
    with pytest.warns(StoreWarning, match=r"EP202: line 1 of .*cora-clean.jsonl"):
        assert list(store.records()) == []


def write_many(root: Path, seeds: range) -> None:
    store = Store(root)
    for seed in seeds:
        store.put(record(seed))


def test_packing_with_concurrent_writers_loses_no_result(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    ranges = [range(start, start + 60) for start in range(0, 180, 60)]
    writers = [context.Process(target=write_many, args=(store.root, seeds)) for seeds in ranges]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        Store(store.root).pack()
    for writer in writers:
        writer.join()
    with warnings.catch_warnings():
        warnings.simplefilter("error", StoreWarning)
        assert {found.run["seed"] for found in store.records()} == set(range(180))
        store.pack()
        assert {found.run["seed"] for found in Store(store.root).records()} == set(range(180))


WRITER = """
import itertools, sys
from edgeproof.experiments import Store
sys.path.insert(0, sys.argv[2])
from test_store import record
store = Store(sys.argv[1])
for seed in itertools.count():
    store.put(record(seed))
    print(seed, flush=True)
    if seed % 5 == 4:
        store.pack()
"""


def test_killed_writer_loses_no_finished_result(store: Store) -> None:
    command = [sys.executable, "-c", WRITER, str(store.root), str(Path(__file__).parent)]
    for attempt in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= 12 + 5 * attempt:
                    break
            time.sleep(0.003 * attempt)
            os.kill(process.pid, signal.SIGKILL)
            done = [int(line), *(int(rest) for rest in process.stdout if rest.strip().isdigit())]
        with warnings.catch_warnings():
            warnings.simplefilter("error", StoreWarning)
            assert {found.run["seed"] for found in Store(store.root).records()} >= set(range(max(done) + 1))
    # The lock of the killed process is free.
    store.pack()
