"""No process uses the GPUs of a seat or a class that has ended, as far as NVML reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lab.classroom import gpu_check
from lab.classroom.gpu_check import check_class_gpus, check_seat_gpus
from lab.errors import LabError
from lab.gpu import Condition, Inventory, NvmlError, Process
from lab.gpu.model import Fault
from lab.log import shown_by
from lab.units import GIB
from tests.golden.boxes import box, uuid_of
from tests.support.agents import ROOT
from tests.support.classes import a_plan
from tests.support.nvml.box import Box
from tests.support.nvml.library import Driver

FIRST, SECOND = uuid_of(0), uuid_of(1)
PYTHON = Process(4711, "/usr/bin/python3", 3 * GIB)
XORG = Process(12, "/usr/lib/xorg/Xorg", 1, computes=False)
FAULT = Fault(Condition.OTHER, where="driver")
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
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr(gpu_check, "time", clock)

    def run(seat: str, *answers: Inventory | NvmlError, gpus: object = 1) -> list[str]:
        driver = Mock(side_effect=chain(answers, repeat(answers[-1])))
        monkeypatch.setattr(gpu_check, "read_host", driver)
        plan, lines = a_plan(("ada", "bob"), gpus), list[str]()
        try:
            with shown_by(lines.append):
                if seat:
                    check_seat_gpus(plan, seat)
                else:
                    check_class_gpus(plan)
        except LabError as error:
            lines.append(str(error))
        return [*lines, f"{driver.call_count} answers"]

    return run


def test_an_empty_gpu(report: Callable[..., list[str]]) -> None:
    assert report("bob", host((PYTHON,))) == [f"{SECOND}: {EMPTY}", "1 answers"]
    assert report("", host()) == [f"{FIRST}: {EMPTY}", f"{SECOND}: {EMPTY}", "1 answers"]
    assert report("ada", host(), gpus=0) == ["0 answers"]
    assert report("", host((XORG,))) == [f"{FIRST}: {EMPTY}", f"{SECOND}: {EMPTY}", "1 answers"]


def test_a_process_that_stays_or_ends_after_a_moment(report: Callable[..., list[str]]) -> None:
    busy = host((), (PYTHON,))
    assert report("bob", busy, busy, host()) == [f"{SECOND}: {EMPTY}", "3 answers"]
    used = f"GPU 1 ({SECOND}, bob) is in use: /usr/bin/python3 (pid 4711, 3 GiB)"
    assert report("bob", busy) == [
        f"bob stays stopped: {used}; end that process with `kill PID`, then run "
        "`lab class reset bob` again",
        "11 answers",
    ]
    assert report("", busy) == [
        f"{FIRST}: {EMPTY}",
        f"the class 'w' is removed, but {used}; end that process with `kill PID`",
        "11 answers",
    ]


def test_the_queue_holds_gpus_for_its_class(report: Callable[..., list[str]]) -> None:
    queue = {"queue": True}
    assert report("ada", host((PYTHON,)), gpus=queue) == ["0 answers"]
    assert f"GPU 0 ({FIRST}, queue) is in use" in report("", host((PYTHON,)), gpus=queue)[-2]


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
    assert report("bob", answer) == [f"{SECOND}: not proved: {reason}", "1 answers"]


REAL = """
import sys
from dataclasses import replace
from lab.classroom import gpu_check
from lab.log import shown_by
from tests.support.classes import a_plan
gpu_check._WAIT_S = 0
gpu_check._POLL_S = 0.01
plan = a_plan(("ada",), 1)
plan = replace(plan, seats=(replace(plan.seats[0], gpus=tuple(sys.argv[1:])),))
with shown_by(print):
    gpu_check.check_seat_gpus(plan, "ada")
"""


def test_with_the_real_library_for_nvml(driver: Callable[[str | Box], Driver]) -> None:
    used, free = (f"MIG-0000000{n}-1111-2222-3333-444444444444" for n in (0, 1))
    environment = {**os.environ, **driver("mig").environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", REAL, FIRST, used, free]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{FIRST}: {EMPTY}\n{free}: {EMPTY}\n"
    assert f"GPU 1 ({used}, ada) is in use: /usr/bin/python3 (pid 4242, 900 MiB)" in done.stderr
