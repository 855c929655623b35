"""The GPUs that a task can use: `python -m lab.task.node.gpu_probe` prints one line of JSON.

It runs in a task's container, or in the namespaces of its agent. `lab.cluster.gpu.verification`
compares the answer with the plan.

    given    UUIDs of the GPUs and MIG slices that NVML lists in a container; null for a process of
             the host, where it lists all GPUs
    seen     those of them that `CUDA_VISIBLE_DEVICES` of the task allows; null without an answer
    driver   whether the driver's library is installed
    nvml     why NVML does not answer, or does not show a GPU
    cuda     why CUDA's driver cannot start
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

PROC: Final = Path("/proc")

_LIBCUDA: Final = "libcuda.so.1"
_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


def probe(pid: int | None, *, proc: Path = PROC) -> dict[str, Any]:
    """Query NVML for the GPUs of a task, and try to start CUDA's driver for them.

    Args:
        pid: A process of the host; None: the first process of this container.
        proc: The directory of processes.
    """
    try:
        import pynvml  # noqa: PLC0415  (the image has it; elsewhere it is optional)
    except ImportError:
        return {"why": "nvidia-ml-py is not installed"}
    try:
        variable = cuda_variable(proc / str(pid or 1))
        pynvml.nvmlInit()
        try:
            gpus, fault = list_gpus(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except OSError as error:
        return {"why": f"{error.filename}: {error.strerror}"}
    except pynvml.NVMLError_LibraryNotFound:
        return {"driver": False}
    except pynvml.NVMLError as error:
        return {"nvml": _text(error)}
    seen = allowed(gpus, variable)
    return {
        "given": [uuid for _, uuid in gpus] if pid is None else None,
        "seen": seen,
        "nvml": fault,
        "cuda": cuda_fault(variable) if seen else "",
    }


def cuda_variable(process: Path) -> str | None:
    """`CUDA_VISIBLE_DEVICES` of a process; None if it is not set.

    Args:
        process: Its directory in `/proc`.

    Raises:
        OSError: The variables cannot be read.
    """
    entries = (process / "environ").read_bytes().decode("utf-8", errors="replace").split("\0")
    pairs = (entry.partition("=") for entry in entries)
    return next((value for name, _, value in pairs if name == _VARIABLE), None)


def list_gpus(nvml: Any) -> tuple[list[tuple[str, str]], str]:  # noqa: ANN401  (without types)
    """Index and UUID of each GPU, or "" and UUID of its slices; and why a GPU is left out."""
    gpus: list[tuple[str, str]] = []
    fault = ""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            slices = _slices(nvml, gpu)
            devices = [(str(index), gpu)] if slices is None else [("", mig) for mig in slices]
            gpus += [(name, str(nvml.nvmlDeviceGetUUID(device))) for name, device in devices]
        except nvml.NVMLError as error:
            fault = fault or _text(error)
    return gpus, fault


def allowed(gpus: list[tuple[str, str]], variable: str | None) -> list[str]:
    """The UUIDs that `CUDA_VISIBLE_DEVICES` allows; CUDA ignores all items after an invalid one."""
    if variable is None:
        return [uuid for _, uuid in gpus]
    allowed: list[str] = []
    for item in map(str.strip, variable.split(",")):
        named = [uuid for index, uuid in gpus if item and (item == index or uuid.startswith(item))]
        if len(named) != 1:
            break
        allowed += named
    return allowed


def cuda_fault(variable: str | None) -> str:
    """Why CUDA's driver cannot start with this `CUDA_VISIBLE_DEVICES`; "" if it can or is missing.

    No context is created, so no GPU memory is used.
    """
    os.environ.pop(_VARIABLE, None)
    if variable is not None:
        os.environ[_VARIABLE] = variable
    try:
        driver = ctypes.CDLL(_LIBCUDA)
    except OSError as error:
        return "" if "No such file" in str(error) else str(error)
    code = driver.cuInit(0)
    if code == 0:
        return ""
    name = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(name))
    text = name.value.decode("ascii", errors="replace") if name.value else "unknown"
    return f"error {code} ({text})"


def _slices(nvml: Any, gpu: Any) -> list[Any] | None:  # noqa: ANN401
    """The visible slices of a GPU; None for a GPU without slices."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None  # the GPU or the driver is older than MIG
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    slices = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position))
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NoPermission):
            continue  # no slice in this position, or it belongs to another container
    return slices


def _text(error: Any) -> str:  # noqa: ANN401
    return f"error {error.value} ({error})"


def main(argv: list[str]) -> int:
    """Print the GPUs that the task sees; return the exit code."""
    parser = argparse.ArgumentParser(
        "python -m lab.task.node.gpu_probe", description="Print the GPUs that a task can use."
    )
    parser.add_argument("--pid", type=int, help="process id on the host, not in a container")
    parser.add_argument("--within", type=int, default=0, help="time limit in seconds; 0: no limit")
    requested = parser.parse_args(argv)
    # Only a signal can end a driver call that hangs; 0 sets no alarm.
    signal.alarm(requested.within)
    print(json.dumps(probe(requested.pid)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
