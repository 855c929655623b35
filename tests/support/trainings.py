"""How many trainings a test has started: by `lab run`, or as processes of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILES = frozenset({"run.json", "worker-0.out"})
"""A run's file in the run store, and the output that `Cluster` of `cluster.py` writes."""

_SEEN = pytest.StashKey[set[Path]]()


def add_trainings(item: pytest.Item) -> None:
    """Add the number of new trainings below pytest's temporary directory to a test's properties."""
    seen = item.config.stash.setdefault(_SEEN, set())
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    found = {
        Path(folder, name)
        for folder, _, names in os.walk(base)
        for name in FILES.intersection(names)
    }
    item.user_properties.append(("trainings", str(len(found - seen))))
    seen |= found
