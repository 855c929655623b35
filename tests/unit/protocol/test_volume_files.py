"""Small files that a program can have replaced by anything."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lab.protocol.volume.files import read_regular


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("größe", encoding="utf-8")
    assert read_regular(path) == "größe"
    assert read_regular(path, 7) == "größe"
    with pytest.raises(ValueError, match="more than 6 bytes"):
        read_regular(path, 6)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "socket", "device", "loop"])
def test_a_pipe_does_not_block(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    (tmp_path / "file").write_text("text")
    with socket.socket(socket.AF_UNIX) as server:
        {
            "link": lambda: path.symlink_to("file"),
            "pipe": lambda: os.mkfifo(path),
            "folder": path.mkdir,
            "socket": lambda: server.bind(os.path.relpath(path)),
            "device": lambda: path.symlink_to("/dev/zero"),
            "loop": lambda: path.symlink_to("it"),
        }[kind]()
    with pytest.raises(ValueError, match="not a regular file"):
        read_regular(Path("/dev/zero") if kind == "device" else path)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="utf-8"):
        read_regular(tmp_path / "bytes")
