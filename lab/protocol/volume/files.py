"""Read untrusted files and their JSON safely, and write files atomically.

The image contains no library that checks types.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from io import BufferedReader
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from lab.base.files import atomic_writer
from lab.base.units import parse_whole

T = TypeVar("T")

MAX_BYTES: Final = 64 << 20
"""The maximum size of a JSON file of a run, in bytes."""


REFUSED_S: Final = 8.0
"""Seconds to wait for a volume that refuses reads or writes. This is shorter than the time after
which the other agents declare an agent without heartbeat lost."""


class Patience:
    """Measures a series of failures without a success between them.

    It is also a context for one try, which suppresses an `OSError` until the limit.
    """

    def __init__(self, limit_s: float, on_first: Callable[[Any], None] = lambda _: None) -> None:
        """Begin without a failure.

        Args:
            limit_s: Seconds that a series may last.
            on_first: Called with the first error of each series.
        """
        self._limit_s = limit_s
        self._on_first = on_first
        self._since: float | None = None
        self._progress: object = None

    def fail(self, error: Exception, progress: object = None) -> bool:
        """Count a failure; return whether the series has lasted for the limit.

        Args:
            error: The failure.
            progress: If this differs from the last failure's, a new series begins.
        """
        if self._since is None or progress != self._progress:
            self._since, self._progress = time.monotonic(), progress
            self._on_first(error)
            return self._limit_s <= 0  # a slow `on_first` does not end the series
        return self.is_over

    def succeed(self) -> None:
        """End the series."""
        self._since = None

    @property
    def is_over(self) -> bool:
        """Whether the failures have lasted for the limit."""
        return self._since is not None and time.monotonic() - self._since >= self._limit_s

    def __enter__(self) -> None:
        """Begin a try."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        """Count the try; return whether its error is suppressed."""
        if isinstance(error, OSError):
            return not self.fail(error)
        self.succeed()
        return False


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; do not follow a link or block on a pipe.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: The path is not a regular file.
        OSError: The file cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO}:  # a link, a socket
            raise
        raise ValueError("it is not a regular file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a regular file; see `open_regular`.

    Raises:
        FileNotFoundError: The file is missing.
        ValueError: The path is not a regular file, or is larger than the limit, or is not UTF-8.
        OSError: The file cannot be read.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return data.decode("utf-8")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in several calls if necessary.

    Raises:
        OSError: A write failed; a part of the bytes may be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def append_whole(descriptor: int, data: bytes, size: int) -> None:
    """Append all bytes to an open file, or nothing.

    Args:
        descriptor: The file, open for appending.
        data: The bytes to append.
        size: The file's size before; it is restored if a write fails.

    Raises:
        OSError: A write failed.
    """
    try:
        write_all(descriptor, data)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def write_atomically(path: Path, text: str, *, durable: bool = True, new: bool = False) -> None:
    """Write a text as `atomic_writer` does; create the directory if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path, durable=durable, new=new) as file:
        file.write(text.encode())


def is_read_only(folder: Path) -> bool:
    """Return whether the file system of a directory is read-only.

    The check changes the directory's time stamp. The flags of `statvfs` are not enough: on newer
    kernels (tested: Linux 6.18) ext4 does not set them after a disk fault.
    """
    try:
        os.utime(folder)
    except OSError as error:
        return error.errno == errno.EROFS
    return False


_hints = cache(get_type_hints)


def from_json(text: str, kind: type[T], name: str) -> T:
    """Decode a dataclass from the JSON of its `asdict`.

    Args:
        text: The JSON.
        kind: The dataclass; its fields may be dataclasses, enums, lists, tuples and mappings.
        name: The name of the object in messages.

    Raises:
        ValueError: The text is not JSON, a key is missing or unknown, or a type is wrong.
    """
    try:
        decoded: T = _decode(json.loads(text, parse_int=parse_whole), kind, name)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a {name}: {error}") from error
    return decoded


def _decode(raw: Any, kind: Any, name: str) -> Any:  # noqa: ANN401  (what JSON can hold)
    if type(raw) is kind or (kind is float and type(raw) is int):
        return raw
    container, parts = get_origin(kind), get_args(kind)
    if container is UnionType:
        (one,) = (part for part in parts if part is not NoneType)
        return None if raw is None else _decode(raw, one, name)
    if container in {list, tuple} and isinstance(raw, list):
        return container(_decode(item, parts[0], name) for item in raw)
    if container in {Mapping, dict} and isinstance(raw, dict):
        return {key: _decode(item, parts[1], name) for key, item in raw.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(raw, dict):
        hints = _hints(kind)
        if unknown := raw.keys() - hints.keys():
            raise ValueError(f"{name}: unknown key {min(unknown)!r}")
        required = (
            field.name
            for field in fields(kind)
            if field.default is MISSING is field.default_factory
        )
        if missing := [key for key in required if key not in raw]:
            raise ValueError(f"{name}: key {missing[0]!r} is missing")
        return kind(**{key: _decode(value, hints[key], key) for key, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    raise ValueError(f"{name}: a value has the wrong type")
