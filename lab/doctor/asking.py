"""Asking what may never answer: an engine that hangs, a driver that hangs, a dead file server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def later(action: Callable[[], T]) -> Future[T]:
    """Begin something that may hang; its thread holds up nobody, not even the end of the process.

    (An executor's threads are waited for when Python ends.)
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


def within(seconds: float, action: Callable[[], T]) -> T:
    """Do something that may hang, and wait no longer than this for it.

    Raises:
        TimeoutError: It took longer; it is left to itself.
    """
    return later(action).result(seconds)


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
