"""The collector: pieces of a run volume → `runs/<id>/`, by byte offset.

What is at home is the only memory: the sizes of the files there say from where to go on. So a
collector may die between any two writes, and the next one brings every byte once.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends import Chunk
from lab.errors import LabError
from lab.run.directory import Left
from lab.task import frames
from lab.task.files import replacing
from lab.task.protocol import TASK

RESERVED: Final = frozenset(
    {
        "run.json",
        "summary.json",
        "summary.csv",
        "gpu.jsonl",
        "report.html",
        "figures",
        "docker-compose.yml",
        "processes.json",
        "containers.json",
        "original",
    }
)
"""What is written at home; a run may not overwrite it with a file of its own."""

REPLACED: Final = "status"
"""The directory whose files are compared by content, not by size."""

_FAULTS_OF_THE_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


@dataclass(slots=True)
class Collector:
    """Writes the pieces of one run.

    Attributes:
        root: The run's directory at home.
        on_append: Receives path and new bytes of each file that grew.
        on_replace: Receives path and bytes of each file that came whole.
        left: Path to each file that could not be collected.
    """

    root: Path
    on_append: Callable[[str, bytes], None] = lambda _path, _data: None
    on_replace: Callable[[str, bytes], None] = lambda _path, _data: None
    left: dict[str, Left] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _folders: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._sizes.update(sizes_at_home(self.root))

    def offsets(self) -> Mapping[str, int]:
        """Path → bytes that are at home."""
        return dict(self._sizes)

    def accept(self, chunk: Chunk) -> None:
        """Write one piece; what is wrong with one file alone is kept in `left`.

        Raises:
            LabError: Bytes are missing before it.
            OSError: The disk is full, or fails.
        """
        path = chunk.path
        if path in self.left:
            return
        if chunk.fault:
            self.left[path] = Left(path, chunk.fault, chunk.kept)
            return
        if not is_safe(path):
            self.left[path] = Left(path, "the name belongs to lab", kept=True)
            return
        try:
            if chunk.offset is None:
                self._replace(path, chunk.data)
            else:
                self._append(path, chunk.offset, chunk.data)
        except OSError as error:
            if error.errno in _FAULTS_OF_THE_DISK:
                raise
            reason = (error.strerror or str(error)).lower()
            self.left[path] = Left(path, f"it cannot be written: {reason}", kept=True)

    def _replace(self, path: str, data: bytes) -> None:
        target = self._prepare(path)
        with replacing(target, durable=False) as file:
            file.write(data)
        if PurePosixPath(path).parts[0] != REPLACED:
            self._sizes[path] = len(data)
        self.on_replace(path, data)

    def _append(self, path: str, offset: int, data: bytes) -> None:
        size = self._sizes.get(path, 0)
        if offset > size:
            raise LabError(
                f"{path} of run {self.root.name}: bytes {size} to {offset} did not come",
                f"run `lab collect {self.root.name}`",
            )
        fresh = data[size - offset :]
        if not fresh and path in self._sizes:
            return
        target = self._prepare(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags | os.O_NONBLOCK, 0o644), "ab") as file:
            file.write(fresh)
        self._sizes[path] = size + len(fresh)
        self.on_append(path, fresh)

    def _prepare(self, path: str) -> Path:
        target = self.root / path
        if target.parent in self._folders:
            return target
        if not target.parent.resolve().is_relative_to(self.root.resolve()):
            raise OSError(errno.ELOOP, f"{target.parent} is a link that leads out of {self.root}")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._folders.add(target.parent)
        return target


def is_safe(path: str) -> bool:
    """Whether a path that a run sent stays in its directory and overwrites nothing of ours."""
    first = PurePosixPath(path).parts[:1]
    return frames.is_safe(path) and not first[0].startswith(".") and first[0] not in RESERVED


def task_of(path: str, directory: str, suffix: str) -> str | None:
    """The task whose file a path is: of `tasks/ps-0.jsonl`, `tasks` and `.jsonl` it is `ps-0`."""
    parts = PurePosixPath(path).parts
    if len(parts) == 2 and parts[0] == directory and parts[1].endswith(suffix):  # noqa: PLR2004
        name = parts[1].removesuffix(suffix)
        return name if TASK.fullmatch(name) else None
    return None


def sizes_at_home(root: Path) -> dict[str, int]:
    """Path → size of every file of the run that is at home."""
    found = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name != REPLACED]
        for name in names:
            file = Path(folder, name)
            path = file.relative_to(root).as_posix()
            with suppress(OSError):
                kind = file.lstat()
                if is_safe(path) and stat.S_ISREG(kind.st_mode):
                    found[path] = kind.st_size
    return found
