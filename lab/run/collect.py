"""The collector: pieces of a run volume → `runs/<id>/`, by byte offset.

What is at home is the only memory: the sizes of the files there say from where to go on. So a
collector may die between any two writes, and the next one brings every byte once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends import Chunk
from lab.errors import LabError
from lab.task import frames

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
    }
)
"""What is written at home; a run may not overwrite it with a file of its own."""

REPLACED: Final = "status"
"""The directory whose files are compared by content, not by size."""


@dataclass(slots=True)
class Collector:
    """Writes the pieces of one run.

    Attributes:
        root: The run's directory at home.
        on_append: Receives path and new bytes of each file that grew.
        on_replace: Receives path and bytes of each file that came whole.
        refused: Paths that a run sent and that do not belong into its directory.
    """

    root: Path
    on_append: Callable[[str, bytes], None] = lambda _path, _data: None
    on_replace: Callable[[str, bytes], None] = lambda _path, _data: None
    refused: list[str] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)
    _folders: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._sizes.update(sizes_at_home(self.root))

    def offsets(self) -> Mapping[str, int]:
        """Path → bytes that are at home."""
        return dict(self._sizes)

    def accept(self, chunk: Chunk) -> None:
        """Write one piece.

        Raises:
            LabError: Bytes are missing before it, or the disk is full.
            OSError: The file cannot be written.
        """
        if not is_safe(chunk.path):
            if chunk.path not in self.refused:
                self.refused.append(chunk.path)
            return
        if chunk.offset is None:
            self._replace(chunk.path, chunk.data)
        else:
            self._append(chunk.path, chunk.offset, chunk.data)

    def _replace(self, path: str, data: bytes) -> None:
        target = self._prepare(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            temporary.write_bytes(data)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
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
        with os.fdopen(os.open(target, flags, 0o644), "ab") as file:
            file.write(fresh)
        self._sizes[path] = size + len(fresh)
        self.on_append(path, fresh)

    def _prepare(self, path: str) -> Path:
        target = self.root / path
        if target.parent in self._folders:
            return target
        if not target.parent.resolve().is_relative_to(self.root.resolve()):
            raise LabError(f"{target.parent} leads out of {self.root}", "remove that link")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._folders.add(target.parent)
        return target


def is_safe(path: str) -> bool:
    """Whether a path that a run sent stays in its directory and overwrites nothing of ours."""
    parts = PurePosixPath(path).parts
    if not frames.is_safe(path) or any(part.startswith(".") for part in parts):
        return False
    return parts[0] not in RESERVED


def sizes_at_home(root: Path) -> dict[str, int]:
    """Path → size of every file of the run that is at home."""
    found = {}
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        parts = PurePosixPath(path).parts
        if parts[0] != REPLACED and is_safe(path) and file.is_file() and not file.is_symlink():
            found[path] = file.stat().st_size
    return found
