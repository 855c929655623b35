"""The digest of a task's records, by which a change from outside is noticed."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.volume.files import open_regular
from lab.volume.status import TaskStatus

if TYPE_CHECKING:
    from hashlib import _Hash

_PIECE: Final = 1 << 20


def digest_of(path: Path, beat: Callable[[], None] = lambda: None) -> _Hash:
    """The SHA-256 of a file, which appends can continue; of no bytes without a regular file.

    Args:
        path: The file.
        beat: Called after each piece of a mebibyte: a long file takes many seconds.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with contextlib.suppress(FileNotFoundError, ValueError), open_regular(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            beat()
    return digest


def altered(records: Mapping[str, Path], statuses: Mapping[str, TaskStatus]) -> str:
    """Why a run fails whose records differ from those that its agents wrote; "" if none differ.

    Args:
        records: The file of each task to check.
        statuses: The final status of each of these tasks.

    Raises:
        OSError: A file cannot be read.
    """
    for task, path in records.items():
        written = statuses[task].records_sha256
        if written and digest_of(path).hexdigest() != written:
            return f"another process changed or removed the records of {task}"
    return ""
