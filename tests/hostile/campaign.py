"""Many inputs of one kind, in several processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.progress import track

from tests.hostile import archives, arguments, configs, records, runs
from tests.hostile.calls import Fault

Attack = Callable[[int, Path], Iterator[Fault]]

KINDS: Final[dict[str, tuple[Attack, int]]] = {
    "configs": (configs.attack, 100_000),
    "arguments": (arguments.attack, 10_000),
    "runs": (runs.attack, 2_000),
    "records": (records.attack, 500),
    "archives": (archives.attack, 2_000),
}
"""Kind to its attack, and the number of its inputs."""

_SHARE: Final = 50  # inputs that one process takes at a time


def shares(kind: str, first: int, inputs: int) -> Iterator[list[Fault]]:
    """The faults of each share of the inputs, in the order of their seeds."""
    starts = range(first, first + inputs, _SHARE)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        jobs = [
            pool.submit(_share, kind, start, min(_SHARE, first + inputs - start))
            for start in starts
        ]
        for job in track(jobs, kind):
            yield job.result()


def _share(kind: str, first: int, inputs: int) -> list[Fault]:
    attack, _ = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="lab-hostile-") as name, contextlib.chdir(name):
        folder = Path(name)
        os.environ["LAB_STATE"] = str(folder / "state")
        if kind == "arguments":
            arguments.prepare(folder)
        return [
            Fault(fault.column, f"seed {seed}: {fault.words}")
            for seed in range(first, first + inputs)
            for fault in attack(seed, folder)
        ]
