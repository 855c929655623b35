"""The service that ends the runs in the seats: `python -m lab.classroom.end_service`.

JupyterHub starts it, and starts it again when it ends. The variable `LAB_CLASS` names the class.
While the time of the class is over, it cancels what runs in each seat, again and again: a run may
start later, and a seat may give no answer. Nothing that a seat prints is believed. It only says
how soon this seat is asked again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from lab.backends.engine.client import Engine
from lab.classroom import names
from lab.classroom.class_time import LastEnd
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.log import LOG
from lab.parent_death import set_pdeathsig
from lab.text import short
from lab.variables import LAB_CLASS

COMMAND: Final = ("python", "-P", "-m", "lab.classroom.seat_end")
"""The command that cancels the runs in a seat."""

TICK_S: Final = 1.0

SOON_S: Final = 5.0
"""Seconds until a seat is asked again that had a run, or did not answer; then twice as many."""

LATER_S: Final = 60.0
"""Seconds until a seat without a run is asked again: each time costs a process in the seat."""

ANSWER_S: Final = 30.0
"""Seconds that the command has: all seats may start it at the same moment."""

_MAX_BYTES: Final = 4096


@dataclass(frozen=True)
class SeatRuns:
    """The runs in the seats of a class.

    Attributes:
        name: The class.
        engine: The engine.
    """

    name: str
    engine: Engine

    def end(self, seat: str) -> bool:
        """Cancel the runs in a seat; return whether it had one. A stopped seat has none.

        Raises:
            LabError: The seat or the engine does not answer.
        """
        labels = f"{names.CLASS}={self.name}", f"{names.SEAT}={seat}"
        found = [each for each in self.engine.containers(*labels) if each.status == "running"]
        return bool(found) and self._end(seat, str(found[0].id))

    def _end(self, seat: str, container_id: str) -> bool:
        doing = f"ending the runs in {seat}"
        done = self.engine.execute(
            doing,
            container_id,
            COMMAND,
            within_s=ANSWER_S,
            max_bytes=_MAX_BYTES,
            workdir="/",
        )
        if done.code:
            printed = done.stderr.decode(errors="replace").strip()
            raise LabError(f"{doing}: {short(printed) or f'exit code {done.code}'}")
        return done.stdout.strip() != b"0"


class Ends:
    """Ends the runs in all seats while the time of the class is over."""

    def __init__(
        self,
        seats: Sequence[str],
        is_over: Callable[[], bool],
        end: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            seats: The seats.
            is_over: Whether the time of the class is over.
            end: Cancels the runs in a seat, and returns whether there was one.
            monotonic: A clock, in seconds.
        """
        self._is_over, self._end, self._monotonic = is_over, end, monotonic
        # One thread for each seat: a seat that gives no answer delays no other.
        self._threads = ThreadPoolExecutor(len(seats), "seat")
        self._steps: dict[str, Future[bool] | None] = dict.fromkeys(seats)
        self._failures = dict.fromkeys(seats, 0)
        self._next_s = dict.fromkeys(seats, 0.0)

    def tick(self) -> None:
        """Start what is due, and look at what has ended."""
        is_over, now_s = self._is_over(), self._monotonic()
        for seat, step in self._steps.items():
            if step is not None and step.done():
                self._steps[seat] = None
                self._next_s[seat] = now_s + self._delay_s(seat, step)
            if not is_over:
                self._next_s[seat] = 0.0
            elif self._steps[seat] is None and now_s >= self._next_s[seat]:
                self._steps[seat] = self._threads.submit(self._end, seat)

    def _delay_s(self, seat: str, step: Future[bool]) -> float:
        """Return the seconds until a seat is asked again."""
        delay_s, error = SOON_S * 2.0 ** self._failures[seat], step.exception()
        if error is None:
            self._failures[seat] = 0
            return SOON_S if step.result() else LATER_S
        if delay_s < LATER_S:
            self._failures[seat] += 1
        expected = isinstance(error, LabError)
        what = f"{seat}: {error}; trying again in {delay_s:g} s"
        LOG.warning(what, exc_info=None if expected else error)
        return delay_s


def main() -> None:
    """Serve the class of the variable `LAB_CLASS`, for ever."""
    logging.basicConfig(format="%(asctime)s time: %(message)s")
    set_pdeathsig(os.getppid())  # a new JupyterHub starts a new service
    folder = ClassDir(os.environ[LAB_CLASS])
    plan = folder.stored().plan
    runs = SeatRuns(plan.name, Engine())
    ends = Ends([seat.name for seat in plan.seats], LastEnd(folder.shared).is_over, runs.end)
    while True:
        ends.tick()
        time.sleep(TICK_S)


if __name__ == "__main__":
    main()
