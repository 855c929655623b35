"""What both backends have in common when they do a fault to a node's network."""

from __future__ import annotations

from typing import Final

from lab.errors import LabError
from lab.task.text import short

START_S: Final = 30.0
"""Seconds within which a fault must hold."""


def refused(node: str, said: bytes) -> LabError:
    """The error for a fault that did not take hold.

    Args:
        node: The node.
        said: What `lab.task.netfault` wrote on its standard error.
    """
    lines = said.decode("utf-8", errors="replace").strip().splitlines()
    last = short(lines[-1]).removeprefix("error: ") if lines else "it ended without a word"
    what, _, mend = last.partition("; ")
    return LabError(f"node {node}: {what}", mend)


def too_late(node: str) -> LabError:
    """The error for one that says nothing at all."""
    return LabError(
        f"node {node}: the fault did not take hold within {START_S:g} s",
        "see whether the box is busy",
    )
