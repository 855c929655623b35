"""Costs too small to be seen in a step, measured by themselves: a byte, an image's gradients."""

from __future__ import annotations

import os
import socket
import statistics
import sys
import threading
import time
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.steps import UnfitError
from benchmarks.trainings import ROOT, Workplace, must

MESSAGE_BYTES: Final = 1 << 20
"""Of such messages the bytes take the time, and not the call."""
MESSAGES: Final = 500
WEIGHT_BYTES: Final = 31_360  # softmax regression's weights
UPDATES: Final = 4_000
REPEATS: Final = 5


def byte_s() -> float:
    """CPU seconds of a byte at one end of a connection over the loopback, median of repeats.

    Large messages, from a thread to another; half of what both took, less what as many messages of
    one byte took, since a call's own cost is measured apart. It is what the kernel copies: what
    gRPC copies beside that is in the costs of calls, as far as softmax's messages tell it.

    Raises:
        UnfitError: It came out as nothing, which no byte can cost.
    """

    def once() -> float:
        return (_sent(MESSAGE_BYTES) - _sent(1)) / 2 / MESSAGES / MESSAGE_BYTES

    found = statistics.median(once() for _ in range(REPEATS))
    if found <= 0:
        raise UnfitError(
            f"{MESSAGES} messages of {MESSAGE_BYTES} bytes took no longer than of one byte;"
            " measure again on a quiet machine"
        )
    return found


def _sent(size: int) -> float:
    """CPU seconds of this process for `MESSAGES` messages there and an answer of one byte each."""
    here, there = _connected()
    with here, there:
        answering = threading.Thread(target=_answer, args=(there, size))
        began = time.process_time()
        answering.start()
        message = b"x" * size
        for _ in range(MESSAGES):
            here.sendall(message)
            here.recv(1)
        answering.join()
        return time.process_time() - began


def _answer(there: socket.socket, size: int) -> None:
    room = bytearray(size)
    for _ in range(MESSAGES):
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
    parameters = np.zeros(WEIGHT_BYTES // 4, np.float32)
    gradient, rate = np.ones_like(parameters), np.float32(0.01)

    def once() -> float:
        began = time.process_time()
        for _ in range(UPDATES):
            np.subtract(parameters, rate * gradient, out=parameters)
        return (time.process_time() - began) / UPDATES / WEIGHT_BYTES

    return statistics.median(once() for _ in range(REPEATS))


def image_s(place: Workplace) -> float:
    """CPU seconds of the gradients of an image, by themselves.

    Raises:
        TrainingError: The program that measures it did not succeed.
        UnfitError: It came out as nothing.
    """
    path = os.pathsep.join(map(str, (ROOT, ROOT / "scripts")))
    place = replace(place, environ={**place.environ, "PYTHONPATH": path})
    found = float(must(place, "gradients", [sys.executable, "-m", "benchmarks.gradients"]))
    if found <= 0:
        raise UnfitError("the gradients of many images took no longer than of one; measure again")
    return found
