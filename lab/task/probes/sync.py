"""Bring a run home, piece by piece, from where it was left."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote_from_bytes

from lab.task.protocol import Chunk, Request, TaskStatus, Volume
from lab.task.protocol.control import find
from lab.task.protocol.files import is_read_only
from lab.task.protocol.framing import MAX_DATA, is_safe
from lab.task.protocol.heartbeat import PeerMonitor
from lab.task.protocol.states import Cause, State
from lab.task.protocol.statuses import Statuses

_POLL_S = 0.2
_LAST_POLL_S = 0.02
"""Once services alone are left, which are being ended: who follows has nothing else to wait for."""
_TICK_S = 0.5
READ_ONLY_S: Final = 20.0
"""Seconds after which a read-only volume ends the run. The agents cannot write that. By then they
have ended their programs."""
MAX_FILE: Final = 1 << 30
"""A larger file of a program stays on the run volume unless all sizes are asked for, in bytes."""
MAX_FAULTS: Final = 1_000
"""Files with a fault that are named; the others are counted."""

_KINDS: Final = (
    (stat.S_ISLNK, "it is a link"),
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode), "it is a device"),
)


def stream(
    volume: Volume,
    run_id: str,
    offsets: Mapping[str, int],
    *,
    follow: bool,
    all_sizes: bool = False,
    rest: bool = False,
) -> Iterator[Chunk | None]:
    """Bring a run home, from the given byte offsets on.

    Records and logs come as they grow, states as they change, and once every task has ended all
    other files of the run whose size differs from what home has. A state comes only after all
    that its task had written before it: home never sees the end of a task whose last records
    are still to come.

    A file that cannot be collected comes as a chunk with its fault; the others come all the same.

    Args:
        volume: Where the run lies.
        run_id: The run.
        offsets: Path relative to the run's directory → bytes that are at home already.
        follow: Go on until every task has ended, otherwise stop at what is there now.
        all_sizes: Ship files of more than `MAX_FILE` bytes, too.
        rest: Ship all other files although a task has not written its end: its agent has died.

    Yields:
        Pieces as they appear; None at least once a second.

    Raises:
        NoSuchRun: There is none of this name.
        OSError: The volume cannot be read.
    """
    request = find(volume, run_id)
    text = volume.request(run_id).read_bytes()
    if offsets.get("request.json") != len(text):
        yield Chunk("request.json", None, text)
    tails = [_Tail(volume.run(run_id), path, offsets) for path in _appended(request)]
    tasks = _Tasks(volume, request)
    ticked = time.monotonic()
    while True:
        states = tasks.states()  # before the records: what changes now is the next round's
        ended = all(status.state.ended for status in states.values())
        for tail in tails:
            for chunk in tail.read():
                ticked = time.monotonic()
                yield chunk
        yield from tasks.changes(states)
        if ended or not follow:
            break
        if time.monotonic() - ticked >= _TICK_S:
            ticked = time.monotonic()
            tasks.declare_lost(states)
            yield None
        others = [states[task].state.ended for task in request.others()]
        time.sleep(_LAST_POLL_S if others and all(others) else _POLL_S)
    for tail in tails:
        yield from tail.fault()
    if ended or rest:
        yield from _Rest(volume.run(run_id), offsets, request, all_sizes=all_sizes).chunks()


class _Tasks:
    """The states of a run's tasks.

    On a read-only volume the agents cannot write how their tasks end. After `READ_ONLY_S` every
    task counts as failed with the cause `volume`.
    """

    def __init__(self, volume: Volume, request: Request) -> None:
        self._volume = volume
        self._run_id = request.run_id
        self._statuses = Statuses(volume, request.run_id, request.tasks())
        self._peers = PeerMonitor(volume, request.tasks(), patient=request.spec.restarts > 0)
        self._read_only_since: float | None = None
        self._shipped: Mapping[str, TaskStatus] = {}

    def states(self) -> dict[str, TaskStatus]:
        """A copy of the states as they are now."""
        states = dict(self._statuses.refresh())
        since = self._read_only_since
        if since is None or time.monotonic() - since < READ_ONLY_S:
            return states
        return {task: _failed(status) for task, status in states.items()}

    def changes(self, states: Mapping[str, TaskStatus]) -> Iterator[Chunk]:
        """The states that differ from those of the call before."""
        for task, status in states.items():
            if self._shipped.get(task) != status:
                yield Chunk(f"status/{task}.json", None, status.to_json().encode())
        self._shipped = states

    def declare_lost(self, states: Mapping[str, TaskStatus]) -> None:
        """End the tasks whose agents have gone; on a read-only volume no agent can be missed."""
        if is_read_only(self._volume.root):
            self._read_only_since = self._read_only_since or time.monotonic()
            return
        self._read_only_since = None
        self._peers.check()
        self._peers.declare_lost(self._volume, self._run_id, states)


def _failed(status: TaskStatus) -> TaskStatus:
    """The status of a task whose agent cannot write it."""
    if status.state.ended:
        return status
    reason = (
        f"the run volume has been read-only for {READ_ONLY_S:g} s; see `dmesg | tail`, and repair"
        " its file system"
    )
    now = time.time()
    return replace(
        status, state=State.FAILED, reason=reason, cause=Cause.VOLUME, ended_unix=now, message=""
    )


def _appended(request: Request) -> list[str]:
    tasks = request.tasks()
    return [f"tasks/{task}.jsonl" for task in tasks] + [f"logs/{task}.log" for task in tasks]


class _Tail:
    """A file that only grows."""

    def __init__(self, run: Path, path: str, offsets: Mapping[str, int]) -> None:
        self._file = run / path
        self._path = path
        self._position = offsets.get(path, 0)
        self._fault = ""

    def read(self) -> Iterator[Chunk]:
        """What is new; a fault may be over in the next round."""
        self._fault = ""
        try:
            found = self._file.lstat()
            if stat.S_ISREG(found.st_mode):
                if found.st_size != self._position:
                    yield from self._fresh()
                return
            self._fault = _kind(found.st_mode)
        except FileNotFoundError:
            return
        except OSError as error:
            self._fault = _arguments(error)

    def fault(self) -> Iterator[Chunk]:
        """Why the file could not be read in the last round, if so."""
        if self._fault:
            yield Chunk(self._path, None, b"", self._fault, kept=True)

    def _fresh(self) -> Iterator[Chunk]:
        with _open(self._file) as file:
            if os.fstat(file.fileno()).st_size < self._position:
                # Home holds more than there is: it is another file's copy, or the disk was full
                # and a torn line was taken back. The whole of it comes again.
                self._position = 0
                yield Chunk(self._path, None, b"")
            file.seek(self._position)
            while data := file.read(MAX_DATA):
                yield Chunk(self._path, self._position, data)
                self._position += len(data)


class _Rest:
    """Every other file of an ended run; links are not followed."""

    def __init__(
        self, run: Path, offsets: Mapping[str, int], request: Request, *, all_sizes: bool
    ) -> None:
        self._run = run
        self._offsets = offsets
        self._sent = {*_appended(request), *(f"status/{task}.json" for task in request.tasks())}
        self._limit = None if all_sizes else MAX_FILE
        self._faults = 0
        self._shipped: set[str] = set()

    def chunks(self) -> Iterator[Chunk]:
        """All of them, in the order of their paths."""
        # A list of what is still to be read, not a call for each directory: a program may have
        # made any number of them inside each other.
        folders = [""]
        while folders:
            folder = folders.pop()
            below = []
            try:
                with os.scandir(self._run / folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                yield from self._fault(folder, _arguments(error), kept=True)
                continue
            for entry in found:
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(path)
                    else:
                        yield from self._file(path, entry.stat(follow_symlinks=False))
                except OSError as error:
                    yield from self._fault(path, _arguments(error), kept=True)
            folders += reversed(below)
        if self._faults > MAX_FAULTS:
            fault = f"{self._faults - MAX_FAULTS:,} more files are not collected"
            yield Chunk("files", None, b"", fault, kept=True)

    def _file(self, path: str, found: os.stat_result) -> Iterator[Chunk]:
        name = _quoted(path)
        if name in self._sent or _is_temporary(path):
            return
        if not stat.S_ISREG(found.st_mode):
            yield from self._fault(path, _kind(found.st_mode), kept=False)
        elif name in self._shipped:
            yield from self._fault(path, "another file has this name at home", kept=True)
        elif not is_safe(name):
            yield from self._fault(path, "its path is too long", kept=True)
        elif self._limit is not None and found.st_size > self._limit:
            size = f"it has {found.st_size:,} bytes, more than {self._limit:,}"
            yield from self._fault(path, size, kept=True)
        else:
            self._shipped.add(name)
            if self._offsets.get(name) != found.st_size:
                yield from self._whole(name, path)

    def _whole(self, name: str, path: str) -> Iterator[Chunk]:
        with _open(self._run / path) as file:
            yield Chunk(name, None, file.read(MAX_DATA))
            while True:
                position = file.tell()
                if not (data := file.read(MAX_DATA)):
                    return
                yield Chunk(name, position, data)

    def _fault(self, path: str, fault: str, *, kept: bool) -> Iterator[Chunk]:
        self._faults += 1
        if self._faults <= MAX_FAULTS:
            name = _quoted(path) or "files"
            yield Chunk(name if is_safe(name) else _shortened(name), None, b"", fault, kept)


def _quoted(path: str) -> str:
    """A path whose unsafe parts have only plain characters, and `%0A` for every other byte."""
    parts = path.split("/")
    return "/".join(
        part if is_safe(part) else quote_from_bytes(os.fsencode(part), safe="") for part in parts
    )


def _shortened(path: str) -> str:
    return f"{path[:400]}…{path[-400:]}"


def _is_temporary(path: str) -> bool:
    """Whether an agent was writing it when it ended: `status/.worker-0.json.1a2b3c4d`."""
    return path.startswith(("status/.", "start/.", "faults/.", "."))


def _kind(mode: int) -> str:
    return next((arguments for fits, arguments in _KINDS if fits(mode)), "it is no regular file")


def _arguments(error: OSError) -> str:
    """Why a file cannot be read.

    Raises:
        OSError: The disk is at fault, not the file.
    """
    if error.errno in {errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN}:
        raise error
    return (error.strerror or str(error)).lower()


def _open(path: Path) -> BinaryIO:
    # Neither through a link, nor waiting for the other end of a FIFO.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
