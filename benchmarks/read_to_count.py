"""Measure the share of a step between a worker's read and its count, and the staleness.

    python -m benchmarks.read_to_count FILE.csv

trains `async` and `staleness` with 2, 4 and 8 workers, twice each (15 minutes on two cores),
and writes a row for each training. The programs run unchanged: this module adds two operations to
their graphs, which read the clock on the parameter server directly before the read of the global
step and directly after its count. Both columns come from the same steps, but not from each other:

- `staleness` is the mean of the numbers in the programs' records: differences of counters.
- `share` is the time from read to count, divided by the time from count to count: differences of
  a clock.

`by_clock` is a check of both: how many counts of others the clock shows between read and count.
"""

from __future__ import annotations

import contextlib
import csv
import os
import runpy
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.base.variables import LAB_START
from lab.protocol.mnist import Floats
from lab.protocol.records import parse_record
from lab.protocol.records.reader import STEPS

ROOT: Final = Path(__file__).parents[1]
STAMPS: Final = "STAMPS"
"""The variable that names the file of a worker's clock readings."""

PROGRAMS: Final = {
    "mnist_async.py": ("--model=softmax", "--global_steps=3000"),
    "staleness.py": ("--pause=0.03", "--global_steps=600"),
}
WORKERS: Final = (2, 4, 8)
REPEATS: Final = 2
FIRST: Final = 10
"""The first steps of each worker are left out: they include the start of its graph."""

COLUMNS: Final = (
    "program",
    "workers",
    "seed",
    "steps",
    "step_ms",
    "share",
    "staleness",
    "by_clock",
)
_PATIENCE_S: Final = 300.0


