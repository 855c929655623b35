"""A fault of a pseudo-node's network, done by a process inside the node's namespaces."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

from lab.backends.disturbing import START_S, refused, too_late
from lab.backends.local.interpreter import command, environ
from lab.task.netfault import MODULE

_STOP_S: Final = 5.0
"""Seconds that a fault gets to revert what it has done."""


def disturb(
    node: str, enter: Sequence[str], words: Sequence[str], variables: Mapping[str, str]
) -> None:
    """Start the fault and wait until it holds; it needs nobody any more then.

    Args:
        node: The node's name, for messages.
        enter: The command line prefix that starts a program on the node.
        words: What the module is to do.
        variables: What it is told of the node's link.

    Raises:
        LabError: It did not take hold.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*enter, *command(MODULE), *words],
            env={**environ(), **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        assert process.stdout is not None  # noqa: S101 (narrows the type)
        with process.stdout as output:
            ready, _, _ = select.select([output], [], [], START_S)
            if ready and output.readline():
                # Nobody waits for it: what is left of it goes with this process.
                process.returncode = 0
                return
        if not ready:
            _end(process)
        process.wait()
        said.seek(0)
        raise refused(node, said.read()) if ready else too_late(node)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the fault too, which may be a child of what has entered the node; gently at first."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
