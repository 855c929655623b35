"""Judges which GPUs work with which TensorFlow, by their compute capability and their driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from lab.finding import Finding
from lab.gpu.model import Gpu, Inventory
from lab.runtimes import HERITAGE, RUNTIMES, TENSORFLOW

_LISTED: Final = 2
"""More consecutive indices than these are shown as a range."""

_CPUS: Final = "use `--gpus none`"


class Support(StrEnum):
    """Whether a GPU works with a version of TensorFlow."""

    WORKS = "works"
    NO_CUDNN = "works without cuDNN"
    TOO_OLD = "too old"
    OLD_DRIVER = "driver too old"
    UNKNOWN = "unknown"

    @property
    def usable(self) -> bool:
        """Whether TensorFlow can use the GPU, or may be able to."""
        return self not in {Support.TOO_OLD, Support.OLD_DRIVER}


@dataclass(frozen=True, slots=True)
class Build:
    """What a TensorFlow version needs of a GPU.

    Attributes:
        tensorflow: The version, `2.21.0`.
        drivers: Compute capability to the first driver for GPUs from this capability on. The first
            capability is the least one.
        cudnn: The least compute capability of cuDNN, which convolutions and recurrent layers need.
    """

    tensorflow: str
    drivers: Mapping[str, str]
    cudnn: str

    @property
    def least(self) -> str:
        """The least compute capability."""
        return next(iter(self.drivers))

    @property
    def short(self) -> str:
        """The version without its last number, `2.21`."""
        return self.tensorflow.rpartition(".")[0]

    def driver_for(self, capability: str) -> str:
        """Return the first driver for a GPU; for the oldest GPUs if its capability is unknown."""
        wanted = max(_numbers(capability), _numbers(self.least))
        return [each for least, each in self.drivers.items() if _numbers(least) <= wanted][-1]


BUILDS: Final[Mapping[str, Build]] = {
    "tensorflow": Build("2.21.0", {"6.0": "525.60.13", "9.0": "555.42.02"}, cudnn="7.5"),
    "tensorflow-2.15": Build("2.15.1", {"5.0": "525.60.13", "9.0": "530.30.02"}, cudnn="5.0"),
}
"""The builds of TensorFlow, by the name of the runtime in `lab.runtimes.RUNTIMES`. Sources:

- The least capabilities are those of the machine code in the wheels for x86-64, as
  `cuobjdump --list-elf --list-ptx` prints it. TensorFlow 2.21.0: 6.0; its NCCL 2.32.3: 6.0, its
  cuBLAS 12.9.3.13: 5.0, its cuDNN 9.28.0.42: 7.5. TensorFlow 2.15.1, with NCCL 2.16.5, cuBLAS
  12.2.5.6 and cuDNN 8.9.4.25: 5.0.
- Machine code needs a driver for CUDA 12.0 ("minor version compatibility"). From 9.0 on, the driver
  compiles PTX: 8.5 of TensorFlow 2.21 needs one for CUDA 12.5, 8.1 of 2.15 one for CUDA 12.1:
  https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes
- The first Linux driver for a CUDA version is in "CUDA Toolkit and Corresponding Driver Versions":
  https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
"""


def build_of(runtime: str, environ: Mapping[str, str]) -> Build | None:
    """Return the build that the tasks of a plan use.

    Args:
        runtime: The plan's runtime.
        environ: The environment variables: `LAB_IMAGE` and `LAB_TENSORFLOW` name another build.

    Returns:
        The build; None if it is not a known one.
    """
    image = RUNTIMES[runtime]
    if environ.get(image.image_variable):
        return None
    wanted = environ.get(image.version_variable)
    if not wanted:
        return BUILDS.get(runtime)
    pin = wanted.partition("==")[2].strip()
    return next((BUILDS[name] for name, each in RUNTIMES.items() if pin == each.pin), None)


def judge(capability: str, driver: str, build: Build) -> Finding[Support]:
    """Judge whether a GPU works with a build.

    Args:
        capability: The GPU's compute capability, `8.0`; "" if unknown.
        driver: The driver's version, `580.95.05`; "" if unknown.
        build: The build.
    """
    if capability and _numbers(capability) < _numbers(build.least):
        return _too_old(capability, build)
    needed = build.driver_for(capability)
    known_driver = _numbers(driver)
    if known_driver and known_driver < _numbers(needed):
        return Finding(
            Support.OLD_DRIVER,
            f"TensorFlow {build.short} needs driver {needed} or later for this GPU, not {driver}",
            f"update the driver to {needed} or later, or {_CPUS}",
        )
    if not capability or not known_driver:
        what = "the driver's version" if capability else "the GPU's compute capability"
        return Finding(Support.UNKNOWN, f"{what} is unknown", "see `nvidia-smi -q`")
    if _numbers(capability) < _numbers(build.cudnn):
        return Finding(
            Support.NO_CUDNN,
            f"cuDNN of TensorFlow {build.short} needs compute capability {build.cudnn} or later: "
            "convolutions and recurrent layers cannot run",
            "for programs that have them, install `nvidia-cudnn-cu12==9.10.*` in the image",
        )
    return Finding(Support.WORKS)


def judge_gpu(gpu: Gpu, inventory: Inventory, build: Build | None) -> Finding[Support]:
    """Judge a GPU of an inventory.

    Args:
        gpu: The GPU, or a slice.
        inventory: The host, with its driver.
        build: The build; None if it is not a known one.
    """
    if build is None:
        reason = "lab does not know which GPUs this build supports"
        return Finding(Support.UNKNOWN, reason)
    return judge(gpu.compute_capability, inventory.driver, build)


def by_gpus(
    gpus: Sequence[Gpu], inventory: Inventory, build: Build | None
) -> list[Finding[Support]]:
    """Return the different judgements, each with its GPUs as `where`: `GPU 0, 1`."""
    found: dict[Finding[Support], list[Gpu]] = {}
    for gpu in gpus:
        found.setdefault(judge_gpu(gpu, inventory, build), []).append(gpu)
    return [replace(each, where=f"GPU {indices(alike)}") for each, alike in found.items()]


def indices(gpus: Iterable[Gpu]) -> str:
    """Return the indices of GPUs, without repetition: `0, 1, 3`, or `0 to 7`."""
    found = sorted({gpu.index for gpu in gpus})
    if len(found) > _LISTED and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found))


def _too_old(capability: str, build: Build) -> Finding[Support]:
    older = BUILDS[HERITAGE.name]
    helps = build == BUILDS[TENSORFLOW.name] and _numbers(capability) >= _numbers(older.least)
    fix = (
        f"set LAB_TENSORFLOW='tensorflow[and-cuda]=={HERITAGE.pin}' and build the image, or {_CPUS}"
    )
    return Finding(
        Support.TOO_OLD,
        f"TensorFlow {build.short} needs compute capability {build.least} or later",
        fix if helps else _CPUS,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared; () if it has none."""
    return tuple(map(int, re.findall(r"\d+", version, re.ASCII)))
