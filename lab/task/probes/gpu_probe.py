"""The GPUs that a task sees: `python -m lab.task.probes.gpu_probe` prints one line of JSON.

It runs in a task's own place: in its container, or in the namespaces of its agent. Each source is
asked by itself and may say that it cannot tell, and why; `lab.gpu.verification` compares them with
the plan.

    environment   the variables of PID 1, or of the process that `--pid` names
    nodes         minor number of each /dev/nvidiaN → "", or why it cannot be opened
    nvml          UUIDs of the cards and slices that NVML shows
    cuda          UUIDs of those that CUDA's driver shows: CUDA_VISIBLE_DEVICES narrows them
    tensorflow    how many GPUs TensorFlow lists

UUIDs begin with `GPU-` or `MIG-`. CUDA's newer function tells a slice's UUID or a card's and not
which of the two it is: there they stand bare.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.task.probes.health import DEVICES, gpu_nodes

if TYPE_CHECKING:
    import ctypes

NO_LIBCUDA: Final = "no libcuda.so.1"
"""Why CUDA cannot tell where there is no driver at all: no program can use a card there."""

UNKNOWN_ERROR: Final = 999
LOST: Final = {15: "GPU is lost", UNKNOWN_ERROR: "Unknown Error"}
"""NVML's codes for a card that was there, in NVML's words."""

CUDA_CODE: Final = re.compile(r": error (\d+) \(")
"""Where a reason has the code of CUDA that it quotes."""

NOT_ASKED: Final = "not asked"
SHOWS_WHOLE_HOST: Final = "shows the whole box, not this task"
PROC: Final = Path("/proc")
VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")

_LIBCUDA: Final = "libcuda.so.1"
_NO_CUDA: Final = "this build has no CUDA"
_NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE


class Unavailable(Exception):  # noqa: N818  (an answer, no fault)
    """Why a source cannot tell."""


def environment(process: Path) -> dict[str, str]:
    """The variables that narrow a process's GPUs; those that are not set are left out.

    Args:
        process: Its directory in `/proc`.

    Raises:
        CannotTell: They cannot be read.
    """
    try:
        text = (process / "environ").read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise Unavailable(f"{process / 'environ'}: {error.strerror}") from error
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in VARIABLES}


def apply_environ(variables: Mapping[str, str]) -> None:
    """Take on another process's variables, so that CUDA shows here what it shows there."""
    for name in VARIABLES:
        if name in variables:
            os.environ[name] = variables[name]
        else:
            os.environ.pop(name, None)


def device_nodes(devices: Path, opened: contextlib.ExitStack) -> dict[str, str]:
    """Minor number of each device node → "", or why it cannot be opened.

    Args:
        devices: Where device nodes lie.
        opened: Closes them at its end: as long as a node is open, its card stays awake.

    Raises:
        CannotTell: The directory cannot be read.
    """
    try:
        return {str(minor): _opens(path, opened) for minor, path in gpu_nodes(devices).items()}
    except OSError as error:
        raise Unavailable(f"{devices}: {error.strerror}") from error


def nvml() -> list[str]:
    """UUIDs of the cards that NVML shows; of a card that is cut, those of its slices.

    Raises:
        CannotTell: There is no NVML here, or it fails.
    """
    try:
        import pynvml  # noqa: PLC0415  (in the image, but nobody's duty)
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
    """UUIDs of what CUDA's driver shows to a program with this process's variables.

    No context is made, so that no memory of a card is taken.

    Raises:
        CannotTell: There is no driver here, or it fails.
    """
    import ctypes  # noqa: PLC0415  (only where it is asked for)

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
    """How many GPUs TensorFlow lists; takes seconds.

    Raises:
        CannotTell: There is no TensorFlow here, or one without CUDA.
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
    """Ask every source.

    Args:
        pid: A process of this machine, whose nodes and NVML show the whole box; None: this
            container's first.
        with_tensorflow: Whether to ask TensorFlow, too.
        proc: Where processes are described.
        devices: Where device nodes lie.
    """
    seen: dict[str, Any] = {}
    reasons: dict[str, str] = {}

    def ask(source: str, answer: Callable[[], object], why_not: str | None = None) -> None:
        try:
            seen[source] = answer() if why_not is None else None
        except Unavailable as reason:
            seen[source], why_not = None, str(reason)
        if why_not is not None:
            reasons[source] = why_not

    # A card that slept takes seconds to wake: once, not anew for each source.
    with contextlib.ExitStack() as opened:
        ask("environment", lambda: environment(proc / str(pid or 1)))
        if seen["environment"] is not None:
            apply_environ(seen["environment"])
        # To open a GPU's node wakes the GPU.
        of_the_box = None if pid is None else SHOWS_WHOLE_HOST
        ask("nodes", lambda: device_nodes(devices, opened), of_the_box)
        ask("nvml", nvml, of_the_box)
        ask("cuda", cuda)
        ask("tensorflow", tensorflow, None if with_tensorflow else NOT_ASKED)
    return {**seen, "reasons": reasons}


def _is_for_cpus() -> bool:
    """Whether the wheel for CPUs alone is installed; that is known without its import."""
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
    """The slices of a card that this place may see; None for a card that is whole."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None  # a card, or a driver, older than MIG
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    found = []
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position))
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NoPermission):
            continue  # none in this position, or another container's
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
    arguments = name.value.decode("ascii", errors="replace") if name.value else "unknown"
    raise Unavailable(f"{call}: error {code} ({arguments})")


def main(argv: list[str]) -> int:
    """Print what is seen; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m lab.task.probes.gpu_probe", description="What a task sees."
    )
    parser.add_argument("--pid", type=int, help="a process of this machine, not a container's")
    parser.add_argument("--tensorflow", action="store_true", help="ask TensorFlow, too")
    parser.add_argument("--within", type=int, default=0, help="seconds; then it is killed")
    requested = parser.parse_args(argv)
    # A driver that hangs cannot be interrupted by anything gentler; 0 sets no alarm.
    signal.alarm(requested.within)
    print(json.dumps(probe(requested.pid, with_tensorflow=requested.tensorflow)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
