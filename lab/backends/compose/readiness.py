"""Waits until every container is up, and reports the first one that is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import ContainerInfo
from lab.backends.engine.error_hints import explain
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import visible

READY_S: Final = 60.0
"""Seconds that the containers have to become healthy."""

POLL_S: Final = 0.1
"""Seconds between inspections; the engine runs the health checks once a second."""

LAST_LINES: Final = 5
"""The number of a container's last lines in its error."""


def wait_until_up(engine: Engine, inspect: Callable[[], Sequence[ContainerInfo]]) -> None:
    """Wait until every container runs and is healthy.

    Raises:
        LabError: A container ended, became unhealthy, or is not up in time. The message names it,
            its state and its last lines.
    """
    until = time.monotonic() + READY_S
    shown: set[str] = set()
    while True:
        infos = inspect()
        waiting = [info for info in infos if not info.up]
        for info in infos:
            if info.up and info.service not in shown:
                shown.add(info.service)
                LOG.info(f"{info.service} is up ({len(shown)} of {len(infos)})")
        if not waiting:
            return
        for info in waiting:
            if info.error:
                raise explain(f"starting {info.service}", [info.error])
            if not info.running and info.state != "created":
                raise _not_up(engine, info, f"{info.service} ended immediately, {info.detail}")
            if info.health == "unhealthy":
                raise _not_up(engine, info, f"{info.service} is unhealthy")
        if time.monotonic() > until:
            first = waiting[0]
            raise _not_up(
                engine, first, f"{first.service} is not up after {READY_S:g} s: {first.detail}"
            )
        time.sleep(POLL_S)


def restart_detached_tasks(engine: Engine, infos: Sequence[ContainerInfo]) -> None:
    """Restart every task whose anchor started after it.

    Such a task is still in the network namespace of the old anchor, where only `lo` is left.
    """
    anchors = {info.node: info for info in infos if not info.task}
    detached = {
        info.id: info.service
        for info in infos
        if info.task and info.node in anchors and anchors[info.node].started > info.started
    }
    if not detached:
        return
    LOG.info(f"restarting {', '.join(sorted(detached.values()))}: the node was restarted")
    containers = [container for container in engine.containers() if container.id in detached]
    engine.for_each("restarting a task", containers, lambda task: task.restart(timeout=10))


def _not_up(engine: Engine, info: ContainerInfo, problem: str) -> LabError:
    lines = last_lines(engine, info)
    tail = f"; its last lines: {' / '.join(lines)}" if lines else ""
    return LabError(problem + tail, f"inspect it with `docker inspect {info.name}`")


def last_lines(engine: Engine, info: ContainerInfo) -> list[str]:
    """Return the last lines of a container's output, else of its health check; safe to print."""
    with engine_errors(f"reading the output of {info.service}"):
        container = engine.client().containers.get(info.id)
        raw: bytes = container.logs(tail=LAST_LINES)
        probes = (container.attrs["State"].get("Health") or {}).get("Log") or []
    lines = raw.decode("utf-8", errors="replace").splitlines()
    if not lines and probes:
        lines = str(probes[-1].get("Output", "")).splitlines()[-LAST_LINES:]
    return [visible(line.strip()) for line in lines if line.strip()]
