"""Collect one run in a separate process, and print the time and the memory that this takes.

    python -m benchmarks.collecting {files|pipe} VOLUME RUNS [--summary]

`files` works like the local backend: this process reads the volume's files. `pipe` works like
containers without an engine: `python -m lab.task.probes.volume ship` runs in another process and
sends frames through a pipe. The rest is the same as in `lab run`: collector, records, view.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from benchmarks.volume import request
from lab.backends import Chunk, Environment
from lab.run import lifecycle
from lab.run.collect import collect
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.view import PlainView
from lab.task.probes import sync
from lab.task.protocol import Volume, control
from lab.task.protocol.framing import decode_frames

_PIECE = 64 * 1024  # bytes of one read; an engine sends at most as many at once


class Files:
    """The volume as the local backend reads it."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        """Stream a run; see `lab.backends.Environment`."""
        return sync.stream(self._volume, run_id, offsets, follow=follow, **more)

    def mark_collected(self, run_id: str, directory: str) -> None:
        """Note that a run is collected."""
        control.mark_collected(self._volume, run_id, directory)


class Pipe(Files):
    """The volume as the compose backend reads it, without an engine."""

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        """Stream a run; see `lab.backends.Environment`."""
        switches = {"follow": follow, **more}
        flags = [f"--{name.replace('_', '-')}" for name, is_on in switches.items() if is_on]
        args = ["ship", run_id, json.dumps(dict(offsets)), *flags]
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.task.probes.volume", *args],
            env={**os.environ, "LAB_RUNS": str(self._volume.root)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None  # noqa: S101 (stdout is a pipe)
        with process:
            yield from decode_frames(_pieces(process.stdout.fileno()))
        if process.returncode != 0:
            raise RuntimeError(f"lab.task.probes.volume: exit code {process.returncode}")


def _pieces(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, _PIECE):
        yield piece


class CountingView(PlainView):
    """The plain view of `lab run`, which also counts the records that it receives."""

    def __init__(self, info: RunInfo, stream: IO[str]) -> None:
        super().__init__(info, stream)
        self.seen = 0

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """Receive new records of a task."""
        self.seen += len(records)
        super().records(task, records)

    def sequence_gaps(self) -> int:
        """Return the number of missing sequence numbers of all tasks."""
        return sum(progress.lost for progress in self._progress.values())


def peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # `ru_maxrss` includes the memory of the parent at the fork.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(way: str, volume: Path, runs: Path, *, summary: bool) -> None:
    """Collect, write the summary on request, and print one line of JSON."""
    info = RunInfo.of_request(request(), backend="local", project="lab-bench")
    run = RunDir(runs / info.run_id)
    run.create(info)
    environment = cast(Environment, {"files": Files, "pipe": Pipe}[way](Volume(volume)))
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        view = CountingView(info, nowhere)
        with run.opened() as opened:
            began = time.perf_counter()
            collect(opened, environment, view, follow=True)
            seconds = time.perf_counter() - began
    found = {
        "seconds": seconds,
        "memory_bytes": peak_memory(),
        "seen": view.seen,
        "sequence_gaps": view.sequence_gaps(),
    }
    if summary:
        began = time.perf_counter()
        with run.opened() as opened:
            lifecycle.finish(opened)
        found["summary_seconds"] = time.perf_counter() - began
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), summary="--summary" in sys.argv[4:])
