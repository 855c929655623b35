"""The status of a class: of each seat its container, its GPUs and its newest run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

if TYPE_CHECKING:
    from lab.classroom.state import ClassDir

STUCK_S: Final = 60.0
"""Seconds without a step after which a run that trains counts as stuck."""

REPORT: Final = ("python", "-P", "-m", "lab.classroom.seat_report")
"""The command that prints the report of a seat."""

MAX_REPORT_BYTES: Final = 4096
"""The size of a report: it comes from the student's seat."""

_Text = Annotated[str, msgspec.Meta(max_length=64)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
_Step = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class RunReport(msgspec.Struct, frozen=True):
    """The newest run of a seat, as the seat reports it. The student can forge it.

    Attributes:
        run_id: The run.
        experiment: Its experiment or program.
        state: Its state.
        age_s: Seconds since its start.
        global_step: Its highest global step, or None.
        since_step_s: Seconds since that step, or None.
    """

    run_id: _Text
    experiment: _Text
    state: _Text
    age_s: _Seconds
    global_step: _Step | None
    since_step_s: _Seconds | None

    @property
    def is_stuck(self) -> bool:
        """Whether it trains and has made no step for `STUCK_S`."""
        return self.state == "training" and (self.since_step_s or 0.0) > STUCK_S


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
    # A seat imports this module for its report.
    from lab.classroom.backend import seat_backend  # noqa: PLC0415
    from lab.classroom.hub_api import hub_api  # noqa: PLC0415

    stored = folder.stored()
    users = {user["name"]: user for user in hub_api(folder).users()}
    runs = seat_backend(stored).reports()
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


def parse_report(content: bytes) -> RunReport | None:
    """Return the report of a seat; None if it has no run or sends something else."""
    if len(content) > MAX_REPORT_BYTES:
        return None
    try:
        return msgspec.json.decode(content, type=RunReport | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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
