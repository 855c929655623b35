"""Faults of a node's network: waiting until one is in effect, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lab.errors import LabError
from lab.task.text import short
from lab.threads import in_background, signals_blocked

START_S: Final = 30.0
"""Seconds within which a fault must be in effect."""


def wait_until_in_effect(node: str, began: Callable[[], bytes | None]) -> None:
    """Wait until a process of `lab.task.probes.netfault` has its effect.

    Args:
        node: The node's name, for messages.
        began: Waits for the process. Returns None once the fault is in effect, and the standard
            error of a process that has ended without an effect. It runs in a thread of its own.

    Raises:
        LabError: The fault was refused, or is not in effect in time.
    """
    with signals_blocked():
        future = in_background(began)
    try:
        stderr = future.result(START_S)
    except TimeoutError as error:
        raise LabError(
            f"node {node}: the fault did not take hold within {START_S:g} s",
            "see whether the box is busy",
        ) from error
    if stderr is not None:
        raise refused(node, stderr)


def refused(node: str, stderr: bytes) -> LabError:
    """The error for a refused fault, from the standard error of `probes.netfault`."""
    lines = stderr.decode("utf-8", errors="replace").strip().splitlines()
    last = short(lines[-1]).removeprefix("error: ") if lines else "it ended without a word"
    what, _, fix = last.partition("; ")
    return LabError(f"node {node}: {what}", fix)
