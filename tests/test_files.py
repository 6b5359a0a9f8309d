from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeproof._files import check_outputs, check_writable, replacing, same_file
from edgeproof._names import look_up, unknown_name


def test_replacing_keeps_old_file_after_an_exception(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "note.txt"
    with replacing(target) as temporary:
        temporary.write_text("old")

    def interrupted() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["note.txt"]


def test_replacing_is_atomic(tmp_path: Path) -> None:
    """A hard link to the old file keeps its content: the file was replaced, not overwritten."""
    target = tmp_path / "note.txt"
    target.write_text("old")
    os.link(target, tmp_path / "other-name")
    with replacing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert (tmp_path / "other-name").read_text() == "old"


def test_replacing_respects_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "note.txt") as temporary:
            temporary.write_text("")
    finally:
        os.umask(before)
    assert (tmp_path / "note.txt").stat().st_mode & 0o777 == 0o640


def test_check_writable_rejects_folders(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "file")
    with pytest.raises(ValueError, match="expected a file to write, got the folder"):
        check_writable(tmp_path)


def test_unknown_name_without_close_match_gives_no_suggestion() -> None:
    assert str(unknown_name("model", "zzz", ["GCN"])) == "unknown model 'zzz'. Known: GCN"
    assert look_up("model", "GCN", {"GCN": 1}) == 1


def test_check_outputs_resolves_links(tmp_path: Path) -> None:
    model, link, loop = tmp_path / "model", tmp_path / "link", tmp_path / "loop"
    model.write_text("model")
    link.symlink_to(model)
    loop.symlink_to(loop)
    os.link(model, tmp_path / "hard")
    for other in (link, tmp_path / "hard", tmp_path / "x" / ".." / "model"):
        assert same_file(other, model)
        with pytest.raises(ValueError, match="which this command reads"):
            check_outputs([tmp_path / "new", other], [model])
    assert not same_file(loop, model)
    with pytest.raises(ValueError, match=r"expected different output files, got .*link twice"):
        check_outputs([model, link])
    # Names of files that do not exist yet.
    with pytest.raises(ValueError, match="which this command reads"):
        check_outputs([tmp_path / "new"], [tmp_path / "." / "new"])
    check_outputs([tmp_path / "new", tmp_path / "newer"], [model])
