"""The time of the inventory of eight GPUs, without the time of NVML itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from benchmarks import pairs
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT
from tests.support.compiling import NoCompiler
from tests.support.nvml.box import load
from tests.support.nvml.library import install

BEYOND_NVML = Target("at most", 0.05)
GPUS = 8
LEAST_REPEATS = 20

CLOCK = """
import json, time
from lab.config import parse_cluster
from lab.gpu import take_inventory

cluster = parse_cluster(
    b"version: 1\\nname: m\\nnodes: {a: {gpus: 8}}\\njobs: {worker: {on: [a]}}\\n", "cluster.yaml"
)
now = time.perf_counter
began = now()
import pynvml
imported = now() - began

# pynvml calls every function of the library through this one; its time is NVML's own.
spent, calls, find, known = 0.0, 0, pynvml._nvmlGetFunctionPointer, {}

def clocked(name):
    function = known.get(name)
    if function is None:
        inner = find(name)
        def function(*arguments):
            global spent, calls
            start = now()
            value = inner(*arguments)
            spent += now() - start
            calls += 1
            return value
        known[name] = function
    return function

pynvml._nvmlGetFunctionPointer = clocked
began = now()
inventory = take_inventory("uuid", cluster)
took = now() - began
print(json.dumps({
    "gpus": len(inventory.gpus), "pairs": len(inventory.pairs), "calls": calls,
    "import_s": imported, "nvml_s": spent, "beyond_s": took - spent,
}))
"""


def measure(setting: Setting) -> list[Outcome]:
    """Measure `take_inventory` of eight GPUs, each time in a new process."""
    repeats = setting.pairs if setting.quick else max(LEAST_REPEATS, setting.pairs)
    print_progress(f"inventory of {GPUS} GPUs: {repeats} times")
    try:
        driver = install(load("eight-h100"), setting.place.folder)
    except NoCompiler as reason:
        return [_outcome(None, why_not=str(reason))]
    environment = {**os.environ, **setting.place.environ, **driver.environment}
    once(environment)  # not counted: it may write bytecode
    measured = with_progress(
        "inventory", lambda: once(environment), lambda found: f"{found['beyond_s']:.4f} s"
    )
    return [_outcome([measured() for _ in range(repeats)])]


def once(environment: Mapping[str, str]) -> dict[str, float]:
    """Take one inventory in a new process, and return its times in seconds.

    Raises:
        RuntimeError: The inventory does not have all GPUs and pairs.
    """
    done = subprocess.run(
        [sys.executable, "-c", CLOCK],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    if (found["gpus"], found["pairs"]) != (GPUS, GPUS * (GPUS - 1) // 2):
        raise RuntimeError(f"the inventory has {found['gpus']} GPUs and {found['pairs']} pairs")
    return found


def _outcome(found: list[dict[str, float]] | None, why_not: str = "") -> Outcome:
    details = {}
    if found:
        imports = pairs.estimate([each["import_s"] for each in found]).median
        details = {
            "importing nvidia-ml-py, once in a process": f"{imports:.3f} s",
            "calls of NVML": f"{found[0]['calls']:.0f}",
        }
    return Outcome(
        key="gpus",
        what=f"inventory of {GPUS} GPUs, without NVML's own time",
        unit="s",
        target=BEYOND_NVML,
        found=pairs.estimate([each["beyond_s"] for each in found]) if found else None,
        how=(
            "`take_inventory` in a new process, without the time in the library's functions and"
            " without the import of its binding, nvidia-ml-py. The library is the tests' fake one."
        ),
        why_not=why_not,
        details=details,
        raw={"nvml_s": [each["nvml_s"] for each in found]} if found else {},
    )
