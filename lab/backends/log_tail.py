"""Follows the outputs of tasks: growing files, and streams that arrive together."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import Queue

from lab.base.text import short, visible
from lab.base.threads import in_background
from lab.protocol.volume.clock import stamp

_POLL_S = 0.2
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ")
_PIECE_BYTES = 64 * 1024


def follow(
    files: Mapping[str, Path],
    tail: int | None,
    alive: Callable[[], bool] | None,
    since: float | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield lines of several files, safe to print, each with the name of its file.

    Args:
        files: Name to file; a file that does not exist yet counts as empty.
        tail: Begin with this many lines of each file; None: with all.
        alive: Continue as long as this returns true; None: stop at the current ends.
        since: Skip lines with a time stamp before this time, in seconds since the epoch. A line
            without a stamp, such as a traceback's, belongs to the line before it.
    """
    earliest = "" if since is None else stamp(since)
    shown = dict.fromkeys(files, since is None)
    rests = dict.fromkeys(files, b"")
    positions = {name: _start(path, tail) for name, path in files.items()}
    while True:
        last = alive is None or not alive()
        for name, path in files.items():
            for data in _pieces(path, positions[name]):
                positions[name] += len(data)
                *lines, rests[name] = (rests[name] + data).split(b"\n")
                for line in lines:
                    stamped = _STAMPED.match(line)
                    if stamped:
                        shown[name] = stamped[1].decode() >= earliest
                    if shown[name]:
                        yield name, visible(line[stamped.end() :] if stamped else line)
        if last:
            return
        time.sleep(_POLL_S)


def merged_lines(outputs: Mapping[str, Iterator[bytes]]) -> Iterator[str]:
    """Yield lines, `worker-0  | …`, as they arrive; those of one output are in order.

    Args:
        outputs: Task to the pieces of its output.

    Raises:
        LabError: An output cannot be read.
    """
    width = max(map(len, outputs), default=0)
    arrived: Queue[str | BaseException | None] = Queue(maxsize=1000)

    def read(task: str, pieces: Iterator[bytes]) -> None:
        rest, end = b"", None
        try:
            for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    arrived.put(f"{task:<{width}}  | {visible(line)}")
            if rest:
                arrived.put(f"{task:<{width}}  | {visible(rest)}")
        except Exception as error:  # noqa: BLE001  (it is raised in the caller's thread)
            end = error
        arrived.put(end)

    for task, pieces in outputs.items():
        in_background(partial(read, task, pieces))
    left = len(outputs)
    while left:
        item = arrived.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            left -= 1
        else:
            yield item


def last_lines(path: Path, count: int) -> str:
    """Return the last lines of a file as one line, for an error; "" if there are none."""
    lines = [line for _, line in follow({"": path}, count, None) if line.strip()]
    return short(" / ".join(line.strip() for line in lines), 600)


def _pieces(path: Path, position: int) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(position)
        while data := file.read(_PIECE_BYTES):
            yield data


def _start(path: Path, tail: int | None) -> int:
    """The byte offset of the last `tail` whole lines, and of what follows them."""
    if tail is None or not path.exists():
        return 0
    with path.open("rb") as file:
        starts = deque([0], maxlen=tail + 1)
        starts.extend(accumulate(len(line) for line in file if line.endswith(b"\n")))
    return starts[0] if len(starts) > tail else 0
