"""A host as the doctor sees it, and how a table of checks is tested."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace

from lab.backends.checks import Outcome, Status
from lab.backends.engine.info import EngineInfo
from lab.cluster.gpu import Condition, Fault, Gpu, Inventory

UUID = "GPU-5f2a0000-0000-0000-0000-000000000001"
H100 = Gpu(0, UUID, "NVIDIA H100 80GB HBM3", 80 * 2**30, minor=1)
BOX = Inventory("uuid", (H100,), 8, 2**36, driver="580.95.05", cuda="13.0")
NO_BOX = Inventory("none", (), 8, 2**36)
INFO = {
    "Name": os.uname().nodename,
    "ServerVersion": "28.2.2",
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
PODMAN = replace(told(ServerVersion="5.4.2"), is_podman=True)
ROOTLESS = told(SecurityOptions=["name=seccomp", "name=rootless"])


def fault(condition: Condition, where: str = "driver") -> Fault:
    """A fault that the inventory reports."""
    return Fault(condition, "NVML's words", "the inventory's fix", where)


Examine = Callable[[], Outcome]
Examinations = list[tuple[Examine, str, str]]
"""A check, its verdict (the status, and `stops` if later checks are left out), and words of it."""


def assert_found(examine: Examine, verdict: str, words: str) -> None:
    """Compare one row of a table."""
    outcome = examine()
    shown = f"{outcome.what} → {outcome.fix}" if outcome.fix else outcome.what
    assert f"{outcome.status}{' stops' * outcome.stops}" == verdict, shown
    assert re.search(words, shown), shown
    assert "\x1b" not in shown
    assert outcome.fix or outcome.status not in {Status.FAILED, Status.WARNING}
