"""Train by `lab run`, or with processes that are started without `lab`; and the rate of steps."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lab.protocol.records import Record, parse_record

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "benchmarks/cluster.yaml"
CLUSTER_OF_8 = ROOT / "benchmarks/cluster8.yaml"
PROGRAM = "mnist_async.py"
WORKERS = 3
TASKS = ("ps-0", *(f"worker-{index}" for index in range(WORKERS)))
TIMEOUT_S = 300
_PORTS = range(20_000, 30_000)

_FOREIGN = ("TF_CONFIG", "LAB_RUN_DIR")


def _is_foreign(variable: str) -> bool:
    """Whether the variable changes how Python, a program or `lab` works.

    PYTHONDONTWRITEBYTECODE has the largest effect: if TensorFlow is installed without bytecode,
    each import compiles it again and takes three times as long.
    """
    return variable.startswith("PYTHON") or variable in _FOREIGN


T = TypeVar("T")
Records = Mapping[str, Sequence[Record]]
"""Task to its records, in order: `worker-0`, `worker-1`, …"""

STEPS = frozenset({"step", "epoch"})


class TrainingError(Exception):
    """A training did not succeed; the message has the end of its output."""


class UnfitError(Exception):
    """The records cannot be evaluated; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Training:
    """One training that has ended.

    Attributes:
        began_unix: The time just before the start of its first process, in seconds since the epoch.
        records: The records of every task.
    """

    began_unix: float
    records: Records


@dataclass(frozen=True, slots=True)
class Workplace:
    """A directory and environment variables, separate from the user's environments and runs.

    Attributes:
        folder: An empty directory.
        environ: The environment variables of every process.
    """

    folder: Path
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class Setting:
    """The options of a measurement.

    Attributes:
        place: A separate directory and environment variables.
        pairs: The number of interleaved pairs, or of repetitions.
        quick: Whether to use small numbers, which only show that the measurement works.
        backends: The backends to measure.
    """

    place: Workplace
    pairs: int
    quick: bool
    backends: tuple[str, ...]


