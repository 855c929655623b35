"""The status of a class: of each seat its container, its GPUs and its newest run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from lab.classroom.containers import Containers
from lab.classroom.hub_api import hub_api
from lab.classroom.run_report import RunReport
from lab.classroom.state import ClassDir


class SeatStatus(msgspec.Struct, frozen=True):
    """The status of a seat.

    Attributes:
        seat: The seat.
        state: `ready`, `starting`, `stopping` or `stopped`.
        gpus: The UUIDs of its GPUs.
        idle_s: Seconds since the student last did something; None: not yet.
        run: Its newest run, or None.
        stuck: Whether this run makes no progress.
    """

    seat: str
    state: str
    gpus: tuple[str, ...]
    idle_s: float | None
    run: RunReport | None
    stuck: bool


def seat_statuses(folder: ClassDir) -> list[SeatStatus]:
    """Return the status of every seat of a class, in the plan's order.

    Raises:
        LabError: JupyterHub or the engine does not answer.
    """
    stored = folder.stored()
    users = {user["name"]: user for user in hub_api(folder).users()}
    runs = Containers(stored).reports()
    return [
        SeatStatus(
            seat=seat.name,
            state=_state(users.get(seat.name, {})),
            gpus=seat.gpus,
            idle_s=_idle_s(users.get(seat.name, {})),
            run=(run := runs.get(seat.name)),
            stuck=run is not None and run.is_stuck,
        )
        for seat in stored.plan.seats
    ]


def _state(user: Mapping[str, Any]) -> str:
    server = user.get("servers", {}).get("", {})
    pending = server.get("pending")
    if pending:
        return "starting" if pending == "spawn" else "stopping"
    return "ready" if server.get("ready") else "stopped"


def _idle_s(user: Mapping[str, Any]) -> float | None:
    last = user.get("last_activity")
    if last is None:
        return None
    return (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
