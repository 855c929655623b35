"""The known faults of printed synchronous programs: fixed in the source, recognized at run time."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from collections.abc import Callable
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


def uncalled(source: str) -> tuple[str, list[str]]:
    told: list[str] = []
    return ast.unparse(uncall_operations(ast.parse(source), told.append)), told


def test_operations_are_no_longer_called() -> None:
    text, told = uncalled("a = opt.local_step_init_op()\nif c:\n    a = f(opt.chief_init_op())\n")
    assert text == "a = opt.local_step_init_op\nif c:\n    a = f(opt.chief_init_op)"
    assert told == [
        "fixed: line 1: local_step_init_op is an operation, called as if it were a function",
        "fixed: line 3: chief_init_op is an operation, called as if it were a function",
    ]


@pytest.mark.parametrize(
    "source", ["opt.get_init_tokens_op()", "chief_init_op()", "opt.chief_init_op(1)", "a.b.c()"]
)
def test_all_else_stays(source: str) -> None:
    assert uncalled(source) == (source, [])


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


def inside(file: str, name: str) -> FrameType:
    """The frame of a function of this name in this file."""
    source = f"def {name}():\n    import sys\n    return sys._getframe()\n"
    code: CodeType = compile(source, file, "exec")
    space: dict[str, Callable[[], FrameType]] = {}
    exec(code, space)  # noqa: S102
    return space[name]()


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


def test_a_worker_that_computes_is_not_suspected() -> None:
    trial, runs = Trial(), inside(SESSION, "run")
    trial.ended = {"worker-1"}
    for _ in range(100):
        trial.cpu.now += 0.5
        trial.after(PATIENCE_S, runs)
    assert (trial.told, trial.left) == ([], [])


def test_the_ended_chief_is_named() -> None:
    assert worker_ended_message("worker-0") == (
        "this worker waits for worker-0, the chief, which updates the model, but worker-0 has"
        " ended; start it with `lab run --mend`"
    )


def test_a_wait_that_tensorflow_ends_without_an_error_is_no_fault() -> None:
    trial = Trial()
    source = "def join(ignore_live_threads):\n    import sys\n    return sys._getframe()\n"
    space: dict[str, Callable[[bool], FrameType]] = {}
    exec(compile(source, COORDINATOR, "exec"), space)  # noqa: S102
    goes = threading.Event()
    runner = threading.Thread(target=goes.wait, name="QueueRunnerThread-sync_token_q-")
    runner.start()
    try:
        for ignores in (True, False):
            trial.watch.look(frame := space["join"](ignores))
            trial.after(PATIENCE_S, frame)
            assert bool(trial.told) is not ignores
    finally:
        goes.set()
        runner.join()


def test_a_working_worker_is_not_suspected() -> None:
    trial = Trial()
    trial.ended = {"worker-1"}
    for _ in range(100):
        trial.after(PATIENCE_S / 2, inside(SESSION, "run"))
        trial.after(1, inside("program.py", "run"))
    assert (trial.told, trial.left) == ([], [])


@pytest.mark.parametrize(
    ("file", "name"), [(COORDINATOR, "join"), (str(threading.__file__), "_shutdown")]
)
def test_an_endless_queue_runner_is_reported(file: str, name: str) -> None:
    trial, waits = Trial(), inside(file, name)
    trial.after(0, waits)
    trial.after(PATIENCE_S, waits)
    assert trial.told == []  # No such thread runs: it waits for something else.
    goes = threading.Event()
    runner = threading.Thread(target=goes.wait, name="QueueRunnerThread-sync_token_q-sync_token_q")
    runner.start()
    try:
        trial.after(1, waits)
        trial.after(GIVE_UP_S, waits)
    finally:
        goes.set()
        runner.join()
    assert trial.told == [f"known fault: {NEVER_STOPS}"]
    assert trial.left == [NEVER_STOPS]


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
