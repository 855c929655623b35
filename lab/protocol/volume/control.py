"""Control runs on the run volume from outside the agents: submit, cancel, inject faults, list.

The functions need the volume as a directory. If it is inside containers, the client calls
`lab.protocol.volume` in one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.base.text import short
from lab.protocol.experiments.faults import Fault, parse
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.files import read_regular, write_atomically
from lab.protocol.volume.layout import PACKAGES, RUN_ID, Volume
from lab.protocol.volume.run_spec import Request
from lab.protocol.volume.states import State, TaskStatus, run_state
from lab.protocol.volume.status import read_statuses, write_status

INCOMING: Final = ("program", "files", "checkpoints", PACKAGES)
"""The directories that a client may upload for a run before its request."""

_MAX_PATH: Final = 4096

USAGE: Final = (
    "usage: submit REQUEST | cancel RUN REASON | kill RUN REASON | fault RUN FAULT | requests |"
    " collected [RUN DIRECTORY] | time |"
    " ship RUN OFFSETS... [--follow [--leash]] [--all-sizes] [--rest]"
)

EXIT_BUSY: Final = 3
"""The exit code of `python -m lab.protocol.volume` for `VolumeBusy`."""

EXIT_NO_SUCH_RUN: Final = 4
"""The exit code of `python -m lab.protocol.volume` for `NoSuchRun`."""


class NoSuchRun(Exception):  # noqa: N818 (the name describes a state)
    """The volume has no run with this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} on this volume")


