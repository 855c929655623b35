"""Run a command that may never end, such as one that asks an engine that hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        code: Its exit code; 127 where there is no such command, None where it took too long.
        out: Its stdout.
        err: Its stderr.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def last_line(self) -> str:
        """Its last line, where the reason of a failure is."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else "it gave no reason"


def run_command(
    command: Sequence[str], limit_s: float, environ: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a command that changes nothing, and kill it at its time limit."""
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
