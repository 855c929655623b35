"""What a run is to have from its beginning, carried onto the run volume of containers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from lab.backends.compose.engine import Engine, answering
from lab.backends.compose.names import RUNS_MOUNT
from lab.errors import LabError
from lab.task.protocol import Volume

_USER = 1000
"""Whom the tasks run as: they read the files, and move them to the run."""


def deliver(engine: Engine, container_id: str, run_id: str, parts: Mapping[str, Path]) -> None:
    """Copy directories into `incoming/<run_id>/`, through a container that has the volume.

    Args:
        engine: The engine.
        container_id: A container of it that has the volume.
        run_id: The run that is to have them.
        parts: Name in the run's directory to directory here.

    Raises:
        LabError: The engine refuses.
    """
    inside = Volume(Path(RUNS_MOUNT)).incoming(run_id).relative_to(RUNS_MOUNT)
    for name, folder in parts.items():
        archive = _archive(folder, PurePosixPath(inside / name))
        with answering(f"carrying the {name} into the containers"):
            done = engine.client().api.put_archive(container_id, RUNS_MOUNT, archive)
        if not done:
            raise LabError(f"the engine did not take {folder}", "see `lab ps`, then try again")


def _archive(source: Path, inside: PurePosixPath) -> bytes:
    """A tar file in which all belongs to the tasks' user, whoever calls."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in (*reversed(inside.parents[:-1]), inside):
            archive.addfile(_entry(str(folder), tarfile.DIRTYPE, 0o755))
        for path in sorted(source.rglob("*")):
            name = str(inside / path.relative_to(source))
            if path.is_dir():
                archive.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
            else:
                data = path.read_bytes()
                entry = _entry(name, tarfile.REGTYPE, 0o644)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    entry.uid = entry.gid = _USER
    return entry
