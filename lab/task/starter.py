"""How an agent starts a program: forked from where TensorFlow is imported already, or by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lab.task import command, early
from lab.task.child import Program
from lab.task.forked import Cradle, ForkedProgram, Refused
from lab.task.place import Place
from lab.task.protocol import Request

_PATIENCE_S: Final = 60.0
"""So long a program waits for the import at most; by itself it would have begun long before."""

WAITS: Final = "waits for TensorFlow, which is imported once for all tasks"


class Starter:
    """Starts the programs of one task, one after the other."""

    def __init__(
        self,
        place: Place,
        cradle: Cradle | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            place: Where the agent lives.
            cradle: What programs can be forked from; None: nothing.
            monotonic: The clock.
        """
        self._place = place
        self._cradle = cradle
        self._monotonic = monotonic
        self._since: float | None = None

    @property
    def wakes(self) -> tuple[int, ...]:
        """Descriptors that get readable as soon as a program that waits may be started."""
        return () if self._cradle is None or self._since is None else self._cradle.wakes

    def is_ready(self, request: Request) -> bool:
        """Whether the program may be started now, in whichever way."""
        if self._cradle is None or self._cradle.is_settled() or self.why_not(request):
            return True
        if self._since is None:
            self._since = self._monotonic()
        if self._monotonic() - self._since < _PATIENCE_S:
            return False
        self._cradle.give_up("the import takes too long")
        return True

    def start(
        self, request: Request, environ: Mapping[str, str], folder: Path
    ) -> tuple[Program | ForkedProgram, str]:
        """Start the program.

        Returns:
            It, and in what way, in words; "" where there is no choice.

        Raises:
            OSError: It could not be started.
        """
        argv = command.argv(self._place, request)
        if self._cradle is None:
            return Program(argv, environ, folder), ""
        why_not = self.why_not(request)
        if why_not is None:
            try:
                return self._cradle.bear(argv, environ, folder), "forked behind the import"
            except Refused as reason:
                why_not = str(reason)
        return Program(argv, environ, folder), f"by itself: {why_not}"

    def why_not(self, request: Request) -> str | None:
        """Why a program is not forked, as far as the request and its source tell."""
        if request.spec.listing:
            return "a printed program gets TensorFlow 1"
        if request.spec.own:
            return "a program of one's own gets TensorFlow as it is"
        if self._place.gpus != "none":
            return "it has graphics cards"
        return early.why_not(command.program_path(self._place, request))


def starter_of(place: Place, environ: Mapping[str, str]) -> Starter:
    """The one for this agent."""
    return Starter(place, Cradle.from_environ(environ))
