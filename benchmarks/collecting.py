"""Bring one run home, in a process of its own, and say how long it took and how much memory.

    python -m benchmarks.collecting {files|pipe} VOLUME HOME [--summary]

`files` is the way of the local backend: the volume's files are read here. `pipe` is that of
containers but for the engine between: `python -m lab.task.probes.volume ship` in another process,
its frames through a pipe. Behind it everything is as in `lab run`: collector, records, live view.
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
from lab.task.protocol import Volume
from lab.task.protocol.framing import decode_frames

_PIECE = 64 * 1024  # bytes that are asked for at once; an engine sends no larger ones


class Files:
    """The volume as the local backend reads it."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        """As `lab.backends.Environment` says."""
        return sync.stream(self._volume, run_id, offsets, follow=follow, **more)


class Pipe:
    """The volume as the compose backend reads it, without an engine."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        """As `lab.backends.Environment` says."""
        switches = {"follow": follow, **more}
        flags = [f"--{name.replace('_', '-')}" for name, is_on in switches.items() if is_on]
        words = ["ship", run_id, json.dumps(dict(offsets)), *flags]
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.task.probes.volume", *words],
            env={**os.environ, "LAB_RUNS": str(self._volume.root)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
        with process:
            yield from decode_frames(_pieces(process.stdout.fileno()))
        if process.returncode != 0:
            raise RuntimeError(f"the volume's module ended with {process.returncode}")


def _pieces(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, _PIECE):
        yield piece


class CountingView(PlainView):
    """The view of `lab run` into a file, which counts what it is told."""

    def __init__(self, info: RunInfo, stream: IO[str]) -> None:
        super().__init__(info, stream)
        self.seen = 0

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        """New records of a task."""
        self.seen += len(records)
        super().records(task, records)

    def sequence_gaps(self) -> int:
        """Sequence numbers that never came, of all tasks."""
        return sum(progress.lost for progress in self._progress.values())


def peak_memory() -> int:
    """The most memory that this process has held at once, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # `ru_maxrss` would begin with what the parent held when it forked.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(way: str, volume: Path, home: Path, *, summary: bool) -> None:
    """Collect, sum up if that is asked for, and print one line of JSON."""
    info = RunInfo.of_request(request(), backend="local", project="lab-bench")
    run = RunDir(home / info.run_id)
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
