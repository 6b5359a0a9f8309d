from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from full_disk import small_files_only
from fuzz.files import KINDS
from safetensors.torch import save_file
from torch_geometric.data import Data

import edgeproof as ep
from edgeproof import serialization
from edgeproof.certificates import Certificate


@pytest.mark.parametrize("name", ep.models.available())
def test_saved_model_round_trips(name: str, graph: Data, tmp_path: Path) -> None:
    model = ep.models.build(name, 5, 3, {"hidden_channels": 8}, seed=1)
    ep.save(model, tmp_path / "model.safetensors")
    loaded = ep.load(tmp_path / "model.safetensors")
    assert repr(loaded) == repr(model)
    assert not loaded.training
    assert torch.equal(ep.models.predict(loaded, graph), ep.models.predict(model, graph))


def test_float64_round_trips(graph: Data, tmp_path: Path) -> None:
    model = ep.models.GPRGNN(5, 3).double()
    ep.save(model, tmp_path / "model.safetensors")
    assert torch.equal(ep.load(tmp_path / "model.safetensors").state_dict()["gamma"], model.gamma)


def test_saving_user_model_raises(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"got Linear of torch.*use safetensors.torch.save_model"):
        ep.save(torch.nn.Linear(1, 1), tmp_path / "x")


def test_saving_subclass_raises(tmp_path: Path) -> None:
    class GCN(ep.models.GCN):
        pass

    with pytest.raises(TypeError, match=r"expected a model of edgeproof\.models, got .*GCN of "):
        ep.save(GCN(5, 3), tmp_path / "x")


def test_loading_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        ep.load(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 100])
def test_loading_other_file_raises(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        ep.load(path)


def test_loading_truncated_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ep.save(ep.models.GCN(5, 3), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        ep.load(path)


def test_loading_foreign_safetensors_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="that edgeproof did not write"):
        ep.load(path)
    serialization.write_tensors(path, {"weight": torch.zeros(3)}, {"some": "header"})
    with pytest.raises(ValueError, match=r"expected a file written by edgeproof\.save, got .* without a model"):
        ep.load(path)


def header(**changes: object) -> dict[str, object]:
    model = ep.models.GCN(5, 3)
    return {"format": 1, "version": "0.1.0", "model": "GCN", "settings": model.settings, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2, "version": "9.9"}, "written by edgeproof 9.9 in format 2; .* upgrade edgeproof"),
        ({"model": "GCNN"}, "did you mean 'GCN'"),
        ({"model": "os.system"}, "unknown model 'os.system'"),
        ({"model": 5}, "unknown model 5"),
        ({"settings": {"in_channels": 5, "out_channels": 3, "num_layers": 10**9}}, "1000000000 layers in 4 tensors"),
        ({"settings": {"in_channels": 5, "out_channels": 3, "dropout": "x"}}, "0 <= dropout < 1"),
        ({"settings": {"in_channels": 5, "out_channels": 3, "hiden_channels": 4}}, "did you mean 'hidden_channels'"),
        ({"settings": {"in_channels": 10**15, "out_channels": 3}}, "weights.0 has shape"),
        ({"settings": {"in_channels": 5}}, "out_channels"),
        ({"settings": {"in_channels": 5, "out_channels": 3, "num_layers": 3}}, "do not match the model in its header"),
        ({"settings": [1]}, "does not contain a valid model"),
    ],
)
def test_loading_invalid_header_raises(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    serialization.write_tensors(path, dict(ep.models.GCN(5, 3).state_dict()), header(**changes))
    with pytest.raises(ValueError, match=message):
        ep.load(path)


def written_without_digest(path: Path) -> None:
    """Write a file as edgeproof 0.1.0 did."""
    model = ep.models.GCN(5, 3)
    save_file(model.state_dict(), path, metadata={"edgeproof": json.dumps(header())})


def test_files_of_the_first_layout_without_digest_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    written_without_digest(path)
    assert repr(ep.load(path)) == repr(ep.models.GCN(5, 3))


def test_files_without_a_digest_that_their_layout_requires_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ep.save(ep.models.GCN(5, 3), path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"sha256", b"sha255"))
    with pytest.raises(ValueError, match="is damaged: it has no digest"):
        ep.load(path)
    # The layout is part of the digest.
    path.write_bytes(content.replace(b"layout", b"lay0ut"))
    with pytest.raises(ValueError, match="is damaged: its content does not match its digest"):
        ep.load(path)
    path.write_bytes(content.replace(b'layout\\": 2', b'layout\\": 7'))
    with pytest.raises(ValueError, match=r"got layout 7 in .*: upgrade edgeproof"):
        ep.load(path)


def test_files_of_equal_content_are_equal(tmp_path: Path) -> None:
    contents = set()
    for index in range(8):
        path = tmp_path / f"{index}.safetensors"
        serialization.write_tensors(path, {"one": torch.ones(3), "two": torch.zeros(2)}, {"some": "header", "more": 1})
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_changed_parameter_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ep.save(ep.models.GCN(5, 3), path)
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: its content does not match its digest"):
        ep.load(path)


def test_deeply_nested_metadata_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path, metadata={"edgeproof": "[" * 200_000})
    with pytest.raises(ValueError, match="is damaged or not a safetensors file"):
        ep.load(path)


def test_tensors_are_copied_when_read(tmp_path: Path) -> None:
    """Mapped tensors of a file that is truncated later would end the process with SIGBUS."""
    path = tmp_path / "large.safetensors"
    serialization.write_tensors(path, {"zeros": torch.zeros(1 << 16)}, {})
    _, tensors = serialization.read_tensors(path)
    with path.open("r+b") as file:
        file.truncate(100)
    assert float(tensors["zeros"].sum()) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of file sizes")
@pytest.mark.parametrize("name", [*KINDS, "plot"])
def test_full_disk_keeps_the_previous_file_and_names_it(name: str, tmp_path: Path) -> None:
    path, certificate = tmp_path / f"0-file{KINDS[name].suffix if name in KINDS else '.svg'}", tmp_path / "certificate"
    KINDS["certificate"].write(certificate, 0)

    def write(seed: int) -> None:
        if name == "plot":
            Certificate.load(certificate).plot(path)
        else:
            KINDS[name].write(path, seed)

    write(0)
    before, files = path.read_bytes(), sorted(tmp_path.rglob("*"))
    with small_files_only(200), pytest.raises(OSError, match=r"cannot write .*: File too large"):
        write(8)
    assert path.read_bytes() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_header_is_json(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ep.save(ep.models.APPNP(5, 3, alpha=0.25), path)
    stored, _ = serialization.read_tensors(path)
    assert json.loads(json.dumps(stored)) == stored
    assert stored["version"] == ep.__version__
    assert stored["settings"]["alpha"] == 0.25
