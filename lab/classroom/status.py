"""The status of a class: of each seat its container, its GPUs and its newest run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from lab.classroom import names
from lab.errors import LabError

if TYPE_CHECKING:
    from docker.models.containers import Container

    from lab.backends.compose.client import Engine
    from lab.classroom.state import ClassDir

STUCK_S: Final = 60.0
"""Seconds without a step after which a run that trains counts as stuck."""

_REPORT: Final = ("python", "-P", "-m", "lab.classroom.seat_report")
_MAX_BYTES: Final = 4096  # of a report: it comes from the student's container

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
    from lab.backends.compose.client import Engine  # noqa: PLC0415  (seats import this module)
    from lab.classroom.hub_api import hub_api  # noqa: PLC0415

    plan, engine = folder.stored().plan, Engine()
    users = {user["name"]: user for user in hub_api(folder).users()}
    containers = [
        each
        for each in engine.containers(f"{names.CLASS}={plan.name}", names.SEAT)
        if each.status == "running"
    ]
    found = engine.for_each("reading the runs of the seats", containers, _newest_run(engine))
    runs = dict(found)
    return [
        SeatStatus(
            seat=seat.name,
            state=_state(users.get(seat.name, {})),
            gpus=seat.gpus,
            idle_s=_idle_s(users.get(seat.name, {})),
            run=(run := runs.get(seat.name)),
            stuck=run is not None and run.is_stuck,
        )
        for seat in plan.seats
    ]


def _newest_run(engine: Engine) -> Any:  # noqa: ANN401
    from lab.backends.compose.client import engine_errors  # noqa: PLC0415

    def read(container: Container) -> tuple[str, RunReport | None]:
        api = engine.client().api
        seat, content = container.labels[names.SEAT], b""
        # A student's container may have no process or memory left for the command.
        with suppress(LabError), engine_errors(f"reading the runs of {seat}"):
            exec_id = api.exec_create(container.id, list(_REPORT), stderr=False, workdir="/")["Id"]
            for chunk in api.exec_start(exec_id, stream=True):
                content += chunk
                if len(content) > _MAX_BYTES:
                    break
        return seat, parse_report(content)

    return read


def parse_report(content: bytes) -> RunReport | None:
    """Return the report of a seat; None if it has no run or sends something else."""
    if len(content) > _MAX_BYTES:
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
