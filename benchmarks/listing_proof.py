"""Run whole trainings of a program in the book's shape as a listing, and check their step counts.

    python -m benchmarks.listing_proof [--runs 1] [--busy 0]

Each run has 82,500 steps: 1 parameter server, 3 workers, 50 epochs of 550 steps for each worker.
Each run adds two lines to docs/evidence/listings.jsonl, one at its start and one with its result,
so that no run can be missing. The page docs/evidence/listings.md is written from all lines.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lab.run.prepare import git_state

ROOT: Final = Path(__file__).resolve().parents[1]
LINES: Final = ROOT / "docs/evidence/listings.jsonl"
PAGE: Final = ROOT / "docs/evidence/listings.md"
PROGRAM: Final = ROOT / "tests/tf1_programs/async_fixed_ports.py"
EPOCHS: Final = 50
STEPS: Final = 82_500
LOADED: Final = 12.0
"""A run was under load if the mean load average was above this. The run's own four tasks have more
threads than the host has CPUs, and make up to 10."""

EARLIER: Final = {"", "9279a0cf11"}
"""Commits of runs with TensorFlow's own request ids."""

_COUNTS: Final = re.compile(r"^counts: local_step=(\d+) counted=(\d+) global_step=(\d+)", re.M)
_RETRIED: Final = "TensorFlow refused a step by mistake; it runs again"
_SAMPLE_S: Final = 5.0
_OPEN: Final = {"started", "interrupted"}

Row = dict[str, Any]


def main() -> None:
    """Make the requested runs, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listing_proof", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="the number of runs (default: 1)")
    parser.add_argument(
        "--busy", type=int, default=0, help="processes that keep a CPU busy (default: 0)"
    )
    options = parser.parse_args()
    for _ in range(options.runs):
        try:
            row = _make(options.busy)
        except KeyboardInterrupt:
            _append({**read(LINES.read_text())[-1], "state": "interrupted"})
            sys.exit(130)
        print(json.dumps(row), file=sys.stderr, flush=True)
        PAGE.write_text(page(read(LINES.read_text())))


def _make(busy: int) -> Row:
    start: Row = {
        "number": len(read(LINES.read_text())) + 1 if LINES.exists() else 1,
        "state": "started",
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": (git_state(ROOT) or {}).get("commit", "unknown")[:10],
        "busy": busy,
        "load_before": round(os.getloadavg()[0], 2),
    }
    _append(start)
    began = time.monotonic()
    loads = list[float]()
    with tempfile.TemporaryDirectory(prefix="listing-proof-") as folder, ExitStack() as held:
        for _ in range(busy):
            held.enter_context(_busy())
        process = held.enter_context(_started(Path(folder)))
        while process.poll() is None:
            time.sleep(_SAMPLE_S)
            loads.append(os.getloadavg()[0])
        found = result(Path(folder))
    row = {
        **start,
        **found,
        "seconds": round(time.monotonic() - began, 1),
        "load_mean": round(statistics.fmean(loads), 2),
    }
    _append(row)
    return row


def _append(row: Row) -> None:
    with LINES.open("a") as file:
        file.write(json.dumps(row) + "\n")


@contextmanager
def _started(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    args = ("run", "--listing", str(PROGRAM), "--cluster", str(ROOT / "clusters/book.yaml"))
    options = ("--backend", "local", "--gpus", "none", "--runs_dir", str(folder / "runs"))
    with (folder / "lab.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab", *args, *options, "--", "--epochs", str(EPOCHS)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LAB_STATE": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.terminate()  # no effect on a process that has ended
            process.wait()


@contextmanager
def _busy() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def result(folder: Path) -> Row:
    """Return the result of the only run below a directory.

    Returns:
        The run's state and reason; the steps that the workers made, the steps that their own
        variables counted, and the global step; the number of refused steps that ran again; the
        accuracies.
    """
    summaries = sorted((folder / "runs").glob("*/summary.json"))
    if not summaries:
        last = (folder / "lab.log").read_text().splitlines()[-1:]
        return {"state": "no result", "reason": " ".join(last)}
    run = summaries[0].parent
    summary = json.loads(summaries[0].read_text())
    tasks = sorted(run.glob("tasks/worker-*.jsonl"))
    records = [json.loads(line) for task in tasks for line in task.read_text().splitlines()]
    printed = "\n".join(log.read_text() for log in sorted(run.glob("logs/worker-*.log")))
    counts = [tuple(map(int, each)) for each in _COUNTS.findall(printed)]
    return {
        "run_id": run.name,
        "state": summary["state"],
        "reason": summary["reason"],
        "local_steps": [made for made, _, _ in counts],
        "counted": [counted for _, counted, _ in counts],
        "global_step": max((reached for _, _, reached in counts), default=None),
        "retried": sum(each.get("message") == _RETRIED for each in records),
        "accuracy": [each["accuracy"] for each in records if each["kind"] == "final"],
    }


def read(text: str) -> list[Row]:
    """Return the last line of each run, in the order of the run numbers."""
    rows = {row["number"]: row for row in map(json.loads, text.splitlines())}
    return [rows[number] for number in sorted(rows)]


def is_complete(row: Row) -> bool:
    """Whether all workers made all their steps."""
    return row["state"] == "succeeded" and sum(row["local_steps"]) == STEPS


def page(rows: Sequence[Row]) -> str:
    """Return the text of the page, from all runs."""
    ended = [row for row in rows if row["state"] not in _OPEN]
    earlier = [row for row in ended if row.get("commit", "") in EARLIER]
    loaded = [row for row in ended if row not in earlier and row.get("load_mean", 0) > LOADED]
    others = [row for row in ended if row not in earlier and row not in loaded]
    totals = [
        _total("With request ids that do not repeat, under load", loaded),
        _total("With request ids that do not repeat, others", others),
        _total("Before, with TensorFlow's own request ids", earlier),
        f"- Interrupted, or without a result: {len(rows) - len(ended)}.",
    ]
    return "\n".join([_HEAD, *totals, "", *_TABLE, *map(_line, rows), ""])


def _total(name: str, rows: Sequence[Row]) -> str:
    complete = [row for row in rows if is_complete(row)]
    own = sum(row["counted"] == row["local_steps"] for row in complete)
    shared = sum(row["global_step"] == STEPS for row in complete)
    retried = sum(row["retried"] for row in complete)
    return (
        f"- {name}: {len(complete)} of {len(rows)} runs made all {STEPS:,} steps. In {own} of these"
        f" the workers' variables count exactly the steps made, and in {shared} the global step is"
        f" their sum. {retried} refused steps ran again."
    )


_HEAD: Final = f"""\
# Whole trainings as listings

