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

from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.base.units import GIB
from lab.cluster.gpu import Condition, Inventory, NvmlError, Process
from lab.cluster.gpu.values import Fault
from lab.teach.classroom import up_down
from lab.teach.classroom.up_down import programs_left
from tests.golden.boxes import box, uuid_of
from tests.support.agents import ROOT
from tests.support.classes import a_plan
from tests.support.nvml.box import Box
from tests.support.nvml.library import Driver

FIRST, SECOND = uuid_of(0), uuid_of(1)
PYTHON = Process(4711, "/usr/bin/python3", 3 * GIB)
XORG = Process(12, "/usr/lib/xorg/Xorg", 1, computes=False)
FAULT = Fault(Condition.OTHER, where="driver")


def host(*processes: tuple[Process, ...], **fields: Any) -> Inventory:
    found = box(4)
    gpus = [
        replace(gpu, processes=each, **fields)
        for gpu, each in zip(found.gpus, [*processes, (), (), (), ()], strict=False)
    ]
    return replace(found, gpus=tuple(gpus))


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr(up_down, "time", clock)

    def run(users: dict[str, list[str]], *answers: Inventory | NvmlError) -> list[str]:
        driver = Mock(side_effect=chain(answers, repeat(answers[-1])))
        monkeypatch.setattr(up_down, "read_host", driver)
        lines = list[str]()
        with shown_by(lines.append):
            left = programs_left(users)
        return [*lines, left, f"{driver.call_count} answers"]

    return run


OF_BOB = {SECOND: ["bob"]}


def test_an_empty_gpu(report: Callable[..., list[str]]) -> None:
    assert report(OF_BOB, host((PYTHON,))) == ["", "1 answers"]
    assert report({FIRST: ["ada"]} | OF_BOB, host((XORG,))) == ["", "1 answers"]
    assert report({}, host((PYTHON,))) == ["", "0 answers"]


def test_a_process_that_stays_or_ends_after_a_moment(report: Callable[..., list[str]]) -> None:
    busy = host((), (PYTHON,))
    assert report(OF_BOB, busy, busy, host()) == ["", "3 answers"]
    used = f"GPU 1 ({SECOND}, bob) is in use: /usr/bin/python3 (pid 4711, 3 GiB)"
    assert report({FIRST: ["ada"]} | OF_BOB, busy) == [used, "11 answers"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (NvmlError("no NVIDIA driver answers", "", FAULT), "no NVIDIA driver answers"),
        (Inventory("none", (), None, None, ("no driver\x1b",)), r"no driver\x1b"),
        (replace(box(4), gpus=()), "the driver does not report their processes"),
        (
            host(unknown=(("processes", Condition.NO_PERMISSION),)),
            "the driver does not report their processes",
        ),
    ],
)
def test_no_answer_is_no_proof(
    answer: Inventory | NvmlError, reason: str, report: Callable[..., list[str]]
) -> None:
    assert report(OF_BOB, answer) == [f"not checked: {SECOND}: {reason}", "", "1 answers"]


@pytest.mark.parametrize(
    ("gpus", "checked"),
    [
        (1, [FIRST]),
        (0, []),
        ({"queue": True}, []),  # the queue holds them
    ],
)
def test_a_seat_stays_stopped_while_a_process_uses_a_gpu_of_its_own(
    gpus: object, checked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Mock(return_value="GPU 0 is in use")
    monkeypatch.setattr(up_down, "programs_left", look)
    with pytest.raises(LabError, match=r"ada stays stopped: GPU 0 is .* `lab class reset ada`"):
        up_down._check_gpus(a_plan(("ada", "bob"), gpus), "ada")
    assert list(look.call_args.args[0]) == checked


REAL = """
import sys
from lab.teach.classroom import up_down
from lab.base.log import shown_by
up_down._GPU_WAIT_S = 0
up_down.POLL_S = 0.01
with shown_by(print):
    print(up_down.programs_left({gpu: ["ada"] for gpu in sys.argv[1:]}))
"""


def test_with_the_real_library_for_nvml(driver: Callable[[str | Box], Driver]) -> None:
    used, free = (f"MIG-0000000{n}-1111-2222-3333-444444444444" for n in (0, 1))
    variables = {**os.environ, **driver("mig").environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", REAL, FIRST, used, free]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == (f"GPU 1 ({used}, ada) is in use: /usr/bin/python3 (pid 4242, 900 MiB)\n")
