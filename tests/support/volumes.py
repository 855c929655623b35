"""A run volume with a run, and what a client of it receives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lab.backends.environment import Environment
from lab.protocol.volume import Chunk, Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.control import submit
from lab.protocol.volume.states import State
from lab.protocol.volume.status import write_status
from lab.protocol.volume.transfer import stream

REQUEST = Request(
    "r1", RunSpec("async", "p.py", ("--a", "b c")), {"ps": ["h:1"], "worker": ["h:2"]}
)


def with_a_run(folder: Path) -> Volume:
    """A volume with this one run."""
    (folder / "runs").mkdir()
    volume = Volume(folder / "runs")
    submit(volume, REQUEST)
    return volume


def end(volume: Volume, run_id: str = "r1", state: State = State.SUCCEEDED) -> None:
    for task in ("ps-0", "worker-0"):
        write_status(volume.status(run_id, task), TaskStatus(task, state))


class Home:
    """Files that were sent, and what a client has before."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.order: list[str] = []
        self.faults: dict[str, tuple[str, bool]] = {}

    def take(self, chunk: Chunk | None) -> None:
        if chunk is None:
            return
        if chunk.fault:
            assert not chunk.data
            assert chunk.path not in self.faults
            self.faults[chunk.path] = (chunk.fault, chunk.kept)
            return
        self.order.append(chunk.path)
        have = b"" if chunk.offset is None else self.files.get(chunk.path, b"")
        assert len(have) == (chunk.offset or 0), f"{chunk.path}: a gap or a repetition"
        self.files[chunk.path] = have + chunk.data

    def take_all(self, volume: Volume, *, follow: bool = False, **more: bool) -> Home:
        self.order, self.faults = [], {}
        for chunk in stream(volume, "r1", self.offsets(), follow=follow, **more):
            self.take(chunk)
        return self

    def offsets(self) -> Mapping[str, int]:
        return {path: len(data) for path, data in self.files.items() if "status/" not in path}

    def state_of(self, task: str) -> str:
        return str(json.loads(self.files[f"status/{task}.json"])["state"])

    def below(self, folder: str) -> dict[str, bytes]:
        return {path: data for path, data in self.files.items() if path.startswith(folder)}


def collected(environment: Environment, run_id: str, *, follow: bool = True) -> dict[str, bytes]:
    """The files of a run, as a client of the environment gets them."""
    home = Home()
    for chunk in environment.stream(run_id, {}, follow=follow):
        home.take(chunk)
    return home.files


def states(files: Mapping[str, bytes]) -> dict[str, State]:
    found = [
        TaskStatus.from_json(data.decode())
        for path, data in files.items()
        if path.startswith("status/")
    ]
    return {each.task: each.state for each in found}


def ended(volume: Volume, **more: bool) -> Home:
    """What a client gets of an ended run."""
    end(volume)
    return Home().take_all(volume, **more)
