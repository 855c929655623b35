"""Judges which GPUs work with which TensorFlow: its code, its libraries, and the driver.

`tensorflow_builds.json` has what the wheels contain. A GPU of compute capability 8.6 runs machine
code for 8.0 to 8.6. A driver compiles PTX for 8.0 on each GPU of 8.0 or later, if the driver knows
the PTX version. Both rules are NVIDIA's:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

from lab.gpu.model import Gpu, Inventory
from lab.tf_versions import CURRENT, IMAGES, TF1

CUDNN: Final = "cuDNN"
"""Only convolutions and recurrent layers need this library."""

DRIVERS: Final[Mapping[str, str]] = {
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
}
"""CUDA version to the first Linux driver that supports it ("CUDA Toolkit and Corresponding Driver
Versions" in https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/). A driver for CUDA 12.0 also
runs machine code of all later 12.x ("minor version compatibility"). See `driver_for`."""

_LAST_PTX_BEFORE_GAP: Final = (8, 5)
"""CUDA 12.6 has the same PTX version as CUDA 12.5."""

_LISTED: Final = 2
"""More consecutive indices than these are shown as a range."""

_CPUS: Final = "use `--gpus none`"


class Support(StrEnum):
    """Whether a GPU works with a version of TensorFlow."""

    WORKS = "works"
    COMPILES = "works after compiling"
    NO_CUDNN = "works without cuDNN"
    TOO_OLD = "too old"
    OLD_DRIVER = "driver too old"
    UNKNOWN = "unknown"

    @property
    def usable(self) -> bool:
        """Whether TensorFlow can use the GPU, or may be able to."""
        return self not in {Support.TOO_OLD, Support.OLD_DRIVER}


@dataclass(frozen=True, slots=True)
class GpuSupport:
    """A judgement.

    Attributes:
        status: The status.
        reason: Why, if the status is not `WORKS`; else "".
        fix: What to do, as an imperative phrase; "" if there is nothing to do.
    """

    status: Support
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a part of TensorFlow, or of a library of NVIDIA.

    Attributes:
        machine_code: The compute capabilities with machine code, `8.0`.
        ptx: The compute capabilities with PTX.
        ptx_version: The version of the PTX, `8.5`; "" if it does not matter.
    """

    machine_code: tuple[str, ...]
    ptx: tuple[str, ...]
    ptx_version: str = ""

    def has_machine_code(self, capability: str) -> bool:
        """Return whether a GPU of this compute capability runs the machine code."""
        major, minor = _numbers(capability)
        codes = map(_numbers, self.machine_code)
        return any(code[0] == major and code[1] <= minor for code in codes)

    def has_ptx(self, capability: str) -> bool:
        """Return whether a driver can compile the PTX for a GPU of this compute capability."""
        return any(_numbers(each) <= _numbers(capability) for each in self.ptx)


@dataclass(frozen=True, slots=True)
class Library:
    """A library of NVIDIA that TensorFlow needs.

    Attributes:
        name: `cuDNN`.
        version: The version in the image.
        least: The least compute capability with machine code.
        greatest: The greatest one. A driver compiles PTX for later GPUs.
    """

    name: str
    version: str
    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class Build:
    """The CUDA build of a TensorFlow version.

    Attributes:
        tensorflow: The version, `2.21.0`.
        cuda: The CUDA version that it was built with, `12.5.1`.
        cudnn: The cuDNN version that it was built with, `9`.
        kernels: The code of its kernels.
        generated_kernels: The code of about a thousand small kernels of simple operations. A driver
            compiles each one in a fraction of a second, when a program first uses it.
        libraries: The libraries that it needs.
    """

    tensorflow: str
    cuda: str
    cudnn: str
    kernels: Code
    generated_kernels: Code
    libraries: tuple[Library, ...]


@cache
def builds() -> Mapping[str, Build]:
    """Return the builds, by the name of the version in `lab.tf_versions.IMAGES`."""
    text = (resources.files(__package__) / "tensorflow_builds.json").read_text(encoding="utf-8")
    return {
        name: Build(
            each["version"],
            each["cuda"],
            each["cudnn"],
            _code(each["kernels"]),
            _code(each["generated_kernels"]),
            tuple(
                Library(library, found["version"], found["least"], found["greatest"])
                for library, found in each["libraries"].items()
            ),
        )
        for name, each in json.loads(text).items()
    }


def build_of(tensorflow: str, environ: Mapping[str, str]) -> Build | None:
    """Return the build that the tasks of a plan use.

    Args:
        tensorflow: The plan's version, `2.21`.
        environ: The environment variables: `LAB_IMAGE` and `LAB_TENSORFLOW` name another build.

    Returns:
        The build; None if it is not a known one.
    """
    image = IMAGES[tensorflow]
    if environ.get(f"{image.variable}_IMAGE"):
        return None
    wanted = environ.get(f"{image.variable}_TENSORFLOW")
    if not wanted:
        return builds()[tensorflow]
    pin = wanted.partition("==")[2].strip()
    return next((builds()[name] for name, each in IMAGES.items() if pin == each.pin), None)


def judge(capability: str, driver: str, cuda: str, build: Build) -> GpuSupport:
    """Judge whether a GPU works with a build.

    Args:
        capability: The GPU's compute capability, `8.0`; "" if unknown.
        driver: The driver's version, `580.95.05`; "" if unknown.
        cuda: The newest CUDA version that the driver supports; "" if unknown.
        build: The build.
    """
    short = ".".join(build.tensorflow.split(".")[:2])
    parts = (build.kernels, build.generated_kernels)
    if capability:
        if too_old := _too_old(capability, build, short):
            return too_old
        compiled = [part for part in parts if not part.has_machine_code(capability)]
    else:
        compiled = []
    needed = [_major(build.cuda), *(_cuda_of_ptx(part.ptx_version) for part in compiled)]
    least = max(needed, key=_numbers)
    known = _supports(driver, cuda, least)
    if known is False:
        what = " on such a new GPU" if least != needed[0] else ""
        return GpuSupport(
            Support.OLD_DRIVER,
            f"TensorFlow {short} needs a driver for CUDA {least}{what}, not "
            + (f"driver {driver}" if driver else f"one for CUDA {cuda}"),
            f"update the driver to {driver_for(least) or f'one for CUDA {least}'} or later,"
            f" or {_CPUS}",
        )
    if not capability or known is None:
        what = "the driver's version" if capability else "the GPU's compute capability"
        return GpuSupport(Support.UNKNOWN, f"{what} is unknown", "see `nvidia-smi -q`")
    if build.kernels in compiled:
        return GpuSupport(
            Support.COMPILES,
            f"TensorFlow {short} has no machine code for such a new GPU: the driver compiles each "
            "kernel at its first use, which takes minutes in total",
            f"allow for it at the first steps, or {_CPUS}",
        )
    return _without_cudnn(capability, build) or GpuSupport(Support.WORKS)


def driver_for(cuda: str) -> str:
    """Return a Linux driver that supports a CUDA version; "" if the version is newer than all.

    It is the first one for that version, or for the next one in `DRIVERS`.
    """
    wanted = _numbers(cuda)
    return next((each for known, each in DRIVERS.items() if _numbers(known) >= wanted), "")


def judge_gpu(gpu: Gpu, inventory: Inventory, build: Build | None) -> GpuSupport:
    """Judge a GPU of an inventory.

    Args:
        gpu: The GPU, or a slice.
        inventory: The host, with its driver.
        build: The build; None if it is not a known one.
    """
    if build is None:
        reason = "LAB_IMAGE or LAB_TENSORFLOW names a TensorFlow that lab does not know"
        return GpuSupport(Support.UNKNOWN, reason)
    return judge(gpu.compute_capability, inventory.driver, inventory.cuda, build)


def by_gpus(
    gpus: Sequence[Gpu], inventory: Inventory, build: Build | None
) -> Mapping[GpuSupport, str]:
    """Return the different judgements, each with the GPUs that it is for: `GPU 0, 1`."""
    found: dict[GpuSupport, list[Gpu]] = {}
    for gpu in gpus:
        found.setdefault(judge_gpu(gpu, inventory, build), []).append(gpu)
    return {each: f"GPU {indices(alike)}" for each, alike in found.items()}


def indices(gpus: Iterable[Gpu]) -> str:
    """Return the indices of GPUs, without repetition: `0, 1, 3`, or `0 to 7`."""
    found = sorted({gpu.index for gpu in gpus})
    if len(found) > _LISTED and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    return ", ".join(map(str, found))


def _too_old(capability: str, build: Build, short: str) -> GpuSupport | None:
    needs = [
        (f"TensorFlow {short}", min([*part.machine_code, *part.ptx], key=_numbers))
        for part in (build.kernels, build.generated_kernels)
        if not part.has_machine_code(capability) and not part.has_ptx(capability)
    ]
    needs += [
        (f"{each.name} {each.version}", each.least)
        for each in build.libraries
        if each.name != CUDNN and _numbers(capability) < _numbers(each.least)
    ]
    if not needs:
        return None
    name, least = needs[0]
    other = builds()[TF1.tensorflow]
    helps = build == builds()[CURRENT.tensorflow] and not _too_old(capability, other, "")
    fix = f"set LAB_TENSORFLOW='tensorflow[and-cuda]=={TF1.pin}' and build the image, or {_CPUS}"
    return GpuSupport(
        Support.TOO_OLD,
        f"{name} needs compute capability {least} or later",
        fix if helps else _CPUS,
    )


def _without_cudnn(capability: str, build: Build) -> GpuSupport | None:
    for each in build.libraries:
        if each.name == CUDNN and _numbers(capability) < _numbers(each.least):
            return GpuSupport(
                Support.NO_CUDNN,
                f"cuDNN {each.version} needs compute capability {each.least} or later: "
                "convolutions and recurrent layers cannot run",
                "for programs that have them, install `nvidia-cudnn-cu12==9.10.*` in the image",
            )
    return None


def _supports(driver: str, cuda: str, least: str) -> bool | None:
    """Return whether a driver supports a CUDA version; None if its own version is unknown."""
    if cuda:
        return _numbers(cuda) >= _numbers(least)
    known = driver_for(least)
    return _numbers(driver) >= _numbers(known) if _numbers(driver) and known else None


def _major(cuda: str) -> str:
    return f"{_numbers(cuda)[0]}.0"


def _cuda_of_ptx(version: str) -> str:
    """Return the CUDA version of a PTX version: 12.5 for 8.5, 12.8 for 8.7.

    https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes
    """
    major, minor = _numbers(version)
    follows_gap = major == _LAST_PTX_BEFORE_GAP[0] and minor > _LAST_PTX_BEFORE_GAP[1]
    return f"{major + 4}.{minor + follows_gap}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared; () if it has none."""
    return tuple(map(int, re.findall(r"\d+", version, re.ASCII)))


def _code(found: Mapping[str, Any]) -> Code:
    return Code(tuple(found["machine_code"]), tuple(found["ptx"]), found["ptx_version"])
