"""The cost of sampling eight GPUs once a second while a client follows a run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pairs
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT, Workplace
from tests.support.compiling import NoCompiler
from tests.support.nvml.box import load
from tests.support.nvml.library import Driver, install

HOST = "eight-h100"
SECONDS, QUICK_SECONDS = 10.0, 2.0
TARGET = Target("at most", 0.01)
HOW = (
    "CPU time per second of a process that samples {gpus} GPUs for {seconds:.0f} s like `lab run`:"
    " three NVML queries for each GPU, a line for each in `gpu.jsonl`, and the figures of the view."
    " The measurement begins after the first sample. The driver is the tests' fake one, which"
    " answers immediately; the time of NVIDIA's driver is not included."
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one sampling process.

    Attributes:
        cores: CPU time per second, user and system.
        lines: The number of lines that it wrote.
    """

    cores: float
    lines: int


def measure(setting: Setting) -> list[Outcome]:
    """Measure the share of a core."""
    seconds = QUICK_SECONDS if setting.quick else SECONDS
    print_progress(f"telemetry: {setting.pairs} times {seconds:.0f} s")
    gpus = len(load(HOST).cards)
    try:
        driver = install(load(HOST), setting.place.folder)
    except NoCompiler as reason:
        return [_outcome(gpus, seconds, [], str(reason))]
    measured = with_progress("sampling", lambda: sample(setting.place, driver, seconds), _shown)
    return [_outcome(gpus, seconds, [measured() for _ in range(setting.pairs)], "")]


def sample(place: Workplace, driver: Driver, seconds: float) -> Cost:
    """Sample for a number of seconds, in a separate process.

    Raises:
        RuntimeError: The process failed, or a sample is missing.
    """
    folder = Path(tempfile.mkdtemp(prefix="telemetry-", dir=place.folder))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sampling", str(folder), str(seconds)],
        env={**place.environ, **driver.environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout)
    if found["lines"] < int(seconds) * len(driver.box.cards):
        raise RuntimeError(f"only {found['lines']} lines in {seconds} s")
    return Cost(found["cpu_s"] / found["seconds"], found["lines"])


def _outcome(gpus: int, seconds: float, costs: list[Cost], why_not: str) -> Outcome:
    return Outcome(
        key="telemetry",
        what=f"GPU telemetry of {gpus} GPUs, once a second",
        unit="of a core",
        target=TARGET,
        found=pairs.estimate([cost.cores for cost in costs]) if costs else None,
        how=HOW.format(gpus=gpus, seconds=seconds),
        why_not=why_not,
        raw={"lines": [cost.lines for cost in costs]},
    )


def _shown(cost: Cost) -> str:
    return f"{cost.cores:.5f} of a core, {cost.lines} lines"
