"""The GPUs that a task sees: `python -m lab.task.node.gpu_probe` prints one line of JSON.

It runs in a task's container, or in the namespaces of its agent. Each source is queried separately,
and can be unavailable for a reason. `lab.gpu.verification` compares the sources with the plan.

    environment   the variables of PID 1, or of the process that `--pid` names
    nodes         minor number of each /dev/nvidiaN → "", or why it cannot be opened
    nvml          UUIDs of the GPUs and slices that NVML lists
    cuda          UUIDs that CUDA's driver lists; CUDA_VISIBLE_DEVICES limits them
    tensorflow    the number of GPUs that TensorFlow lists

UUIDs begin with `GPU-` or `MIG-`. CUDA's newer function does not say whether a UUID belongs to a
GPU or a slice, so its UUIDs have no prefix.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.gpu_answers import LOST, NO_LIBCUDA, NOT_ASKED, SHOWS_WHOLE_HOST, VARIABLES
from lab.task.node.health import DEVICES, gpu_nodes

if TYPE_CHECKING:
    import ctypes

PROC: Final = Path("/proc")

_LIBCUDA: Final = "libcuda.so.1"
_NO_CUDA: Final = "this build has no CUDA"
_NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE


class Unavailable(Exception):  # noqa: N818  (an answer, not an error)
    """A source is unavailable; the message contains the reason."""


def environment(process: Path) -> dict[str, str]:
    """The variables that limit a process's GPUs; unset ones are omitted.

    Args:
        process: Its directory in `/proc`.

    Raises:
        Unavailable: They cannot be read.
    """
    try:
        text = (process / "environ").read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise Unavailable(f"{process / 'environ'}: {error.strerror}") from error
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in VARIABLES}


def apply_environ(variables: Mapping[str, str]) -> None:
    """Set another process's variables, so that CUDA lists the same GPUs as in that process."""
    for name in VARIABLES:
        if name in variables:
            os.environ[name] = variables[name]
        else:
            os.environ.pop(name, None)


def device_nodes(devices: Path, opened: contextlib.ExitStack) -> dict[str, str]:
    """Minor number of each device node → "", or why it cannot be opened.

    Args:
        devices: The directory of the device nodes.
        opened: Closes the nodes later: an open node keeps its GPU awake.

    Raises:
        Unavailable: The directory cannot be read.
    """
    try:
        return {str(minor): _opens(path, opened) for minor, path in gpu_nodes(devices).items()}
    except OSError as error:
        raise Unavailable(f"{devices}: {error.strerror}") from error


