"""Judges which GPUs work with a TensorFlow wheel, which needs a least compute capability."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from lab.errors import Finding
from lab.gpu.values import Gpu
from lab.runtimes import HERITAGE, RUNTIMES, TENSORFLOW
from lab.variables import LAB_IMAGE, LAB_TENSORFLOW

_CPUS: Final = "use `--gpus none`"


class Support(StrEnum):
    """Whether a GPU works with a version of TensorFlow."""

    WORKS = "works"
    TOO_OLD = "too old"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Build:
    """A wheel of TensorFlow.

    Attributes:
        tensorflow: The version, `2.21.0`.
        least: The least compute capability of a GPU.
    """

    tensorflow: str
    least: str

    @property
    def short(self) -> str:
        """The version without its last number, `2.21`."""
        return self.tensorflow.rpartition(".")[0]


BUILDS: Final[Mapping[str, Build]] = {
    TENSORFLOW.name: Build("2.21.0", "6.0"),
    HERITAGE.name: Build("2.15.1", "5.0"),
}
"""The builds by the name of their runtime.

The capabilities are those of the machine code in the wheels for x86-64 and in their NCCL and
cuBLAS, as `cuobjdump --list-elf --list-ptx` prints it.
"""


def build_of(runtime: str, environ: Mapping[str, str]) -> Build | None:
    """Return the build that the tasks of a plan use.

    Args:
        runtime: The plan's runtime.
        environ: The environment variables: `LAB_IMAGE` and `LAB_TENSORFLOW` name another build.

    Returns:
        The build; None if it is unknown.
    """
    if environ.get(LAB_IMAGE):
        return None
    requirement = environ.get(LAB_TENSORFLOW)
    if not requirement or RUNTIMES[runtime].framework != TENSORFLOW.framework:
        return BUILDS.get(runtime)
    pin = requirement.partition("==")[2].strip()
    return next((BUILDS[name] for name, known in RUNTIMES.items() if pin == known.pin), None)


def judge_gpu(gpu: Gpu, build: Build | None) -> Finding[Support]:
    """Judge whether a GPU, or a slice, works with a build; None for an unknown build."""
    if build is None:
        return Finding(Support.UNKNOWN, "lab does not know which GPUs this build supports")
    if not gpu.compute_capability:
        reason = "the GPU's compute capability is unknown"
        return Finding(Support.UNKNOWN, reason, "see `nvidia-smi -q`")
    if _numbers(gpu.compute_capability) >= _numbers(build.least):
        return Finding(Support.WORKS)
    older = BUILDS[HERITAGE.name]
    helps = build != older and _numbers(gpu.compute_capability) >= _numbers(older.least)
    fix = (
        f"set LAB_TENSORFLOW='tensorflow[and-cuda]=={HERITAGE.pin}' and build the image, or {_CPUS}"
    )
    reason = f"TensorFlow {build.short} needs compute capability {build.least} or later"
    return Finding(Support.TOO_OLD, reason, fix if helps else _CPUS)


def by_gpus(gpus: Sequence[Gpu], build: Build | None) -> list[Finding[Support]]:
    """Return the different judgements, each with its GPUs as `where`: `GPU 0, 1`."""
    judgements: dict[Finding[Support], list[Gpu]] = {}
    for gpu in gpus:
        judgements.setdefault(judge_gpu(gpu, build), []).append(gpu)
    # Slices of one GPU have its index.
    indices = {judged: sorted({gpu.index for gpu in alike}) for judged, alike in judgements.items()}
    return [replace(j, where=f"GPU {', '.join(map(str, at))}") for j, at in indices.items()]


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared."""
    return tuple(map(int, re.findall(r"\d+", version, re.ASCII)))
