"""What it costs to sample eight cards once a second while a run is followed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT, Workplace
from tests.nvml import Driver, NoCompiler, install, load

BOX = "eight-h100"
SECONDS, QUICK_SECONDS = 10.0, 2.0
TARGET = Target("at most", 0.01)
HOW = (
    "CPU time of a process that does nothing but sample {cards} cards for {seconds:.0f} s, as"
    " `lab run` does while it follows, per second: three questions to NVML for each card, a line"
    " for each into `gpu.jsonl`, figures for the view. From the first sample on. The driver is the"
    " tests' own, which answers at once: what NVIDIA's takes to answer comes on top."
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One stretch of sampling.

    Attributes:
        cores: CPU time per second, user and system.
        lines: How many lines it wrote.
    """

    cores: float
    lines: int


def measure(setting: Setting) -> list[Outcome]:
    """The share of a core."""
    seconds = QUICK_SECONDS if setting.quick else SECONDS
    say(f"telemetry: {setting.pairs} times {seconds:.0f} s")
    cards = len(load(BOX).cards)
    try:
        driver = install(load(BOX), setting.place.folder)
    except NoCompiler as reason:
        return [_outcome(cards, seconds, [], str(reason))]
    measured = told("sampling", lambda: sample(setting.place, driver, seconds), _shown)
    return [_outcome(cards, seconds, [measured() for _ in range(setting.pairs)], "")]


def sample(place: Workplace, driver: Driver, seconds: float) -> Cost:
    """Sample for so long, in a process of its own.

    Raises:
        RuntimeError: It failed, or a sample is missing.
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
    said = json.loads(done.stdout)
    if said["lines"] < int(seconds) * len(driver.box.cards):
        raise RuntimeError(f"only {said['lines']} lines in {seconds} s")
    return Cost(said["cpu_s"] / said["seconds"], said["lines"])


def _outcome(cards: int, seconds: float, costs: list[Cost], why_not: str) -> Outcome:
    return Outcome(
        key="telemetry",
        what=f"GPU telemetry of {cards} cards, once a second",
        unit="of a core",
        target=TARGET,
        found=pairs.estimate([cost.cores for cost in costs]) if costs else None,
        how=HOW.format(cards=cards, seconds=seconds),
        why_not=why_not,
        raw={"lines": [cost.lines for cost in costs]},
    )


def _shown(cost: Cost) -> str:
    return f"{cost.cores:.5f} of a core, {cost.lines} lines"
