"""The CPU time of the client and the agents while the programs train."""

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
from benchmarks.measure import Setting, print_progress, with_progress
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
_AGENT: Final = b"\0lab.task.agent"
_TICKS: Final = os.sysconf("SC_CLK_TCK")

HOW: Final = (
    "CPU seconds of {lab}, relative to the programs (mnist_async.py, softmax, 1 ps and {workers}"
    " workers, {steps:,} global steps) in the same time, from the kernel's counters. The interval"
    " begins with the first sample after every program's first records, and ends with the last"
    " sample of all programs. On {backend}, with the plain view."
)
_PROCESSES: Final = {
    "local": "the client, the supervisor, the fork server and the agents",
    "slurm": "the client with its calls of `squeue`, the batch script, `srun` and the agents",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster whose programs train at full speed.

    Attributes:
        key: The key of its outcome.
        cluster: Its config.
        workers: The number of workers; there is also one parameter server.
        value: The limit of the share.
        backend: The backend.
    """

    key: str
    cluster: Path
    workers: int
    value: float
    backend: str = "local"


CASES: Final = (
    Case("overhead-local", CLUSTER, 3, 0.01),
    Case("overhead-local-8", CLUSTER_OF_8, 7, 0.03),
)


def measure(setting: Setting) -> list[Outcome]:
    """Measure the share on local, with four tasks and with eight."""
    return [measure_case(setting, case) for case in CASES]


def measure_case(setting: Setting, case: Case) -> Outcome:
    """Measure the share on one cluster."""
    steps = QUICK_STEPS if setting.quick else STEPS
    tasks = case.workers + 1
    print_progress(f"overhead on {case.backend}, {tasks} tasks: {setting.pairs} runs")

    def measured_share() -> tuple[float, float]:
        return share(setting.place, steps, case)

    one = with_progress("client and agents / programs", measured_share, _shown)
    shares = [one() for _ in range(setting.pairs)]
    return Outcome(
        key=case.key,
        what="CPU time of the client and the agents / of the programs,"
        f" {tasks} tasks{'' if case.backend == 'local' else f' on {case.backend}'}",
        unit="ratio",
        target=Target("at most", case.value),
        found=pairs.estimate([lab for lab, _ in shares]),
        how=HOW.format(
            lab=_PROCESSES[case.backend], steps=steps, workers=case.workers, backend=case.backend
        ),
        details={"the agents alone": f"{pairs.estimate([own for _, own in shares]).median:.2%}"},
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds up to a sample.

    Attributes:
        lab: CPU seconds of the client, the supervisor and the agents.
        agents: CPU seconds of the agents.
        programs: CPU seconds of the programs.
        count: The number of programs.
    """

    lab: float
    agents: float
    programs: float
    count: int


def share(place: Workplace, steps: int, case: Case) -> tuple[float, float]:
    """Return the CPU times of `lab` and of its agents relative to the programs'.

    The interval is that in which all programs trained.

    Raises:
        TrainingError: The run did not succeed, or was too short.
    """
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    command = lab_run(case.backend, runs, [f"--global_steps={steps}"], case.cluster)
    with (place.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env=place.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        samples = list(_samples(place, process, runs, case.workers))
        if process.wait() != 0:
            last = (place.folder / "output").read_text(errors="replace")[-2000:]
            raise TrainingError(f"lab run: exit code {process.returncode}: {last}")
    most = max((sample.count for sample in samples), default=0)
    whole = [sample for sample in samples if sample.count == most]
    if len(whole) < 2:  # noqa: PLR2004
        raise TrainingError("the training was too short for two samples; use more steps")
    first, last_sample = whole[0], whole[-1]
    programs = last_sample.programs - first.programs
    return (last_sample.lab - first.lab) / programs, (last_sample.agents - first.agents) / programs


def _samples(
    place: Workplace, process: subprocess.Popen[bytes], runs: Path, workers: int
) -> Iterator[Spent]:
    """Sample the CPU times five times a second, after every worker's first step record."""
    while process.poll() is None:
        time.sleep(_EVERY_S)
        if _all_train(runs, workers):
            yield _spent(f"LAB_STATE={place.environ['LAB_STATE']}".encode())


def _all_train(runs: Path, workers: int) -> bool:
    files = [*runs.glob("*/tasks/worker-*.jsonl")]
    return len(files) == workers and all('"kind": "step"' in file.read_text() for file in files)


def _spent(marker: bytes) -> Spent:
    lab = agents = programs = 0.0
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes()
            name = (folder / "comm").read_text().strip()
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # the process has ended
        # With its ended children: a call of `squeue` is too short for a sample.
        seconds = sum(map(int, fields[11:15])) / _TICKS
        if PROGRAM.encode() in command or TASK.fullmatch(
            name
        ):  # a forked program has its task's name
            programs += seconds
            count += 1
        else:
            lab += seconds
            agents += seconds if command.rstrip(b"\0").endswith(_AGENT) else 0.0
    return Spent(lab, agents, programs, count)


def _shown(found: tuple[float, float]) -> str:
    return f"{found[0]:.2%}, the agents alone {found[1]:.2%}"
