"""The known faults of printed synchronous programs: fixed in the source, recognized at run time."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

from lab.task.tf1 import known_bugs
from lab.task.tf1.known_bugs import (
    GIVE_UP_S,
    NEVER_STOPS,
    PATIENCE_S,
    Watch,
    called_operation_message,
    uncall_operations,
    worker_ended_message,
)


@pytest.mark.parametrize(
    ("source", "text", "told"),
    [
        (
            "a = opt.local_step_init_op()",
            "a = opt.local_step_init_op",
            ["fixed: line 1: local_step_init_op is an operation, called as if it were a function"],
        ),
        (
            "if c:\n    a = f(opt.chief_init_op())",
            "if c:\n    a = f(opt.chief_init_op)",
            ["fixed: line 2: chief_init_op is an operation, called as if it were a function"],
        ),
        *[
            (text, text, [])
            for text in ("a.get_init_tokens_op()", "chief_init_op()", "a.chief_init_op(1)", "a.b()")
        ],
    ],
)
def test_operations_are_no_longer_called(source: str, text: str, told: list[str]) -> None:
    found: list[str] = []
    assert ast.unparse(uncall_operations(ast.parse(source), found.append)) == text
    assert found == told


def failing(folder: Path, line: str) -> BaseException:
    """The error of a program of this one line."""
    file = folder / "program.py"
    file.write_text(f"{line}\n")

    class Operation:
        pass

    try:
        exec(compile(file.read_text(), file, "exec"), {"op": Operation()})  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError(line)


def test_a_called_operation_is_recognized(tmp_path: Path) -> None:
    assert called_operation_message(failing(tmp_path, "x = op()"), tmp_path) == (
        "program.py:1: `x = op()` calls an operation as if it were a function;"
        " start it with `lab run --mend`"
    )
    assert called_operation_message(failing(tmp_path, "len(op)"), tmp_path) is None
    assert called_operation_message(failing(tmp_path, "raise ValueError"), tmp_path) is None
    elsewhere = tmp_path / "elsewhere"
    assert called_operation_message(failing(tmp_path, "x = op()"), elsewhere) is None


SESSION = "/site-packages/tensorflow/python/client/session.py"
COORDINATOR = "/site-packages/tensorflow/python/training/coordinator.py"


def inside(file: str, name: str, parameters: str = "", *values: object) -> FrameType:
    """The frame of a function of this name in this file."""
    source = f"def {name}({parameters}):\n    import sys\n    return sys._getframe()\n"
    code: CodeType = compile(source, file, "exec")
    space: dict[str, Callable[..., FrameType]] = {}
    exec(code, space)  # noqa: S102
    return space[name](*values)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Trial:
    """A watch with a clock and the set of ended tasks, and its reports."""

    def __init__(self) -> None:
        self.clock, self.cpu = Time(), Time()
        self.ended: set[str] = set()
        self.told: list[str] = []
        self.left: list[str] = []
        self.watch = Watch(
            self.told.append,
            is_synchronous=lambda: True,
            ended=lambda: self.ended,
            give_up=self.left.append,
            clock=self.clock,
            cpu_time=self.cpu,
        )

    def after(self, seconds: float, frame: FrameType) -> None:
        self.clock.now += seconds
        self.watch.look(frame)


def test_a_worker_without_peers_reports_it_then_ends() -> None:
    trial, waits = Trial(), inside(SESSION, "run")
    trial.ended = {"ps-0"}
    trial.after(0, waits)
    trial.after(PATIENCE_S, waits)
    assert trial.told == []  # Only a worker's gradients are missed.
    trial.ended = {"worker-2", "worker-1"}
    trial.after(1, waits)
    trial.after(1, waits)
    assert trial.told == [f"known fault: {worker_ended_message('worker-1')}"]
    trial.after(GIVE_UP_S, waits)
    assert trial.left == [worker_ended_message("worker-1")]


@pytest.mark.parametrize("computes", [True, False])
def test_a_worker_that_computes_or_goes_on_is_not_suspected(computes: bool) -> None:
    trial, waits = Trial(), inside(SESSION, "run")
    trial.ended = {"worker-1"}
    for _ in range(100):
        if computes:
            trial.cpu.now += 0.5
            trial.after(PATIENCE_S, waits)
        else:
            trial.after(PATIENCE_S / 2, inside(SESSION, "run"))
            trial.after(1, inside("program.py", "run"))
    assert (trial.told, trial.left) == ([], [])


@contextlib.contextmanager
def queue_runner() -> Iterator[None]:
    goes = threading.Event()
    runner = threading.Thread(target=goes.wait, name="QueueRunnerThread-sync_token_q-sync_token_q")
    runner.start()
    try:
        yield
    finally:
        goes.set()
        runner.join()


@pytest.mark.parametrize(
    ("waits", "is_fault"),
    [
        (inside(COORDINATOR, "join"), True),
        (inside(COORDINATOR, "join", "ignore_live_threads", False), True),
        # TensorFlow ends this wait by itself, without an error.
        (inside(COORDINATOR, "join", "ignore_live_threads", True), False),
        (inside(str(threading.__file__), "_shutdown"), True),
    ],
)
def test_an_endless_queue_runner_is_reported(waits: FrameType, is_fault: bool) -> None:
    trial = Trial()
    trial.after(0, waits)
    trial.after(PATIENCE_S, waits)
    assert trial.told == []  # No such thread runs: it waits for something else.
    with queue_runner():
        trial.after(1, waits)
        trial.after(GIVE_UP_S, waits)
    assert trial.told == [f"known fault: {NEVER_STOPS}"] * is_fault
    assert trial.left == [NEVER_STOPS] * is_fault


def test_an_aborted_program_ends_despite_a_waiting_thread() -> None:
    script = (
        "import threading; from lab.task.tf1.known_bugs import exit_with_known_fault;"
        "threading.Thread(target=threading.Event().wait).start(); exit_with_known_fault('it hangs')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"{known_bugs.ERROR}: it hangs\n")
