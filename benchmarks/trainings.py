"""The same training twice: by `lab run`, and by hand as bare processes."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.steps import Records
from lab.records import Record, parse_record

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "benchmarks/cluster.yaml"
CLUSTER_OF_8 = ROOT / "benchmarks/cluster8.yaml"
PROGRAM = "mnist_async.py"
WORKERS = 3
TASKS = ("ps-0", *(f"worker-{index}" for index in range(WORKERS)))
PATIENCE_S = 300
_PORTS = range(20_000, 30_000)

_FOREIGN = ("TF_CONFIG", "LAB_RUN_ID", "LAB_RUN_DIR", "LAB_EXPERIMENT", "LAB_FLAGS")


def _is_foreign(variable: str) -> bool:
    """Whether it makes Python, a program or `lab` work otherwise than it does for everybody.

    PYTHONDONTWRITEBYTECODE is the worst of them: where TensorFlow was installed without bytecode,
    each import compiles it anew, takes three times as long, and every start looks fast beside it.
    """
    return variable.startswith("PYTHON") or variable in _FOREIGN


class TrainingError(Exception):
    """A training did not succeed; the message holds what was said last."""


@dataclass(frozen=True, slots=True)
class Training:
    """One training that has ended.

    Attributes:
        began_unix: Right before its first process was started, in seconds since the epoch.
        records: Of every task.
    """

    began_unix: float
    records: Records


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where the benchmarks run: nothing of theirs meets a user's environments and runs.

    Attributes:
        folder: An empty directory of their own.
        environ: The variables that every process gets.
    """

    folder: Path
    environ: dict[str, str]


@contextlib.contextmanager
def workplace() -> Iterator[Workplace]:
    """A directory and variables of their own, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as name:
        kept = {key: value for key, value in os.environ.items() if not _is_foreign(key)}
        yield Workplace(Path(name), {**kept, "PYTHONPATH": str(ROOT), "LAB_STATE": f"{name}/state"})


def lab_run(backend: str, runs: Path, flags: Sequence[str], cluster: Path = CLUSTER) -> list[str]:
    """The command that trains the benchmarks' cluster, or another one, without GPUs."""
    command = [sys.executable, "-m", "lab", "run", "async", "--backend", backend, "--gpus", "none"]
    return [*command, "--cluster", str(cluster), "--runs-dir", str(runs), *flags]


def must(
    place: Workplace, what: str, command: Sequence[str], *, patience_s: float = PATIENCE_S
) -> str:
    """Run a command that must succeed, within `patience_s` seconds; what it printed.

    Raises:
        TrainingError: It did not.
    """
    done = subprocess.run(
        command,
        env=place.environ,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=patience_s,
        check=False,
    )
    if done.returncode != 0:
        raise TrainingError(f"{what} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def by_lab(place: Workplace, backend: str, flags: Sequence[str]) -> Training:
    """`lab run`, from nothing being up to nothing being up.

    Raises:
        TrainingError: It did not succeed.
    """
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    command = lab_run(backend, runs, flags)
    began = time.time()
    must(place, "lab run", command)
    (run,) = runs.iterdir()
    return Training(began, {task: json_records(run / f"tasks/{task}.jsonl") for task in TASKS})


def by_listing(place: Workplace, program: Path, arguments: Sequence[str]) -> Training:
    """A TensorFlow 1 program of the book's shape, by `lab run --listing` on local.

    Args:
        place: Where to work.
        program: The program, on the ports of `clusters/book.yaml`.
        arguments: Its own arguments.

    Raises:
        TrainingError: It did not succeed.
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
    shells: bool = False,
    together: bool = False,
) -> Training:
    """The same program, or another, as bare processes on 127.0.0.1, a port for each.

    What they print goes into files. The parameter server serves until it is interrupted.

    Args:
        place: Where to work.
        flags: The program's.
        program: In `scripts/`, or wherever its path says.
        shells: Each process in a session of its own, as in four shells, otherwise all in this one,
            as from one shell with `&`. Linux schedules each session as one unit
            (`sched_autogroup`), which changes how fast they train where CPUs are few.
        together: All workers train from the moment when the last of them is ready, as the task
            agents have them do it; the program has to say when it is.

    Raises:
        TrainingError: A worker did not succeed.
    """
    folder = Path(tempfile.mkdtemp(prefix="by-hand-", dir=place.folder))
    ports = _free_ports(len(TASKS))
    hosts = dict(zip(TASKS, (f"127.0.0.1:{port}" for port in ports), strict=True))
    spec = [
        f"--{job}_hosts=" + ",".join(host for task, host in hosts.items() if task.startswith(job))
        for job in ("ps", "worker")
    ]
    word = folder / "begin"
    environ = {**place.environ, "LAB_START": str(word)} if together else place.environ
    with contextlib.ExitStack() as stack:
        began = time.time()
        deadline = time.monotonic() + PATIENCE_S
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
                start_new_session=shells,
            )
            stack.callback(_end, process)
            processes[task] = process
        workers = {task: each for task, each in processes.items() if task.startswith("worker-")}
        if together:
            _wait_until_ready(folder, workers, deadline)
            word.touch()
        for task, process in workers.items():
            code = process.wait(max(0.0, deadline - time.monotonic()))
            if code != 0:
                said = (folder / task).read_text(errors="replace")[-2000:]
                raise TrainingError(f"{task} by hand ended with {code}: {said}")
    return Training(began, {task: by_hand_records(folder / task) for task in TASKS})


def _wait_until_ready(
    folder: Path, workers: Mapping[str, subprocess.Popen[bytes]], deadline: float
) -> None:
    """Until each worker has said that it could train, or has ended."""
    waiting = set(workers)
    while waiting:
        if time.monotonic() > deadline:
            raise TrainingError(f"{', '.join(sorted(waiting))} by hand: not ready in time")
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


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, on any interface, since TensorFlow's servers use all.

    They lie below those that the kernel gives to connections, so that none is taken meanwhile.
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
    """The records of a task as they have come home."""
    return _records(path, json.loads)


def by_hand_records(path: Path) -> list[Record]:
    """The records among what a program printed; other lines are passed over."""
    return _records(path, parse_record)


def _records(path: Path, parse: Callable[[str], Record | None]) -> list[Record]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return [record for record in map(parse, file) if record is not None]
