"""The archive of the students' work.

A home directory may hold anything: its names, links and types come from the student. The archive
gets only regular files, under paths that stay inside the seat's own directory.
"""

from __future__ import annotations

import shutil
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from lab.base.errors import InputError
from lab.base.text import visible

_SKIPPED: Final = frozenset({"data", ".cache", ".npm"})
"""What is not the student's work: the data set, and caches."""
MAX_BYTES: Final = 16 << 30
"""The maximum bytes of a seat in the archive; a sparse file can be larger than any disk."""
MAX_READ_BYTES: Final = 64 << 30
"""The maximum bytes of a seat that are read, including those that are left out."""
MAX_ENTRIES: Final = 1_000_000
"""The maximum number of files and directories of a seat that are read."""
_MAX_NAME: Final = 4096  # characters, as Linux has for a path
# The times that the zip format knows.
_EARLIEST: Final = time.mktime((1980, 1, 2, 0, 0, 0, 0, 0, 0))
_LATEST: Final = time.mktime((2107, 12, 30, 0, 0, 0, 0, 0, 0))


@contextmanager
def new_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Write a new archive; if the block raises, remove it.

    Raises:
        InputError: The file exists.
    """
    try:
        path.touch(0o600, exist_ok=False)  # it has the work of all students
    except FileExistsError as error:
        raise InputError(f"{path} exists already", "choose another file") from error
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            yield archive
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def add_files(stream: tarfile.TarFile, archive: zipfile.ZipFile, folder: str) -> int:
    """Add the regular files of a home directory to an archive.

    Args:
        stream: The home directory, as the engine sends it: `student/notebooks/01_hello.ipynb`.
        archive: The archive.
        folder: The directory in the archive.

    Returns:
        The number of other entries, which were left out. After `MAX_READ_BYTES` or `MAX_ENTRIES`
        the rest counts as one.
    """
    left_out = kept = read = 0
    used = set(archive.namelist())
    for count, member in enumerate(stream):
        stream.members = []  # type: ignore[attr-defined]  # it would keep all of them
        read += member.size
        if read > MAX_READ_BYTES or count >= MAX_ENTRIES:
            return left_out + 1
        path = PurePosixPath(member.name).parts[1:]  # without the name of the mounted directory
        if member.isdir() or not path or path[0] in _SKIPPED:
            continue
        if kept + member.size > MAX_BYTES:
            left_out += 1
            continue
        kept += member.size
        # No name may have characters that other systems or terminals interpret.
        name = "/".join((folder, *(visible(part).replace("\\", "_") for part in path)))
        is_allowed = ".." not in path and name not in used and len(name) <= _MAX_NAME
        content = stream.extractfile(member) if is_allowed and member.isreg() else None
        if content is None:
            left_out += 1
            continue
        used.add(name)
        in_zip = min(_LATEST, max(_EARLIEST, member.mtime))  # it may also be NaN
        entry = zipfile.ZipInfo(name, time.localtime(in_zip)[:6])
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        is_large = member.size >= zipfile.ZIP64_LIMIT
        with content, archive.open(entry, "w", force_zip64=is_large) as target:
            shutil.copyfileobj(content, target)
    return left_out
