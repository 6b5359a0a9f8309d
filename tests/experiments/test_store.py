"""Results on disk: whole, under the right name, never stale, never trusted when broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeproof.experiments import Record, Store, StoreWarning
from edgeproof.experiments.store import SCHEMA, digest_of, key_of


def record(seed: int = 0, accuracy: float = 0.5) -> Record:
    identity = {"kind": "clean", "training": {"dataset": "csbm", "seed": seed}}
    return Record(identity, {"accuracy": [[0.0, accuracy]]}, "a command", {"device": "cpu"}, 1.5, {})


def damage_file(path: Path, damage: Callable[[str], str]) -> None:
    """Change the text of a file, and its digest with it, which would find every damage first."""
    content = json.loads(path.read_text())
    assert content.pop("digest")
    text = damage(json.dumps(content, indent=1))
    try:
        changed = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        path.write_text(text)
        return
    digest = digest_of({name: value for name, value in changed.items() if name != "schema"})
    path.write_text(json.dumps({**changed, "digest": digest}))


def test_what_is_put_in_comes_out(store: Store) -> None:
    assert store.get(record().identity) is None
    store.put(record())
    assert store.get(record().identity) == record()
    assert store.get(record(seed=1).identity) is None
    store.put(record(seed=1))
    assert {one.key for one in store.records()} == {record().key, record(seed=1).key}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


identities = st.dictionaries(st.text(max_size=2), json_values, max_size=3)


@settings(max_examples=100, deadline=None)
@given(one=identities, other=identities)
def test_names_are_equal_exactly_if_settings_are(one: dict[str, Any], other: dict[str, Any]) -> None:
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
        lambda text: json.dumps({**json.loads(text), "identity": {"kind": "clean", "training": float("nan")}}),
        lambda text: json.dumps({**json.loads(text), "environment": {"device": 5}}),
        lambda text: json.dumps({**json.loads(text), "seconds": float("nan")}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_broken_file_is_reported_and_not_used(damage: Any, store: Store) -> None:
    path = store.put(record())
    damage_file(path, damage)
    with pytest.warns(StoreWarning, match="is damaged and is not used"):
        assert store.get(record().identity) is None
    with pytest.warns(StoreWarning):
        assert list(store.records()) == []
    store.put(record())
    assert store.get(record().identity) == record()


def test_a_changed_digit_is_noticed(store: Store) -> None:
    path = store.put(record())
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.warns(StoreWarning, match="its content has changed since it was written"):
        assert store.get(record().identity) is None


def test_a_file_without_a_digest_is_not_used(store: Store) -> None:
    path = store.put(record())
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(json.dumps(content))
    with pytest.warns(StoreWarning, match="its content has changed"):
        assert store.get(record().identity) is None


def test_entries_may_have_any_name(store: Store) -> None:
    one = replace(record(), notes={"epochs": {2: 0.5, 10: 0.25}})
    store.put(one)
    found = store.get(one.identity)
    assert found is not None
    assert found.notes == {"epochs": {"2": 0.5, "10": 0.25}}


def test_a_file_under_another_name_is_not_used(store: Store) -> None:
    store.put(record(seed=1)).rename(store.path(record().identity))
    with pytest.warns(StoreWarning, match="about something else than its name says"):
        assert store.get(record().identity) is None
    with pytest.warns(StoreWarning, match="about something else than its name says"):
        assert list(store.records()) == []


def test_many_writers_leave_whole_files(store: Store, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: store.put(record(index % 5)), range(200)))
    assert len(list(store.records())) == 5
    assert not [path for path in store.root.iterdir() if path.suffix != ".json"]


def test_accuracies_are_those_at_the_budgets_asked_for(store: Store) -> None:
    about = {"kind": "LRBCD", "training": {}, "epsilons": [0.1, 0.25]}
    path = store.put(Record(about, {"accuracy": [[0.1, 0.5], [0.25, 0.4]]}, "a command", {"device": "cpu"}, 1.0, {}))
    assert store.get(about) is not None
    damage_file(path, lambda text: text.replace("0.25,\n    0.4", "0.5,\n    0.4"))
    with pytest.warns(StoreWarning, match="were asked for at"):
        assert store.get(about) is None


GRID = [[added, deleted, 0.5] for added in range(5) for deleted in range(8)]
SOUND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "smoothing": ({}, {"certified_accuracy": GRID, "average_certifiable_radius": [1.0, 2.0], "abstained": 0.1}),
    "filter": ({"bins": 2}, {"gamma": [0.5, 0.5], "self_loops": True, "density": [0.4, 0.6], "mean_frequency": 1.0}),
    "diffusion": ({}, {"matrix": [[1.0, 0.0], [0.0, 1.0]], "edges": [[0, 1]], "classes": [0, 1]}),
    "degrees": ({"epsilons": [0.1]}, {"nodes": [[0.1, [[3, 1, 0, 2]]]]}),
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
        *(
            ("training", wrong)
            for wrong in ({"best_epoch": "3"}, {"epochs": None}, {"epochs": True}, {"epochs": 0}, {"best_epoch": -1})
        ),
    ],
)
def test_every_kind_of_result_is_looked_at(kind: str, damage: dict[str, Any], store: Store) -> None:
    more, values = SOUND[kind]
    about = {"kind": kind, "training": {}, **more}
    store.put(Record(about, values, "a command", {"device": "cpu"}, 1.0, {}))
    assert store.get(about) is not None
    store.put(Record(about, {**values, **damage}, "a command", {"device": "cpu"}, 1.0, {}))
    with pytest.warns(StoreWarning, match="is damaged and is not used"):
        assert store.get(about) is None


def test_what_is_missing_or_unknown_in_a_file_is_named(store: Store) -> None:
    for about, reason in (
        ({"kind": "LRBCD"}, "there is no 'epsilons'"),
        ({"kind": "LRBDC"}, "there is no kind 'LRBDC'"),
    ):
        store.put(Record(about, {"accuracy": [[0.1, 0.5]]}, "a command", {"device": "cpu"}, 1.0, {}))
        with pytest.warns(StoreWarning, match=f"is damaged and is not used: {reason}"):
            assert store.get(about) is None


def test_what_cannot_be_written_leaves_the_old_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(record())
    write = Path.write_text

    def fails(self: Path, text: str, **named: Any) -> int:
        write(self, text[:20], **named)
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", fails)
        with pytest.raises(OSError, match="no space left"):
            store.put(record(accuracy=0.9))
    assert store.get(record().identity) == record()
