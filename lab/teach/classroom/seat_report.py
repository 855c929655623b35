"""The newest run of a seat and its passed stages: printed in its container, read on the host.

`lab class status` runs it as `python -P -m lab.teach.classroom.seat_report`. `-P` keeps the current
directory out of Python's path.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from lab.base.errors import LabError
from lab.runner.store.directory import DEFAULT_RUNS_DIR, RunStatus, infos
from lab.runner.store.measures import STUCK_S
from lab.runner.verdict import state_under_way
from lab.teach.lessons.answers import Passed, read_passed

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


class SeatReport(msgspec.Struct, frozen=True):
    """What a seat reports. The student can forge it.

    Attributes:
        run: Its newest run, or None.
        passed: By lesson: the number of stages that are passed, and of all its stages.
    """

    run: RunReport | None
    passed: Passed


def parse_report(content: bytes) -> SeatReport:
    """Return the report of a seat.

    Raises:
        LabError: The content is not a report.
    """
    try:
        return msgspec.json.decode(content, type=SeatReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LabError("the seat sent no report") from error


def newest_run(store: Path) -> RunReport | None:
    """Return the newest readable run of a run store; None if there is none."""
    for run, info in reversed(infos(store).items()):
        if info is None:
            continue
        with suppress(LabError, OSError):
            recorded = RunStatus.recorded(run).statuses
            state = info.state if info.state.ended else state_under_way(info, recorded)
            statuses = recorded.values()
            steps = [status.global_step for status in statuses if status.global_step is not None]
            times = [status.stepped_unix for status in statuses if status.stepped_unix is not None]
            now = time.time()
            return RunReport(
                run_id=info.run_id,
                experiment=info.spec.experiment,
                state=str(state),
                age_s=max(0.0, now - info.started_unix),
                global_step=max(steps, default=None),
                since_step_s=max(0.0, now - max(times)) if times else None,
            )
    return None


if __name__ == "__main__":
    store = Path.home() / DEFAULT_RUNS_DIR
    report = SeatReport(newest_run(store), read_passed(store))
    sys.stdout.buffer.write(msgspec.json.encode(report))
