"""An environment that is up while something is measured in it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Final

from benchmarks import engine
from benchmarks.trainings import CLUSTER, Workplace, must

_SETTLES_S: Final = 5.0
"""What an environment still does of its own accord once it is up is over by then."""


@contextlib.contextmanager
def environment(place: Workplace, backend: str, *, wanted: bool = True) -> Iterator[str]:
    """Have the benchmarks' environment up as long as the block lasts; with compose an engine, too.

    Args:
        place: Where to work.
        backend: The backend.
        wanted: Whether it is to be up at all.

    Yields:
        Why there is none; "" where all is ready.
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
