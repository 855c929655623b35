"""Run a command that may hang, such as a request to an engine that does not answer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    Attributes:
        code: Its exit code; 127 if there is no such command, None if it exceeded its time limit.
        out: Its stdout.
        err: Its stderr.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def last_line(self) -> str:
        """The last line of its output, which has the reason of a failure."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else "no reason given"


def run_command(
    command: Sequence[str], limit_s: float, environ: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a command that changes nothing, and kill it after its time limit."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CommandResult(None)
    except FileNotFoundError:
        return CommandResult(127, err=f"{command[0]}: no such command")
    return CommandResult(done.returncode, done.stdout, done.stderr)
