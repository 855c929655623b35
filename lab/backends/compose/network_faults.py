"""A fault of a node's network, injected by a short-lived container.

The container shares only the network of the node's anchor. Its only capability is NET_ADMIN. It
reverts its changes itself, and the engine removes it when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.backends.compose.channel import stdout_of
from lab.backends.compose.cleanup import stop, was_started
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import FAULT, PROJECT, ContainerInfo
from lab.backends.network_faults import wait_until_in_effect
from lab.errors import LabError
from lab.network import FAULT_MODULE
from lab.variables import LAB_LINK

if TYPE_CHECKING:
    from lab.backends.compose.channel import Output

_STOP_S: Final = 5
_GONE_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.1


def inject_fault(
    engine: Engine, project: str, anchor: ContainerInfo, arguments: Sequence[str]
) -> None:
    """Start the fault, and return when it is in effect.

    Raises:
        LabError: The fault is not in effect in time, or the engine refused the container.
    """
    doing = f"injecting a fault into node {anchor.node}"
    with engine_errors(doing):
        container = engine.create(
            project,
            anchor.image,
            ["python", "-m", FAULT_MODULE, *arguments],
            labels={FAULT: anchor.node},
            environment={
                name: value for name, value in anchor.variables.items() if name == LAB_LINK
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
            # Stop it before the removal: a killed container does not revert its changes.
            container.stop(timeout=_STOP_S)
            # The engine removes only containers that were started.
            container.remove(force=True)
        raise


def end_faults(engine: Engine, project: str) -> None:
    """End all network faults of a project now, and wait until their containers are removed.

    Containers that were never started stay. They are removed with the rest of the project.

    Raises:
        LabError: The engine does not answer.
    """
    labels = (FAULT, f"{PROJECT}={project}")
    engine.for_each("ending a fault", engine.containers(*labels), stop)
    until = time.monotonic() + _GONE_WITHIN_S
    while any(map(was_started, engine.containers(*labels))) and time.monotonic() < until:
        time.sleep(_POLL_S)


def _began(output: Output, doing: str) -> bytes | None:
    """Wait. Return None when the fault is in effect, or standard error if the container ends."""
    pieces = stdout_of(output, doing)
    try:
        next(pieces)
    except StopIteration as end:
        return bytes(end.value)
    pieces.close()
    return None
