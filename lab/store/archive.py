"""A run as one file: a zip archive that another run store can import.

An archive may come from a stranger. So `unpack` creates only files whose names are known here,
takes nothing from the archive except their bytes, and stops at the limits below.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from lab.errors import LabError
from lab.store.directory import LAST, RunDir, RunStatus
from lab.store.run_info import RunInfo
from lab.store.summary import read_summary
from lab.text import short, visible
from lab.volume import RUN_ID, TASK
from lab.volume.files import open_regular

SUFFIX: Final = ".lab.zip"

MAX_FILES: Final = 20_000
"""The maximum number of files in an archive."""

MAX_FILE_BYTES: Final = 1 << 30
"""The maximum size of a file in an archive."""

MAX_BYTES: Final = 4 << 30
"""The maximum size of all files in an archive."""

MAX_RATIO: Final = 200
"""The maximum ratio of a file's size to its compressed size, above `_SMALL_BYTES`."""

_SMALL_BYTES: Final = 16 << 20
_MAX_READ: Final = 16 << 20
"""The maximum number of bytes that zipfile may read at once: the list of all files."""

_MAX_DEPTH: Final = 32
_MAX_NAME_BYTES: Final = 255
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: the same run gives the same bytes."""

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
    found: dict[str, int] = {}
    skipped = []
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if not _is_known(name, complete=complete) or (path.is_dir() and not path.is_symlink()):
            continue
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES:
            found[name] = status.st_size
        else:
            skipped.append(name)
    return found, skipped


def pack(run: RunDir, names: Sequence[str], output: BinaryIO) -> None:
    """Write files of a run as an archive.

    Raises:
        OSError: A file cannot be read, or the archive cannot be written.
        ValueError: A file is no regular file any more.
    """
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            member = zipfile.ZipInfo(f"{run.run_id}/{name}", _DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            with open_regular(run.path / name) as source, archive.open(member, "w") as target:
                shutil.copyfileobj(source, target)


def archived_run(begin: bytes) -> str | None:
    """Return the id of the run in an archive with this beginning; None if it is not an archive."""
    found = re.match(rb"PK\x03\x04.{26}([a-z0-9-]{1,81})/", begin, re.DOTALL)
    return found[1].decode() if found else None


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
    shown = short(str(file))
    try:
        with (
            open_regular(file.resolve()) as opened,
            _Guarded(FileIO(opened.fileno(), closefd=False)) as source,
            zipfile.ZipFile(source) as archive,
        ):
            run_id, members = _checked(archive.infolist())
            run = RunDir(folder / run_id)
            for name, member in members.items():
                _extract(archive, member, run.path / name)
        return _marked(run)
    except FileNotFoundError as error:
        if not file.exists():
            raise LabError(f"there is no file {shown}", "check its path") from error
        raise
    except (
        ValueError,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        fix = "ask for the file again; `lab export RUN` writes it"
        raise LabError(f"{shown} is not a valid archive of a run: {error}", fix) from error


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


class _Guarded(BufferedReader):
    """A file for zipfile that refuses to read a large piece into memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_READ:
            raise ValueError("its list of files is too long")
        return super().read(size)


def _checked(members: Sequence[zipfile.ZipInfo]) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """Check all members; return the run's id, and the members by their name in the run.

    Raises:
        ValueError: A member is not allowed.
    """
    if len(members) > MAX_FILES:
        raise ValueError(f"it has more than {MAX_FILES:,} files")
    if sum(each.file_size for each in members) > MAX_BYTES:
        raise ValueError(f"its files have more than {MAX_BYTES:,} bytes")
    found: dict[str, zipfile.ZipInfo] = {}
    ids = set()
    for member in members:
        run_id, _, name = member.orig_filename.partition("/")
        shown = short(member.orig_filename)
        ids.add(run_id)
        if not _is_known(name, complete=True):
            raise ValueError(f"{shown!r} is not a file of a run")
        _check_member(member, shown)
        if name in found:
            raise ValueError(f"{shown!r} is in it twice")
        found[name] = member
    if len(ids) != 1 or not RUN_ID.fullmatch(run_id := ids.pop()) or run_id == LAST:
        raise ValueError("it does not contain exactly one run")
    if "run.json" not in found:
        raise ValueError("run.json is missing")
    check_collisions(found)
    return run_id, found


def _check_member(member: zipfile.ZipInfo, shown: str) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in {0, stat.S_IFREG} or member.is_dir():
        raise ValueError(f"{shown!r} is not a regular file")
    if member.flag_bits & 1:
        raise ValueError(f"{shown!r} is encrypted")
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError(f"{shown!r} has an unknown compression")
    if member.file_size > MAX_FILE_BYTES:
        raise ValueError(f"{shown!r} has more than {MAX_FILE_BYTES:,} bytes")
    if member.file_size > max(_SMALL_BYTES, MAX_RATIO * member.compress_size):
        raise ValueError(f"{shown!r} is compressed more than {MAX_RATIO} times")


def check_collisions(names: Mapping[str, object]) -> None:
    """Check that no name is also a directory, and that no two names differ only by their case.

    Raises:
        ValueError: Two names do.
    """
    folded: dict[str, str] = {}
    for name in names:
        path = PurePosixPath(name)
        for each in (path, *path.parents[:-1]):
            text = str(each)
            key = unicodedata.normalize("NFKC", text).casefold()
            if folded.setdefault(key, text) != text:
                raise ValueError(f"two names differ only by their case: {short(name)!r}")
        if any(str(parent) in names for parent in path.parents):
            raise ValueError(f"{short(str(path.parent))!r} is a file and a directory")


def _is_known(name: str, *, complete: bool) -> bool:
    """Whether a path, relative to the run's directory, belongs to an archive."""
    if _FILES.fullmatch(name):
        return True
    top, *parts = name.split("/")
    folders = (*_FOLDERS, *_LARGE_FOLDERS) if complete else _FOLDERS
    return top in folders and 0 < len(parts) <= _MAX_DEPTH and all(map(is_safe, parts))


def is_safe(part: str) -> bool:
    """Whether a part of a path in an archive is a plain name on every file system."""
    return (
        part not in {"", ".", ".."}
        and "\\" not in part
        and visible(part) == part
        and len(part.encode(errors="replace")) <= _MAX_NAME_BYTES
    )


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    """Write one member; zipfile checks its checksum, and reads at most its stated size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target)
        if target.tell() != member.file_size:
            raise ValueError(f"{short(member.orig_filename)!r} is cut off")


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
        raise ValueError(f"run.json is of another run, {short(info.run_id)!r}")
    if not info.state.ended:
        raise ValueError("the run has not ended")
    run.write(_as_imported(info))
    return run


def _as_imported(info: RunInfo) -> RunInfo:
    """Return `run.json` of a run that belongs to no environment of this host."""
    left = tuple(replace(each, kept=False) for each in info.left)
    return replace(info, imported=True, collected=True, left=left)