def print_progress(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def with_progress(what: str, measure: Callable[[], T], show: Callable[[T], str]) -> Callable[[], T]:
    """Wrap a measurement, so that each call prints its result and its duration."""

    def measured() -> T:
        began = time.monotonic()
        found = measure()
        print_progress(f"  {what}: {show(found)} ({time.monotonic() - began:.1f} s)")
        return found

    return measured


@contextlib.contextmanager
def workplace() -> Iterator[Workplace]:
    """Provide a temporary directory and separate environment variables."""
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as name:
        kept = {key: value for key, value in os.environ.items() if not _is_foreign(key)}
        yield Workplace(Path(name), {**kept, "PYTHONPATH": str(ROOT), "LAB_STATE": f"{name}/state"})


def lab_run(
    backend: str,
    runs: Path,
    flags: Sequence[str],
    cluster: Path = CLUSTER,
    experiment: str = "async",
) -> list[str]:
    """Return the command that trains on the benchmarks' cluster, or another, without GPUs."""
    command = [sys.executable, "-m", "lab", "run", experiment]
    command += ["--backend", backend, "--gpus", "none"]
    return [*command, "--cluster", str(cluster), "--runs-dir", str(runs), *flags]


def must(
    place: Workplace,
    what: str,
    command: Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    cwd: Path = ROOT,
) -> str:
    """Run a command in a directory; it must succeed within `timeout_s` seconds. Return its output.

    Raises:
        TrainingError: The command failed.
    """
    done = subprocess.run(
        command,
        env=place.environ,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise TrainingError(f"{what}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def by_lab(
    place: Workplace,
    backend: str,
    flags: Sequence[str],
    cluster: Path = CLUSTER,
    experiment: str = "async",
) -> Training:
    """Train by `lab run`, including boot and removal of the environment.

    Raises:
        TrainingError: The run did not succeed.
    """
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    command = lab_run(backend, runs, flags, cluster, experiment)
    began = time.time()
    must(place, "lab run", command)
    files = runs.glob("*/tasks/*.jsonl")
    return Training(began, {file.stem: json_records(file) for file in files})


def by_listing(place: Workplace, program: Path, arguments: Sequence[str]) -> Training:
    """Train with a TensorFlow 1 program in the book's shape, by `lab run --listing` on local.

    Args:
        place: The directory and the environment variables.
        program: The program, which uses the ports of `clusters/book.yaml`.
        arguments: The program's arguments.

    Raises:
        TrainingError: The run did not succeed.
    """
    runs = Path(tempfile.mkdtemp(prefix="listing-", dir=place.folder))
    command = [sys.executable, "-m", "lab", "run", "--listing", str(program), "--backend", "local"]
    command += ["--gpus", "none", "--cluster", str(ROOT / "clusters/book.yaml")]
    began = time.time()
    must(place, "lab run", [*command, "--runs-dir", str(runs), "--", *arguments])
    (run,) = runs.iterdir()
    return Training(began, {task: json_records(run / f"tasks/{task}.jsonl") for task in TASKS})


def by_hand(
    place: Workplace,
    flags: Sequence[str],
    *,
    program: str | Path = PROGRAM,
    together: bool = False,
) -> Training:
    """Train with processes on 127.0.0.1 without `lab`, with a port for each.

    Their output goes into files. The parameter server serves until it receives a signal.

    Args:
        place: The directory and the environment variables.
        flags: The program's flags.
        program: The program, in `scripts/` or with a path.
        together: Whether all workers wait for a start barrier, as under task agents; the program
            must report when it is ready.

    Raises:
        TrainingError: A worker did not succeed.
    """
    folder = Path(tempfile.mkdtemp(prefix="by-hand-", dir=place.folder))
    ports = free_ports(len(TASKS))
    hosts = dict(zip(TASKS, (f"127.0.0.1:{port}" for port in ports), strict=True))
    spec = [
        f"--{job}_hosts=" + ",".join(host for task, host in hosts.items() if task.startswith(job))
        for job in ("ps", "worker")
    ]
    barrier = folder / "begin"
    environ = {**place.environ, "LAB_START": str(barrier)} if together else place.environ
    with contextlib.ExitStack() as stack:
        began = time.time()
        deadline = time.monotonic() + TIMEOUT_S
        processes = {}
        for task in TASKS:
            job, _, index = task.rpartition("-")
            output = stack.enter_context((folder / task).open("wb"))
            command = [sys.executable, str(program), f"--job_name={job}", f"--task_index={index}"]
            process = subprocess.Popen(
                [*command, *spec, *flags],
                env=environ,
                cwd=ROOT / "scripts",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(_end, process)
            processes[task] = process
        workers = {task: each for task, each in processes.items() if task.startswith("worker-")}
        if together:
            _wait_until_ready(folder, workers, deadline)
            barrier.touch()
        for task, process in workers.items():
            code = process.wait(max(0.0, deadline - time.monotonic()))
            if code != 0:
                output_end = (folder / task).read_text(errors="replace")[-2000:]
                raise TrainingError(f"{task} without lab: exit code {code}: {output_end}")
    return Training(began, {task: by_hand_records(folder / task) for task in TASKS})


def _wait_until_ready(
    folder: Path, workers: Mapping[str, subprocess.Popen[bytes]], deadline: float
) -> None:
    """Wait until each worker is ready or has ended."""
    waiting = set(workers)
    while waiting:
        if time.monotonic() > deadline:
            raise TrainingError(f"{', '.join(sorted(waiting))} without lab: not ready in time")
        time.sleep(0.05)
        waiting = {
            task
            for task in waiting
            if workers[task].poll() is None
            and not any(each.get("status") == "ready" for each in by_hand_records(folder / task))
        }


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that are free on all interfaces, because TensorFlow's servers listen on all.

    The ports are below the kernel's range for connections, so that no connection takes them.
    """
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise TrainingError("no free ports")


def json_records(path: Path) -> list[Record]:
    """Return the collected records of a task."""
    return _records(path, json.loads)


def by_hand_records(path: Path) -> list[Record]:
    """Return the records in a program's output; other lines are skipped."""
    return _records(path, parse_record)


def _records(path: Path, parse: Callable[[str], Record | None]) -> list[Record]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return [record for record in map(parse, file) if record is not None]


def marks(records: Iterable[Record]) -> list[tuple[float, int]]:
    """Return the time (seconds since the epoch) and the global step of each step record."""
    return [
        (float(record["time_unix"]), int(record["global_step"]))
        for record in records
        if record["kind"] in STEPS
    ]


def steps_per_second(records: Records) -> float:
    """Return the global steps per second while all workers train.

    The interval begins when every worker has written its first step record, and ends at the first
    worker's last one. It excludes the start and the end, when fewer workers train. In every record
    the global step is the value after the worker's own increment.

    Raises:
        UnfitError: There are fewer than two records while all workers train.
    """
    begin, end = common_time(records)
    of_each = _of_workers(records)
    window = sorted(mark for each in of_each for mark in each if begin <= mark[0] <= end)
    if len(window) < 2 or window[-1][0] <= window[0][0]:  # noqa: PLR2004
        raise UnfitError("the workers hardly trained at the same time; use more steps")
    return (window[-1][1] - window[0][1]) / (window[-1][0] - window[0][0])


def common_time(records: Records) -> tuple[float, float]:
    """Return when every worker has made its first step, and when the first one made its last.

    Both are in seconds since the epoch.

    Raises:
        UnfitError: A worker has no step record.
    """
    of_each = _of_workers(records)
    if not of_each or not all(of_each):
        raise UnfitError("a worker has no step record")
    return max(each[0][0] for each in of_each), min(each[-1][0] for each in of_each)


def _of_workers(records: Records) -> list[list[tuple[float, int]]]:
    return [marks(each) for task, each in records.items() if task.startswith("worker-")]
