"""The benchmarks' program in containers that `docker run` starts without `lab`."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
_PORTS: Final = range(21_001, 21_100)
"""Ports of tasks that share an address."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the containers have of their own.

    Attributes:
        network: `own`: each container has a network namespace, on an internal bridge. `shared`:
            they share the namespace of the first one, and its loopback. `host`: the host's.
        mtu: The MTU of the bridge, in bytes; None: the engine's default.
        seccomp: Whether the engine's default profile filters system calls.
    """

    network: Literal["own", "shared", "host"] = "own"
    mtu: int | None = None
    seccomp: bool = True


OWN: Final = Form()


def by_containers(place: Workplace, flags: Sequence[str], form: Form = OWN) -> Training:
    """Train in a container for each task, started by `docker run`.

    Raises:
        TrainingError: A worker did not succeed, or the engine refused.
    """
    folder = Path(tempfile.mkdtemp(prefix="bare-", dir=place.folder))
    if form.network == "own":
        hosts = {task: f"{NAME}-{task}:{_PORT}" for task in TASKS}
    else:
        hosts = {task: f"127.0.0.1:{port}" for task, port in zip(TASKS, _PORTS, strict=False)}
    spec = [
        f"--{job}_hosts=" + ",".join(host for task, host in hosts.items() if task.startswith(job))
        for job in ("ps", "worker")
    ]
    with _network(place, form):
        began = time.time()
        for number, task in enumerate(TASKS):
            job, _, index = task.rpartition("-")
            where = ["--name", f"{NAME}-{task}", "--network", _joined(form, first=number == 0)]
            if not form.seccomp:
                where += ["--security-opt", "seccomp=unconfined"]
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


def _joined(form: Form, *, first: bool) -> str:
    if form.network == "host":
        return "host"
    return NAME if first or form.network == "own" else f"container:{NAME}-{TASKS[0]}"


@contextlib.contextmanager
def _network(place: Workplace, form: Form) -> Iterator[None]:
    """Make an internal network; at the end remove it and the containers."""
    options = []
    if form.mtu is not None:
        options = ["--opt", f"com.docker.network.driver.mtu={form.mtu}"]
    if form.network != "host":
        _docker(place, "network", "create", "--internal", *options, NAME)
    try:
        yield
    finally:
        _docker(place, "rm", "--force", *(f"{NAME}-{task}" for task in TASKS))
        if form.network != "host":
            _docker(place, "network", "rm", NAME)


def _docker(place: Workplace, *args: str) -> str:
    return must(place, f"docker {args[0]}", ["docker", *args])
