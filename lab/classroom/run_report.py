"""The newest run of a seat, as the seat reports it to the class."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

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


def parse_report(content: bytes) -> RunReport | None:
    """Return the report of a seat; None if it has no run or sends something else."""
    if len(content) > MAX_REPORT_BYTES:
        return None
    try:
        return msgspec.json.decode(content, type=RunReport | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
