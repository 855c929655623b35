"""How long the inventory of eight cards takes beyond the time that NVML itself takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT
from tests import nvml

BEYOND_NVML = Target("at most", 0.05)
CARDS = 8
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

# Every function of the library is called through this one; what it takes is NVML's own time.
spent, calls, find, known = 0.0, 0, pynvml._nvmlGetFunctionPointer, {}

def clocked(name):
    function = known.get(name)
    if function is None:
        inner = find(name)
        def function(*arguments):
            global spent, calls
            start = now()
            answer = inner(*arguments)
            spent += now() - start
            calls += 1
            return answer
        known[name] = function
    return function

pynvml._nvmlGetFunctionPointer = clocked
began = now()
inventory = take_inventory("uuid", cluster)
took = now() - began
print(json.dumps({
    "cards": len(inventory.gpus), "pairs": len(inventory.pairs), "calls": calls,
    "import_s": imported, "nvml_s": spent, "beyond_s": took - spent,
}))
"""


def measure(setting: Setting) -> list[Outcome]:
    """`take_inventory` of eight cards, each time in a process of its own."""
    repeats = setting.pairs if setting.quick else max(LEAST_REPEATS, setting.pairs)
    say(f"inventory of {CARDS} cards: {repeats} times")
    try:
        driver = nvml.install(nvml.load("eight-h100"), setting.place.folder)
    except nvml.NoCompiler as reason:
        return [_outcome(None, why_not=str(reason))]
    environment = {**os.environ, **setting.place.environ, **driver.environment}
    once(environment)  # not counted: it may write bytecode
    measured = told(
        "inventory", lambda: once(environment), lambda found: f"{found['beyond_s']:.4f} s"
    )
    return [_outcome([measured() for _ in range(repeats)])]


def once(environment: Mapping[str, str]) -> dict[str, float]:
    """One inventory by a process that has done nothing else; its times in seconds.

    Raises:
        RuntimeError: It was not the inventory of all cards.
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
    if (found["cards"], found["pairs"]) != (CARDS, CARDS * (CARDS - 1) // 2):
        raise RuntimeError(f"{found['cards']} cards and {found['pairs']} pairs were found")
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
        what=f"inventory of {CARDS} cards, beyond NVML's own time",
        unit="s",
        target=BEYOND_NVML,
        found=pairs.estimate([each["beyond_s"] for each in found]) if found else None,
        how=(
            "`take_inventory` in a new process, less the time spent in functions of the library,"
            " which is the tests' fake one. To import NVML's binding, nvidia-ml-py, is not in it."
        ),
        why_not=why_not,
        details=details,
        raw={"nvml_s": [each["nvml_s"] for each in found]} if found else {},
    )
