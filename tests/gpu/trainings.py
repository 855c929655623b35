"""The trainings of `make test-gpu`: their configs, their runs, and the faults of each run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.gpu import evidence, gpu_trace
from tests.gpu.evidence import GpuProcess, Task
from tests.gpu.host import hides_processes, process_lists
from tests.support.commands import ROOT, start

NAME: Final = "lab-gpu-test"
PATIENCE_S: Final = 420.0
BOOK_SHARE: Final = 0.2
"""`gpu_memory_fraction` in `clusters/book.yaml`."""

STEPS: Final = {
    "async": 12_000,
    "sync": 4_000,
    "towers": 2_000,
    "mirrored": 5_000,
    "multiworker": 5_000,
}
"""Global steps of each experiment. An H100 needs some seconds for them, because most of a step is
not on the GPU: so the trace lies inside."""


class Training(NamedTuple):
    """One training.

    Attributes:
        experiment: `async`.
        config: The cluster, as YAML.
        replicas: The replicas between which NCCL must be used; below two: NCCL is not needed.
        share: `gpu_memory_fraction` of its workers, or None.
    """

    experiment: str
    config: str
    replicas: int = 0
    share: float | None = None


def on_one_gpu(experiment: str) -> Training:
    """A training with one GPU: the book's layout, where three workers share it, or one worker."""
    if experiment in {"async", "sync"}:
        return Training(experiment, _book(), share=BOOK_SHARE)
    return Training(experiment, cluster(1, 1, ps=False))


def on_all_gpus(experiment: str, gpus: int) -> Training:
    """A training with all GPUs: of one worker, or several with two each if there are enough.

    Only `mirrored` and `multiworker` claim NCCL between their replicas.
    """
    each = gpus if experiment in {"towers", "mirrored"} else 2 if gpus >= 4 else 1
    workers = gpus // each
    config = cluster(workers, each, ps=experiment in {"async", "sync"})
    nccl = experiment in {"mirrored", "multiworker"}
    return Training(experiment, config, workers * each if nccl else 0)


def _book() -> str:
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


def make_project(folder: Path) -> None:
    """Make a project whose programs trace themselves; the checkout does not change."""
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / "data", folder / "data")
    assert gpu_trace.__file__ is not None
    shutil.copy(gpu_trace.__file__, folder / "scripts")
    with (folder / "scripts/mnist_model.py").open("a", encoding="utf-8") as model:
        model.write("\nimport gpu_trace  # noqa\n")


def lab(project: Path, config: str, *arguments: str, within_s: float = PATIENCE_S) -> str:
    (project / "cluster.yaml").write_text(config)
    own = {"LAB_RUNS_DIR", "LAB_STATE"}  # of the caller
    limits = {n: value for n, value in os.environ.items() if n.startswith("LAB_") and n not in own}
    process = start(project, *arguments, **limits)
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err[-4000:] or out[-4000:]
    return out


def faults(
    project: Path, training: Training, backend: str, memory_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Train, print figures, and yield why the run does not show that it used its GPUs."""
    flags = ["--global-steps", str(STEPS[training.experiment]), "--seed", "7"]
    flags += ["--record-every", "50", "--backend", backend, "--gpus", "uuid", "--json"]
    with process_lists() as listed:
        printed = lab(project, training.config, "run", training.experiment, *flags)
    summary = json.loads(printed.splitlines()[-1])
    run = project / "runs" / summary["run_id"]
    tasks = _tasks(run, summary, [*listed.values()])
    print(f"{summary['steps_per_s'] or 0:,.0f} global steps/s")
    for task in tasks:
        print(*task, sep="\n    ")
        yield from evidence.trace_faults(task)
        if listed or not hides_processes():
            yield from evidence.process_faults(task)
        if training.share is not None:
            yield from evidence.share_faults(task, training.share, memory_bytes)
    if not listed and hides_processes():
        print("not judged: the driver lists no process in this PID namespace")
    elif all(entry.memory_bytes is None for entry in listed.values()):
        print("not judged: the driver reports no memory of a process")
    if training.replicas > 1:
        yield from evidence.nccl_faults(tasks, training.replicas)
    yield from _never_busy(run, {gpu for task in tasks for gpu in task.gpus})


def _tasks(run: Path, summary: Mapping[str, Any], listed: Iterable[GpuProcess]) -> Sequence[Task]:
    processes = {
        path.parent.name: json.loads(path.read_text())
        for path in (run / "trace").glob("*/process.json")
    }
    entries = evidence.by_task(listed, processes)
    tasks = []
    for row in summary["tasks"]:
        name = row["task"]
        traced, log = run / "trace" / name / "task.xplane.pb", run / "logs" / f"{name}.log"
        kernels = evidence.kernels(traced.read_bytes()) if traced.exists() else None
        ranks = evidence.nccl_ranks(log.read_text(errors="replace")) if log.exists() else {}
        tasks.append(Task(name, row["gpus"], kernels, entries.get(name, ()), ranks))
    return tasks


def _never_busy(run: Path, gpus: set[str]) -> Iterator[str]:
    """The GPUs of which the run's `gpu.jsonl` never shows a utilization."""
    path, busy = run / "gpu.jsonl", defaultdict[str, float](float)
    for line in path.read_text().splitlines() if path.exists() else []:
        sample = json.loads(line)
        busy[sample["gpu"]] = max(busy[sample["gpu"]], sample["utilisation"] or 0)
    print("busy up to", dict(busy))
    if all(gpu.startswith("MIG-") for gpu in gpus):
        print("not judged: no driver reports the utilization of a MIG slice")
        return
    yield from (f"gpu.jsonl never shows {gpu} busy" for gpu in gpus if not busy[gpu])
