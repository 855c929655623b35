"""One training by `lab run` on processes: its speed, and the CPU time of a step."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.steps import UnfitError
from benchmarks.trainings import ROOT, TIMEOUT_S, TrainingError, Workplace, json_records
from benchmarks.watcher import Sample, Watcher
from lab.records import Record
from lab.simulation import Host, Shape
from lab.simulation.calibration import STEP_KINDS, Speed, speed_of
from lab.task.protocol.experiments import EXPERIMENTS

EVERY_S: Final = 0.25
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A training to measure: its shape, and the host that it gets.

    Attributes:
        shape: The shape; a share below 1 slows a worker by the fault `slow`.
        host: The cores of this host that the run may use, and the links of its nodes.
        singly: Whether each step is recorded.
    """

    shape: Shape
    host: Host
    singly: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A training's figures while all of its workers trained.

    Attributes:
        case: What was trained.
        speed: What `lab simulate --from` reads from the run.
        seconds: The time between the first and the last sample.
        worker_cpu_s: CPU seconds of all workers' programs per global step.
        ps_cpu_s: CPU seconds of all parameter servers' programs per global step.
        taken: The mean number of cores that other work used, the client and agents included.
    """

    case: Case
    speed: Speed
    seconds: float
    worker_cpu_s: float
    ps_cpu_s: float
    taken: float


def train(place: Workplace, case: Case, steps: int, record_every: int) -> Measured:
    """Train softmax regression on MNIST, including boot and removal of the environment.

    Args:
        place: The directory and the environment variables.
        case: What to train; its ways are the experiments async, sync and multiworker.
        steps: Global steps.
        record_every: Local steps from one record to the next.

    Raises:
        TrainingError: The run did not succeed, or its programs could not be sampled.
        UnfitError: The training was too short.
    """
    shape = case.shape
    folder = Path(tempfile.mkdtemp(prefix="shape-", dir=place.folder))
    for name in ("scripts", "data"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "cluster.yaml").write_text(config_text(case), encoding="utf-8")
    experiment = EXPERIMENTS[shape.way.value]
    cpus = ",".join(map(str, range(case.host.cores)))
    command = ["taskset", "-c", cpus, sys.executable, "-m", "lab", "run", experiment.name]
    command += ["--backend=local", "--gpus=none", "--cluster", str(folder / "cluster.yaml")]
    command += ["--runs-dir", str(folder / "runs"), "--model=softmax", f"--seed={SEED}"]
    command += [f"--global_steps={steps}", f"--record_every={record_every}"]
    command += [f"--batch_size={shape.batch_size}"]
    for number, share in enumerate(shape.shares):
        if share < 1:
            command += ["--fault", f"slow:{share:g},{TIMEOUT_S}s worker-{number}"]
    marker = f"LAB_STATE={place.environ['LAB_STATE']}".encode()
    watcher = Watcher(marker, experiment.program, shape.workers + shape.ps)
    samples = _watched(place, folder, command, watcher)
    (run,) = (folder / "runs").iterdir()
    names = [f"worker-{index}" for index in range(shape.workers)]
    records = [json_records(run / f"tasks/{name}.jsonl") for name in names]
    return measured(case, records, samples)


def config_text(case: Case) -> str:
    """Return the config: all tasks on one node, or with links each on a node of its own."""
    shape, host = case.shape, case.host
    count = shape.ps + shape.workers
    linked = host.bandwidth != float("inf")
    names = [f"tf{number + 1}" for number in range(count)] if linked else ["tf1"] * count
    jobs = {"ps": names[: shape.ps], "worker": names[shape.ps :]}
    config: dict[str, Any] = {"version": 1, "name": "lab-scaling"}
    config["nodes"] = {name: {} for name in names}
    config["jobs"] = {job: {"on": on} for job, on in jobs.items() if on}
    if linked:
        rate = f"{host.bandwidth * 8 / 1e3:.0f}kbit"
        config["links"] = {name: {"rate": rate} for name in names}
    return json.dumps(config)  # JSON is YAML


def _watched(
    place: Workplace, folder: Path, command: Sequence[str], watcher: Watcher
) -> list[Sample]:
    samples = []
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env=place.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(EVERY_S)
            sample = watcher.sample()
            if sample is not None:
                samples.append(sample)
        if process.poll() is None:
            process.terminate()
        if process.wait() != 0:
            last = (folder / "output").read_text(errors="replace")[-2000:]
            raise TrainingError(f"lab run: exit code {process.returncode}: {last}")
    return samples


def measured(
    case: Case, records: Sequence[Sequence[Record]], samples: Sequence[Sample]
) -> Measured:
    """Return the figures of a training; CPU times are those between samples while all trained.

    Raises:
        UnfitError: The workers have too few records, or there are fewer than two samples.
    """
    try:
        speed = speed_of(records)
    except ValueError as error:
        raise UnfitError(f"{error}; use more steps") from error
    times = [
        [float(each["time_unix"]) for each in of if each["kind"] in STEP_KINDS] for of in records
    ]
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    inside = [sample for sample in samples if begin <= sample.time_unix <= end]
    if len(inside) < 2:  # noqa: PLR2004
        raise UnfitError("the training was too short for two samples; use more steps")
    first, last = inside[0], inside[-1]
    seconds = last.time_unix - first.time_unix

    def cpu_s(job: str) -> float:
        tasks = [task for task in last.cpu_s if task.startswith(f"{job}-")]
        return sum(last.cpu_s[task] - first.cpu_s[task] for task in tasks)

    programs_s, steps = cpu_s("worker") + cpu_s("ps"), speed.steps_per_s * seconds
    return Measured(
        case=case,
        speed=speed,
        seconds=seconds,
        worker_cpu_s=cpu_s("worker") / steps,
        ps_cpu_s=cpu_s("ps") / steps,
        # Both are counted in clock ticks, so the difference can be slightly below 0.
        taken=max(0.0, last.busy_s - first.busy_s - programs_s) / seconds,
    )
