"""The host of `make test-gpu`: the processes on its GPUs, and the TensorFlow of this Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lab.checks.host import installed
from lab.cluster.gpu import NvmlError, read_host
from tests.gpu.evidence import GpuProcess

PERIOD_S: Final = 0.5
"""Seconds from one process list of NVML to the next."""

_FIRST_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of the Linux kernel

Listed = dict[tuple[str, int], GpuProcess]
"""UUID of a GPU and NVML's process id → the process."""


def no_cuda() -> str:
    """Why the TensorFlow of this Python cannot use a GPU, or ""; this does not import it."""
    if installed("tensorflow"):
        return ""
    if not installed("tensorflow-cpu"):
        return "TensorFlow is not installed for this Python"
    return (
        "the TensorFlow of this Python is built for CPUs; replace it: "
        "`pip uninstall tensorflow-cpu`, then `pip install 'tensorflow[and-cuda]==2.21.*'`"
    )


def hides_processes() -> bool:
    """Whether this process is in a container, where NVML may list no process at all."""
    return str(Path("/proc/self/ns/pid").readlink()) != _FIRST_NAMESPACE


@contextmanager
def process_lists() -> Iterator[Listed]:
    """NVML's process lists during the block, each process with its highest use of memory."""
    listed: Listed = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PERIOD_S):
            with suppress(NvmlError):  # then the lists stay short, and the check of them fails
                _look(listed)

    _look(listed)
    thread = threading.Thread(target=watch, name="process-watch")
    thread.start()
    try:
        yield listed
    finally:
        ended.set()
        thread.join()


def _look(listed: Listed) -> None:
    for gpu in read_host().gpus:
        for process in gpu.processes:
            with suppress(OSError):  # it has ended, or it belongs to another PID namespace
                own_pid, namespace = _identify(process.pid)
                before = listed.get((gpu.device_id, process.pid))
                known = [before and before.memory_bytes, process.memory_bytes]
                memory = max((each for each in known if each is not None), default=None)
                entry = GpuProcess(gpu.device_id, own_pid, namespace, memory)
                listed[gpu.device_id, process.pid] = entry


def _identify(pid: int) -> tuple[int, str]:
    """A process's id in its own PID namespace, and this namespace; "" if it may not be read.

    Raises:
        OSError: The process has ended.
    """
    own, proc = pid, Path(f"/proc/{pid}")
    for line in (proc / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            own = int(line.split()[-1])
    try:
        return own, str((proc / "ns/pid").readlink())
    except PermissionError:
        return own, ""
