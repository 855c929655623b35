"""The trainings of `make test-gpu`: their configs, their runs, and the checks of each run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.gpu import evidence, gpu_trace
from tests.gpu.evidence import GpuProcess, Task, TaskProcess
from tests.gpu.host import Host, ProcessWatch, hides_processes
from tests.support.commands import ROOT, start

NAME: Final = "lab-gpu-test"
PATIENCE_S: Final = 420
BUILD_S: Final = 1700
BOOK_SHARE: Final = 0.2
"""`gpu_memory_fraction` in `clusters/book.yaml`."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class Row(NamedTuple):
    """A row of the page: what it shows, one of the results above, and the figure or the reason."""

    check: str
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Training:
    """One training.

    Attributes:
        experiment: `async`.
        steps: Its global steps. An H100 needs some seconds for them, so that the trace lies inside.
        config: The cluster, as YAML.
        replicas: The replicas between which NCCL must be used; below two: NCCL is not needed.
        share: `gpu_memory_fraction` of its workers, or None.
    """

    experiment: str
    steps: int
    config: str
    replicas: int = 0
    share: float | None = None


# ---- The configs


def book() -> str:
    """The book's layout: a ps, and three workers that share one GPU."""
    text = (ROOT / "clusters/book.yaml").read_text()
    assert "\nname: book\n" in text
    assert f"gpu_memory_fraction: {BOOK_SHARE}" in text
    return text.replace("\nname: book\n", f"\nname: {NAME}\n")


def cluster(workers: int, gpus: int, *, ps: bool) -> str:
    """Workers on a node each, with this number of GPUs each, and a ps without GPUs if wanted."""
    names = [f"tf{number}" for number in range(1, workers + 1)]
    nodes = ", ".join([*(f"{name}: {{gpus: {gpus}}}" for name in names), *["tf0: {}"] * ps])
    jobs = ["ps: {on: [tf0]}"] * ps + [f"worker: {{on: [{', '.join(names)}]}}"]
    return f"version: 1\nname: {NAME}\nnodes: {{{nodes}}}\njobs: {{{', '.join(jobs)}}}\n"


# ---- The project and the runs


