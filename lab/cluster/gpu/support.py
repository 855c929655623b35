"""Judges which GPUs work with a TensorFlow wheel, which needs a least compute capability."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from lab.base.errors import Finding
from lab.base.variables import LAB_IMAGE, LAB_TENSORFLOW
from lab.cluster.gpu.values import Gpu
from lab.protocol.runtimes import HERITAGE, RUNTIMES, TENSORFLOW

_CPUS: Final = "use `--gpus none`"


class Support(StrEnum):
    """Whether a GPU works with a version of TensorFlow."""

    WORKS = "works"
    TOO_OLD = "too old"
    UNKNOWN = "unknown"


LEAST: Final[Mapping[str, str]] = {TENSORFLOW.name: "6.0", HERITAGE.name: "5.0"}
"""The least compute capability of a GPU for the wheel of a runtime, by the runtime's name.

It is that of the machine code in the wheels for x86-64 and in their NCCL and cuBLAS, as
`cuobjdump --list-elf --list-ptx` prints it.
"""


def build_of(runtime: str, environ: Mapping[str, str]) -> str | None:
    """Return the runtime whose wheel the tasks of a plan use.

    Args:
        runtime: The plan's runtime.
        environ: The environment variables: `LAB_IMAGE` and `LAB_TENSORFLOW` name another wheel.

    Returns:
        A key of `LEAST`; None if the wheel is unknown.
    """
    if environ.get(LAB_IMAGE):
        return None
    requirement = environ.get(LAB_TENSORFLOW)
    if not requirement or RUNTIMES[runtime].framework != TENSORFLOW.framework:
        return runtime if runtime in LEAST else None
    pin = requirement.partition("==")[2].strip()
    return next((name for name in LEAST if RUNTIMES[name].pin == pin), None)


def judge_gpu(gpu: Gpu, build: str | None) -> Finding[Support]:
    """Judge whether a GPU, or a slice, works with the wheel of `build_of`."""
    if build is None:
        return Finding(Support.UNKNOWN, "lab does not know which GPUs this build supports")
    if not gpu.compute_capability:
        reason = "the GPU's compute capability is unknown"
        return Finding(Support.UNKNOWN, reason, "see `nvidia-smi -q`")
    if _numbers(gpu.compute_capability) >= _numbers(LEAST[build]):
        return Finding(Support.WORKS)
    helps = _numbers(gpu.compute_capability) >= _numbers(LEAST[HERITAGE.name])
    fix = (
        f"set LAB_TENSORFLOW='tensorflow[and-cuda]=={HERITAGE.pin}' and build the image, or {_CPUS}"
    )
    reason = f"{RUNTIMES[build].title} needs compute capability {LEAST[build]} or later"
    return Finding(Support.TOO_OLD, reason, fix if helps else _CPUS)


def by_gpus(gpus: Sequence[Gpu], build: str | None) -> list[Finding[Support]]:
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