class VolumeBusy(Exception):  # noqa: N818 (the name describes a state)
    """Another run is under way.

    Attributes:
        run_id: The id of that run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} is under way")
        self.run_id = run_id


def execute(volume: Volume, argv: Sequence[str]) -> str:
    """Execute a command of `python -m lab.protocol.volume`, except `ship`; return what it prints.

    Raises:
        VolumeBusy: Another run is under way.
        NoSuchRun: The volume has no run with this id.
        ValueError: There is no such command, or an argument is not valid.
        OSError: The volume cannot be read or written.
    """
    match argv:
        case ["submit", text]:
            request = Request.from_json(text)
            # If it is refused, the client uploads its files again.
            with uploads(volume, request.run_id):
                submit(volume, request)
        case ["cancel", run_id, reason]:
            cancel(volume, run_id, reason)
        case ["kill", run_id, reason]:
            kill(volume, run_id, reason)
        case ["fault", run_id, text]:
            inject_fault(volume, run_id, text)
        case ["collected", run_id, directory]:
            mark_collected(volume, run_id, directory)
        case ["collected"]:
            return json.dumps(collected(volume))
        case ["time"]:
            return repr(unix_time())
        case ["requests"]:
            return "".join(f"{request.to_json()}\n" for request in requests(volume))
        case _:
            raise ValueError(USAGE)
    return ""


def submit(volume: Volume, request: Request) -> None:
    """Submit a request to the agents, unless another run is under way.

    The run's uploads move from `incoming/` into the run. While another run is under way, they stay,
    so that the caller can submit it again. If a later step fails, the new run is removed.

    Raises:
        VolumeBusy: Another run is under way.
        FileExistsError: A run with this id exists.
        OSError: The volume is not writable.
    """
    if not request.submitted_unix:
        request = replace(request, submitted_unix=unix_time())
    with _locked(volume):
        for other in requests(volume):
            if not state_of(volume, other).ended:
                raise VolumeBusy(other.run_id)
        volume.run(request.run_id).mkdir()
        try:
            _fill(volume, request)
        except OSError:
            shutil.rmtree(volume.run(request.run_id), ignore_errors=True)
            raise


def _fill(volume: Volume, request: Request) -> None:
    run = volume.run(request.run_id)
    for name in ("tasks", "logs", "status", "start"):
        (run / name).mkdir()
    for task in request.tasks():
        write_status(volume.status(request.run_id, task), TaskStatus(task, State.PENDING))
    for name in INCOMING:
        uploaded = volume.incoming(request.run_id) / name
        if uploaded.is_dir():
            uploaded.rename(run / name)
    (run / "files").mkdir(exist_ok=True)
    write_atomically(volume.request(request.run_id), request.to_json(), new=True)


@contextlib.contextmanager
def uploads(volume: Volume, run_id: str) -> Iterator[None]:
    """Upload and submit a run in this block; at its end, what is left of the uploads is removed."""
    try:
        yield
    finally:
        shutil.rmtree(volume.incoming(run_id), ignore_errors=True)


def cancel(volume: Volume, run_id: str, reason: str) -> None:
    """Request that the agents end a run; a second call does not change the reason.

    Raises:
        NoSuchRun: The volume has no run with this id.
        OSError: The volume is not writable.
    """
    _request(volume, run_id, volume.cancel(run_id), reason)


def kill(volume: Volume, run_id: str, reason: str) -> None:
    """Request that the agents end a run at once; a second call does not change the reason.

    Raises:
        NoSuchRun: The volume has no run with this id.
        OSError: The volume is not writable.
    """
    cancel(volume, run_id, reason)
    _request(volume, run_id, volume.kill(run_id), reason)


def _request(volume: Volume, run_id: str, path: Path, reason: str) -> None:
    find(volume, run_id)
    with contextlib.suppress(FileExistsError):
        write_atomically(
            path, json.dumps({"reason": reason[:300], "time_unix": unix_time()}), new=True
        )


def cancel_reason(volume: Volume, run_id: str) -> str | None:
    """Return why a run was cancelled or killed; None if it was not.

    Raises:
        OSError: The volume cannot be read.
    """
    for path in (volume.kill(run_id), volume.cancel(run_id)):
        with contextlib.suppress(FileNotFoundError):
            return _reason_in(path) or "cancelled"
    return None


def _reason_in(path: Path) -> str:
    try:
        return short(str(json.loads(read_regular(path))["reason"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def requests(volume: Volume) -> list[Request]:
    """Return all requests on the volume, oldest first; skip files that are not requests.

    Raises:
        OSError: The volume cannot be read.
    """
    read = []
    for path in _files(volume, ".json"):
        with contextlib.suppress(ValueError, FileNotFoundError):
            request = Request.from_json(read_regular(path))
            if path == volume.request(request.run_id):
                read.append(request)
    return sorted(read, key=lambda request: (request.submitted_unix, request.run_id))


def _files(volume: Volume, suffix: str) -> list[Path]:
    """The files in `requests/`. Unlike `glob`, it does not hide errors."""
    try:
        return [path for path in volume.requests.iterdir() if path.suffix == suffix]
    except FileNotFoundError:
        return []


def mark_collected(volume: Volume, run_id: str, directory: str) -> None:
    """Write down where the whole run was collected; a second call replaces the entry.

    Raises:
        NoSuchRun: The volume has no run with this id.
        OSError: The volume is not writable.
    """
    find(volume, run_id)
    write_atomically(volume.collected(run_id), directory)


def collected(volume: Volume) -> dict[str, str]:
    """Return the run store of each run that was collected completely, by run id.

    Raises:
        OSError: The volume cannot be read.
    """
    statuses = {}
    for path in _files(volume, ".collected"):
        with contextlib.suppress(ValueError, OSError):
            statuses[path.stem] = read_regular(path, _MAX_PATH)
    return statuses


def state_of(volume: Volume, request: Request) -> State:
    """Return the state of a run; see `read_status`.

    Raises:
        OSError: A status cannot be read now.
    """
    return run_state(status.state for status in read_statuses(volume, request).values())


def find(volume: Volume, run_id: str) -> Request:
    """Return the request of a run.

    Raises:
        NoSuchRun: The volume has no run with this id, or its request is damaged.
        OSError: The request cannot be read.
    """
    if not RUN_ID.fullmatch(run_id):
        raise NoSuchRun(run_id)
    try:
        return Request.from_json(read_regular(volume.request(run_id)))
    except (FileNotFoundError, ValueError) as error:
        raise NoSuchRun(run_id) from error


def inject_fault(volume: Volume, run_id: str, text: str) -> None:
    """Write a fault onto the volume for the agents of a run that is under way.

    Args:
        volume: The run volume.
        run_id: The run.
        text: A fault.

    Raises:
        NoSuchRun: The volume has no run with this id.
        ValueError: The text is not a fault.
        OSError: The volume is not writable.
    """
    fault = parse(text)
    find(volume, run_id)
    folder = volume.faults(run_id)
    folder.mkdir(exist_ok=True)
    content = json.dumps({"fault": fault.text, "time_unix": round(unix_time(), 3)})
    for number in itertools.count(len(injected_faults(folder))):  # the first free number
        with contextlib.suppress(FileExistsError):
            write_atomically(folder / f"{number}.json", content, durable=False, new=True)
            return


def injected_faults(folder: Path) -> dict[int, Path]:
    """Return the files of the injected faults by number, in order."""
    names = [path for path in folder.glob("*.json") if path.stem.isdecimal()]
    return {int(path.stem): path for path in sorted(names, key=lambda path: int(path.stem))}


def read_fault(path: Path) -> Fault:
    """Read a fault from its file.

    Raises:
        ValueError: The file contains no fault.
    """
    try:
        return parse(str(json.loads(read_regular(path))["fault"]))
    except (KeyError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{path.name} does not contain a fault") from error


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
