"""A training over nearly full links, measured and simulated, for docs/scaling.md."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.machine import describe
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome
from benchmarks.steps import STEPS, Records, steps_per_second
from benchmarks.trainings import ROOT, json_records, must
from lab.simulation import MEASURED, Box, Shape, Way, simulate

FIGURES: Final = ROOT / "benchmarks/slow_link.json"
MBIT: Final = 100
LATENCY_S: Final = 20e-6
MLP: Final = (784 * 500 * 4, 500 * 4, 500 * 10 * 4, 10 * 4)
"""Bytes of the variables of 784-500-10, in the order of their creation: float32."""
SHAPE: Final = Shape(Way.ASYNC, 2, 1, variables=MLP)
STEPS_EACH, QUICK_STEPS = 400, 60
KEPT: Final = ("kind", "time_unix", "local_step", "global_step")


def measure(setting: Setting) -> list[Outcome]:
    """Train once, and write `slow_link.json`; no row, because there is no target."""
    machine, when = describe(ROOT), time.strftime("%Y-%m-%d %H:%M %Z")
    records = _train(setting, QUICK_STEPS if setting.quick else STEPS_EACH)
    figures = {"when": when, "machine": machine, "records": records}
    print_progress(f"  {sentence(figures)}")
    if not setting.quick:
        FIGURES.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    return []


def read() -> dict[str, Any] | None:
    """Return the last measurement; None without one."""
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else None


def sentence(figures: Mapping[str, Any] | None) -> str:
    """Return a sentence with both rates.

    Args:
        figures: The content of `slow_link.json`: `machine`, and `records` of each worker; None
            without a measurement.
    """
    what = f"`mlp`, two workers, links of {MBIT} Mbit/s"
    if figures is None:
        return f"{what}: not measured yet; run `python -m benchmarks slow-link`"
    cores, load = figures["machine"]["cores"], figures["machine"]["load_before"]
    box = Box(cores, 0, MBIT * 1e6 / 8, LATENCY_S)
    simulated = simulate(SHAPE, MEASURED, box).steps_per_s
    found = steps_per_second(figures["records"])
    return (
        f"{what}: {simulated:.1f} global steps a second simulated, {found:.1f} measured at a load"
        f" average of {load:.1f} before, {figures['when']}"
    )


def _train(setting: Setting, steps: int) -> Records:
    """Train, and return the records of each worker with the fields for the rate."""
    folder = setting.place.folder
    for name in ("scripts", "data"):
        (folder / name).symlink_to(ROOT / name)
    nodes = ("tf1", "tf2", "tf3")
    config = {
        "version": 1,
        "name": "lab-slow-link",
        "nodes": {node: {} for node in nodes},
        "jobs": {"ps": {"on": ["tf1"]}, "worker": {"on": ["tf2", "tf3"]}},
        "links": {node: {"rate": f"{MBIT}mbit"} for node in nodes},
    }
    file = folder / "slow-link.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "lab", "run", "async-mlp", "--backend", "local"]
    command += ["--gpus", "none", "--cluster", str(file), "--runs-dir", str(folder / "slow-link")]
    must(setting.place, "lab run", [*command, f"--global_steps={steps}", "--record_every=10"])
    (run,) = (folder / "slow-link").iterdir()
    return {
        task: [
            {name: record[name] for name in KEPT}
            for record in json_records(run / f"tasks/{task}.jsonl")
            if record["kind"] in STEPS
        ]
        for task in ("worker-0", "worker-1")
    }
