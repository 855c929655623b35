"""The limit of a seat's disk: a file system of its own, in a file of that size.

The kernel attaches the file as a loop device. The engine mounts the device while a container uses
the seat's volume. A restart of the host detaches all loop devices, and the next number may belong
to another file. So each seat has a link to its device, and the volume names the link.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.errors import LabError
from lab.teach.classroom.names import USER

TYPE: Final = "ext4"
"""The type of the file system."""

_TOOLS: Final = {"mkfs.ext4": "e2fsprogs", "debugfs": "e2fsprogs", "losetup": "mount"}
"""Each program, and Debian's package of it."""


@dataclass(frozen=True, slots=True)
class SeatDisk:
    """The disk of one seat.

    Attributes:
        folder: The directory with the disks of the class.
        seat: The seat.
        size_bytes: The size of the file, part of which the file system itself takes.
    """

    folder: Path
    seat: str
    size_bytes: int

    @property
    def image(self) -> Path:
        """The file with the file system. If it exists, it is complete."""
        return self.folder / f"{self.seat}.{TYPE}"

    @property
    def device(self) -> Path:
        """The link to the loop device."""
        return self.folder / f"{self.seat}.device"

    def attach(self) -> None:
        """Attach the file as a loop device, unless it is attached, and link to the device.

        If the file is missing, it is created with an empty file system.

        Raises:
            LabError: The host has too little space, or the kernel or a tool refuses.
        """
        if not self.image.exists():
            self._create()
        doing, options = f"attaching the disk of {self.seat}", ("--nooverlap", "--find", "--show")
        device = _run(doing, "losetup", *options, str(self.image)).strip()
        new = self.folder / f"{self.seat}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(device)
        new.replace(self.device)

    def _create(self) -> None:
        doing = f"creating the disk of {self.seat}"
        part = self.folder / f"{self.seat}.part"
        # The empty file reads as zeros, so nothing must be zeroed or discarded. The kernel would
        # free the blocks that it zeroes later.
        options = f"root_owner={USER},nodiscard,lazy_itable_init=0,lazy_journal_init=1"
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with part.open("wb") as file:
                file.truncate(self.size_bytes)
                _run(doing, f"mkfs.{TYPE}", "-q", "-m", "0", "-E", options, str(part))
                _run(doing, "debugfs", "-w", "-R", "rmdir lost+found", str(part))
                # With holes, the seat would lose data when something else fills the host's disk.
                os.posix_fallocate(file.fileno(), 0, self.size_bytes)
            part.rename(self.image)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise LabError(
                f"{doing}: {self.folder}: {error.strerror}",
                "lower `disk:` in class.yaml, or set LAB_STATE to a directory on a larger disk",
            ) from error

    def remove(self) -> None:
        """Detach the loop device, and remove the file. No container may use the volume.

        Raises:
            LabError: The kernel refuses.
        """
        if self.image.exists():
            doing = f"detaching the disk of {self.seat}"
            options = ("--noheadings", "--output", "NAME", "--associated", str(self.image))
            for device in _run(doing, "losetup", *options).split():
                _run(doing, "losetup", "--detach", device)
        self.device.unlink(missing_ok=True)
        self.image.unlink(missing_ok=True)


def unavailable_reason() -> str:
    """Return why this host cannot limit the disks of seats; "" if it can."""
    if os.geteuid() != 0:
        return "only root can attach loop devices; run `lab` as root"
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=_path()) is None:
            return f"`{tool}` is missing; install {package}"
    try:
        _run("finding a loop device", "losetup", "--find")
    except LabError as error:
        return error.what
    return ""


def _run(doing: str, *command: str) -> str:
    """Run a command; return its output.

    Raises:
        LabError: It fails.
    """
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": _path(), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.strip() or f"{command[0]}: exit code {done.returncode}"
        raise LabError(f"{doing} failed: {reason}", "see the kernel's log with `dmesg`")
    return done.stdout


def _path() -> str:
    """Return PATH with the system's own directories, which a user's PATH may lack."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
