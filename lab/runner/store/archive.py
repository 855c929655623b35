"""A run as one file: a compressed tar archive that another run store can import.

An archive may come from a stranger. So `unpack` creates only files whose names are known here,
takes nothing from the archive except their bytes, and stops at the limits below.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import stat
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Final, cast

from lab.base.errors import LabError
from lab.base.text import visible
from lab.protocol.volume.files import open_regular
from lab.protocol.volume.framing import is_safe
from lab.protocol.volume.layout import RUN_ID, TASK
from lab.runner.store.directory import LAST, RunDir, RunStatus
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import read_summary

SUFFIX: Final = ".lab.tar.gz"

MAX_FILES: Final = 20_000
"""The maximum number of files and directories in an archive."""

MAX_BYTES: Final = 4 << 30
"""The maximum size of all files in an archive."""

_MAX_READ: Final = 1 << 16
"""The maximum number of bytes that tarfile may read at once: a header with a long name."""

_FILES: Final = re.compile(
    rf"run\.json|summary\.(json|csv)|gpu\.jsonl"
    rf"|(tasks/{TASK.pattern}\.jsonl)|(logs/{TASK.pattern}\.log)|(status/{TASK.pattern}\.json)"
)
_FOLDERS: Final = ("program", "original")
_LARGE_FOLDERS: Final = ("checkpoints", "model", "files")
"""The directories that only a complete archive contains."""

Sizes = Mapping[str, int]
"""Path relative to the run's directory to its size in bytes."""


def contents(run: RunDir, *, complete: bool) -> tuple[Sizes, list[str]]:
    """Return the files of a run that its archive contains, in order of their names.

    Args:
        run: The run.
        complete: Whether to include checkpoints, the model and the files of the programs.

    Returns:
        The files, and those that an archive cannot contain, such as links.
    """
    sizes: dict[str, int] = {}
    skipped = []
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if not _is_known(name, complete=complete) or (path.is_dir() and not path.is_symlink()):
            continue
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            sizes[name] = status.st_size
        else:
            skipped.append(name)
    return sizes, skipped


