"""Files that only the agent appends to: it detects changes by others, and repairs some of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.task.agent.appender import AppendedContent, Appender

DATA = b"one\ntwo\n"


def appended(path: Path, harm: Callable[[Path], object] = lambda _path: None) -> Appender:
    """A closed file, after some harm was done to it."""
    file = Appender(path)
    file.append(b"one\n")
    harm(path)
    file.append(b"two\n")
    file.close()
    return file


def test_an_unchanged_file(tmp_path: Path) -> None:
    file = appended(tmp_path / "file")
    assert not file.altered
    assert (tmp_path / "file").read_bytes() == DATA


def forge(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"forged\n")


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"ONE")


@pytest.mark.parametrize("harm", [forge, overwrite, lambda path: os.truncate(path, 0)])
def test_a_file_that_was_changed(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    assert appended(tmp_path / "file", harm).altered


def replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"another")


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def remove_all(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("harm", [Path.unlink, replace, link, pipe, remove_all])
def test_a_file_that_was_moved_is_put_back(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "tasks/file"
    assert appended(path, harm).altered
    assert path.read_bytes() == DATA
    assert not path.is_symlink()
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_further_attempt_appends(tmp_path: Path) -> None:
    written = AppendedContent()
    for line in (b"one\n", b"two\n"):
        file = Appender(tmp_path / "file", written)
        file.append(line)
        file.close()
        assert not file.altered
    assert written.sha256 == hashlib.sha256(DATA).hexdigest()
    assert AppendedContent.of(tmp_path / "file").sha256 == written.sha256
    forge(tmp_path / "file")
    file = Appender(tmp_path / "file", written)
    file.close()
    assert file.altered


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        assert AppendedContent.of(tmp_path / name).size == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_is_replaced_by_a_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.symlink_to("elsewhere") if kind == "link" else os.mkfifo(path)
    appended(path)
    assert path.read_bytes() == DATA
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
