"""Asking all tasks at once what they see, and no longer than is good."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from lab.gpu.verification import Sight
from lab.task.text import short

MODULE: Final = "lab.task.sight"

ANSWER_S: Final = 30
"""Seconds that a task gets to answer; a driver may take some to wake a card."""

TENSORFLOW_S: Final = 120
"""The same where TensorFlow is asked, which takes seconds to import on an idle CPU."""

_AT_ONCE: Final = 16
_GRACE_S: Final = 5.0  # beyond its own time-out, for an engine to say that it was killed


def within_s(*, tensorflow: bool) -> int:
    """Seconds that a task gets to answer."""
    return TENSORFLOW_S if tensorflow else ANSWER_S


def words(*, tensorflow: bool) -> list[str]:
    """Arguments of the module: it ends itself when its time is over."""
    return ["--within", str(within_s(tensorflow=tensorflow)), *["--tensorflow"] * tensorflow]


def answer(code: int | None, stdout: bytes, stderr: bytes) -> Sight:
    """What a process of the module has said.

    Args:
        code: Its exit code; None or another than 0 where it failed.
        stdout: Its output: the last line counts, libraries may print before.
        stderr: Why it failed, at its end.
    """
    lines = stdout.decode("utf-8", errors="replace").strip().splitlines()
    if code == 0 and lines:
        try:
            return Sight.from_json(lines[-1])
        except ValueError as error:
            return Sight.untold(short(str(error)))
    said = stderr.decode("utf-8", errors="replace").strip().splitlines() or lines
    return Sight.untold(f"{MODULE} ended with {code}: {short(said[-1] if said else 'no word')}")


def ask_all(
    asks: Mapping[str, Callable[[], Sight]], *, tensorflow: bool, patience_s: float | None = None
) -> dict[str, Sight]:
    """Ask several tasks at once.

    Args:
        asks: Task to what asks it.
        tensorflow: Whether TensorFlow is asked, which wants a CPU for each.
        patience_s: Seconds that one gets, instead of what `words` gives it and a little more.

    Returns:
        What each sees; one that has not answered in time has a sight that says so.
    """
    at_once = min(len(asks), max(2, os.cpu_count() or 1) if tensorflow else _AT_ONCE)
    patience_s = patience_s or within_s(tensorflow=tensorflow) + _GRACE_S
    waiting: queue.SimpleQueue[tuple[str, Callable[[], Sight]]] = queue.SimpleQueue()
    found: dict[str, Sight] = {}
    faults: list[BaseException] = []

    def work() -> None:
        while True:
            try:
                task, ask = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                found[task] = ask()
            except BaseException as error:  # noqa: BLE001  (raised again in the caller's thread)
                faults.append(error)
                return

    for item in asks.items():
        waiting.put(item)
    # Nobody waits for a thread that hangs with a driver, not even the interpreter's end.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(at_once)]
    rounds = math.ceil(len(asks) / at_once) if asks else 0
    until = time.monotonic() + rounds * patience_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if faults:
        raise faults[0]
    late = Sight.untold(f"it did not answer within {rounds * patience_s:.0f} s")
    return {task: found.get(task, late) for task in asks}
