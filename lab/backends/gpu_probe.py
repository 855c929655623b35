"""Asking all tasks at once which GPUs they see, with a time limit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from threading import Semaphore
from typing import Final

from lab.gpu.verification import GpuView
from lab.task.text import short
from lab.threads import in_background

MODULE: Final = "lab.task.probes.gpu_probe"

ANSWER_S: Final = 30
"""Seconds that a task gets to answer; a driver may take some to wake a card."""

TENSORFLOW_S: Final = 120
"""The same where TensorFlow is asked, which takes seconds to import on an idle CPU."""

_AT_ONCE: Final = 16
_GRACE_S: Final = 5.0  # beyond its own time-out, for an engine to say that it was killed


def time_limit_s(*, tensorflow: bool) -> int:
    """Seconds that a task gets to answer."""
    return TENSORFLOW_S if tensorflow else ANSWER_S


def arguments(*, tensorflow: bool) -> list[str]:
    """Arguments of the module: it ends itself when its time is over."""
    return ["--within", str(time_limit_s(tensorflow=tensorflow)), *["--tensorflow"] * tensorflow]


def parse_output(code: int | None, stdout: bytes, stderr: bytes) -> GpuView:
    """What a process of the module has said.

    Args:
        code: Its exit code; None or another than 0 where it failed.
        stdout: Its output: the last line counts, libraries may print before.
        stderr: Why it failed, at its end.
    """
    lines = stdout.decode("utf-8", errors="replace").strip().splitlines()
    if code == 0 and lines:
        try:
            return GpuView.from_json(lines[-1])
        except ValueError as error:
            return GpuView.untold(short(str(error)))
    printed = stderr.decode("utf-8", errors="replace").strip().splitlines() or lines
    return GpuView.untold(
        f"{MODULE} ended with {code}: {short(printed[-1] if printed else 'no word')}"
    )


def probe_all(
    asks: Mapping[str, Callable[[], GpuView]], *, tensorflow: bool, patience_s: float | None = None
) -> dict[str, GpuView]:
    """Ask several tasks at once.

    Args:
        asks: Task to what asks it.
        tensorflow: Whether TensorFlow is asked, which wants a CPU for each.
        patience_s: Seconds that one gets, instead of what `words` gives it and a little more.

    Returns:
        What each sees; one that has not answered in time has a sight that says so.
    """
    at_once = max(2, os.cpu_count() or 1) if tensorflow else _AT_ONCE
    limit_s = patience_s or time_limit_s(tensorflow=tensorflow) + _GRACE_S
    limit_s *= math.ceil(len(asks) / at_once)
    turns = Semaphore(at_once)

    def in_turn(ask: Callable[[], GpuView]) -> GpuView:
        with turns:
            return ask()

    # Threads of `later` may hang with a driver: not even the end of Python waits for them.
    futures = {task: in_background(partial(in_turn, ask)) for task, ask in asks.items()}
    wait(futures.values(), limit_s)
    late = GpuView.untold(f"it did not answer within {limit_s:.0f} s")
    return {task: each.result() if each.done() else late for task, each in futures.items()}
