"""No process uses the GPUs of a seat or a class that has ended, as far as NVML reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lab.classroom import environment, gpu_check
from lab.classroom.gpu_check import programs_left
from lab.errors import LabError
from lab.gpu import Condition, Inventory, NvmlError, Process
from lab.gpu.model import Fault
from lab.log import shown_by
from lab.units import GIB
from tests.golden.boxes import box, uuid_of
from tests.support.classes import a_plan

FIRST, SECOND = uuid_of(0), uuid_of(1)
PYTHON = Process(4711, "/usr/bin/python3", 3 * GIB)
XORG = Process(12, "/usr/lib/xorg/Xorg", 1, computes=False)
FAULT = Fault(Condition.OTHER, where="driver")


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
    """The lines and the result of a check, while the driver answers one thing after another."""
    seconds = count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    monkeypatch.setattr(gpu_check, "time", clock)

    def run(users: dict[str, list[str]], *answers: Inventory | NvmlError) -> list[str]:
        driver = Mock(side_effect=chain(answers, repeat(answers[-1])))
        monkeypatch.setattr(gpu_check, "read_host", driver)
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
        ({"count": 3, "share": True}, [uuid_of(2)]),  # of 4: other seats may use the shared ones
    ],
)
def test_a_seat_stays_stopped_while_a_process_uses_a_gpu_of_its_own(
    gpus: object, checked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Mock(return_value="GPU 0 is in use")
    monkeypatch.setattr(environment, "programs_left", look)
    with pytest.raises(LabError, match=r"ada stays stopped: GPU 0 is .* `lab class reset ada`"):
        environment._check_gpus(a_plan(("ada", "bob"), gpus), "ada")
    assert list(look.call_args.args[0]) == checked
