"""Probes all tasks in parallel for the GPUs that they see, with a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from threading import Semaphore
from typing import Final

from lab.gpu.verification import GpuView
from lab.text import short
from lab.threads import in_background

MODULE: Final = "lab.task.node.gpu_probe"

ANSWER_S: Final = 30
"""Seconds that a task has to answer; a driver may need seconds to initialize a GPU."""

LIMIT_S: Final = ANSWER_S + 5.0
"""The same, with the time that the engine takes to report the end of the probe."""

COMMAND: Final = ("-m", MODULE, "--within", str(ANSWER_S))
"""The arguments of Python; the module ends itself after its time limit."""

_AT_ONCE: Final = 16

MAX_BYTES: Final = 1 << 20
"""The limit of a probe's output: programs of the user may run in the same container."""


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
            return GpuView(why=short(str(error)))
    printed = stderr.decode("utf-8", errors="replace").strip().splitlines() or lines
    last = short(printed[-1] if printed else "no output")
    return GpuView(why=f"{MODULE} ended with {code}: {last}")


def probe_all(
    probes: Mapping[str, Callable[[], GpuView]], limit_s: float = LIMIT_S
) -> dict[str, GpuView]:
    """Probe several tasks in parallel.

    Args:
        probes: Task to the function that probes it.
        limit_s: Seconds that one probe has.

    Returns:
        The view of each task. The view of a task that did not answer in time contains this reason.
    """
    limit_s *= math.ceil(len(probes) / _AT_ONCE)
    slots = Semaphore(_AT_ONCE)

    def run(probe: Callable[[], GpuView]) -> GpuView:
        with slots:
            return probe()

    # A thread may hang in a driver. Python's exit does not wait for threads of `in_background`.
    futures = {task: in_background(partial(run, probe)) for task, probe in probes.items()}
    wait(futures.values(), limit_s)
    late = GpuView(why=f"it did not answer within {limit_s:.0f} s")
    return {task: future.result() if future.done() else late for task, future in futures.items()}
