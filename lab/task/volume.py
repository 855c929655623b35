"""What is done with the run volume from outside the agents: submit, cancel, list, ship.

Where the volume is a directory of this machine, the functions are called as they are. Where it
lies inside containers, `python -m lab.task.volume` is called in one of them::

    submit REQUEST              hand a request (JSON) to the agents; what belongs to the run lies in
                                incoming/<run_id>/ by then: program/, files/, checkpoints/
    cancel RUN REASON           ask the agents to end a run
    kill RUN REASON             the same, at once: programs get no time to save anything
    fault RUN FAULT             ask them to do something to it (`lab.task.faults`)
    requests                    all requests, one line of JSON each, oldest first
    collected RUN DIRECTORY     note into which directory of runs all of a run was collected
    collected                   these notes, as a JSON object
    ship RUN OFFSETS... [--follow [--leash]] [--all-sizes] [--rest]
                                bring a run home, as frames (`lab.task.frames`); the offsets in
                                as many words of JSON as they need; with a leash until standard
                                input ends: its reader has gone; with --rest also where a task
                                has not written its end, because its agent has died

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 another run is under way, 4 no such run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.task import told_faults
from lab.task.files import read_regular, write_atomically
from lab.task.frames import FrameError, frame, read_frames
from lab.task.protocol import RUN_ID, Chunk, Request, TaskStatus, Volume
from lab.task.shipping import NoSuchRun, find, ship
from lab.task.states import State, run_state
from lab.task.statuses import read_status, write_status

__all__ = [
    "FrameError",
    "NoSuchRun",
    "VolumeBusy",
    "cancel",
    "collected",
    "ended",
    "find",
    "frame",
    "kill",
    "main",
    "mark_collected",
    "read_frames",
    "requests",
    "ship",
    "state_of",
    "submit",
]

INCOMING: Final = ("program", "files", "checkpoints")
"""What may come to the volume for a run before its request is made."""

_USAGE = (
    "usage: submit REQUEST | cancel RUN REASON | kill RUN REASON | fault RUN FAULT | requests |"
    " collected [RUN DIRECTORY] | ship RUN OFFSETS... [--follow [--leash]] [--all-sizes] [--rest]"
)
_MAX_PATH: Final = 4096
_FOLLOW, _LEASH, _ALL_SIZES, _REST = "--follow", "--leash", "--all-sizes", "--rest"
EXIT_FAILED, EXIT_USAGE, EXIT_BUSY, EXIT_NO_SUCH_RUN = 1, 2, 3, 4


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


def _switches(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith("--")]


def _is_complete(switches: Sequence[str], words: Sequence[str]) -> bool:
    """Whether offsets stand before the switches, and these fit together."""
    offsets = len(words) - len(switches)
    known = {_FOLLOW, _LEASH, _ALL_SIZES, _REST}
    return (
        offsets > 0
        and list(words[offsets:]) == list(switches)
        and len(set(switches)) == len(switches)
        and known.issuperset(switches)
        and not (_LEASH in switches and _FOLLOW not in switches)
    )


def _offsets(words: Sequence[str]) -> dict[str, int]:
    """One word of a command line has a limit, so that the offsets may come in several."""
    return {path: size for word in words for path, size in json.loads(word).items()}


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


def main(argv: Sequence[str], root: Path) -> int:
    """One command of the module's command line; returns its exit code."""
    volume = Volume(root)
    try:
        match argv:
            case ["submit", text]:
                submit(volume, Request.from_json(text))
            case ["cancel", run_id, reason]:
                cancel(volume, run_id, reason)
            case ["kill", run_id, reason]:
                kill(volume, run_id, reason)
            case ["fault", run_id, text]:
                told_faults.tell(volume, run_id, text)
            case ["collected", *note] if len(note) in {0, 2}:
                _note(volume, note)
            case ["requests"]:
                sys.stdout.write("".join(f"{request.to_json()}\n" for request in requests(volume)))
            case ["ship", run_id, *words] if _is_complete(switches := _switches(words), words):
                offsets = _offsets(words[: len(words) - len(switches)])
                chunks = ship(
                    volume,
                    run_id,
                    offsets,
                    follow=_FOLLOW in switches,
                    all_sizes=_ALL_SIZES in switches,
                    rest=_REST in switches,
                )
                _to_stdout(_leashed(chunks) if _LEASH in switches else chunks)
            case _:
                return _fail(EXIT_USAGE, _USAGE)
    except VolumeBusy as error:
        return _fail(EXIT_BUSY, str(error))
    except NoSuchRun as error:
        return _fail(EXIT_NO_SUCH_RUN, str(error))
    except ValueError as error:
        return _fail(EXIT_USAGE, str(error))
    except OSError as error:
        return _fail(EXIT_FAILED, f"the run volume {root} failed: {error}")
    return 0


def _note(volume: Volume, note: Sequence[str]) -> None:
    if note:
        mark_collected(volume, note[0], note[1])
    else:
        sys.stdout.write(json.dumps(collected(volume)))


def _leashed(chunks: Iterator[Chunk | None]) -> Iterator[Chunk | None]:
    """The same, until standard input ends.

    An engine goes on reading from an exec whose caller has gone, so that no write ever fails.
    """
    for chunk in chunks:
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            return
        yield chunk


def _to_stdout(chunks: Iterator[Chunk | None]) -> None:
    # The reader may go at any time, which is no fault of ours.
    with contextlib.suppress(BrokenPipeError):
        for chunk in chunks:
            sys.stdout.buffer.write(frame(chunk))
            sys.stdout.buffer.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, line: str) -> int:
    sys.stderr.write(" ".join(line.split()) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(os.environ["LAB_RUNS"])))
