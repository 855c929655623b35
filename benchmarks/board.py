"""The board of a run: what its server costs while many look."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psutil

from benchmarks import pairs
from benchmarks.results import Outcome, Target
from benchmarks.trainings import ROOT, Setting, Workplace, free_ports, lab_run, print_progress

VIEWERS, QUICK_VIEWERS = 60, 5
WINDOW_S: Final = 5.0
EPOCHS, QUICK_EPOCHS = 60, 4


def measure(setting: Setting) -> list[Outcome]:
    """Measure the server's share of a core in windows of 5 s, while a run trains."""
    viewers = QUICK_VIEWERS if setting.quick else VIEWERS
    epochs = QUICK_EPOCHS if setting.quick else EPOCHS
    with _processes(setting.place, epochs) as (server, address):
        shares, messages = asyncio.run(_shares(server, address, viewers, setting.pairs))
    print_progress(f"{viewers} viewers: {', '.join(f'{share:.2%}' for share in shares)} of a core")
    return [
        Outcome(
            key="board",
            what=f"the server of `lab attach --web` with {viewers} viewers",
            unit="ratio",
            target=Target("at most", 0.02),
            found=pairs.estimate(shares),
            how="`lab attach --web` shows a run of `async` that trains on local."
            f" {viewers} viewers read its events. Each value is the server's time on a core in"
            f" {WINDOW_S:g} s, divided by them.",
            details={"messages a second, each viewer": f"{messages:.2f}"},
            raw={"shares": shares},
        )
    ]


@contextmanager
def _processes(place: Workplace, epochs: int) -> Iterator[tuple[psutil.Process, str]]:
    """Train, and serve the board of that run."""
    runs = place.folder / "runs"
    (port,) = free_ports(1)
    serve = [sys.executable, "-m", "lab", "attach", "--web", "--port", str(port)]
    serve += ["--runs-dir", str(runs)]
    train = lab_run("local", runs, [f"--epochs={epochs}"])
    quiet = subprocess.DEVNULL
    with (
        subprocess.Popen(
            serve,
            cwd=ROOT,
            env=place.environ,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            text=True,
        ) as server,
        subprocess.Popen(
            train, cwd=ROOT, env=place.environ, stdin=quiet, stdout=quiet, stderr=quiet
        ) as training,
    ):
        try:
            assert server.stdout is not None  # noqa: S101  (for the types)
            yield psutil.Process(server.pid), server.stdout.readline().strip()
        finally:
            training.terminate()
            training.wait()
            server.terminate()


async def _shares(
    server: psutil.Process, address: str, viewers: int, windows: int
) -> tuple[Sequence[float], float]:
    """Return the server's share of a core in each window, and the messages of each viewer."""
    received = [0] * viewers
    looking = [asyncio.create_task(_view(address, received, each)) for each in range(viewers)]
    try:
        while min(received) < 3:  # noqa: PLR2004  (all look, and the run goes on)
            await asyncio.sleep(1)
        shares, before = [], sum(received)
        for _ in range(windows):
            began, used = time.monotonic(), _used_s(server)
            await asyncio.sleep(WINDOW_S)
            shares.append((_used_s(server) - used) / (time.monotonic() - began))
        return shares, (sum(received) - before) / viewers / windows / WINDOW_S
    finally:
        for each in looking:
            each.cancel()


async def _view(address: str, received: list[int], number: int) -> None:
    """Read the events of a board, as a browser does."""
    where, _, token = address.partition("/?token=")
    host, port = where.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asked = f"GET /events HTTP/1.1\r\nHost: {host}\r\nCookie: lab-board={token}\r\n\r\n"
    writer.write(asked.encode())
    while line := await reader.readline():
        received[number] += line.startswith(b"data: ")


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
