"""How an agent starts a program: by a fork server that has TensorFlow, or as a new process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lab.task.agent import command, import_analysis
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.fork_client import ForkClient, ForkedProgram, ForkRefused
from lab.task.agent.process import ChildProcess
from lab.volume import Request

_PATIENCE_S: Final = 60.0
"""Maximum seconds that a program waits for the import. A new process starts much sooner."""

WAITS: Final = "waits for TensorFlow, which is imported once for all tasks"


class Launcher:
    """Starts the programs of one task, one after the other."""

    def __init__(
        self,
        config: AgentConfig,
        fork_client: ForkClient | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a launcher.

        Args:
            config: The agent's settings.
            fork_client: The connection to the fork server; None: there is no fork server.
            monotonic: The clock.
        """
        self._config = config
        self._fork_client = fork_client
        self._monotonic = monotonic
        self._since: float | None = None

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when a waiting program may start."""
        return (
            () if self._fork_client is None or self._since is None else self._fork_client.wake_fds
        )

    def is_ready(self, request: Request) -> bool:
        """Whether the program may start now, forked or as a new process."""
        if self._fork_client is None or self._fork_client.is_settled():
            return True
        if self.no_fork_reason(request):
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
            The program, and a text that describes how it was started; "" without a fork server.

        Raises:
            OSError: It cannot be started.
        """
        argv = command.argv(self._config, request)
        has_sessions = command.has_launcher(self._config, request)
        if self._fork_client is None:
            return ChildProcess(argv, environ, folder, has_sessions=has_sessions), ""
        why_not = self.no_fork_reason(request)
        if why_not is None:
            try:
                return self._fork_client.spawn(argv, environ, folder), "forked from the fork server"
            except ForkRefused as reason:
                why_not = str(reason)
        child = ChildProcess(argv, environ, folder, has_sessions=has_sessions)
        return child, f"as a new process: {why_not}"

    def no_fork_reason(self, request: Request) -> str | None:
        """Why the request or the program's source does not allow a fork; None if they do."""
        if request.spec.listing:
            return "a printed program uses TensorFlow 1"
        if request.spec.own:
            return "a user's own program imports TensorFlow itself"
        if request.spec.env:
            return "TensorFlow may read its variables when it is imported"
        if self._config.gpus != "none":
            return "it uses GPUs"
        return import_analysis.unavailable_reason(command.program_path(self._config, request))