def nvml() -> list[str]:
    """UUIDs of the GPUs that NVML lists; for a GPU with MIG slices, those of the slices.

    Raises:
        Unavailable: There is no NVML here, or it fails.
    """
    try:
        import pynvml  # noqa: PLC0415  (the image has it; elsewhere it is optional)
    except ImportError:
        raise Unavailable("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        try:
            gpus = range(pynvml.nvmlDeviceGetCount())
            return [found for index in gpus for found in _uuids(pynvml, index)]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound:
        raise Unavailable("no libnvidia-ml.so.1") from None
    except pynvml.NVMLError as error:
        raise Unavailable(LOST.get(error.value) or str(error)) from error


def cuda() -> list[str]:
    """UUIDs that CUDA's driver lists for a program with this process's variables.

    No context is created, so no GPU memory is used.

    Raises:
        Unavailable: There is no driver here, or it fails.
    """
    import ctypes  # noqa: PLC0415  (only this source needs it)

    try:
        driver = ctypes.CDLL(_LIBCUDA)
    except OSError as error:
        missing = "No such file" in str(error)
        raise Unavailable(NO_LIBCUDA if missing else str(error)) from error
    code = driver.cuInit(0)
    if code == _NO_DEVICE:
        return []
    _check(driver, "cuInit", code)
    count = ctypes.c_int()
    _check(driver, "cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    return [_cuda_uuid(driver, ordinal) for ordinal in range(count.value)]


def tensorflow() -> int:
    """The number of GPUs that TensorFlow lists; this takes seconds.

    Raises:
        Unavailable: There is no TensorFlow here, or one without CUDA.
    """
    if _is_for_cpus():
        raise Unavailable(_NO_CUDA)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import tensorflow as tf  # noqa: PLC0415  (3 s)
    except ImportError as error:
        raise Unavailable(f"cannot be imported: {error}") from error
    if not tf.test.is_built_with_cuda():
        raise Unavailable(_NO_CUDA)
    return len(tf.config.list_physical_devices("GPU"))


def probe(
    pid: int | None, *, with_tensorflow: bool, proc: Path = PROC, devices: Path = DEVICES
) -> dict[str, Any]:
    """Query every source.

    Args:
        pid: A process on the host, where nodes and NVML show the whole host; None: this
            container's first process.
        with_tensorflow: Whether to query TensorFlow too.
        proc: The directory of processes.
        devices: The directory of the device nodes.
    """
    view: dict[str, Any] = {}
    reasons: dict[str, str] = {}

    def query(source: str, read: Callable[[], object], reason: str | None = None) -> None:
        try:
            view[source] = read() if reason is None else None
        except Unavailable as error:
            view[source], reason = None, str(error)
        if reason is not None:
            reasons[source] = reason

    # A sleeping GPU needs seconds to wake up. The open nodes keep it awake for all sources.
    with contextlib.ExitStack() as opened:
        query("environment", lambda: environment(proc / str(pid or 1)))
        if view["environment"] is not None:
            apply_environ(view["environment"])
        host_reason = None if pid is None else SHOWS_WHOLE_HOST
        query("nodes", lambda: device_nodes(devices, opened), host_reason)
        query("nvml", nvml, host_reason)
        query("cuda", cuda)
        query("tensorflow", tensorflow, None if with_tensorflow else NOT_ASKED)
    return {**view, "reasons": reasons}


def _is_for_cpus() -> bool:
    """Whether only the wheel for CPUs is installed; this needs no import."""
    installed = set()
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(name)
            installed.add(name)
    return installed == {"tensorflow-cpu"}


def _opens(path: Path, opened: contextlib.ExitStack) -> str:
    try:
        opened.callback(os.close, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _uuids(nvml: Any, index: int) -> list[str]:  # noqa: ANN401  (a module without types)
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    slices = _slices(nvml, gpu)
    handles = [gpu] if slices is None else slices
    return [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def _slices(nvml: Any, gpu: Any) -> list[Any] | None:  # noqa: ANN401
    """The visible slices of a GPU; None for a GPU without slices."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None  # the GPU or the driver is older than MIG
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    found = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position))
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NoPermission):
            continue  # no slice in this position, or it belongs to another container
    return found


def _cuda_uuid(driver: ctypes.CDLL, ordinal: int) -> str:
    import ctypes  # noqa: PLC0415

    device = ctypes.c_int()
    _check(driver, "cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), ordinal))
    raw = (ctypes.c_ubyte * 16)()
    try:
        get, prefix = driver.cuDeviceGetUuid_v2, ""
    except AttributeError:
        get, prefix = driver.cuDeviceGetUuid, "GPU-"  # a driver older than 11.4
    _check(driver, "cuDeviceGetUuid", get(ctypes.byref(raw), device))
    return prefix + str(uuid.UUID(bytes=bytes(raw)))


def _check(driver: ctypes.CDLL, call: str, code: int) -> None:
    import ctypes  # noqa: PLC0415

    if code == 0:
        return
    name = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(name))
    name_text = name.value.decode("ascii", errors="replace") if name.value else "unknown"
    raise Unavailable(f"{call}: error {code} ({name_text})")


def main(argv: list[str]) -> int:
    """Print the GPUs that are seen; return the exit code."""
    parser = argparse.ArgumentParser(
        "python -m lab.task.node.gpu_probe", description="Print the GPUs that a task sees."
    )
    parser.add_argument("--pid", type=int, help="process id on the host, not in a container")
    parser.add_argument("--tensorflow", action="store_true", help="query TensorFlow too")
    parser.add_argument("--within", type=int, default=0, help="time limit in seconds; 0: no limit")
    requested = parser.parse_args(argv)
    # Only a signal can end a driver call that hangs; 0 sets no alarm.
    signal.alarm(requested.within)
    print(json.dumps(probe(requested.pid, with_tensorflow=requested.tensorflow)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
