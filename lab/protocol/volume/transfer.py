"""Stream a run's files to the client, in chunks, from given offsets on."""

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

from lab.protocol.volume.clock import Stopwatch, unix_time
from lab.protocol.volume.control import find
from lab.protocol.volume.files import is_read_only, open_regular
from lab.protocol.volume.framing import MAX_DATA, is_safe
from lab.protocol.volume.heartbeat import PeerMonitor
from lab.protocol.volume.layout import PACKAGES, Chunk, Volume
from lab.protocol.volume.run_spec import Request
from lab.protocol.volume.states import Cause, State, TaskStatus
from lab.protocol.volume.status import Statuses

_POLL_S = 0.2
_LAST_POLL_S = 0.02
"""The shorter interval when only services have not ended: they are being stopped."""
_TICK_S = 0.5
READ_ONLY_S: Final = 20.0
"""Seconds after which a run on a read-only volume counts as failed. The agents cannot write this.
They have ended their programs by then."""
MAX_FILE: Final = 1 << 30
"""Maximum bytes of a program's file that is collected without `all_sizes`."""
MAX_FAULTS: Final = 1_000
"""Maximum number of faulty files that are named; the others are counted."""

_NOT_REGULAR: Final = "it is not a regular file"


def stream(
    volume: Volume,
    run_id: str,
    offsets: Mapping[str, int],
    *,
    follow: bool,
    all_sizes: bool = False,
    rest: bool = False,
) -> Iterator[Chunk | None]:
    """Stream a run's files, from the given byte offsets on.

    Records and logs are sent as they grow, and statuses as they change. After every task has ended,
    all other files are sent whose size differs from the client's copy. A status is sent after all
    data that its task wrote before it. So the client never sees the end of a task before its last
    records.

    For a file that cannot be collected, a chunk with its fault is sent. The other files follow.

    Args:
        volume: The run volume.
        run_id: The run.
        offsets: Path relative to the run's directory → bytes that the client already has.
        follow: Continue until every task has ended; otherwise stop at the current state.
        all_sizes: Send files of more than `MAX_FILE` bytes too.
        rest: Send all other files even if a task has not ended, because its agent has ended.

    Yields:
        Chunks as they appear; None at least once a second.

    Raises:
        NoSuchRun: There is no run with this id.
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
        states = tasks.states()  # read before the records; later changes follow in the next round
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
        yield from _OtherFiles(volume.run(run_id), offsets, request, all_sizes=all_sizes).chunks()


class _Tasks:
    """The statuses of a run's tasks.

    On a read-only volume the agents cannot write the ends of their tasks. After `READ_ONLY_S` every
    task counts as failed with the cause `volume`.
    """

    def __init__(self, volume: Volume, request: Request) -> None:
        self._volume = volume
        self._run_id = request.run_id
        self._statuses = Statuses(volume, request.run_id, request.tasks())
        self._peers = PeerMonitor(volume, request.tasks(), patient=request.spec.restarts > 0)
        self._read_only = Stopwatch()
        self._sent: Mapping[str, TaskStatus] = {}

    def states(self) -> dict[str, TaskStatus]:
        """A copy of the current statuses."""
        states = dict(self._statuses.refresh())
        if self._read_only.seconds < READ_ONLY_S:
            return states
        return {task: _failed(status) for task, status in states.items()}

    def changes(self, states: Mapping[str, TaskStatus]) -> Iterator[Chunk]:
        """The statuses that have changed since the last call."""
        for task, status in states.items():
            if self._sent.get(task) != status:
                yield Chunk(f"status/{task}.json", None, status.to_json().encode())
        self._sent = states

    def declare_lost(self, states: Mapping[str, TaskStatus]) -> None:
        """Declare tasks without a heartbeat lost; a read-only volume stops all heartbeats."""
        read_only = is_read_only(self._volume.root)
        self._read_only.look(read_only, counts=read_only)
        if not read_only:
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
    now = unix_time()
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
        """The new data; a fault may disappear in the next round."""
        self._fault = ""
        try:
            with open_regular(self._file) as file:
                yield from self._new_data(file)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._fault = _reason(error)

    def fault(self) -> Iterator[Chunk]:
        """A chunk with the fault of the last round, if there was one."""
        if self._fault:
            yield Chunk(self._path, None, b"", self._fault, kept=True)

    def _new_data(self, file: BinaryIO) -> Iterator[Chunk]:
        if os.fstat(file.fileno()).st_size < self._position:
            # The client's copy is longer: the file was replaced, or the disk was full and an
            # incomplete line was removed. Send the whole file again.
            self._position = 0
            yield Chunk(self._path, None, b"")
        file.seek(self._position)
        while data := file.read(MAX_DATA):
            yield Chunk(self._path, self._position, data)
            self._position += len(data)


class _OtherFiles:
    """All other files of an ended run; links are not followed."""

    def __init__(
        self, run: Path, offsets: Mapping[str, int], request: Request, *, all_sizes: bool
    ) -> None:
        self._run = run
        self._offsets = offsets
        self._handled = {*_appended(request), *(f"status/{task}.json" for task in request.tasks())}
        self._limit = None if all_sizes else MAX_FILE
        self._faults = 0
        self._sent: set[str] = set()

    def chunks(self) -> Iterator[Chunk]:
        """Chunks of all files, sorted by path."""
        # A list instead of recursion: a program may have nested any number of directories.
        folders = [""]
        while folders:
            folder = folders.pop()
            below = []
            try:
                with os.scandir(self._run / folder) as entries:
                    ordered = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                yield from self._fault(folder, _reason(error), kept=True)
                continue
            for entry in ordered:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if path == PACKAGES:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(path)
                    else:
                        yield from self._file(path, entry.stat(follow_symlinks=False))
                except (OSError, ValueError) as error:
                    yield from self._fault(path, _reason(error), kept=True)
            folders += reversed(below)
        if self._faults > MAX_FAULTS:
            fault = f"{self._faults - MAX_FAULTS:,} more files are not collected"
            yield Chunk("files", None, b"", fault, kept=True)

    def _file(self, path: str, status: os.stat_result) -> Iterator[Chunk]:
        name = _quoted(path)
        if name in self._handled or _is_temporary(path):
            return
        if not stat.S_ISREG(status.st_mode):
            yield from self._fault(path, _NOT_REGULAR, kept=False)
        elif name in self._sent:
            yield from self._fault(path, "another collected file has this name", kept=True)
        elif not is_safe(name):
            yield from self._fault(path, "its path is too long", kept=True)
        elif self._limit is not None and status.st_size > self._limit:
            size = f"it has {status.st_size:,} bytes, more than {self._limit:,}"
            yield from self._fault(path, size, kept=True)
        else:
            self._sent.add(name)
            if self._offsets.get(name) != status.st_size:
                yield from self._whole(name, path)

    def _whole(self, name: str, path: str) -> Iterator[Chunk]:
        with open_regular(self._run / path) as file:
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
    """A path whose unsafe parts are percent-encoded, such as `%0A`."""
    parts = path.split("/")
    return "/".join(
        part if is_safe(part) else quote_from_bytes(os.fsencode(part), safe="") for part in parts
    )


def _shortened(path: str) -> str:
    return f"{path[:400]}…{path[-400:]}"


def _is_temporary(path: str) -> bool:
    """Whether it is an agent's temporary file: `status/.worker-0.json.1a2b3c4d`."""
    return path.startswith(("status/.", "start/.", "faults/.", "."))


def _reason(error: OSError | ValueError) -> str:
    """Why a file cannot be read.

    Raises:
        OSError: The disk has failed, not only this file.
    """
    if isinstance(error, ValueError):
        return str(error)
    if error.errno in {errno.EIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN}:
        raise error
    return (error.strerror or str(error)).lower()
