"""A fault of a node's network, done by a short-lived container beside the node's anchor.

The container shares the anchor's network and nothing else, and may change networks and nothing
else. It reverts its changes by itself, and the engine removes it when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.backends.compose.client import Engine, engine_errors
from lab.backends.compose.containers import FAULT, PROJECT, ContainerInfo
from lab.backends.network_faults import wait_until_in_effect
from lab.errors import LabError
from lab.task.probes.netfault import MODULE

if TYPE_CHECKING:
    from docker.models.containers import Container

    from lab.backends.compose.channel import Output

_LINK: Final = ("LAB_LINK_RATE_BITS", "LAB_LINK_DELAY_US")
_STOP_S: Final = 5
_GONE_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.1


def inject_fault(
    engine: Engine, project: str, anchor: ContainerInfo, arguments: Sequence[str]
) -> None:
    """Start the fault; return once it is in effect.

    Raises:
        LabError: The fault is not in effect in time, or the engine refused the container.
    """
    doing = f"disturbing node {anchor.node}"
    with engine_errors(doing):
        container = engine.create(
            project,
            anchor.image,
            ["python", "-m", MODULE, *arguments],
            labels={FAULT: anchor.node},
            environment={
                each: anchor.variables[each] for each in _LINK if each in anchor.variables
            },
            network_mode=f"container:{anchor.id}",
            user="0:0",
            cap_add=["NET_ADMIN"],
            auto_remove=True,
        )
    try:
        with engine_errors(doing):
            output: Output = container.attach(stream=True, logs=True, demux=True)
            container.start()
        wait_until_in_effect(anchor.node, lambda: _began(output, doing))
    except BaseException:
        with suppress(LabError), engine_errors(doing):
            # Asked first: one that is killed reverts nothing, and the node's network lives on.
            container.stop(timeout=_STOP_S)
            # One that was never started would stay: the engine removes what has ended.
            container.remove(force=True)
        raise


def end_faults(engine: Engine, project: str) -> None:
    """End every fault of a project's networks now, and wait until its containers have gone.

    One that was never started stays: it holds nothing, and goes with the rest of the project.

    Raises:
        LabError: The engine does not answer.
    """
    labels = (FAULT, f"{PROJECT}={project}")
    engine.for_each("ending a fault", engine.containers(*labels), _stop)
    until = time.monotonic() + _GONE_WITHIN_S
    while any(map(_was_started, engine.containers(*labels))) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _began(output: Output, doing: str) -> bytes | None:
    """None once the fault is in effect; the standard error where the container has ended."""
    printed = b""
    while True:
        with engine_errors(doing):
            piece = next(output, None)
        if piece is None:
            return printed
        stdout, stderr = piece
        printed = (printed + (stderr or b""))[-4096:]
        if stdout:
            # Nothing reads on. docker-py's stream holds its socket open until it is closed.
            with suppress(OSError):
                output.close()
            return None


def _was_started(container: Container) -> bool:
    return bool(container.status != "created")


def _stop(container: Container) -> None:
    if _was_started(container):
        container.stop(timeout=_STOP_S)
