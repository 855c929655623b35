"""Checks with NVML that no process uses GPUs whose seat, or whose class, has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from lab.gpu import Inventory, NvmlError, read_host
from lab.log import LOG
from lab.placement.gpu_usage import held_in_use
from lab.text import short

_WAIT_S: Final = 10.0  # the driver frees the memory of a killed process within a few seconds
_POLL_S: Final = 1.0


def programs_left(users: Mapping[str, Sequence[str]]) -> str:
    """Return which processes use GPUs after 10 s, as NVML reports; "": none.

    One line warns of the GPUs whose processes the driver does not report.

    Args:
        users: The names of those that had each GPU, by its UUID.
    """
    until = time.monotonic() + _WAIT_S
    while users:
        try:
            host = read_host()
        except NvmlError as error:
            host = Inventory("none", (), None, None, notices=(error.what,))
        lines = list(held_in_use(users, host))
        if not lines or time.monotonic() > until:
            _warn_of_unknown(users, host)
            return ", ".join(lines)
        time.sleep(_POLL_S)
    return ""


def _warn_of_unknown(users: Mapping[str, Sequence[str]], host: Inventory) -> None:
    known = {gpu.device_id for gpu in host.gpus if "processes" not in dict(gpu.unknown)}
    if unknown := [gpu for gpu in users if gpu not in known]:
        why = short("; ".join(host.notices)) or "the driver does not report their processes"
        LOG.warning(f"not checked: {', '.join(unknown)}: {why}")
