"""Small disks that can be filled, or made read-only by a fault of their file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.torture.place import Place

if TYPE_CHECKING:
    from docker import DockerClient

_BYTES: Final = 64 * 2**20
_IMAGE_BYTES: Final = 256 * 2**20
_USER_OF_IMAGE: Final = 1000


def small(place: Place) -> None:
    """Put the run's state directory on its own disk, which can be filled.

    Raises:
        OSError: It cannot be mounted.
    """
    _must("mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "lab-torture", str(place.state))


@contextmanager
def faulty(place: Place, client: DockerClient | None) -> Iterator[Path]:
    """Put the run volume on an ext4 file system that becomes read-only at its first fault.

    Yields:
        The file that reports a fault to the kernel when it is written.

    Raises:
        OSError: It cannot be made or mounted.
    """
    image = place.folder / "disk"
    image.touch()
    os.truncate(image, _IMAGE_BYTES)
    owner = os.geteuid() if client is None else _USER_OF_IMAGE
    _must("mkfs.ext4", "-q", "-E", f"root_owner={owner}:{owner}", str(image))
    device = _must("losetup", "--find", "--show", str(image)).strip()
    try:
        if client is None:
            _must("mount", "-o", "errors=remount-ro", device, str(place.state))
            (place.state / "lost+found").rmdir()
        else:
            _volume(place.case.project, client, device)
        yield Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    finally:
        # Processes that have it mounted release it later.
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def _volume(project: str, client: DockerClient, device: str) -> None:
    """The volume that compose would make, before it does."""
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
