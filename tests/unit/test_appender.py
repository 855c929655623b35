"""Files that only the agent appends to, and the running digest of their content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from lab.task.agent.appender import Appender, digest_of

DATA = b"one\ntwo\n"


def append(path: Path, data: bytes = DATA) -> None:
    file = Appender(path)
    file.append(data)
    file.close()


def test_further_attempts_append_and_continue_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "tasks/file"
    digest = digest_of(path)
    for line in (b"one\n", b"two\n"):
        file = Appender(path, digest)
        file.append(line)
        file.close()
    assert path.read_bytes() == DATA
    assert digest.hexdigest() == digest_of(path).hexdigest() == hashlib.sha256(DATA).hexdigest()


def test_the_digest_is_of_what_was_appended_not_of_the_file(tmp_path: Path) -> None:
    digest = digest_of(tmp_path / "file")
    file = Appender(tmp_path / "file", digest)
    file.append(DATA)
    with (tmp_path / "file").open("ab") as other:
        other.write(b"forged\n")
    file.close()
    assert digest.hexdigest() == hashlib.sha256(DATA).hexdigest()
    assert digest_of(tmp_path / "file").hexdigest() != digest.hexdigest()


def test_a_long_file_is_read_in_pieces_with_a_heartbeat_for_each(tmp_path: Path) -> None:
    beats: list[None] = []
    with (tmp_path / "file").open("wb") as file:
        file.truncate((3 << 20) + 1)
    found = digest_of(tmp_path / "file", lambda: beats.append(None))
    assert found.hexdigest() == hashlib.sha256(bytes((3 << 20) + 1)).hexdigest()
    assert len(beats) == 4


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        assert digest_of(tmp_path / name).hexdigest() == hashlib.sha256().hexdigest()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_is_replaced_by_a_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.symlink_to("elsewhere") if kind == "link" else os.mkfifo(path)
    append(path)
    assert path.read_bytes() == DATA
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
