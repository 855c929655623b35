"""A host as the doctor sees it, and how a table of judgements is checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lab.doctor.commands import CommandResult
from lab.doctor.engine import EngineInfo
from lab.doctor.images import TaskImage
from lab.doctor.model import Outcome, Status
from lab.gpu import Condition, Fault, Gpu, Inventory

UUID = "GPU-5f2a0000-0000-0000-0000-000000000001"
H100 = Gpu(0, UUID, "NVIDIA H100 80GB HBM3", 80 * 2**30, minor=1)
BOX = Inventory("uuid", (H100,), 8, 2**36, driver="580.95.05", cuda="13.0")
NO_BOX = Inventory("none", (), 8, 2**36)
SEEN = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n"
IMAGE = TaskImage("lab:cpu", "python:3.11-slim-bookworm", 1690 * 10**6, is_here=True)
INFO = {
    "Name": os.uname().nodename,
    "ServerVersion": "28.2.2",
    "Driver": "overlay2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "DockerRootDir": "/var/lib/docker",
    "Runtimes": {"runc": {}},
}

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {gpus: GPUS}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def told(**changes: object) -> EngineInfo:
    """An engine that reports this."""
    return EngineInfo({**INFO, **changes})


ENGINE = told()
PODMAN = replace(told(ServerVersion="5.4.2", Driver="overlay"), is_podman=True)
ROOTLESS = told(SecurityOptions=["name=seccomp", "name=rootless"])
AWAY = told(Name="another")


def fault(condition: Condition, where: str = "driver") -> Fault:
    """A fault that the inventory reports."""
    return Fault(condition, "NVML's words", "the inventory's fix", where)


Judge = Callable[[], Outcome]
Judgements = list[tuple[Judge, str, str]]
"""A judgement, its verdict, and words of it.

The verdict is the status, `stops` if checks that need it are skipped, and what it blocks.
"""


def check(judge: Judge, verdict: str, words: str) -> None:
    """Check one row of a table."""
    found = judge()
    stops, blocks = " stops" * found.stops, found.blocks and f": {found.blocks}"
    shown = f"{found.what} → {found.fix}" if found.fix else found.what
    assert f"{found.status}{stops}{blocks}" == verdict, shown
    assert re.search(words, shown), shown
    assert "\x1b" not in shown
    assert found.fix or found.status is not Status.FAILED


def raising(error: Exception) -> Callable[..., Any]:
    """A function that fails."""

    def refuse(*_: object) -> Any:
        raise error

    return refuse


class Commands:
    """Answers one command after the other, and remembers them."""

    def __init__(self, *answers: CommandResult) -> None:
        self.answers = list(answers)
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], limit_s: float) -> CommandResult:
        self.commands.append(command)
        return self.answers.pop(0)
