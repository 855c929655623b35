"""The programs of one task in one run: when one can be started, its start, and its end."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Final

from lab.protocol.frameworks import FRAMEWORKS
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.files import REFUSED_S, Patience, write_atomically
from lab.protocol.volume.states import State
from lab.protocol.volume.status import digest_of
from lab.task.agent import command, ring
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.agent_log import AgentLog
from lab.task.agent.fork_client import ForkClient, ForkedProgram, ForkRefused
from lab.task.agent.outcomes import ProgramEnd, TaskOutcome
from lab.task.agent.output import Output
from lab.task.agent.output_parser import OutputParser, RecordTags
from lab.task.agent.process import ChildProcess, all_oom_kills

_DRAIN_S: Final = 3.0
"""Seconds in which the pipe of an ended program must end, too."""

_PATIENCE_S: Final = 60.0
"""Maximum seconds that a program waits for the import. A new process starts much sooner."""

WAITS: Final = "waits for TensorFlow, which is imported once for all tasks"

_TENSORFLOW: Final = "tensorflow"
# `lab` is the recorder and related modules; TensorFlow itself imports NumPy.
_HARMLESS: Final = sys.stdlib_module_names | {"lab", "numpy"}


@dataclass(eq=False)
class Program:
    """One start of a task's program, which has just been started: its process and its output.

    Attributes:
        process: The process.
        output: Reads its output.
        lost_peer: Matches the message of its error if another task was lost.
        is_running: False after `finish`.
    """

    process: ChildProcess | ForkedProgram
    output: Output
    lost_peer: re.Pattern[str] | None
    is_running: bool = True
    _oom_kills: tuple[int | None, int | None] = field(default_factory=all_oom_kills)

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
        lost_peer = self.lost_peer is not None and self.lost_peer.search(error_line)
        return ProgramEnd(
            code,
            error_line=error_line,
            last_line=parser.last_own_line,
            lost_contact=parser.lost_contact or bool(lost_peer),
            out_of_memory=oom_kills[0] != self._oom_kills[0],
            host_out_of_memory=oom_kills[1] != self._oom_kills[1],
            fault=fault,
        )


@dataclass(eq=False)
class ProgramStarter:
    """Starts the programs of one task in one run, one after the other.

    Attributes:
        config: The agent's settings.
        request: The run.
        agent_log: Receives the programs' lines.
        fork_client: The connection to the fork server; None: there is no fork server.
        beat: Called while the records of an earlier process of this agent are read.
        digest: The digest of all records that were written.
        ring: Horovod's ring, with what the last attempt has started beside its program.
    """

    config: AgentConfig
    request: Request
    agent_log: AgentLog
    fork_client: ForkClient | None
    beat: InitVar[Callable[[], None]]

    def __post_init__(self, beat: Callable[[], None]) -> None:
        """Read the records of an earlier process of this agent; this changes nothing.

        Raises:
            OSError: The volume cannot be read.
        """
        self.ring = ring.Ring(self.config, self.request)
        self.volume = Volume(self.config.runs)
        # A restarted agent appends to the records of its earlier process.
        path = self.volume.records(self.request.run_id, self.config.task)
        self.digest = digest_of(path, beat)
        self._since: float | None = None  # when the program began to wait for the fork server
        self._start_file = self.volume.start(self.request.run_id, self.config.task)
        self._patience = Patience(REFUSED_S)

    def without_program(self) -> TaskOutcome | None:
        """The outcome of a task that has no program to start; else None."""
        if self.request.spec.program_of(self.config.task) is None:
            return TaskOutcome(State.SUCCEEDED, "this task has no program in this run")
        path = command.program_path(self.config, self.request)
        if not path.is_file():
            reason = f"no program {path}; put it into {self.config.scripts}"
            return TaskOutcome(State.FAILED, reason)
        return None

    def waits_for(self, attempt: int) -> str:
        """What the program of this attempt waits for, as text; "" if it can be started.

        Raises:
            OSError: Horovod's rendezvous cannot be started.
        """
        if not self.is_ready():
            return WAITS
        return "" if self.ring.is_ready(attempt) else ring.WAITS

    def is_ready(self) -> bool:
        """Whether the program may start now, forked or as a new process."""
        if self.fork_client is None or self.fork_client.is_settled() or self.no_fork_reason():
            return True
        if self._since is None:
            self._since = time.monotonic()
        if time.monotonic() - self._since < _PATIENCE_S:
            return False
        self.fork_client.disconnect("the import takes too long")
        return True

    def no_fork_reason(self) -> str | None:
        """Why the request or the program's source does not allow a fork; None if they do."""
        spec = self.request.spec
        if spec.own:
            return "a user's own program imports TensorFlow itself"
        if spec.env:
            return "TensorFlow may read its variables when it is imported"
        if self.config.gpus != "none":
            return "it uses GPUs"
        return import_refusal(command.program_path(self.config, self.request))

    def start(self, attempt: int) -> tuple[Program, str]:
        """Start the program of this attempt.

        Returns:
            The program, and a text that describes how it was started; "" without a fork server.

        Raises:
            OSError: It cannot be started.
        """
        config, request, volume = self.config, self.request, self.volume
        environ = command.environ(config, request, attempt, os.environ)
        environ |= self.ring.environ(attempt)
        files = volume.files(request.run_id)
        files.mkdir(exist_ok=True)  # an earlier attempt may have removed it
        process, how = self._launch(environ, files)
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
                self.agent_log.echo,
                digest=self.digest,
            )
        except OSError:
            # Without an output thread the program would never end.
            process.reap()
            os.close(process.output)
            raise
        program = Program(process, output, FRAMEWORKS[request.spec.framework].lost_peer)
        output.start()
        return program, how

    def may_train(self) -> bool:
        """Whether the file that lets the program train was written in this attempt."""
        return self._start_file.exists()

    def let_train(self, joins_at: int | None) -> None:
        """Write that file; if the volume refuses it, the next call tries again.

        Args:
            joins_at: The global step that the program must wait for itself, or None.

        Raises:
            OSError: The volume has refused it for `REFUSED_S`.
        """
        with self._patience:
            self._start_file.parent.mkdir(exist_ok=True)  # fails if the run was removed
            write_atomically(self._start_file, str(joins_at or ""), durable=False)

    def forget_attempt(self) -> None:
        """Remove the file of the last attempt."""
        with contextlib.suppress(OSError):  # a failing volume is reported when a write fails
            self._start_file.unlink(missing_ok=True)

    def _launch(
        self, environ: Mapping[str, str], folder: Path
    ) -> tuple[ChildProcess | ForkedProgram, str]:
        """Start the process; see `start`."""
        argv, why_not = command.argv(self.config, self.request), self.no_fork_reason()
        if self.fork_client is not None and why_not is None:
            try:
                process = self.fork_client.spawn(argv, environ, folder)
            except ForkRefused as reason:
                why_not = str(reason)
            else:
                return process, "forked from the fork server"
        has_sessions = command.has_launcher(self.config, self.request)
        child = ChildProcess(argv, environ, folder, has_sessions=has_sessions)
        return child, f"as a new process: {why_not}" if self.fork_client else ""


def import_refusal(program: Path) -> str | None:
    """Why a program must import TensorFlow itself; None if it may be imported earlier.

    It may if the program only has a docstring and harmless imports before its import of TensorFlow.
    A program that runs other code first, such as setting a variable for TensorFlow, must import
    TensorFlow itself.

    Args:
        program: The path of its source.
    """
    try:
        body = ast.parse(program.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return "its source cannot be read"
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        modules = _modules(statement)
        if not modules:
            break
        for name in sorted(modules):
            if name not in _HARMLESS | {_TENSORFLOW} or _lies_beside(program, name):
                return f"it imports {name} before TensorFlow"
        if _TENSORFLOW in modules:
            return None
    return "it runs code before it imports TensorFlow, or does not import it"


def _lies_beside(program: Path, module: str) -> bool:
    """Whether the program's directory has a module of this name, which Python finds first."""
    return any((program.parent / name).exists() for name in (f"{module}.py", module))


def _modules(statement: ast.stmt) -> set[str]:
    """The packages that a statement imports; empty if it is not an import."""
    if isinstance(statement, ast.Import):
        return {alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return {statement.module.partition(".")[0]}
    return set()
