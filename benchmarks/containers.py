"""The benchmarks' program in containers that `docker run` starts without `lab`."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.trainings import (
    PROGRAM,
    ROOT,
    TASKS,
    Training,
    TrainingError,
    Workplace,
    by_hand_records,
    must,
)

IMAGE: Final = "lab:cpu"
NAME: Final = "lab-bench-bare"
_PORT: Final = 2222


def by_containers(place: Workplace, flags: Sequence[str]) -> Training:
    """Train in a container for each task, started by `docker run`.

    Raises:
        TrainingError: A worker did not succeed, or the engine refused.
    """
    folder = Path(tempfile.mkdtemp(prefix="bare-", dir=place.folder))
    hosts = {task: f"{NAME}-{task}:{_PORT}" for task in TASKS}
    spec = [
        f"--{job}_hosts=" + ",".join(host for task, host in hosts.items() if task.startswith(job))
        for job in ("ps", "worker")
    ]
    with _network(place):
        began = time.time()
        for task in TASKS:
            job, _, index = task.rpartition("-")
            where = ["--name", f"{NAME}-{task}", "--network", NAME]
            where += ["--volume", f"{ROOT / 'scripts'}:/lab/scripts:ro"]
            where += ["--workdir", "/lab/scripts", IMAGE]
            command = ["python", PROGRAM, f"--job_name={job}", f"--task_index={index}"]
            _docker(place, "run", "--detach", *where, *command, *spec, *flags)
        workers = [f"{NAME}-{task}" for task in TASKS if task.startswith("worker-")]
        codes = _docker(place, "wait", *workers).split()
        for task in TASKS:
            (folder / task).write_text(_docker(place, "logs", f"{NAME}-{task}"), encoding="utf-8")
    if codes != ["0"] * len(workers):
        raise TrainingError(f"workers in bare containers ended with {', '.join(codes)}")
    return Training(began, {task: by_hand_records(folder / task) for task in TASKS})


@contextlib.contextmanager
def _network(place: Workplace) -> Iterator[None]:
    """Make an internal network; at the end remove it and the containers."""
    _docker(place, "network", "create", "--internal", NAME)
    try:
        yield
    finally:
        _docker(place, "rm", "--force", *(f"{NAME}-{task}" for task in TASKS))
        _docker(place, "network", "rm", NAME)


def _docker(place: Workplace, *args: str) -> str:
    return must(place, f"docker {args[0]}", ["docker", *args])
