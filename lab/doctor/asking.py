"""Asking a command that may never answer: of an engine that hangs, for one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command came to.

    Attributes:
        code: Its exit code; 127 where there is no such command, None where it took too long.
        out: What it wrote to stdout.
        err: What it wrote to stderr.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def last(self) -> str:
        """Its last line, where the reason of a failure stands."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else "it gave no reason"


Ask = Callable[[Sequence[str], float], Answer]


def ask(
    command: Sequence[str], timeout_s: float, environ: Mapping[str, str] | None = None
) -> Answer:
    """Run a command that only looks; it is killed when it takes longer than it may."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=os.environ if environ is None else environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(None)
    except FileNotFoundError:
        return Answer(127, err=f"{command[0]}: no such command")
    return Answer(done.returncode, done.stdout, done.stderr)
