"""Disks that are full, or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.conditions import lacking


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of one megabyte, mounted on a new folder."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        yield folder


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder's disk read-only; open files can still be written."""
    with _mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


def fill(disk: Path) -> Path:
    """Fill a disk; the file that takes all of its space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        lacking("only root may mount a disk")
    command = ["mount", *arguments, str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        lacking("no disk can be mounted here")
    try:
        yield
    finally:
        # Lazily: after a failed test, a process may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
