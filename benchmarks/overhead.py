"""What the helper and the agents take of the CPUs while the programs train."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import (
    CLUSTER,
    CLUSTER_OF_8,
    PROGRAM,
    ROOT,
    TrainingError,
    Workplace,
    lab_run,
)
from lab.task.protocol import TASK

STEPS, QUICK_STEPS = 6_000, 1_500
_EVERY_S: Final = 0.2
_TICKS: Final = os.sysconf("SC_CLK_TCK")

HOW: Final = (
    "CPU seconds of the helper, the supervisor, the nursery and the agents, against those of the"
    " programs (mnist_async.py, softmax, 1 ps and {workers} workers, {steps:,} global steps)"
    " in the same time, by the kernel's count: from the first look at which every program had"
    " written its first records until the last at which all of them were there. On local, with the"
    " plain view."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster at full speed.

    Attributes:
        key: Of its outcome.
        cluster: Its description.
        workers: How many there are, beside the parameter server.
        value: The most that the share should be.
    """

    key: str
    cluster: Path
    workers: int
    value: float


CASES: Final = (
    Case("overhead-local", CLUSTER, 3, 0.01),
    Case("overhead-local-8", CLUSTER_OF_8, 7, 0.03),
)


def measure(setting: Setting) -> list[Outcome]:
    """The share on local, with four tasks and with eight."""
    return [_measure(setting, case) for case in CASES]


def _measure(setting: Setting, case: Case) -> Outcome:
    steps = QUICK_STEPS if setting.quick else STEPS
    tasks = case.workers + 1
    say(f"overhead on local, {tasks} tasks: {setting.pairs} runs")

    def look() -> float:
        return share(setting.place, steps, case)

    one = told("helper and agents / programs", look, _shown)
    values = [one() for _ in range(setting.pairs)]
    return Outcome(
        key=case.key,
        what=f"CPU time of the helper and the agents / of the programs, {tasks} tasks",
        unit="ratio",
        target=Target("at most", case.value),
        found=pairs.estimate(values),
        how=HOW.format(steps=steps, workers=case.workers),
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds so far.

    Attributes:
        lab: Of the helper, the supervisor and the agents.
        programs: Of the programs.
        count: How many programs there are.
    """

    lab: float
    programs: float
    count: int


def share(place: Workplace, steps: int, case: Case) -> float:
    """What the lab took, as a share of what the programs took, while all of them trained.

    Raises:
        TrainingError: The run did not succeed, or was over too soon.
    """
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    command = lab_run("local", runs, [f"--global_steps={steps}"], case.cluster)
    with (place.folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command,
            env=place.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        looks = list(_looks(place, process, runs, case.workers))
        if process.wait() != 0:
            last = (place.folder / "said").read_text(errors="replace")[-2000:]
            raise TrainingError(f"lab run ended with {process.returncode}: {last}")
    most = max((look.count for look in looks), default=0)
    whole = [look for look in looks if look.count == most]
    if len(whole) < 2:  # noqa: PLR2004
        raise TrainingError("the training was over before two looks at it")
    first, last_look = whole[0], whole[-1]
    return (last_look.lab - first.lab) / (last_look.programs - first.programs)


def _looks(
    place: Workplace, process: subprocess.Popen[bytes], runs: Path, workers: int
) -> Iterator[Spent]:
    """What was spent, five times a second, once every program has sent a record of a step."""
    while process.poll() is None:
        time.sleep(_EVERY_S)
        if _all_train(runs, workers):
            yield _spent(f"LAB_STATE={place.environ['LAB_STATE']}".encode())


def _all_train(runs: Path, workers: int) -> bool:
    files = [*runs.glob("*/tasks/worker-*.jsonl")]
    return len(files) == workers and all('"kind": "step"' in file.read_text() for file in files)


def _spent(marker: bytes) -> Spent:
    lab = programs = 0.0
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes()
            name = (folder / "comm").read_text().strip()
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        seconds = (int(fields[11]) + int(fields[12])) / _TICKS
        if PROGRAM.encode() in command or TASK.fullmatch(name):  # a forked one has its task's name
            programs += seconds
            count += 1
        else:
            lab += seconds
    return Spent(lab, programs, count)


def _shown(value: float) -> str:
    return f"{value:.2%}"
