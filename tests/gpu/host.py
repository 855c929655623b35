"""The host of `make test-gpu`: its GPUs, the processes on them, and what is missing for a step."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lab.backends.compose.backend import ComposeBackend
from lab.doctor.python import installed
from lab.gpu import Inventory, NvmlError, read_host
from tests.gpu.evidence import GpuProcess

PERIOD_S: Final = 0.5
"""Seconds from one process list of NVML to the next."""

_FIRST_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of the Linux kernel


@dataclass(frozen=True, slots=True)
class Host:
    """A host, and where its trainings run.

    Attributes:
        inventory: Its GPUs.
        folder: An empty directory for the trainings' project.
        no_driver: Why there is no GPU, or "".
        no_engine: Why no container can run, or "".
        no_cuda: Why the TensorFlow of this Python cannot use a GPU, or "".
    """

    inventory: Inventory
    folder: Path
    no_driver: str = ""
    no_engine: str = ""
    no_cuda: str = ""

    @property
    def gpus(self) -> dict[str, int]:
        """The memory of each GPU or slice in bytes, by UUID."""
        return {gpu.device_id: gpu.memory_bytes for gpu in self.inventory.gpus}


def look(folder: Path) -> Host:
    """Look at this host."""
    inventory = read_host()
    faults = "; ".join(str(fault) for fault in inventory.faults) or "the driver lists none"
    no_driver = "" if inventory.gpus else f"no GPU here: {faults}"
    no_engine = ComposeBackend().unavailable_reason() or ""
    return Host(inventory, folder, no_driver, no_engine, no_cuda())


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


def identify(pid: int) -> tuple[int, str]:
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


class ProcessWatch:
    """Collects NVML's process lists inside a `with` block, each with its highest use of memory."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-watch")
        self._found: dict[tuple[str, int], GpuProcess] = {}

    @property
    def listed(self) -> list[GpuProcess]:
        """The processes so far."""
        return list(self._found.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_S):
            with suppress(NvmlError):  # then the lists stay short, and the check of them fails
                self.look()

    def look(self) -> None:
        """Read NVML's lists once."""
        for gpu in read_host().gpus:
            for process in gpu.processes:
                key = gpu.device_id, process.pid
                with suppress(OSError):  # it has ended, or it belongs to another PID namespace
                    before = self._found.get(key)
                    known = [before and before.memory_bytes, process.memory_bytes]
                    memory = max((each for each in known if each is not None), default=None)
                    self._found[key] = GpuProcess(gpu.device_id, *identify(process.pid), memory)
