"""A running environment for measurements."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Final

from benchmarks import engine
from benchmarks.trainings import CLUSTER, Workplace, must

_SETTLES_S: Final = 5.0
"""After this time a new environment has finished its own background work."""


@contextlib.contextmanager
def environment(place: Workplace, backend: str, *, wanted: bool = True) -> Iterator[str]:
    """Boot the benchmarks' environment for the block; with compose also provide an engine.

    Args:
        place: The directory and the environment variables.
        backend: The backend.
        wanted: Whether to boot an environment.

    Yields:
        The reason why there is none; "" if all is ready.
    """
    lab = [sys.executable, "-m", "lab"]
    where = ["--backend", backend, "--cluster", str(CLUSTER), "--gpus", "none"]
    with contextlib.ExitStack() as stack:
        why_not = stack.enter_context(engine.ready(place)) if backend == "compose" else ""
        if wanted and not why_not:
            must(place, "lab up", [*lab, "up", *where])
            down = [*lab, "down", "lab-bench", "--yes", "--discard"]
            stack.callback(must, place, "lab down", down)
            time.sleep(_SETTLES_S)
        yield why_not
