"""Traces the task that imports it, for `make test-gpu`.

`trainings.py` copies this file beside the experiments' programs, and adds an import of it to the
copy of `mnist_model.py`, which they all import. The programs in `scripts/` do not change.
This module runs in the task, so it imports only what the image has.

It writes two things into the run, below `trace/TASK/`:

    process.json     the process: its id, and the PID namespace in which it has this id
    task.xplane.pb   the trace of TensorFlow's profiler: what its GPUs did for two seconds
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

AFTER_S = 1.0
"""Seconds from the start of the training to the trace. The first steps also compile kernels."""

TRACED_S = 2.0

_POLL_S = 0.05
_ANSWER_S = 60.0
_METHOD = "/tensorflow.ProfilerService/Profile"


def begin() -> None:
    """Write the process's ids, and trace it in a thread. A program started by hand has no task."""
    if "LAB_RUN_DIR" not in os.environ:
        return
    # NCCL reads it at its first use, and then names its GPUs and connections in the task's log.
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    folder = Path(os.environ["LAB_RUN_DIR"]) / "trace" / os.environ["LAB_TASK"]
    folder.mkdir(parents=True, exist_ok=True)
    process = {"pid": os.getpid(), "namespace": str(Path("/proc/self/ns/pid").readlink())}
    (folder / "process.json").write_text(json.dumps(process), encoding="utf-8")
    # Not a daemon: a program that is done waits until its trace is complete.
    threading.Thread(target=_trace, args=(folder,), name="gpu-trace").start()


def _trace(folder: Path) -> None:
    start = os.environ.get("LAB_START")  # a program that does not wait has none
    while start and not Path(start).exists():
        if not threading.main_thread().is_alive():
            return
        time.sleep(_POLL_S)
    time.sleep(AFTER_S)
    trace(folder)


def trace(folder: Path) -> None:
    """Trace the GPUs of this process into `FOLDER/task.xplane.pb`; the directory exists.

    The request goes to TensorFlow's profiler server in this process. TensorFlow 2.21 ignores the
    options of `tf.profiler.experimental.start`.

    Raises:
        grpc.RpcError: The profiler did not answer.
    """
    import grpc  # noqa: PLC0415  (TensorFlow needs it, too)
    import tensorflow as tf  # noqa: PLC0415  (the program has imported it)
    from tensorflow.tsl.profiler.protobuf import profiler_options_pb2  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    milliseconds = int(TRACED_S * 1000)
    # With a level of the host above 0, TensorFlow 2.21 crashes now and then when it traces a
    # multi-worker training.
    options = profiler_options_pb2.ProfileOptions(
        version=1, host_tracer_level=0, device_tracer_level=1, duration_ms=milliseconds
    )
    # A ProfileRequest: duration_ms, opts, repository_root, session_id, host_name. TensorFlow's
    # wheel does not contain its class.
    numbers = {4: options.SerializeToString(), 5: str(folder.parent).encode()}
    numbers |= {6: folder.name.encode(), 7: b"task"}
    request = b"\x08" + _varint(milliseconds)
    for number, value in numbers.items():
        request += bytes([number << 3 | 2]) + _varint(len(value)) + value
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        channel.unary_unary(_METHOD)(request, timeout=TRACED_S + _ANSWER_S, wait_for_ready=True)


def _varint(number: int) -> bytes:
    """A number in the encoding of Protocol Buffers."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


begin()
