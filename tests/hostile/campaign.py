"""The kinds of attacks, and many inputs of one kind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.hostile import archives, arguments, configs, runs

KINDS: Final[dict[str, tuple[Callable[[int, Path], Iterator[str]], int]]] = {
    "configs": (configs.attack, 100_000),
    "arguments": (arguments.attack, 10_000),
    "runs": (runs.attack, 2_000),
    "records": (runs.attack_records, 500),
    "archives": (archives.attack, 2_000),
}
"""Kind to its attack, and the number of its inputs."""


def attack(kind: str, seeds: range) -> list[str]:
    """The faults of these inputs."""
    with tempfile.TemporaryDirectory(prefix="lab-hostile-") as name, contextlib.chdir(name):
        os.environ["LAB_STATE"] = f"{name}/state"
        return [
            f"{kind}, seed {seed}: {fault}"
            for seed in seeds
            for fault in KINDS[kind][0](seed, Path(name))
        ]
