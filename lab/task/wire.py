"""Messages between an agent and its nursery: JSON over a socket pair, with a descriptor or none."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")


class HungUp(Exception):  # noqa: N818  (a state)
    """The other side has closed its end, or says what nobody understands."""


def tell(end: socket.socket, message: Mapping[str, object], descriptor: int | None = None) -> None:
    """Send a message.

    Args:
        end: This side's end.
        message: What to say.
        descriptor: A file descriptor of which the other side gets a copy.

    Raises:
        OSError: The other side has gone, or takes nothing within the socket's time-out.
    """
    data = json.dumps(message).encode()
    length = _LENGTH.pack(len(data))
    descriptors = [] if descriptor is None else [descriptor]
    # So short a piece is sent whole or not at all.
    socket.send_fds(end, [length], descriptors)
    end.sendall(data)


def hear(end: socket.socket) -> tuple[dict[str, Any], int | None]:
    """Wait for a message.

    Returns:
        The message, and the descriptor that came with it.

    Raises:
        HungUp: The other side has gone.
        OSError: Nothing came within the socket's time-out.
    """
    head, descriptors, _, _ = socket.recv_fds(end, _LENGTH.size, 1)
    try:
        head += _rest(end, _LENGTH.size - len(head))
        message = json.loads(_rest(end, _LENGTH.unpack(head)[0]))
    except ValueError as error:
        _close(descriptors)
        raise HungUp(str(error)) from error
    except BaseException:
        _close(descriptors)
        raise
    return message, descriptors[0] if descriptors else None


def _rest(end: socket.socket, count: int) -> bytes:
    pieces = []
    while count:
        piece = end.recv(count)
        if not piece:
            raise HungUp("the other side has gone")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
