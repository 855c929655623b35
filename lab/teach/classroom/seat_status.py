"""The status of a class: the container, the GPUs and the newest run of each seat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lab.backends.engine.client import Engine
from lab.base.errors import LabError
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.hub_api import hub_api
from lab.teach.classroom.planning import SeatPlan
from lab.teach.classroom.seat_report import RunReport, SeatReport, parse_report
from lab.teach.lessons.answers import Passed

if TYPE_CHECKING:
    from docker.models.containers import Container


_REPORT: Final = ("python", "-P", "-m", "lab.teach.classroom.seat_report")
_MAX_REPORT_BYTES: Final = 4096  # it comes from the student's seat
_REPORT_S: Final = 10.0
_NOTHING: Final = SeatReport(None, {})


class SeatStatus(msgspec.Struct, frozen=True):
    """The status of a seat.

    Attributes:
        seat: The seat.
        state: `ready`, `starting`, `stopping` or `stopped`.
        gpus: The UUIDs of its GPUs.
        answers: Whether it has reported its newest run; True for a seat that does not run.
        run: Its newest run, or None.
        stuck: Whether this run makes no progress.
        passed: By lesson: the number of stages that are passed, and of all its stages.
    """

    seat: str
    state: str
    gpus: tuple[str, ...]
    answers: bool
    run: RunReport | None
    stuck: bool
    passed: Passed = {}


def seat_statuses(folder: ClassDir) -> list[SeatStatus]:
    """Return the status of every seat of a class, in the plan's order.

    Raises:
        LabError: The class cannot be read, or JupyterHub or the engine does not answer.
    """
    plan = folder.stored().plan
    servers = hub_api(plan, folder.tokens().service).servers()
    reports = _reports(plan.name)
    return [
        _status(seat, servers.get(seat.name, {}), reports.get(seat.name, _NOTHING))
        for seat in plan.seats
    ]


def _status(seat: SeatPlan, server: Mapping[str, Any], report: SeatReport | None) -> SeatStatus:
    run, passed = (report.run, report.passed) if report else (None, {})
    return SeatStatus(
        seat=seat.name,
        state=_state(server),
        gpus=seat.gpus,
        answers=report is not None,
        run=run,
        stuck=run is not None and run.is_stuck,
        passed=passed,
    )


def _reports(name: str) -> dict[str, SeatReport | None]:
    """Run the report command in every seat that runs, in several at a time.

    Returns:
        The report of each of these seats; None if it does not answer.
    """
    engine = Engine()

    def report(container: Container) -> tuple[str, SeatReport | None]:
        seat = container.labels[names.SEAT]
        try:
            # A student's container may have no process or memory left for the command.
            done = engine.execute(
                f"reading the runs of {seat}",
                str(container.id),
                _REPORT,
                within_s=_REPORT_S,
                max_bytes=_MAX_REPORT_BYTES,
                stderr=False,
                workdir="/",
            )
            return seat, parse_report(done.stdout)
        except LabError:
            return seat, None

    seats = engine.containers(f"{names.CLASS}={name}", names.SEAT)
    running = [container for container in seats if container.status == "running"]
    return dict(engine.for_each("reading the runs of the seats", running, report))


def _state(server: Mapping[str, Any]) -> str:
    if pending := server.get("pending"):
        return "starting" if pending == "spawn" else "stopping"
    return "ready" if server.get("ready") else "stopped"
