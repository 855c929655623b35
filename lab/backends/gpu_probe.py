"""Probes all tasks in parallel for the GPUs that they see, with a time limit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from threading import Semaphore
from typing import Final

from lab.gpu.evidence import GpuView
from lab.text import short
from lab.threads import in_background

MODULE: Final = "lab.task.node.gpu_probe"

ANSWER_S: Final = 30
"""Seconds that a task has to answer; a driver may need seconds to initialize a GPU."""

TENSORFLOW_S: Final = 120
"""The same with TensorFlow, whose import takes seconds on an idle CPU."""

_AT_ONCE: Final = 16

GRACE_S: Final = 5.0
"""Seconds after the probe's own time limit, for the engine to report its end."""

MAX_BYTES: Final = 1 << 20
"""The limit of a probe's output: programs of the user may run in the same container."""


def time_limit_s(*, tensorflow: bool) -> int:
    """Return the seconds that a task has to answer."""
    return TENSORFLOW_S if tensorflow else ANSWER_S


def arguments(*, tensorflow: bool) -> list[str]:
    """Return the arguments of the module; it ends itself after its time limit."""
    return ["--within", str(time_limit_s(tensorflow=tensorflow)), *["--tensorflow"] * tensorflow]


def parse_output(code: int | None, stdout: bytes, stderr: bytes) -> GpuView:
    """Parse the output of a process of the module.

    Args:
        code: Its exit code; 0 means success.
        stdout: Its output. The last line counts: libraries may print lines before it.
        stderr: Its standard error; the last line is the reason of a failure.
    """
    lines = stdout.decode("utf-8", errors="replace").strip().splitlines()
    if code == 0 and lines:
        try:
            return GpuView.from_json(lines[-1])
        except ValueError as error:
            return GpuView.unknown(short(str(error)))
    printed = stderr.decode("utf-8", errors="replace").strip().splitlines() or lines
    return GpuView.unknown(
        f"{MODULE} ended with {code}: {short(printed[-1] if printed else 'no output')}"
    )


def probe_all(
    probes: Mapping[str, Callable[[], GpuView]], *, tensorflow: bool, limit_s: float | None = None
) -> dict[str, GpuView]:
    """Probe several tasks in parallel.

    Args:
        probes: Task to the function that probes it.
        tensorflow: Whether TensorFlow is probed, which needs one CPU for each task.
        limit_s: Seconds that one probe has, instead of `time_limit_s` and a grace period.

    Returns:
        The view of each task. The view of a task that did not answer in time contains this reason.
    """
    at_once = max(2, os.cpu_count() or 1) if tensorflow else _AT_ONCE
    limit_s = limit_s or time_limit_s(tensorflow=tensorflow) + GRACE_S
    limit_s *= math.ceil(len(probes) / at_once)
    slots = Semaphore(at_once)

    def run(probe: Callable[[], GpuView]) -> GpuView:
        with slots:
            return probe()

    # A thread may hang in a driver. Python's exit does not wait for threads of `in_background`.
    futures = {task: in_background(partial(run, probe)) for task, probe in probes.items()}
    wait(futures.values(), limit_s)
    late = GpuView.unknown(f"it did not answer within {limit_s:.0f} s")
    return {task: each.result() if each.done() else late for task, each in futures.items()}
