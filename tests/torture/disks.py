"""Small disks that can be filled, or made read-only by a fault of their file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.torture.place import Place

_BYTES: Final = 64 * 2**20
_IMAGE_BYTES: Final = 256 * 2**20


def small(place: Place) -> None:
    """Put the run's state directory on its own disk, which can be filled.

    Raises:
        OSError: It cannot be mounted.
    """
    _must("mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "lab-torture", str(place.state))


@contextmanager
def faulty(place: Place) -> Iterator[Path]:
    """Put the run volume on an ext4 file system that becomes read-only at its first fault.

    Yields:
        The file that reports a fault to the kernel when it is written.

    Raises:
        OSError: It cannot be made or mounted.
    """
    image = place.folder / "disk"
    image.touch()
    os.truncate(image, _IMAGE_BYTES)
    _must("mkfs.ext4", "-q", str(image))
    device = _must("losetup", "--find", "--show", str(image)).strip()
    try:
        _must("mount", "-o", "errors=remount-ro", device, str(place.state))
        (place.state / "lost+found").rmdir()
        yield Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    finally:
        # Processes that have it mounted release it later.
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def _must(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