`make listing-proof` adds a run to this page. Each run is `tests/tf1_programs/async_fixed_ports.py`
under `lab run --listing` on `clusters/book.yaml`: 1 parameter server, 3 workers, {EPOCHS} epochs of
550 steps for each worker, {STEPS:,} steps in all. The steps are counted in three ways. Each worker
counts in Python. Each worker has a variable that only this worker changes. All workers share the
global step. The table has all runs that were started; the rows are in `listings.jsonl`.

TensorFlow adds to the global step without a lock. If two workers add at the same time, a count can
be lost. The workers' own variables cannot lose counts. A run is "under load" if the mean of the
load average was above {LOADED:g}, on two cores. The four tasks of a run make up to 10 of it.

Runs up to number 26 used TensorFlow's own request ids, which repeat. In runs 17, 21 and 25 one
worker stopped making steps. Our hypothesis is that TensorFlow refused a step and lost the refusal
(`lab/task/tf1/request_ids.py`). In one manual test with seeds of 16 bits a worker stopped at step
98. In run 10 SIGXCPU killed a worker. Another tool on the host sends this signal to its own
processes by their ids. Our hypothesis is that it sent the signal to the worker by mistake. In run
11 a worker aborted at its exit, after all its steps; the cause is not known. Runs without a commit
also used another version of the program.
"""

_TABLE: Final = (
    "| run | start (UTC) | commit | state | steps made | counted by the workers' variables |"
    " global step | refused steps run again | accuracy | seconds | load average, mean |",
    "| ---: | --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
)


def _line(row: Row) -> str:
    cells = (
        row["number"],
        row["begun"].removesuffix("+00:00").replace("T", " "),
        row.get("commit", ""),
        f"{row['state']}: {row['reason']}" if row.get("reason") else row["state"],
        f"{sum(row.get('local_steps', [])):,}",
        f"{sum(row.get('counted', [])):,}",
        f"{row.get('global_step') or 0:,}",
        row.get("retried", ""),
        ", ".join(f"{each:.4f}" for each in row.get("accuracy", [])),
        row.get("seconds", ""),
        row.get("load_mean", ""),
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
