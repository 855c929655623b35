"""Costs that are too small to measure in a step: a byte, the gradients of an image."""

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
"""In messages of this size the call's own time is negligible."""
MESSAGES: Final = 500
WEIGHT_BYTES: Final = 31_360  # softmax regression's weights
UPDATES: Final = 4_000
REPEATS: Final = 5


def byte_s() -> float:
    """Measure the CPU seconds of a byte at one end of a loopback connection, median of repeats.

    A thread sends large messages to another. The cost is half the CPU time of both, minus the time
    of the same number of messages of one byte, since the cost of a call is measured separately. It
    contains the kernel's copies. The costs of calls contain gRPC's copies at softmax's sizes.

    Raises:
        UnfitError: The result is not positive.
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
    """Return this process's CPU seconds for `MESSAGES` messages and their replies of one byte."""
    here, there = _connected()
    with here, there:
        replying = threading.Thread(target=_reply, args=(there, size))
        began = time.process_time()
        replying.start()
        message = b"x" * size
        for _ in range(MESSAGES):
            here.sendall(message)
            here.recv(1)
        replying.join()
        return time.process_time() - began


def _reply(there: socket.socket, size: int) -> None:
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
    """Measure the CPU seconds to subtract a gradient, per byte of parameters; a median."""
    parameters = np.zeros(WEIGHT_BYTES // 4, np.float32)
    gradient, rate = np.ones_like(parameters), np.float32(0.01)

    def once() -> float:
        began = time.process_time()
        for _ in range(UPDATES):
            np.subtract(parameters, rate * gradient, out=parameters)
        return (time.process_time() - began) / UPDATES / WEIGHT_BYTES

    return statistics.median(once() for _ in range(REPEATS))


def image_s(place: Workplace) -> float:
    """Measure the CPU seconds of the gradients of an image.

    Raises:
        TrainingError: The measuring program failed.
        UnfitError: The result is not positive.
    """
    path = os.pathsep.join(map(str, (ROOT, ROOT / "scripts")))
    place = replace(place, environ={**place.environ, "PYTHONPATH": path})
    found = float(must(place, "gradients", [sys.executable, "-m", "benchmarks.gradients"]))
    if found <= 0:
        raise UnfitError(
            "the gradients of many images took no longer than of one image; measure again"
        )
    return found
