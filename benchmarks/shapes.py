"""One training of a given shape by `lab run` on processes, and the costs of its steps."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.steps import Records, UnfitError, marks, steps_per_second
from benchmarks.trainings import ROOT, TIMEOUT_S, TrainingError, Workplace, json_records
from benchmarks.watcher import Sample, Watcher
from lab.simulation import Box, Shape, Way
from lab.task.protocol.experiments import EXPERIMENTS

EVERY_S: Final = 0.25
SEED: Final = 1
EXPERIMENT: Final = {Way.ASYNC: "async", Way.SYNC: "sync", Way.RING: "multiworker"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A training's figures while all of its workers trained.

    Attributes:
        shape: The shape.
        steps_per_s: Global steps per second, from the workers' records.
        seconds: The time in which all workers trained.
        worker_cpu_s: CPU seconds of all workers' programs per global step.
        ps_cpu_s: CPU seconds of all parameter servers' programs per global step.
        wire_bytes: Bytes on the wire per global step, with the headers of TCP and IP; None if the
            programs shared the host's network.
        staleness: The mean over the records; None if they have no staleness.
        taken: The mean number of cores that other work used; None if it was not measured.
    """

    shape: Shape
    steps_per_s: float
    seconds: float
    worker_cpu_s: float
    ps_cpu_s: float
    wire_bytes: float | None
    staleness: float | None
    taken: float | None

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all programs per global step."""
        return self.worker_cpu_s + self.ps_cpu_s

    def box(self, cores: int) -> Box:
        """Return the host for the simulation: its cores, and the cores that other work used."""
        return Box(cores, taken=self.taken or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "steps_per_s": self.steps_per_s,
            "images_per_s": self.steps_per_s * self.shape.images_per_step,
            "seconds": self.seconds,
            "worker_cpu_s": self.worker_cpu_s,
            "ps_cpu_s": self.ps_cpu_s,
            "cpu_s": self.cpu_s,
            "wire_bytes": self.wire_bytes,
            "staleness": self.staleness,
            "taken": self.taken,
        }


def train(place: Workplace, shape: Shape, steps: int, record_every: int) -> Measured:
    """Train softmax regression on MNIST in a shape, including boot and removal of the environment.

    Args:
        place: The directory and the environment variables.
        shape: The shape; its ways are the experiments async, sync and multiworker.
        steps: Global steps.
        record_every: Local steps from one record to the next.

    Raises:
        TrainingError: The run did not succeed, or its programs could not be sampled.
        UnfitError: The training was too short.
    """
    folder = Path(tempfile.mkdtemp(prefix="shape-", dir=place.folder))
    for name in ("scripts", "data"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "cluster.yaml").write_text(config_text(shape), encoding="utf-8")
    experiment = EXPERIMENTS[EXPERIMENT[shape.way]]
    command = [sys.executable, "-m", "lab", "run", experiment.name]
    command += ["--backend=local", "--gpus=none", "--cluster", str(folder / "cluster.yaml")]
    command += ["--runs-dir", str(folder / "runs"), "--model=softmax", f"--seed={SEED}"]
    command += [f"--global_steps={steps}", f"--record_every={record_every}"]
    command += [f"--batch_size={shape.batch_size}"]
    marker = f"LAB_STATE={place.environ['LAB_STATE']}".encode()
    watcher = Watcher(marker, experiment.program, shape.workers + shape.ps)
    samples = _watched(place, folder, command, watcher)
    (run,) = (folder / "runs").iterdir()
    records = {
        f"worker-{index}": json_records(run / f"tasks/worker-{index}.jsonl")
        for index in range(shape.workers)
    }
    return measured(shape, records, samples)


def config_text(shape: Shape) -> str:
    """Return the config: all tasks on one node, so that its loopback has all their traffic."""
    tasks = {"ps": shape.ps, "worker": shape.workers}
    jobs = {job: {"on": ["tf1"] * count} for job, count in tasks.items() if count}
    # JSON is YAML.
    return json.dumps({"version": 1, "name": "lab-scaling", "nodes": {"tf1": {}}, "jobs": jobs})


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


def measured(shape: Shape, records: Records, samples: Sequence[Sample]) -> Measured:
    """Return the costs of a step, between the first and the last sample while all workers trained.

    Raises:
        UnfitError: There are fewer than two samples while all workers trained.
    """
    rate = steps_per_second(records)
    of_each = [marks(each) for each in records.values()]
    begin = max(each[0][0] for each in of_each)
    end = min(each[-1][0] for each in of_each)
    inside = [sample for sample in samples if begin <= sample.time_unix <= end]
    if len(inside) < 2:  # noqa: PLR2004
        raise UnfitError("the training was too short for two samples; use more steps")
    first, last = inside[0], inside[-1]
    seconds = last.time_unix - first.time_unix
    steps = rate * seconds

    def cpu_s(job: str) -> float:
        tasks = [task for task in last.cpu_s if task.startswith(f"{job}-")]
        return sum(last.cpu_s[task] - first.cpu_s[task] for task in tasks)

    programs_s = cpu_s("worker") + cpu_s("ps")
    wire = None
    if first.wire_bytes is not None and last.wire_bytes is not None:
        wire = (last.wire_bytes - first.wire_bytes) / steps
    stale = [
        float(record["staleness"])
        for each in records.values()
        for record in each
        if "staleness" in record and begin <= float(record["time_unix"]) <= end
    ]
    return Measured(
        shape=shape,
        steps_per_s=rate,
        seconds=end - begin,
        worker_cpu_s=cpu_s("worker") / steps,
        ps_cpu_s=cpu_s("ps") / steps,
        wire_bytes=wire,
        staleness=sum(stale) / len(stale) if stale else None,
        # Both are counted in clock ticks, so the difference can be slightly below 0.
        taken=max(0.0, last.busy_s - first.busy_s - programs_s) / seconds,
    )


def middle(several: Sequence[Measured]) -> Measured:
    """Return the median of each figure over trainings of the same shape."""

    def of(figure: Callable[[Measured], float | None]) -> float | None:
        values = [value for each in several if (value := figure(each)) is not None]
        return statistics.median(values) if values else None

    return Measured(
        shape=several[0].shape,
        steps_per_s=statistics.median(each.steps_per_s for each in several),
        seconds=statistics.median(each.seconds for each in several),
        worker_cpu_s=statistics.median(each.worker_cpu_s for each in several),
        ps_cpu_s=statistics.median(each.ps_cpu_s for each in several),
        wire_bytes=of(lambda each: each.wire_bytes),
        staleness=of(lambda each: each.staleness),
        taken=of(lambda each: each.taken),
    )
