"""Encode chunks as a stream of bytes, for a pipe between a container and the client.

A frame is one line of JSON, `{"path": "logs/worker-0.log", "offset": 17, "size": 5}`, followed by
`size` bytes. For a file that is not collected it has the reason: `{"path": …, "fault": "it is a
link", "kept": false}`. `{}` is a tick: nothing is new, but the sender still runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from lab.protocol.volume.layout import Chunk

MAX_HEADER = 16 * 1024  # bytes
MAX_DATA = 1024 * 1024  # bytes
TICK = b"{}\n"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\]")


class FrameError(ValueError):
    """The received bytes are not a frame; the message has the reason."""


def is_safe(path: str) -> bool:
    """Whether a relative path stays inside the directory to which it is joined."""
    pure = PurePosixPath(path)
    return (
        0 < len(path) <= 1000  # noqa: PLR2004
        and not pure.is_absolute()
        and ".." not in pure.parts
        and bool(pure.parts)
        and str(pure) == path
        and not _CONTROL.search(path)
    )


def encode_frame(chunk: Chunk | None) -> bytes:
    """Return one chunk as bytes; the tick for None."""
    if chunk is None:
        return TICK
    if chunk.fault:
        fault = {"path": chunk.path, "fault": chunk.fault, "kept": chunk.kept}
        return json.dumps(fault).encode() + b"\n"
    header = {"path": chunk.path, "offset": chunk.offset, "size": len(chunk.data)}
    return json.dumps(header).encode() + b"\n" + chunk.data


def decode_frames(stream: Iterable[bytes]) -> Iterator[Chunk | None]:
    """Decode chunks from a stream that is cut into arbitrary pieces.

    Args:
        stream: Pieces of any length, also empty ones.

    Yields:
        Chunks, and None for each tick.

    Raises:
        FrameError: The stream has an invalid frame or a path outside the run, or ends in a frame.
    """
    buffer = bytearray()
    header: tuple[Chunk, int] | None = None
    searched = 0
    for piece in stream:
        buffer += piece
        while True:
            if header is None:
                end = buffer.find(b"\n", searched)
                if end < 0:
                    searched = len(buffer)
                    if searched > MAX_HEADER:
                        raise FrameError("a frame begins with a line that is too long")
                    break
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                if line + b"\n" == TICK:
                    yield None
                    continue
                header = _read_header(line)
            chunk, size = header
            if len(buffer) < size:
                break
            yield replace(chunk, data=bytes(buffer[:size]))
            del buffer[:size]
            header = None
    if header is not None or buffer:
        raise FrameError("the stream ends inside a frame")


def _read_header(line: bytes) -> tuple[Chunk, int]:
    try:
        raw = json.loads(line)
        path, fault, kept = raw["path"], raw.get("fault", ""), raw.get("kept", False)
        offset, size = (None, 0) if fault else (raw["offset"], raw["size"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FrameError(f"not a frame: {line[:80]!r}") from error
    is_file = isinstance(path, str) and is_safe(path) and isinstance(fault, str)
    is_place = offset is None or (type(offset) is int and offset >= 0)
    is_size = type(size) is int and 0 <= size <= MAX_DATA and isinstance(kept, bool)
    if not (is_file and is_place and is_size):
        raise FrameError(f"not a frame: {line[:80]!r}")
    return Chunk(path, offset, b"", fault, kept), size
