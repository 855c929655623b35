"""Bring a run home, piece by piece, from where it was left."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from lab.task.frames import MAX_DATA, is_safe
from lab.task.presence import Pulses
from lab.task.protocol import RUN_ID, Chunk, Request, TaskStatus, Volume
from lab.task.statuses import Statuses

_POLL_S = 0.2
_LAST_POLL_S = 0.02
"""Once services alone are left, which are being ended: who follows has nothing else to wait for."""
_TICK_S = 0.5
_OURS = ("tasks", "status")
"""Directories that hold nothing but what the agents write; a program's own files stay out."""


class NoSuchRun(Exception):  # noqa: N818 (as FileNotFoundError's family is read: a state)
    """The volume holds no run of this name."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} on this volume")


def ship(
    volume: Volume, run_id: str, offsets: Mapping[str, int], *, follow: bool
) -> Iterator[Chunk | None]:
    """Bring a run home, from the given byte offsets on.

    Records and logs come as they grow, states as they change, and once every task has ended all
    other files of the run whose size differs from what home has. A state comes only after all
    that its task had written before it: home never sees the end of a task whose last records
    are still to come.

    Args:
        volume: Where the run lies.
        run_id: The run.
        offsets: Path relative to the run's directory → bytes that are at home already.
        follow: Go on until every task has ended, otherwise stop at what is there now.

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
    statuses = Statuses(volume, run_id, request.tasks())
    pulses = Pulses(volume, request.tasks(), patient=request.restarts > 0)
    shipped: dict[str, TaskStatus] = {}
    ticked = time.monotonic()
    while True:
        # A copy, and before the records: what changes from here on is the next round's.
        states = dict(statuses.refresh())
        ended = all(status.state.ended for status in states.values())
        for tail in tails:
            for chunk in tail.read():
                ticked = time.monotonic()
                yield chunk
        for task, status in states.items():
            if shipped.get(task) != status:
                yield Chunk(f"status/{task}.json", None, status.to_json().encode())
        shipped = states
        if ended or not follow:
            break
        if time.monotonic() - ticked >= _TICK_S:
            ticked = time.monotonic()
            pulses.beat()
            pulses.declare_lost(volume, run_id, states)
            yield None
        others = [states[task].state.ended for task in request.others()]
        time.sleep(_LAST_POLL_S if others and all(others) else _POLL_S)
    if ended:
        yield from _rest(volume.run(run_id), offsets, frozenset(_appended(request)))


def find(volume: Volume, run_id: str) -> Request:
    """The request of a run.

    Raises:
        NoSuchRun: There is none of this name.
    """
    if not RUN_ID.fullmatch(run_id):
        raise NoSuchRun(run_id)
    try:
        return Request.from_json(volume.request(run_id).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NoSuchRun(run_id) from error


def _appended(request: Request) -> list[str]:
    tasks = request.tasks()
    return [f"tasks/{task}.jsonl" for task in tasks] + [f"logs/{task}.log" for task in tasks]


class _Tail:
    """A file that only grows."""

    def __init__(self, run: Path, path: str, offsets: Mapping[str, int]) -> None:
        self._file = run / path
        self._path = path
        self._position = offsets.get(path, 0)

    def read(self) -> Iterator[Chunk]:
        try:
            size = self._file.stat().st_size
        except FileNotFoundError:
            return
        if size == self._position:
            return
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


def _rest(run: Path, offsets: Mapping[str, int], sent: frozenset[str]) -> Iterator[Chunk]:
    """Every other regular file of an ended run; links are not followed, nor sent."""
    for folder, folders, names, descriptor in os.fwalk(run):
        if Path(folder) == run:
            folders[:] = [name for name in folders if name not in _OURS]
        folders.sort()
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(run).as_posix()
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) or not is_safe(path) or path in sent:
                continue
            if offsets.get(path) != found.st_size:
                yield from _whole(path, name, descriptor)


def _whole(path: str, name: str, descriptor: int) -> Iterator[Chunk]:
    with _open(name, descriptor) as file:
        yield Chunk(path, None, file.read(MAX_DATA))
        while True:
            position = file.tell()
            if not (data := file.read(MAX_DATA)):
                return
            yield Chunk(path, position, data)


def _open(path: Path | str, descriptor: int | None = None) -> BinaryIO:
    # Neither through a link, nor waiting for the other end of a FIFO.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.fdopen(os.open(path, flags, dir_fd=descriptor), "rb")
