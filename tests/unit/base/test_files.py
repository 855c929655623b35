"""Output files that a user names: where a command may write, and how."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.base.files import check_output, write_output
from tests.support.conditions import lacking

OURS = b"# by lab\n"


def is_ours(begin: bytes) -> bool:
    return begin.startswith(OURS)


def write(path: Path, data: bytes = OURS + b"new\n", *, force: bool = False) -> None:
    check_output("--output", path, is_ours, force=force)
    write_output(path, data)


def test_a_new_file_and_one_of_ours_are_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(path)
    path.chmod(0o640)
    write(path, OURS + b"again\n")
    assert path.read_bytes() == OURS + b"again\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.write_bytes(b"")  # nobody's
    write(path)
    assert path.read_bytes() == OURS + b"new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_another_tools_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"notes\.txt exists, and lab did not write it") as found:
        write(path)
    assert "--force" in found.value.fix
    assert path.read_bytes() == b"mine"
    write(path, force=True)
    assert path.read_bytes() == OURS + b"new\n"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder/target", tmp_path / "link"
    link.symlink_to("folder/target")
    write(link)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == OURS + b"new\n"
    target.write_bytes(b"mine")
    with pytest.raises(InputError, match="lab did not write it"):
        write(link)
    assert target.read_bytes() == b"mine"


def test_a_device_is_written_to_and_never_replaced_and_a_disk_is_not(tmp_path: Path) -> None:
    device, disk = tmp_path / "null", tmp_path / "disk"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(disk, stat.S_IFBLK | 0o666, os.makedev(7, 99))
    except PermissionError:
        lacking("no device can be made here")
    write(device)
    write(device, force=True)
    assert stat.S_ISCHR(device.stat().st_mode)
    with pytest.raises(InputError, match="disk is a block device"):
        write(disk, force=True)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert read == [OURS + b"new\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_to(tmp_path: Path, name: str, into: str) -> None:
    program = (
        "import sys; from pathlib import Path; from lab.base.files import write_output;"
        "print('before', flush=True); write_output(Path(sys.argv[1]), b'data\\n'); print('after')"
    )
    command = [sys.executable, "-c", program, name]
    with (tmp_path / "out").open("wb") as file:
        out = file if into == "file" else subprocess.PIPE
        piped = subprocess.run(command, stdout=out, check=True).stdout
    assert (piped or (tmp_path / "out").read_bytes()) == b"before\ndata\nafter\n"


def test_an_unwritable_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path)  # root may write
    with pytest.raises(InputError, match="cannot be written: permission denied"):
        check_output("--output", tmp_path / "new", is_ours, force=True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "is a directory"),
        ("missing/out", "there is no directory"),
        ("x" * 300, "cannot be written: file name too long"),
        ("a\0b", "cannot be written: embedded null"),
        ("loop", "cannot be written"),
    ],
)
def test_invalid_outputs(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=reason):
        check_output("--output", tmp_path / name, is_ours, force=True)
