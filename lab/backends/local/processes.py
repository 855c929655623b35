"""Starts and ends the processes of a local environment."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.backends.local.state import EnvironmentRecord, Isolation
from lab.backends.network_faults import START_S, wait_until_in_effect
from lab.backends.process import ProcessHandle
from lab.backends.python import base_environ, module_command
from lab.errors import LabError
from lab.network import FAULT_MODULE

# The supervisor waits 10 s for its agents.
_TERM_WITHIN_S = 15.0
_KILL_WITHIN_S = 10.0
_POLL_S = 0.05

REVERT_S: Final = 5.0
"""Seconds that a network fault has to revert its changes."""


def end_processes(
    record: EnvironmentRecord, agents: Sequence[ProcessHandle], log: Path, *, gently: bool
) -> None:
    """End the supervisor, and all processes below it.

    Args:
        record: The environment.
        agents: Its agents.
        log: The supervisor's log, for the message.
        gently: First let programs end by themselves, and agents record their ends.

    Raises:
        LabError: Processes are left.
    """
    supervisor = record.process
    isolated = record.isolation is Isolation.NAMESPACES
    below = supervisor.descendants() if isolated else agents
    stages = [
        (_to_signal(record), signal.SIGTERM, _TERM_WITHIN_S),
        (supervisor, signal.SIGKILL, _KILL_WITHIN_S),
    ]
    # During a boot, process 1 of the namespace may not have a handler for SIGTERM yet: it would
    # ignore the signal.
    for target, number, seconds in stages[1:] if isolated and not gently else stages:
        target.signal(number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                os.waitpid(supervisor.pid, os.WNOHANG)  # it may be this process's own child
            if not supervisor.alive() and not any(handle.alive() for handle in below):
                return
            time.sleep(_POLL_S)
    raise LabError(
        f"processes of the local environment {record.project!r} did not end",
        f"see pid {supervisor.pid} and {log}",
    )


def _to_signal(record: EnvironmentRecord) -> ProcessHandle:
    """The supervisor's process. With namespaces it is the only child of `unshare`."""
    isolated = record.isolation is Isolation.NAMESPACES
    below = record.process.descendants() if isolated else []
    return below[0] if below else record.process


def inject_fault(
    node: str,
    enter: Sequence[str],
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    within_s: float = START_S,
    revert_s: float = REVERT_S,
) -> None:
    """Start a network fault in a node's namespaces, and return when it is in effect.

    Args:
        node: The node's name, for messages.
        enter: The command line prefix that starts a program on the node.
        arguments: Arguments of `lab.network.fault`.
        variables: Environment variables that describe the node's link.
        within_s: Seconds within which the fault must be in effect.
        revert_s: Seconds from SIGTERM to SIGKILL for a fault that must be reverted.

    Raises:
        LabError: The fault is not in effect; its changes are reverted.
    """
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*enter, *module_command(FAULT_MODULE), *arguments],
            env={**base_environ(), **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C must not end it
        )
        assert process.stdout is not None  # noqa: S101 (narrows the type)
        pipe = process.stdout

        def began() -> bytes | None:
            with pipe as output:
                if output.readline():
                    return None
            process.wait()
            stderr.seek(0)
            return stderr.read()

        try:
            wait_until_in_effect(node, began, within_s)
        except BaseException:
            if process.returncode is None:
                _end(process, revert_s)
            raise
        process.returncode = 0  # no `wait` for it: it ends by itself


def _end(process: subprocess.Popen[bytes], revert_s: float) -> None:
    """End the process group of a fault: with SIGTERM, after a time limit with SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(revert_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
