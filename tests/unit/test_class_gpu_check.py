"""No process uses the GPUs of a seat or a class that has ended, as far as NVML reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lab.classroom import gpu_check
from lab.classroom.gpu_check import check_class_gpus, check_seat_gpus
from lab.errors import LabError
from lab.gpu import Condition, Inventory, NvmlError, Process
from lab.gpu.model import Fault
from lab.units import GIB
from tests.golden.boxes import box, uuid_of
from tests.support.agents import ROOT
from tests.support.classes import a_plan
from tests.support.nvml.box import Box
from tests.support.nvml.library import Driver

FIRST, SECOND = uuid_of(0), uuid_of(1)
PYTHON = Process(4711, "/usr/bin/python3", 3 * GIB)
XORG = Process(12, "/usr/lib/xorg/Xorg", 1, computes=False)
FAULT = Fault(Condition.OTHER, "driver", "", "")
EMPTY = "no process uses it (NVML)"


def host(*processes: tuple[Process, ...], **fields: Any) -> Inventory:
    """A host whose first GPUs have these processes."""
    found = box(4)
    gpus = [
        replace(gpu, processes=each, **fields)
        for gpu, each in zip(found.gpus, [*processes, (), (), (), ()], strict=False)
    ]
    return replace(found, gpus=tuple(gpus))


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines and the error of a check, while the driver answers one thing after another."""
    seconds = 0.0

    def sleep(more: float) -> None:
        nonlocal seconds
        seconds += more

    clock = SimpleNamespace(monotonic=lambda: seconds, sleep=sleep)
    monkeypatch.setattr(gpu_check, "time", clock)

    def run(seat: str, *answers: Inventory | NvmlError, gpus: object = 1) -> list[str]:
        left = list(answers)

        def read() -> Inventory:
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, NvmlError):
                raise answer
            return answer

        monkeypatch.setattr(gpu_check, "read_host", read)
        plan, lines = a_plan(("ada", "bob"), gpus), list[str]()
        try:
            if seat:
                check_seat_gpus(plan, seat, lines.append)
            else:
                check_class_gpus(plan, lines.append)
        except LabError as error:
            lines.append(str(error))
        return [*lines, f"{seconds:g} s"]

    return run


def test_an_empty_gpu(report: Callable[..., list[str]]) -> None:
    assert report("bob", host((PYTHON,))) == [f"{SECOND}: {EMPTY}", "0 s"]
    assert report("", host()) == [f"{FIRST}: {EMPTY}", f"{SECOND}: {EMPTY}", "0 s"]
    assert report("ada", host(), gpus=0) == ["0 s"]
    assert report("", host((XORG,))) == [f"{FIRST}: {EMPTY}", f"{SECOND}: {EMPTY}", "0 s"]


def test_a_process_that_stays_or_ends_after_a_moment(report: Callable[..., list[str]]) -> None:
    busy = host((), (PYTHON,))
    assert report("bob", busy, busy, host()) == [f"{SECOND}: {EMPTY}", "2 s"]
    used = f"GPU 1 ({SECOND}, bob) is in use: /usr/bin/python3 (pid 4711, 3 GiB)"
    assert report("bob", busy) == [
        f"bob stays stopped: {used}; end that process with `kill PID`, then run "
        "`lab class reset bob` again",
        "13 s",
    ]
    assert report("", busy) == [
        f"{FIRST}: {EMPTY}",
        f"the class 'w' is removed, but {used}; end that process with `kill PID`",
        "24 s",
    ]


def test_the_queue_holds_gpus_for_its_class(report: Callable[..., list[str]]) -> None:
    queue = {"queue": True}
    assert report("ada", host((PYTHON,)), gpus=queue) == ["0 s"]
    *_, error, _ = report("", host((PYTHON,)), gpus=queue)
    assert f"GPU 0 ({FIRST}, queue) is in use" in error


def test_other_seats_may_use_a_shared_gpu(report: Callable[..., list[str]]) -> None:
    shared = {"count": 3, "share": True}  # of 4: two GPUs have both seats, two have one
    busy = host((PYTHON,))
    lines = report("ada", busy, gpus=shared)
    assert f"{FIRST}: shared: not checked" in lines
    assert sum(line.endswith("shared: not checked") for line in lines) == 2
    assert sum(line.endswith(EMPTY) for line in lines) == 1
    # After the class, no seat is left that may use it.
    assert "ada, bob) is in use" in report("", busy, gpus=shared)[-2]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (NvmlError("no NVIDIA driver answers", "", FAULT), "no NVIDIA driver answers"),
        (Inventory("none", (), None, None, ("no driver\x1b",)), r"no driver\x1b"),
        (replace(box(4), gpus=()), "the driver does not list it"),
        (
            host(unknown=(("processes", Condition.NO_PERMISSION),)),
            "the driver does not list its processes (no permission)",
        ),
    ],
)
def test_no_answer_is_no_proof(
    answer: Inventory | NvmlError, reason: str, report: Callable[..., list[str]]
) -> None:
    assert report("bob", answer) == [f"{SECOND}: not proved: {reason}", "0 s"]


REAL = """
import sys
from dataclasses import replace
from lab.classroom import gpu_check
from tests.support.classes import a_plan
gpu_check._WAIT_S = 0
gpu_check._POLL_S = 0.01
plan = a_plan(("ada",), 1)
plan = replace(plan, seats=(replace(plan.seats[0], gpus=tuple(sys.argv[1:])),))
gpu_check.check_seat_gpus(plan, "ada", print)
"""


def test_with_the_real_library_for_nvml(driver: Callable[[str | Box], Driver]) -> None:
    used, free = (f"MIG-0000000{n}-1111-2222-3333-444444444444" for n in (0, 1))
    environment = {**os.environ, **driver("mig").environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", REAL, FIRST, used, free]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{FIRST}: {EMPTY}\n{free}: {EMPTY}\n"
    assert f"GPU 1 ({used}, ada) is in use: /usr/bin/python3 (pid 4242, 900 MiB)" in done.stderr
