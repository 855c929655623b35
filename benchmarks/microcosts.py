"""Costs too small to be seen in a step, measured by themselves: a byte moved, a byte updated."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

import numpy as np

from benchmarks import pairs

MESSAGE_BYTES: Final = 31_360  # softmax regression's weights
TIMES: Final = 4_000
REPEATS: Final = 5


def byte_s() -> float:
    """CPU seconds of a byte at one end of a connection over the loopback, median of repeats.

    Messages of the weights' size, from a thread to another; half of what both took, less what as
    many messages of one byte took, since a call's own cost is measured apart.
    """

    def once() -> float:
        return max(0.0, _sent(MESSAGE_BYTES) - _sent(1)) / 2 / TIMES / MESSAGE_BYTES

    return pairs.estimate([once() for _ in range(REPEATS)]).median


def _sent(size: int) -> float:
    """CPU seconds of this process for `TIMES` messages there and an answer of one byte each."""
    here, there = _connected()
    with here, there:
        answering = threading.Thread(target=_answer, args=(there, size))
        began = time.process_time()
        answering.start()
        message = b"x" * size
        for _ in range(TIMES):
            here.sendall(message)
            here.recv(1)
        answering.join()
        return time.process_time() - began


def _answer(there: socket.socket, size: int) -> None:
    room = bytearray(size)
    for _ in range(TIMES):
        got = 0
        while got < size:
            got += there.recv_into(memoryview(room)[got:])
        there.sendall(b"y")


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    for end in (here, there):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return here, there


def apply_byte_s() -> float:
    """CPU seconds of a byte of parameters that a gradient is subtracted from; median of repeats."""
    parameters = np.zeros(MESSAGE_BYTES // 4, np.float32)
    gradient, rate = np.ones_like(parameters), np.float32(0.01)

    def once() -> float:
        began = time.process_time()
        for _ in range(TIMES):
            np.subtract(parameters, rate * gradient, out=parameters)
        return (time.process_time() - began) / TIMES / MESSAGE_BYTES

    return pairs.estimate([once() for _ in range(REPEATS)]).median
