"""Network faults on every backend: waits until a fault is in effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lab.base.errors import LabError
from lab.base.threads import in_background, signals_blocked

START_S: Final = 30.0
"""Seconds within which a fault must be in effect."""


def wait_until_in_effect(node: str, began: Callable[[], bytes | None]) -> None:
    """Wait until a process of `lab.protocol.network.fault` has injected its fault.

    Args:
        node: The node's name, for messages.
        began: Waits for the process, in a thread of its own. It returns None when the fault is in
            effect. If the process ends without an effect, it returns the standard error.

    Raises:
        LabError: The fault was refused, or is not in effect in time.
    """
    with signals_blocked():
        future = in_background(began)
    try:
        stderr = future.result(START_S)
    except TimeoutError as error:
        raise LabError(
            f"node {node}: the fault did not take effect within {START_S:g} s",
            "check whether the host is busy",
        ) from error
    if stderr is not None:
        raise refused(f"node {node}", stderr)


def refused(name: str, stderr: bytes) -> LabError:
    """Return the error of a module of `lab.task.node`, from its standard error."""
    lines = stderr.decode("utf-8", errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("error: ") if lines else "it ended without output"
    problem, _, fix = last.partition("; ")
    return LabError(f"{name}: {problem}", fix)