def pack(run: RunDir, names: Sequence[str], output: BinaryIO) -> None:
    """Write files of a run as an archive.

    Raises:
        OSError: A file cannot be read, or the archive cannot be written.
        ValueError: A file is no regular file any more.
    """
    # The same run gives the same bytes: there is no date, and no owner.
    with (
        gzip.GzipFile(f"{run.run_id}.tar", "wb", fileobj=output, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name in names:
            with open_regular(run.path / name) as source:
                member = tarfile.TarInfo(f"{run.run_id}/{name}")
                member.size = os.fstat(source.fileno()).st_size
                archive.addfile(member, source)


def is_archive_of(run: RunDir, begin: bytes) -> bool:
    """Return whether a file that begins with these bytes is an archive of this run."""
    return begin.startswith(b"\x1f\x8b") and begin[10:].startswith(f"{run.run_id}.tar\0".encode())


def unpack(file: Path, folder: Path) -> RunDir:
    """Write the run in an archive into an empty directory, and check it.

    The run is marked as imported: no command treats it as a run of this host.

    Args:
        file: The archive.
        folder: The directory; the run's directory is created in it.

    Returns:
        The run's directory.

    Raises:
        LabError: The file is not an archive of a run, is damaged, or exceeds a limit.
        OSError: A file cannot be written.
    """
    try:
        with (
            open_regular(file.resolve()) as opened,
            _Guarded(fileobj=opened) as source,
            tarfile.open(fileobj=source, mode="r:") as archive,
        ):
            run_id, members = _checked(archive)
            _check_end(source)
            run = RunDir(folder / run_id)
            for name, member in members.items():
                _extract(archive, member, run.path / name)
        return _marked(run)
    except FileNotFoundError as error:
        if not file.exists():
            raise LabError(f"there is no file {file}", "check its path") from error
        raise
    except (
        *(ValueError, RuntimeError, OverflowError, EOFError),
        *(tarfile.TarError, gzip.BadGzipFile, zlib.error),
    ) as error:
        fix = "ask for the file again; `lab export RUN` writes it"
        raise LabError(f"{file} is not a valid archive of a run: {error}", fix) from error


def same_content(run: RunDir, other: RunDir) -> bool:
    """Return whether another run has each file of a run, with the same content, not as a link."""
    try:
        if _as_imported(run.read()) != _as_imported(other.read()):
            return False
        names = contents(run, complete=True)[0].keys() - {run.info_path.name}
        return all(_digest(run.path / name) == _digest(other.path / name) for name in names)
    except (LabError, OSError, ValueError):
        return False


def _digest(path: Path) -> bytes:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


class _Guarded(gzip.GzipFile):
    """A file for tarfile that refuses to read a large piece into memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _MAX_READ:
            raise ValueError("a name in it is too long")
        return super().read(size)


def _checked(archive: tarfile.TarFile) -> tuple[str, dict[str, tarfile.TarInfo]]:
    """Check all members; return the run's id, and the members by their name in the run.

    Raises:
        ValueError: A member is not allowed.
    """
    members: dict[str, tarfile.TarInfo] = {}
    folders: set[PurePosixPath] = set()
    ids: set[str] = set()
    size = 0
    for member in archive:
        run_id, _, name = member.name.partition("/")
        if not _is_known(name, complete=True):
            raise ValueError(f"{member.name!r} is not a file of a run")
        if not member.isreg() or member.issparse():
            raise ValueError(f"{member.name!r} is not a regular file")
        if name in members:
            raise ValueError(f"{member.name!r} is in it twice")
        members[name] = member
        folders.update(PurePosixPath(name).parents)
        ids.add(run_id)
        size += member.size
        if member.size < 0 or size > MAX_BYTES:
            raise ValueError(f"its files have more than {MAX_BYTES:,} bytes")
        if len(members) + len(folders) > MAX_FILES:
            raise ValueError(f"it has more than {MAX_FILES:,} files and directories")
    if len(ids) != 1 or not RUN_ID.fullmatch(run_id := ids.pop()) or run_id == LAST:
        raise ValueError("it does not contain exactly one run")
    if clash := folders & set(map(PurePosixPath, members)):
        raise ValueError(f"{str(clash.pop())!r} is a file and a directory")
    if "run.json" not in members:
        raise ValueError("run.json is missing")
    return run_id, members


def _check_end(source: gzip.GzipFile) -> None:
    """Read up to the checksum at the end; tarfile stops at a damaged header without an error.

    Raises:
        ValueError: There is more than the zeros that fill the last record.
    """
    if any(source.read(tarfile.RECORDSIZE)) or source.read(1):
        raise ValueError("a header in it is damaged")


def _is_known(name: str, *, complete: bool) -> bool:
    """Whether a path, relative to the run's directory, belongs to an archive."""
    if _FILES.fullmatch(name):
        return True
    top, *parts = name.split("/")
    folders = (*_FOLDERS, *_LARGE_FOLDERS) if complete else _FOLDERS
    return top in folders and bool(parts) and is_safe(name) and visible(name) == name


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write one member, without its rights, owner and date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = cast("IO[bytes]", archive.extractfile(member))  # it is a regular file
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)


def _marked(run: RunDir) -> RunDir:
    """Check the files of a run, and mark it as imported.

    Raises:
        ValueError: A file cannot be read, or the run has not ended.
    """
    try:
        info = RunStatus.recorded(run).info
        read_summary(run.summary_path)
    except LabError as error:
        raise ValueError(error.what.replace(f"{run.path}/", "")) from error
    if info.run_id != run.run_id:
        raise ValueError(f"run.json belongs to another run, {info.run_id!r}")
    if not info.state.ended:
        raise ValueError("the run has not ended")
    run.write(_as_imported(info))
    return run


def _as_imported(info: RunInfo) -> RunInfo:
    """Return `run.json` of a run that belongs to no environment of this host."""
    left = tuple(replace(file, kept=False) for file in info.left)
    return replace(info, imported=True, collected=True, left=left)
