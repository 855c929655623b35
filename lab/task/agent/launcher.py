"""How an agent starts a program: forked from where TensorFlow is imported already, or by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lab.task.agent import command, import_analysis
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.fork_client import ForkClient, ForkedProgram, ForkRefused
from lab.task.agent.process import ChildProcess
from lab.task.protocol import Request

_PATIENCE_S: Final = 60.0
"""So long a program waits for the import at most; by itself it would have begun long before."""

WAITS: Final = "waits for TensorFlow, which is imported once for all tasks"


class Launcher:
    """Starts the programs of one task, one after the other."""

    def __init__(
        self,
        place: AgentConfig,
        fork_client: ForkClient | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            place: Where the agent lives.
            fork_client: What programs can be forked from; None: nothing.
            monotonic: The clock.
        """
        self._place = place
        self._fork_client = fork_client
        self._monotonic = monotonic
        self._since: float | None = None

    @property
    def wakes(self) -> tuple[int, ...]:
        """Descriptors that get readable as soon as a program that waits may be started."""
        return () if self._fork_client is None or self._since is None else self._fork_client.wakes

    def is_ready(self, request: Request) -> bool:
        """Whether the program may be started now, in whichever way."""
        if (
            self._fork_client is None
            or self._fork_client.is_settled()
            or self.no_fork_reason(request)
        ):
            return True
        if self._since is None:
            self._since = self._monotonic()
        if self._monotonic() - self._since < _PATIENCE_S:
            return False
        self._fork_client.disconnect("the import takes too long")
        return True

    def start(
        self, request: Request, environ: Mapping[str, str], folder: Path
    ) -> tuple[ChildProcess | ForkedProgram, str]:
        """Start the program.

        Returns:
            It, and in what way, in words; "" where there is no choice.

        Raises:
            OSError: It could not be started.
        """
        argv = command.argv(self._place, request)
        if self._fork_client is None:
            return ChildProcess(argv, environ, folder), ""
        why_not = self.no_fork_reason(request)
        if why_not is None:
            try:
                return self._fork_client.spawn(argv, environ, folder), "forked behind the import"
            except ForkRefused as reason:
                why_not = str(reason)
        return ChildProcess(argv, environ, folder), f"by itself: {why_not}"

    def no_fork_reason(self, request: Request) -> str | None:
        """Why a program is not forked, as far as the request and its source tell."""
        if request.spec.listing:
            return "a printed program gets TensorFlow 1"
        if request.spec.own:
            return "a program of one's own gets TensorFlow as it is"
        if self._place.gpus != "none":
            return "it has graphics cards"
        return import_analysis.unavailable_reason(command.program_path(self._place, request))


def launcher_of(place: AgentConfig, environ: Mapping[str, str]) -> Launcher:
    """The one for this agent."""
    return Launcher(place, ForkClient.from_environ(environ))
