"""A class on one host: memory and time of each seat, and what a greedy seat costs the others."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import engine, pairs
from benchmarks.results import Outcome, Target, table
from benchmarks.trainings import CLUSTER, ROOT, Setting, Workplace, must, print_progress
from lab.teach.classroom import names

KEY: Final = "class-memory"
KEY_CPU: Final = "class-cpu"
KEY_DISK: Final = "class-disk"
NAME: Final = "load"
SEATS, QUICK_SEATS = 30, 2
STEPS, QUICK_STEPS = 2_000, 300
_STOP: Final = "/tmp/stop"  # noqa: S108  (in the seat's own container)
_TIMEOUT_S: Final = 1800
_MIB: Final = 2**20

CONFIG: Final = """\
version: 1
name: {name}
seats: {seats}
seat: {{cpus: 1, disk: 1GiB}}
cluster: {cluster}
network: 10.88.0.0/16
address: 127.0.0.1:{port}
"""

KERNEL: Final = """
import os, urllib.request
url = os.environ["JUPYTERHUB_SERVICE_URL"] + "api/kernels"
token = {"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]}
with urllib.request.urlopen(urllib.request.Request(url, b"{}", token), timeout=60) as answer:
    print(answer.status)
"""
"""Starts a kernel in the seat, as a student does who opens a notebook."""

BURN: Final = f"""
import os
for _ in range(7):
    if os.fork() == 0:
        break
while not os.path.exists("{_STOP}"):
    for _ in range(1_000_000):
        pass
"""
"""Keeps 8 processes of a seat busy."""

FILL: Final = f"""
import os
path = os.path.expanduser("~/fill")
full = 0
while not os.path.exists("{_STOP}"):
    try:
        with open(path, "wb") as file:
            for _ in range(2048):
                file.write(os.urandom(2**20))
    except OSError:
        full += 1
    os.unlink(path)
print(full)
"""
"""Fills the disk of a seat with up to 2 GiB, again and again; prints how often it was full."""

HOW: Final = (
    "{seats} seats with 1 CPU and 1 GiB of disk each, on an engine without GPUs. A training is"
    " `lab run async` in the seat: softmax, 1 ps and 3 workers, {steps:,} global steps; global"
    " steps per second from its summary. Each round trains alone, then beside a seat with 8 busy"
    " processes, then beside a seat that fills its disk again and again; every second round in"
    " reverse order."
)


def measure(setting: Setting) -> list[Outcome]:
    """Boot a class on an engine, and measure it."""
    seats, steps = (QUICK_SEATS, QUICK_STEPS) if setting.quick else (SEATS, STEPS)
    with engine.ready(setting.place) as why_not:
        print_progress(f"class: {why_not or f'{seats} seats'}")
        raw = {} if why_not else _Class(setting.place, seats, steps).measured(setting.pairs)
    return _outcomes(raw, HOW.format(seats=seats, steps=steps), why_not)


class _Class:
    """A class of the benchmark."""

    def __init__(self, place: Workplace, seats: int, steps: int) -> None:
        self.place = place
        self.seats = [f"seat-{number:02}" for number in range(1, seats + 1)]
        self.steps = steps
        # A class config lies in a project, with the files of the image.
        self.file = ROOT / "build/class-load.yaml"
        self.file.parent.mkdir(exist_ok=True)

    def measured(self, rounds: int) -> dict[str, Any]:
        """Boot the class, measure, and remove it."""
        self._write(1)  # builds the image
        self._lab("up")
        self._lab("down", "--yes", "--output", str(self.place.folder / "first.zip"))
        self._write(len(self.seats))
        found: dict[str, Any] = {"seats": len(self.seats), "steps": self.steps}
        try:
            found["up_s"] = self._timed("up")
            found["idle_mib"] = self._memory(self.seats)
            for seat in self.seats:
                self._inside(seat, KERNEL)
            found["kernel_mib"] = self._memory(self.seats)
            found["hub_mib"] = self._hub_memory()
            found["status_s"] = self._timed("status")
            found["trainings"] = [self._train(seat) for seat in self.seats]
            found["training_mib"] = self._memory_while_training(self.seats[0])
            found |= self._neighbours(rounds)
            found["reset_s"] = [self._timed("reset", seat, "--yes") for seat in self.seats]
        finally:
            archive = self.place.folder / "work.zip"
            found["down_s"] = self._timed("down", "--yes", "--output", str(archive))
        found["archive_mib"] = archive.stat().st_size / _MIB
        return found

    def _write(self, seats: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.file.write_text(CONFIG.format(name=NAME, seats=seats, port=port, cluster=CLUSTER))

    def _lab(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "lab", "class", *arguments, "--file", str(self.file)]
        return must(self.place, " ".join(command[3:5]), command, timeout_s=_TIMEOUT_S)

    def _timed(self, *arguments: str) -> float:
        began = time.monotonic()
        self._lab(*arguments)
        took = time.monotonic() - began
        print_progress(f"  lab class {' '.join(arguments[:2])}: {took:.1f} s")
        return took

    def _exec(self, seat: str, program: str) -> list[str]:
        return ["docker", "exec", _container(seat), "python", "-c", program]

    def _inside(self, seat: str, program: str) -> str:
        return must(self.place, f"a program in {seat}", self._exec(seat, program))

    def _memory(self, seats: Sequence[str]) -> list[float]:
        """The memory of each seat, in MiB, as `docker stats` counts it: without the page cache."""
        shape = "{{json .}}"
        command = [
            "docker",
            "stats",
            "--no-stream",
            "--format",
            shape,
            *map(_container, seats),
        ]
        lines = must(self.place, "docker stats", command).splitlines()
        return [_mib(json.loads(line)["MemUsage"].partition(" / ")[0]) for line in lines]

    def _memory_while_training(self, seat: str) -> float:
        """The largest memory of a seat during a training, in MiB, of a sample each two seconds."""
        found = []
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(self._train, seat)
            while not training.done():
                found += self._memory([seat])
            training.result()
        return max(found)

    def _hub_memory(self) -> float:
        """The memory of JupyterHub, in MiB."""
        folder = str(Path(self.place.environ["LAB_STATE"]) / "classes" / NAME)
        (hub,) = (
            each
            for each in psutil.process_iter(["cwd", "cmdline"])
            if each.info["cwd"] == folder and "jupyterhub" in (each.info["cmdline"] or ())
        )
        return float(hub.memory_info().rss) / _MIB

    def _train(self, seat: str) -> float:
        """Train in a seat, and return its global steps per second."""
        command = ["docker", "exec", "--workdir", names.MOUNT, _container(seat)]
        command += ["lab", "run", "async", "--gpus", "none", "--json"]
        summary = json.loads(
            must(self.place, f"a training in {seat}", [*command, f"--global_steps={self.steps}"])
        )
        rate = float(summary["steps_per_s"])
        print_progress(f"  {seat}: {rate:,.0f} steps/s, {summary['wall_s']:.1f} s")
        return rate

    def _neighbours(self, rounds: int) -> dict[str, Any]:
        """The rates of a seat's training alone, and beside each greedy seat, in each round."""
        ways: dict[str, str | None] = {"alone": None, "cpu": BURN, "disk": FILL}
        found: dict[str, list[float]] = {name: [] for name in ways}
        full = 0
        for number in range(rounds):
            for name in list(ways) if number % 2 == 0 else list(ways)[::-1]:
                print_progress(f"  {name}:")
                with self._greedy(self.seats[1], ways[name]) as printed:
                    found[name].append(self._train(self.seats[0]))
                full += sum(map(int, printed))
        return {"neighbours": found, "full": full}

    @contextlib.contextmanager
    def _greedy(self, seat: str, program: str | None) -> Iterator[list[str]]:
        """Run a program in a seat during the block; afterwards the list has what it printed."""
        printed: list[str] = []
        if program is None:
            yield printed
            return
        with subprocess.Popen(
            self._exec(seat, program), env=self.place.environ, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield printed
            finally:
                self._inside(seat, f"open('{_STOP}', 'w')")
                printed += process.communicate(timeout=60)[0].split()
                self._inside(seat, f"import os; os.unlink('{_STOP}')")


def _container(seat: str) -> str:
    return names.seat_object(NAME, seat)


def _mib(text: str) -> float:
    """Read a size of `docker stats`, such as `110.2MiB`."""
    units = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
    return float(text[:-3]) * units[text[-3:]]


def _outcomes(raw: Mapping[str, Any], how: str, why_not: str) -> list[Outcome]:
    rates = raw.get("neighbours")
    memory = Outcome(
        key=KEY,
        what="memory of a seat with JupyterLab and an idle kernel",
        unit="MiB",
        target=Target("at most", 250),
        found=pairs.range_of(raw["kernel_mib"]) if raw else None,
        how=how,
        why_not=why_not,
        raw=raw,
        repeated=False,
    )
    return [memory] + [
        Outcome(
            key=key,
            what=f"training throughput in a seat, beside a seat that {does} / alone",
            unit="ratio",
            target=Target("at least", 0.5),
            found=pairs.ratio(list(zip(rates[name], rates["alone"], strict=True)))
            if rates
            else None,
            how=how,
            why_not=why_not,
        )
        for key, name, does in (
            (KEY_CPU, "cpu", "burns CPU"),
            (KEY_DISK, "disk", "fills its disk"),
        )
    ]


def tables(kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the figures of the class, as a table of docs/evidence/seats.md, by its mark.

    Args:
        kept: The content of `results.json`.
    """
    raw = kept[KEY]["raw"]
    count, rates = raw["seats"], raw["trainings"]
    rows = [
        (f"`lab class up`, {count} seats", f"{raw['up_s']:.0f} s"),
        ("memory of a seat with JupyterLab", _range(raw["idle_mib"], "MiB")),
        ("and with an idle kernel", _range(raw["kernel_mib"], "MiB")),
        ("the largest during a training", f"{raw['training_mib']:,.0f} MiB"),
        ("memory of JupyterHub", f"{raw['hub_mib']:.0f} MiB"),
        ("`lab class status`", f"{raw['status_s']:.1f} s"),
        (f"{len(rates)} trainings in turn, one in each seat", _range(rates, "steps/s")),
        ("training beside a seat that burns CPU / alone", _ratio(kept[KEY_CPU])),
        ("training beside a seat that fills its disk / alone", _ratio(kept[KEY_DISK])),
        ("times that this disk was full", f"{raw['full']}"),
        ("`lab class reset` of one seat", _range(raw["reset_s"], "s", digits=1)),
        (f"`lab class reset` of all {count} seats, in turn", f"{sum(raw['reset_s']):.0f} s"),
        ("`lab class down`", f"{raw['down_s']:.0f} s, archive {raw['archive_mib']:.1f} MiB"),
    ]
    return {"class-load": table(["what", "figure"], rows, "---:")}


def _range(values: Sequence[float], unit: str, digits: int = 0) -> str:
    found = pairs.range_of(values)
    median, low, high = (f"{each:,.{digits}f}" for each in (found.median, found.low, found.high))
    return f"{median} {unit} ({low} to {high})"


def _ratio(kept: Mapping[str, Any]) -> str:
    values = kept["values"]
    return f"{kept['median']:.2f} ({min(values):.2f} to {max(values):.2f})"
