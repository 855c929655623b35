"""Merges the output of several pods into lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from queue import Queue

from lab.text import visible
from lab.threads import in_background


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
        found = arrived.get()
        if isinstance(found, BaseException):
            raise found
        if found is None:
            left -= 1
        else:
            yield found
