"""The disks of seats, with a kernel that only records, and tools that fail."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import pytest

from lab.backends.engine.client import Engine
from lab.base.errors import LabError
from lab.base.units import MIB
from lab.teach.classroom import disks
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.containers import Containers
from lab.teach.classroom.disks import SeatDisk, unavailable_reason
from tests.support.classes import NO_GPUS, a_class, a_host, plan, stored

SIZE = 64 * MIB


@dataclass
class Kernel:
    """The loop devices (device to file), the calls so far, and the tool that refuses."""

    attached: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    fails: str = ""

    def run(self, doing: str, *command: str) -> str:
        tool, *_, path = command
        self.log.append(f"{tool} {Path(path).name}")
        if tool == self.fails:
            raise LabError(f"{doing}: refused")
        if "--detach" in command:
            del self.attached[path]
        elif "--associated" in command:
            return "\n".join(each for each, file in self.attached.items() if file == path)
        elif "--show" in command:
            assert Path(path).stat().st_size == SIZE
            if path not in self.attached.values():
                # A number that was detached is not used again: the host was restarted.
                self.attached[f"/dev/loop{len(self.log)}"] = path
            return next(each for each, file in self.attached.items() if file == path) + "\n"
        return ""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr(disks, "_run", found.run)
    return found


@pytest.fixture
def disk(tmp_path: Path) -> SeatDisk:
    return SeatDisk(tmp_path / "disks", "ada", SIZE)


def test_a_disk_is_created_once_and_all_its_blocks_are_allocated(
    kernel: Kernel, disk: SeatDisk
) -> None:
    disk.remove()
    disk.attach()
    disk.attach()
    assert kernel.log == [
        "mkfs.ext4 ada.part", "debugfs ada.part", "losetup ada.ext4", "losetup ada.ext4",
    ]  # fmt: skip
    assert disk.image.stat().st_blocks * 512 >= SIZE
    assert disk.folder.stat().st_mode & 0o077 == 0
    old = disk.device.readlink()
    assert str(old) in kernel.attached
    kernel.attached.clear()  # the host was restarted
    disk.attach()
    assert disk.device.readlink() != old
    assert str(disk.device.readlink()) in kernel.attached
    disk.remove()
    assert kernel.attached == {}
    assert list(disk.folder.iterdir()) == []


def test_a_disk_that_cannot_be_created_or_detached(
    kernel: Kernel, disk: SeatDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.fails = "mkfs.ext4"
    with pytest.raises(LabError, match="creating the disk of ada: refused"):
        disk.attach()
    assert not disk.image.exists()
    kernel.fails = ""
    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(LabError, match=r"No space left on device; lower `disk:` in class.yaml"):
            disk.attach()
    assert list(disk.folder.iterdir()) == []
    disk.attach()
    kernel.fails = "losetup"
    with pytest.raises(LabError, match="detaching the disk of ada: refused"):
        disk.remove()
    assert disk.image.exists()


def tool(folder: Path, name: str, script: str = "exit 0") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "tools"
    found.mkdir()
    for name in ("mkfs.ext4", "debugfs", "losetup"):
        tool(found, name)
    monkeypatch.setattr(disks, "_path", lambda: str(found))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return found


def test_the_reasons_against_limits_of_disks(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable_reason() == ""
    tool(tools, "losetup", "echo 'cannot find an unused loop device: \x1b[2J' >&2; exit 1")
    assert unavailable_reason().endswith(r"failed: cannot find an unused loop device: \x1b[2J")
    (tools / "mkfs.ext4").unlink()
    assert unavailable_reason() == "`mkfs.ext4` is missing; install e2fsprogs"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unavailable_reason() == "only root can attach loop devices; run `lab` as root"


ENFORCED = plan(a_class(["ada", "bob"], disk="64MiB"), a_host(NO_GPUS, disk_unenforced=""))


def test_a_reset_makes_a_new_disk_even_after_one_that_failed(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    ClassDir("w").path.mkdir(parents=True)
    client = Mock()
    monkeypatch.setattr(Engine, "client", lambda _: client)
    backend = Containers(stored(ENFORCED))
    backend.create_storage()
    options = client.volumes.create.call_args_list[0].kwargs["driver_opts"]
    device = str(ClassDir("w").path / "disks/ada.device")
    assert options == {"type": "ext4", "device": device, "o": "nosuid,nodev"}
    image = ClassDir("w").path / "disks/ada.ext4"
    image.write_bytes(image.read_bytes()[:-4] + b"mine")
    kernel.fails = "mkfs.ext4"
    with pytest.raises(LabError):
        backend.replace_storage("ada")
    assert [backend.has_storage(seat) for seat in ("ada", "bob")] == [False, True]
    kernel.fails = ""
    backend.replace_storage("ada")
    assert image.read_bytes()[-4:] == bytes(4)
    assert str(image) in kernel.attached.values()
