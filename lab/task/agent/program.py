"""The programs of one task in one run: when one can be started, its start, and its end."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.frameworks import FRAMEWORKS
from lab.task.agent import command, ring
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.fork_client import ForkedProgram
from lab.task.agent.launcher import WAITS, Launcher
from lab.task.agent.outcomes import ProgramEnd, TaskOutcome
from lab.task.agent.output import Output
from lab.task.agent.output_parser import OutputParser, RecordTags
from lab.task.agent.process import ChildProcess, all_oom_kills
from lab.volume import Request, Volume
from lab.volume.files import REFUSED_S, Patience, write_atomically
from lab.volume.states import State
from lab.volume.status import digest_of

_DRAIN_S: Final = 3.0
"""Seconds in which the pipe of an ended program must end, too."""


class Program:
    """One start of a task's program: its process and its output.

    Attributes:
        process: The process.
        output: Reads its output.
        is_running: False after `finish`.
    """

    def __init__(
        self,
        process: ChildProcess | ForkedProgram,
        output: Output,
        lost_peer: re.Pattern[str] | None = None,
    ) -> None:
        """Watch a program that has just been started.

        Args:
            process: The process.
            output: Reads its output.
            lost_peer: Matches the message of its error if another task was lost.
        """
        self._oom_kills = all_oom_kills()
        self._lost_peer = lost_peer
        self.process = process
        self.output = output
        self.is_running = True

    def finish(self, fault: str, beat: Callable[[], None]) -> ProgramEnd:
        """Kill the orphans of the ended program, read the rest of its output, and return its end.

        Args:
            fault: The injected fault that ended it, or "".
            beat: Called while it waits.
        """
        code = self.process.reap()
        self.output.finish(_DRAIN_S, beat)
        self.is_running = False
        oom_kills, parser = all_oom_kills(), self.output.parser
        error_line = parser.error_lines.error_line()
        lost_peer = self._lost_peer is not None and self._lost_peer.search(error_line)
        return ProgramEnd(
            code,
            error_line=error_line,
            last_line=parser.last_own_line,
            lost_contact=parser.lost_contact or bool(lost_peer),
            out_of_memory=oom_kills[0] != self._oom_kills[0],
            host_out_of_memory=oom_kills[1] != self._oom_kills[1],
            fault=fault,
        )


class StartFile:
    """The file that lets a task's program train."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._patience = Patience(REFUSED_S)

    def exists(self) -> bool:
        """Whether it was written in this attempt."""
        return self._path.exists()

    def write(self, joins_at: int | None) -> OSError | None:
        """Write it; return the error if the volume has refused it for `REFUSED_S`.

        Args:
            joins_at: The global step that the program must wait for itself, or None.
        """
        try:
            self._path.parent.mkdir(exist_ok=True)  # fails if the run was removed
            write_atomically(self._path, str(joins_at or ""), durable=False)
        except OSError as error:
            return error if self._patience.fail(error) else None
        self._patience.succeed()
        return None

    def remove(self) -> None:
        """Remove the file of the last attempt."""
        with contextlib.suppress(OSError):  # a failing volume is reported when a write fails
            self._path.unlink(missing_ok=True)


class ProgramStarter:
    """Starts the programs of one task in one run, one after the other."""

    def __init__(
        self,
        config: AgentConfig,
        request: Request,
        agent_log: AgentLog,
        launcher: Launcher,
        beat: Callable[[], None],
    ) -> None:
        """Read the records of an earlier process of this agent; this changes nothing.

        Args:
            config: The agent's settings.
            request: The run.
            agent_log: Receives the programs' lines.
            launcher: Starts the process.
            beat: Called while it reads.

        Raises:
            OSError: The volume cannot be read.
        """
        self._config = config
        self._request = request
        self._agent_log = agent_log
        self._launcher = launcher
        self._ring = ring.Ring(config, request)
        self._volume = Volume(config.runs)
        # A restarted agent appends to the records of its earlier process.
        self._digest = digest_of(self._volume.records(request.run_id, config.task), beat)

    @property
    def records_sha256(self) -> str:
        """The digest of all records that were written."""
        return self._digest.hexdigest()

    @property
    def wake_fds(self) -> tuple[int, ...]:
        """Descriptors that get readable when TensorFlow is imported."""
        return self._launcher.wake_fds

    def without_program(self) -> TaskOutcome | None:
        """The outcome of a task that has no program to start; else None."""
        if self._request.spec.program_of(self._config.task) is None:
            return TaskOutcome(State.SUCCEEDED, "this task has no program in this run")
        path = command.program_path(self._config, self._request)
        if not path.is_file():
            reason = f"no program {path}; put it into {self._config.scripts}"
            return TaskOutcome(State.FAILED, reason)
        return None

    def waits_for(self, attempt: int) -> str:
        """What the program of this attempt waits for, as text; "" if it can be started.

        Raises:
            OSError: Horovod's rendezvous cannot be started.
        """
        if not self._launcher.is_ready(self._request):
            return WAITS
        return "" if self._ring.is_ready(attempt) else ring.WAITS

    def start(self, attempt: int) -> tuple[Program, str]:
        """Start the program of this attempt.

        Returns:
            The program, and a text that describes how it was started; "" without a fork server.

        Raises:
            OSError: It cannot be started.
        """
        config, request, volume = self._config, self._request, self._volume
        environ = command.environ(config, request, attempt, os.environ)
        environ |= self._ring.environ(attempt)
        files = volume.files(request.run_id)
        files.mkdir(exist_ok=True)  # an earlier attempt may have removed it
        process, how = self._launcher.start(request, environ, files)
        try:
            output = Output(
                process.output,
                volume.records(request.run_id, config.task),
                volume.log(request.run_id, config.task),
                OutputParser(
                    RecordTags(request.run_id, attempt, config.job, config.index),
                    folder=str(command.program_folder(config, request)),
                    shown_folder=request.spec.folder,
                    record=request.spec.record,
                ),
                self._agent_log.echo,
                digest=self._digest,
            )
        except OSError:
            # Without an output thread the program would never end.
            process.reap()
            os.close(process.output)
            raise
        program = Program(process, output, FRAMEWORKS[request.spec.framework].lost_peer)
        output.start()
        return program, how

    def rendezvous_port(self, attempt: int) -> int:
        """The port of Horovod's rendezvous, which an agent serves; 0 without one."""
        return self._ring.port(attempt)

    def close(self) -> None:
        """End the processes that the last attempt has started beside its program."""
        self._ring.close()
