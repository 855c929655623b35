"""Checks with NVML that no process uses the GPUs of a seat, or of a class, that has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from lab.classroom.planning import ClassPlan
from lab.errors import LabError
from lab.gpu import Inventory, NvmlError, read_host
from lab.log import LOG
from lab.placement.gpu_usage import held_in_use
from lab.text import short

_WAIT_S: Final = 10.0  # the driver frees the memory of a killed process within a few seconds
_POLL_S: Final = 1.0


def check_seat_gpus(plan: ClassPlan, seat: str) -> None:
    """Check that no process uses the GPUs of a seat whose containers are gone.

    A GPU of several seats is not checked: their processes may use it.

    Raises:
        LabError: A process uses a GPU after 10 s.
    """
    users = {gpu: names for gpu, names in plan.gpu_users.items() if seat in names}
    own = {gpu: names for gpu, names in users.items() if len(names) == 1}
    for gpu in users.keys() - own.keys():
        LOG.info(f"{gpu}: shared: not checked")
    if found := _check(own):
        raise LabError(
            f"{seat} stays stopped: {', '.join(found)}",
            f"end that process with `kill PID`, then run `lab class reset {seat}` again",
        )


def check_class_gpus(plan: ClassPlan) -> None:
    """Check that no process uses the GPUs of a class whose containers are gone.

    Raises:
        LabError: A process uses a GPU after 10 s.
    """
    if found := _check(plan.gpu_users):
        raise LabError(
            f"the class {plan.name!r} is removed, but {', '.join(found)}",
            "end that process with `kill PID`",
        )


def _check(users: Mapping[str, Sequence[str]]) -> list[str]:
    """Report each GPU that no process uses; return a line for each other one."""
    until = time.monotonic() + _WAIT_S
    while users:
        try:
            host = read_host()
        except NvmlError as error:
            host = Inventory("none", (), None, None, notices=(error.what,))
        used = {gpu: held_in_use({gpu: names}, host) for gpu, names in users.items()}
        if not any(used.values()) or time.monotonic() > until:
            for gpu in (gpu for gpu, lines in used.items() if not lines):
                LOG.info(f"{gpu}: {_result(gpu, host)}")
            return [line for lines in used.values() for line in lines]
        time.sleep(_POLL_S)
    return []


def _result(gpu: str, host: Inventory) -> str:
    """Return what NVML reports about a GPU without processes, or why it reports nothing."""
    unknown = next((dict(each.unknown) for each in host.gpus if each.device_id == gpu), None)
    if unknown is None:
        return f"not proved: {short('; '.join(host.notices) or 'the driver does not list it')}"
    if "processes" in unknown:
        return f"not proved: the driver does not list its processes ({unknown['processes']})"
    return "no process uses it (NVML)"
