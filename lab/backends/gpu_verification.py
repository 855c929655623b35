"""Boots an environment and verifies that each task sees its own GPUs and no others.

The tasks are probed in parallel, with a time limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Final

from lab.backends.base import Backend
from lab.backends.environment import Check, Environment
from lab.base.log import LOG
from lab.base.text import short
from lab.base.threads import in_background
from lab.cluster.gpu import host_gpus
from lab.cluster.placement.plan import Plan

if TYPE_CHECKING:
    from lab.cluster.gpu.verification import GpuView

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


def boot(
    backend: Backend,
    plan: Plan,
    *,
    root: Path,
    share: bool = False,
    then: Check | None = None,
) -> Environment:
    """Boot an environment, and verify that its tasks see the planned GPUs.

    Args:
        backend: The backend.
        plan: The plan.
        root: The project's directory.
        share: Whether another environment may hold the same GPUs.
        then: Called when the GPUs are verified, if any. If it raises, the boot fails.

    Raises:
        LabError: The boot failed, or a task sees other GPUs. Nothing is left.
    """

    def check(environment: Environment) -> None:
        verify_gpus(environment, plan)
        if then is not None:
            then(environment)

    return backend.up(plan, root=root, check=check, share=share)


def verify_gpus(environment: Environment, plan: Plan) -> None:
    """Compare the GPUs that each task sees with the plan, and report the result in one line.

    If neither the plan nor the host has a GPU, nothing is probed or reported.

    Args:
        environment: The environment; it is up.
        plan: The plan that it was booted from.

    Raises:
        LabError: A task sees other GPUs, or cannot use its own.
    """
    gpus = host_gpus() if environment.is_local else ()
    planned = {task.name: task.gpus for task in plan.tasks}
    if not gpus and not any(planned.values()):
        return
    # Imported here: without GPUs there is nothing to verify.
    from lab.cluster.gpu.verification import check_all, raise_for_faults, summary_line  # noqa: PLC0415

    checks = check_all(environment.probe_gpus(), planned, gpus)
    if not checks:  # another service has verified them
        return
    raise_for_faults(checks)
    LOG.info(summary_line({name: checks[name] for name in planned if name in checks}))


def parse_output(code: int | None, stdout: bytes, stderr: bytes) -> GpuView:
    """Parse the output of a process of the module.

    Args:
        code: Its exit code; 0 means success.
        stdout: Its output. The last line counts: libraries may print lines before it.
        stderr: Its standard error; the last line is the reason of a failure.
    """
    from lab.cluster.gpu.verification import GpuView  # noqa: PLC0415  (see `verify_gpus`)

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
    from lab.cluster.gpu.verification import GpuView  # noqa: PLC0415  (see `verify_gpus`)

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
