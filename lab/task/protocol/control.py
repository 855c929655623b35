"""Control of runs on the run volume, from outside the agents: submit, cancel, inject faults, list.

The functions need the volume as a directory. Where it lies inside containers,
`lab.task.probes.volume` is called in one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.task.protocol import RUN_ID, Request, TaskStatus, Volume
from lab.task.protocol.faults import Fault, parse_resolved
from lab.task.protocol.files import read_regular, write_atomically
from lab.task.protocol.states import State, run_state
from lab.task.protocol.statuses import read_status, write_status

INCOMING: Final = ("program", "files", "checkpoints")
"""What may come to the volume for a run before its request is made."""

_MAX_PATH: Final = 4096


class NoSuchRun(Exception):  # noqa: N818 (as FileNotFoundError's family is read: a state)
    """The volume holds no run of this name."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} on this volume")


class VolumeBusy(Exception):  # noqa: N818 (it names a state, as BlockingIOError does)
    """Another run is under way.

    Attributes:
        run_id: That run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is under way")
        self.run_id = run_id


def submit(volume: Volume, request: Request) -> None:
    """Hand a request to the agents, unless another run is under way.

    What came for it leaves `incoming/` either way: for its run, or for good.

    Raises:
        VolumeBusy: Another run is under way.
        FileExistsError: There is a run of this name already.
        OSError: The volume cannot be written.
    """
    if not request.submitted_unix:
        request = replace(request, submitted_unix=time.time())
    try:
        with _locked(volume):
            for other in requests(volume):
                if not state_of(volume, other).ended:
                    raise VolumeBusy(other.run_id)
            run = volume.run(request.run_id)
            run.mkdir()
            for name in INCOMING:
                arrived = volume.incoming(request.run_id) / name
                if arrived.is_dir():
                    arrived.rename(run / name)
            for name in ("tasks", "logs", "status", "start"):
                (run / name).mkdir()
            (run / "files").mkdir(exist_ok=True)
            for task in request.tasks():
                write_status(volume.status(request.run_id, task), TaskStatus(task, State.PENDING))
            write_atomically(volume.request(request.run_id), request.to_json(), new=True)
    finally:
        shutil.rmtree(volume.incoming(request.run_id), ignore_errors=True)


def cancel(volume: Volume, run_id: str, reason: str) -> None:
    """Ask the agents to end a run; the first reason stays.

    Raises:
        NoSuchRun: There is none of this name.
        OSError: The volume cannot be written.
    """
    _ask(volume, run_id, volume.cancel(run_id), reason)


def kill(volume: Volume, run_id: str, reason: str) -> None:
    """Ask the agents to end a run at once; the first reason stays.

    Raises:
        NoSuchRun: There is none of this name.
        OSError: The volume cannot be written.
    """
    cancel(volume, run_id, reason)
    _ask(volume, run_id, volume.kill(run_id), reason)


def _ask(volume: Volume, run_id: str, path: Path, reason: str) -> None:
    if not RUN_ID.fullmatch(run_id) or not volume.request(run_id).is_file():
        raise NoSuchRun(run_id)
    with contextlib.suppress(FileExistsError):
        write_atomically(
            path, json.dumps({"reason": reason[:300], "time_unix": time.time()}), new=True
        )


def requests(volume: Volume) -> list[Request]:
    """All requests on the volume, oldest first; what is no request is passed over."""
    found = []
    for path in volume.requests.glob("*.json"):
        with contextlib.suppress(ValueError, FileNotFoundError):
            request = Request.from_json(read_regular(path))
            if path == volume.request(request.run_id):
                found.append(request)
    return sorted(found, key=lambda request: (request.submitted_unix, request.run_id))


def mark_collected(volume: Volume, run_id: str, directory: str) -> None:
    """Note where all of a run was collected; the last note stays.

    Raises:
        NoSuchRun: There is none of this name.
        OSError: The volume cannot be written.
    """
    find(volume, run_id)
    write_atomically(volume.collected(run_id), directory)


def collected(volume: Volume) -> dict[str, str]:
    """Run to the directory of runs into which all of it was collected, as far as that is noted."""
    found = {}
    for path in volume.requests.glob("*.collected"):
        with contextlib.suppress(ValueError, OSError):
            found[path.stem] = read_regular(path, _MAX_PATH)
    return found


def state_of(volume: Volume, request: Request) -> State:
    """The state of a run."""
    return run_state(
        read_status(volume.status(request.run_id, task), task).state for task in request.tasks()
    )


def ended(volume: Volume, run_id: str) -> bool:
    """Whether every task of a run has ended.

    Raises:
        NoSuchRun: There is none of this name.
    """
    return state_of(volume, find(volume, run_id)).ended


def find(volume: Volume, run_id: str) -> Request:
    """The request of a run.

    Raises:
        NoSuchRun: There is none of this name.
    """
    if not RUN_ID.fullmatch(run_id):
        raise NoSuchRun(run_id)
    try:
        return Request.from_json(read_regular(volume.request(run_id)))
    except FileNotFoundError as error:
        raise NoSuchRun(run_id) from error


def inject_fault(volume: Volume, run_id: str, text: str) -> None:
    """Put a fault on the volume, where the agents of a run that is under way find it.

    Args:
        volume: The run volume.
        run_id: The run.
        text: A fault without anything random.

    Raises:
        NoSuchRun: There is none of this name.
        ValueError: The text is no such fault.
        OSError: The volume cannot be written.
    """
    fault = parse_resolved(text)
    find(volume, run_id)
    folder = volume.faults(run_id)
    folder.mkdir(exist_ok=True)
    reported = json.dumps({"fault": fault.text, "time_unix": round(time.time(), 3)})
    for number in itertools.count(len(injected_faults(folder))):  # the first that nobody has taken
        with contextlib.suppress(FileExistsError):
            write_atomically(folder / f"{number}.json", reported, durable=False, new=True)
            return


def injected_faults(folder: Path) -> dict[int, Path]:
    """Number to file of the faults that were told, in their order."""
    names = [path for path in folder.glob("*.json") if path.stem.isdecimal()]
    return {int(path.stem): path for path in sorted(names, key=lambda path: int(path.stem))}


def read_fault(path: Path) -> Fault:
    """The fault of one such file.

    Raises:
        ValueError: It holds none that an agent can take.
    """
    try:
        return parse_resolved(str(json.loads(read_regular(path))["fault"]))
    except (KeyError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{path.name} holds no fault") from error


@contextlib.contextmanager
def _locked(volume: Volume) -> Iterator[None]:
    volume.requests.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(volume.root / ".lock", flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
