"""Asks for the inventory in a process that has a host's fake library."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.support.commands import Done, python
from tests.support.engine import ROOT
from tests.support.nvml.library import Driver

ONE_GPU = "version: 1\nname: m\nnodes: {a: {gpus: 1}}\njobs: {worker: {on: [a]}}\n"

_SCRIPT = """
import dataclasses, json, os, sys
from lab.cluster.config import parse_cluster
from lab.base.errors import LabError
from lab.cluster.gpu import NvmlError, driver, read_host, take_inventory
from lab.runner.gpu_metrics import open_gpus
from lab.cluster.placement.place import place
driver.TIMEOUT_S = float(sys.argv[2])
def see(variables, mode, config):
    for name in ("LAB_GPUS", "CUDA_VISIBLE_DEVICES"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    cluster, found = parse_cluster(config.encode(), "cluster.yaml"), {"samples": [], "pinned": []}
    try:
        seen = take_inventory(mode, cluster) if mode else read_host()
        found |= dataclasses.asdict(seen)
        if mode:
            found["pinned"] = [task.gpus for task in place(cluster, seen).tasks]
        elif seen.gpus:
            with open_gpus([gpu.device_id for gpu in seen.gpus] + ["GPU-of-no-box"]) as sample:
                found["samples"] = [each._asdict() for each in sample()]
    except LabError as error:
        faults = [error.fault] if isinstance(error, NvmlError) else []
        found |= {"error": str(error), "exit_code": error.exit_code}
        found["faults"] = [dataclasses.asdict(each) for each in faults]
    return found
print(json.dumps([see(*each) for each in json.loads(sys.argv[1])]))
"""


@dataclass(frozen=True)
class Question:
    """How the inventory is asked for: without a mode by `read_host`, else GPUs are placed, too."""

    variables: dict[str, str] = field(default_factory=dict)
    mode: str = ""
    config: str = ONE_GPU


def run(driver: Driver, *words: str, **more: str) -> Done:
    """A Python process that finds the host by its driver."""
    env = {**os.environ, **driver.environment, "PYTHONPATH": str(ROOT), **more}
    done = python(*words, env=env, cwd=ROOT)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def ask(
    driver: Driver, *questions: Question, timeout_s: float = 20, **more: str
) -> list[dict[str, Any]]:
    """The answers: each an inventory with samples and pinned GPUs, or an error."""
    asked = json.dumps([list(asdict(each).values()) for each in questions])
    return json.loads(run(driver, "-c", _SCRIPT, asked, str(timeout_s), **more).stdout)


def calls(driver: Driver) -> Counter[str]:
    """How often the library was opened and closed."""
    return Counter(driver.log.read_text().split() if driver.log.exists() else ())
