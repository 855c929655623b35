"""The time of the whole process `lab --help`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks import pairs
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT, Workplace

HELP = Target("at most", 0.12)
LEAST_HELPS = 20


def measure_help(setting: Setting) -> list[Outcome]:
    """Measure `lab --help`, interleaved with an empty Python program."""
    repeats = setting.pairs if setting.quick else max(LEAST_HELPS, setting.pairs)
    print_progress(f"lab --help: {repeats} pairs")
    command = [sys.executable, "-m", "lab", "--help"]
    seconds(setting.place, command)  # not counted: it may write bytecode
    both = pairs.interleaved(
        lambda: seconds(setting.place, command),
        lambda: seconds(setting.place, [sys.executable, "-c", "pass"]),
        repeats,
    )
    helps, bare = ([pair[side] for pair in both] for side in (0, 1))
    return [
        Outcome(
            key="help",
            what="`lab --help`",
            unit="s",
            target=HELP,
            found=pairs.estimate(helps),
            how="The whole process `python -m lab --help`, from its start to its end.",
            details={"`python -c pass`": f"{pairs.estimate(bare).median:.3f} s"},
            raw={"pass_s": bare},
        )
    ]


def seconds(place: Workplace, command: Sequence[str]) -> float:
    """Return the time of a command, with the place's environment variables."""
    began = time.perf_counter()
    subprocess.run(
        command,
        env=place.environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return time.perf_counter() - began
