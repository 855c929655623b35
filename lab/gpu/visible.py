"""The variables that limit GPUs: `LAB_GPUS` limits `lab`, `CUDA_VISIBLE_DEVICES` does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from lab.errors import InputError
from lab.gpu.model import Gpu
from lab.text import short
from lab.variables import LAB_GPUS

_CUDA: Final = "CUDA_VISIBLE_DEVICES"
_ID: Final = re.compile(r"[0-9]+|(?:GPU|MIG)-[\w/-]+", re.ASCII)


def allowed_ids(environ: Mapping[str, str]) -> list[str] | None:
    """Return the items of `LAB_GPUS`; None: all GPUs are allowed.

    Raises:
        InputError: An item is empty, or is neither a UUID nor an index.
    """
    value = environ.get(LAB_GPUS)
    if value is None:
        return None
    items = re.split(r"\s*,\s*|\s+", value.strip()) if value.strip() else []
    for position, item in enumerate(items, start=1):
        if not item:
            raise InputError(
                f"{LAB_GPUS}={short(value)}: item {position} is empty",
                "put one comma between two GPUs, and none at the ends",
            )
        if not _ID.fullmatch(item):
            raise InputError(
                f"{LAB_GPUS}={short(value)}: {short(item)} is no index and no UUID of a GPU",
                f"name GPUs as `nvidia-smi -L` does, or leave {LAB_GPUS}= empty for none",
            )
    return items


def select(gpus: Sequence[Gpu], item: str) -> list[Gpu]:
    """Return the GPUs that an item names: one, or all slices of one, or none.

    As for CUDA, the beginning of a UUID suffices if it is unique.

    Args:
        gpus: The GPUs of the host.
        item: An index, a UUID, or the beginning of a UUID.
    """
    if not _ID.fullmatch(item):
        return []
    if item.isdecimal():
        return [gpu for gpu in gpus if gpu.index == int(item)]
    if exact := [gpu for gpu in gpus if item in {gpu.device_id, gpu.slice_of}]:
        return exact
    begun = [gpu for gpu in gpus if gpu.device_id.startswith(item)]
    return begun if len(begun) == 1 else []


def cuda_notices(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return a notice if `CUDA_VISIBLE_DEVICES` hides GPUs from CUDA that `lab` would use.

    Args:
        environ: The environment variables.
        gpus: The GPUs that `lab` uses.
    """
    value = environ.get(_CUDA)
    if value is None or LAB_GPUS in environ or not gpus:
        return ()
    # CUDA ignores the first invalid item and all after it.
    items = list(takewhile(lambda item: select(gpus, item), map(str.strip, value.split(","))))
    seen = {gpu.device_id for item in items for gpu in select(gpus, item)}
    if not seen:
        named = f"{_CUDA}={short(value)}" if value.strip() else f"an empty {_CUDA}"
        return (
            f"{named} does not hide GPUs from lab; set an empty {LAB_GPUS}=, or use `--gpus none`",
        )
    if seen == {gpu.device_id for gpu in gpus}:
        return ()
    return (f"{_CUDA}={short(value)} does not limit lab; set {LAB_GPUS}={','.join(items)}",)