def stamp(program: str) -> None:
    """Run a program of the scripts with two clock readings in its graph; write them at its end."""
    import tensorflow.compat.v1 as tf  # noqa: PLC0415 (the driver needs no TensorFlow)

    get_variable, count_up_to, run = tf.get_variable, tf.count_up_to, tf.Session.run
    clocks: dict[int, tuple[int, Any]] = {}  # the fetched tensor: which clock goes with it
    readings = [0.0, 0.0]
    rows: list[list[float]] = []

    def stamped_variable(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        variable = get_variable(name, *args, **kwargs)
        if name == "global_step":
            read_value = variable.read_value

            def stamped() -> Any:  # noqa: ANN401
                with tf.device(variable.device):
                    before = tf.timestamp()
                with tf.control_dependencies([before]):
                    value = read_value()
                clocks[id(value)] = 0, before
                return value

            variable.read_value = stamped
        return variable

    def stamped_count(variable: Any, limit: int) -> Any:  # noqa: ANN401
        counted = count_up_to(variable, limit)
        with tf.control_dependencies([counted]), tf.device(variable.device):
            clocks[id(counted)] = 1, tf.timestamp()
        return counted

    def stamped_run(session: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        asked = [id(each) for each in fetches] if isinstance(fetches, list) else []
        found = [clocks[each] for each in asked if each in clocks]
        values, times = run(session, [fetches, [clock for _, clock in found]], *args, **kwargs)
        for (which, _), reading in zip(found, times, strict=True):
            readings[which] = reading
        if any(which == 1 for which, _ in found):
            rows.append([*readings])
        return values

    tf.get_variable, tf.count_up_to, tf.Session.run = stamped_variable, stamped_count, stamped_run
    scripts = ROOT / "scripts"
    sys.path.insert(0, str(scripts))
    runpy.run_path(str(scripts / program), run_name="__main__")
    np.save(os.environ[STAMPS], np.array(rows))


def share(stamps: Floats) -> tuple[float, float]:
    """The share of a step between read and count, and the mean time of a step in seconds.

    Args:
        stamps: The clock at the read and at the count of each step, shape [steps, 2]; the first
            row is the step before the first that is measured.
    """
    whole = stamps[-1, 1] - stamps[0, 1]
    return float((stamps[1:, 1] - stamps[1:, 0]).sum() / whole), float(whole) / (len(stamps) - 1)


def others_between(stamps: Sequence[Floats]) -> float:
    """The mean number of counts of other workers between read and count, by the clock.

    Args:
        stamps: As `share` takes them, of each worker.
    """
    found = []
    for one in stamps:
        others = np.sort(np.concatenate([each[:, 1] for each in stamps if each is not one]))
        reads, counts = one[FIRST:].T
        found.append(np.searchsorted(others, counts) - np.searchsorted(others, reads))
    return float(np.concatenate(found).mean())


def _addresses(count: int) -> list[str]:
    """Addresses with ports that nothing uses now."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in taken]


@contextlib.contextmanager
def _cluster(program: str, workers: int, seed: int, folder: Path) -> Iterator[list[Path]]:
    """Start a parameter server and the workers; yield the workers' outputs when all have ended."""
    server, *addresses = _addresses(1 + workers)
    common = [
        sys.executable, "-m", "benchmarks.read_to_count", program, f"--ps_hosts={server}",
        f"--worker_hosts={','.join(addresses)}", f"--seed={seed}", "--record_every=1",
        *PROGRAMS[program],
    ]  # fmt: skip
    start = folder / "start"
    outputs = [folder / f"worker-{index}.txt" for index in range(workers)]
    tasks = [("ps", 0, folder / "ps.txt")]
    tasks += [("worker", index, path) for index, path in enumerate(outputs)]
    processes = []
    try:
        for job, index, path in tasks:
            variables = {LAB_START: str(start), STAMPS: str(path.with_suffix(".npy"))}
            command = [*common, f"--job_name={job}", f"--task_index={index}"]
            with path.open("wb") as file:
                processes.append(
                    subprocess.Popen(
                        command, stdout=file, cwd=ROOT, env={**os.environ, **variables}
                    )
                )
        _wait(lambda: all("status=ready" in path.read_text() for path in outputs), processes)
        start.touch()
        _wait(lambda: all(each.poll() == 0 for each in processes[1:]), processes)
        yield outputs
    finally:
        for each in processes:
            each.send_signal(signal.SIGKILL)
            each.wait()


def _wait(is_done: Any, processes: list[subprocess.Popen[bytes]]) -> None:  # noqa: ANN401
    end = time.monotonic() + _PATIENCE_S
    while not is_done():
        failed = [each.args for each in processes if each.poll()]
        if failed or time.monotonic() > end:
            raise RuntimeError(f"failed: {failed}" if failed else "the training takes too long")
        time.sleep(0.1)


def measure(program: str, workers: int, seed: int) -> dict[str, Any]:
    """Train once; return a row of the table."""
    with (
        tempfile.TemporaryDirectory() as name,
        _cluster(program, workers, seed, Path(name)) as outputs,
    ):
        stamps = [np.load(path.with_suffix(".npy")) for path in outputs]
        staleness = [
            float(record["staleness"])
            for path in outputs
            for record in filter(None, map(parse_record, path.read_text().splitlines()))
            if record["kind"] in STEPS and int(record["local_step"]) > FIRST
        ]
    of_all, step_s = np.mean([share(each[FIRST - 1 :]) for each in stamps], axis=0)
    return {
        "program": program, "workers": workers, "seed": seed, "steps": len(staleness),
        "step_ms": round(1000 * float(step_s), 2), "share": round(float(of_all), 4),
        "staleness": round(statistics.mean(staleness), 4),
        "by_clock": round(others_between(stamps), 4),
    }  # fmt: skip


def main(path: Path) -> None:
    """Measure everything, and write the file row by row."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for seed in range(1, REPEATS + 1):
            for program in PROGRAMS:
                for workers in WORKERS:
                    row = measure(program, workers, seed)
                    table.writerow(row)
                    file.flush()
                    print(row, flush=True)


if __name__ == "__main__":
    if sys.argv[1] in PROGRAMS:
        stamp(sys.argv.pop(1))
    else:
        main(Path(sys.argv[1]))