def make_project(folder: Path) -> None:
    """Make a project whose programs trace themselves, once; the checkout does not change."""
    if (folder / "scripts").exists():
        return
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / "data", folder / "data")
    assert gpu_trace.__file__ is not None
    shutil.copy(gpu_trace.__file__, folder / "scripts")
    with (folder / "scripts/mnist_model.py").open("a", encoding="utf-8") as model:
        model.write("\nimport gpu_trace  # noqa\n")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has ended.

    Attributes:
        path: Its directory.
        summary: Its `summary.json`.
        listed: NVML's process lists meanwhile.
    """

    path: Path
    summary: dict[str, Any]
    listed: Sequence[GpuProcess]

    @property
    def tensorflow(self) -> str:
        """The version of TensorFlow, with its package: `tensorflow 2.21.0`."""
        versions = json.loads((self.path / "run.json").read_text())["versions"]
        packages = ("tensorflow", "tensorflow-cpu")
        return next((f"{name} {versions[name]}" for name in packages if name in versions), "")


class RunFailed(Exception):  # noqa: N818
    """The command failed; the message is its last line."""


def lab(host: Host, *arguments: str, within_s: int = PATIENCE_S) -> str:
    """The output of a command in the project.

    Raises:
        RunFailed: It failed, or took too long.
    """
    own = {"LAB_RUNS_DIR", "LAB_STATE"}  # of the caller
    limits = {n: value for n, value in os.environ.items() if n.startswith("LAB_") and n not in own}
    process = start(host.folder, *arguments, **limits)
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RunFailed(f"`lab {' '.join(arguments)}` took more than {within_s} s") from None
    if process.returncode != 0:
        last = [line for line in err.splitlines() if line.startswith("error")]
        raise RunFailed(" ".join(last) or err[-500:] or out[-500:])
    return out


def train(host: Host, training: Training, backend: str) -> Finished:
    """Run a training on the host's GPUs, and watch NVML's process lists meanwhile.

    Raises:
        RunFailed: The run failed.
    """
    make_project(host.folder)
    (host.folder / "cluster.yaml").write_text(training.config)
    flags = ["--global-steps", str(training.steps), "--seed", "7", "--record-every", "50"]
    where = ["--backend", backend, "--gpus", "uuid", "--json"]
    with ProcessWatch() as watch:
        printed = lab(host, "run", training.experiment, *flags, *where)
        watch.look()
    summary: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return Finished(host.folder / "runs" / summary["run_id"], summary, watch.listed)


def tasks_of(finished: Finished) -> list[Task]:
    """What each task of a run showed.

    Raises:
        ValueError: A trace is damaged.
    """
    trace = finished.path / "trace"
    processes = [
        TaskProcess(path.parent.name, **json.loads(path.read_text()))
        for path in trace.glob("*/process.json")
    ]
    listed = evidence.by_task(finished.listed, processes)
    found = []
    for row in finished.summary["tasks"]:
        name = row["task"]
        traced, log = trace / name / "task.xplane.pb", finished.path / "logs" / f"{name}.log"
        kernels = evidence.kernels(traced.read_bytes()) if traced.exists() else None
        ranks = evidence.nccl_ranks(log.read_text(errors="replace")) if log.exists() else {}
        found.append(Task(name, tuple(row["gpus"]), kernels, listed.get(name, ()), ranks))
    return found


# ---- The checks


def judged(check: str, faults: Iterable[str], detail: str, not_run: str = "") -> Row:
    """The row of a check: it passed unless there are faults."""
    found = list(faults)
    result = NOT_RUN if not_run else FAILED if found else PASSED
    return Row(check, result, not_run or "; ".join(found) or detail)


def check(host: Host, training: Training, finished: Finished) -> Iterator[Row]:
    """The rows of a run that has succeeded."""
    speed = f"{finished.summary['steps_per_s'] or 0:,.0f} global steps/s"
    yield Row("the training succeeds", PASSED, f"{speed}, {finished.tensorflow}")
    kernels = "kernels in TensorFlow's traces"
    try:
        tasks = tasks_of(finished)
    except ValueError as error:
        yield Row(kernels, FAILED, str(error))
        return
    count = sum(each.count for task in tasks for each in (task.kernels or {}).values())
    text = f"{count:,} kernels in {len(tasks)} tasks"
    yield judged(kernels, evidence.trace_faults(tasks), text)
    hidden = "the driver lists no process at all, and this is a PID namespace of its own"
    yield judged(
        "processes in NVML's lists",
        evidence.process_faults(tasks),
        f"{sum(bool(task.listed) for task in tasks)} tasks, the ps on none",
        hidden if not finished.listed and hides_processes() else "",
    )
    busy = most_busy(finished.path)
    wanted = sorted({gpu for task in tasks for gpu in task.gpus})
    slices = all(gpu.startswith("MIG-") for gpu in wanted)  # no driver reports it for a slice
    yield judged(
        "telemetry",
        [f"gpu.jsonl never shows {evidence.short(gpu)} busy" for gpu in wanted if not busy[gpu]],
        f"busy up to {max(busy.values(), default=0):.0%}",
        "a MIG slice has no utilization" if slices else "",
    )
    if training.replicas > 1:
        faults = evidence.nccl_faults(tasks, training.replicas)
        yield judged("NCCL between all replicas", faults, f"{training.replicas} ranks")
    if training.share is not None:
        known = [each.memory_bytes or 0 for task in tasks for each in task.listed]
        yield judged(
            "memory within the share",
            evidence.share_faults(tasks, training.share, host.gpus),
            f"{max(known, default=0) / 2**30:.1f} GiB at most, share {training.share:g}",
            "" if any(known) else "the driver reports no memory of a process",
        )


def most_busy(run: Path) -> dict[str, float]:
    """The highest utilization of each GPU in a run's `gpu.jsonl`; 0 without such a line."""
    path, found = run / "gpu.jsonl", defaultdict[str, float](float)
    for line in path.read_text().splitlines() if path.exists() else []:
        sample = json.loads(line)
        found[sample["gpu"]] = max(found[sample["gpu"]], sample["utilisation"] or 0)
    return found
