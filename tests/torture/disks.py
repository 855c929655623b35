"""Small disks that can be filled, or made read-only by a fault of their file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.torture.case import COMPOSE
from tests.torture.place import Place

if TYPE_CHECKING:
    from docker import DockerClient

_BYTES: Final = 64 * 2**20
_IMAGE_BYTES: Final = 256 * 2**20
_USER_OF_IMAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class FaultyDisk:
    """An ext4 file system that becomes read-only at its first fault, as is usual.

    Attributes:
        device: `/dev/loop3`.
    """

    device: str

    def fail(self) -> None:
        """Report a fault to the kernel, which makes the file system read-only."""
        name = Path(self.device).name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("harness\n")


def small(place: Place) -> None:
    """Put the run's state directory on its own disk, which can be filled.

    Raises:
        OSError: It cannot be mounted.
    """
    _must("mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "lab-torture", str(place.state))


@contextmanager
def faulty(place: Place, client: DockerClient | None) -> Iterator[FaultyDisk]:
    """Put the run volume on a disk that can be made read-only.

    Raises:
        OSError: It cannot be made or mounted.
    """
    image = place.folder / "disk"
    image.touch()
    os.truncate(image, _IMAGE_BYTES)
    owner = _USER_OF_IMAGE if place.case.backend == COMPOSE else os.geteuid()
    _must("mkfs.ext4", "-q", "-E", f"root_owner={owner}:{owner}", str(image))
    device = _must("losetup", "--find", "--show", str(image)).strip()
    try:
        if client is None:
            _must("mount", "-o", "errors=remount-ro", device, str(place.state))
            (place.state / "lost+found").rmdir()
        else:
            _volume(place, client, device)
        yield FaultyDisk(device)
    finally:
        # Processes that have it mounted release it later.
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def _volume(place: Place, client: DockerClient, device: str) -> None:
    """The volume that compose would make, before it does."""
    project = place.case.project
    client.volumes.create(
        f"{project}_runs",
        driver="local",
        driver_opts={"type": "ext4", "device": device, "o": "errors=remount-ro"},
        labels={
            "com.docker.compose.project": project,
            "com.docker.compose.volume": "runs",
            "lab.project": project,
        },
    )


def _must(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
