"""What the trainings of a test left: how many they are, and lines that none may print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

FILES = frozenset({"run.json", "worker-0.out"})
"""A run's file in the run store, and the output that `Cluster` of `cluster.py` writes."""

FORBIDDEN = b"request ids may repeat"
"""A task prints this line where lab cannot keep TensorFlow from refusing its steps."""

_SEEN = pytest.StashKey[set[Path]]()
_READ = pytest.StashKey[dict[Path, int]]()


def add_trainings(item: pytest.Item) -> None:
    """Add the number of new trainings below pytest's temporary directory to a test's properties."""
    seen = item.config.stash.setdefault(_SEEN, set())
    new = {path for path in _files(item) if path.name in FILES} - seen
    item.user_properties.append(("trainings", str(len(new))))
    seen |= new


def check_outputs(item: pytest.Item) -> None:
    """Fail if the output of a task that has grown since the last test has the forbidden line."""
    read = item.config.stash.setdefault(_READ, {})
    for path in _files(item):
        if path.suffix in {".log", ".err"}:
            with suppress(FileNotFoundError):  # an environment is being removed
                before, read[path] = read.get(path), path.stat().st_size
                assert read[path] == before or FORBIDDEN not in path.read_bytes(), path


def _files(item: pytest.Item) -> Iterator[Path]:
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    for folder, _, names in os.walk(base):
        yield from (Path(folder, name) for name in names)
