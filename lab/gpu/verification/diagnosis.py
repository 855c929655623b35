"""Why a task cannot use cards that are its own, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.gpu.verification.expected import Planned
from lab.gpu.verification.observed import Sight
from lab.task.sight import CUDA_CODE, LOST, NO_LIBCUDA, NOT_ASKED, UNKNOWN_ERROR
from lab.task.text import short

_RESTART: Final = (
    "restart its container (`docker restart`), or `lab down` and `lab up`; it comes back with each"
    " `systemctl daemon-reload` until the engine uses the cgroupfs driver or CDI"
)

_DEAD: Final = "check `nvidia-smi` and `dmesg | grep Xid` on the host, then reboot"

_FILE_MODE: Final = (
    "let every user open the cards: NVreg_DeviceFileMode=0666 in the driver's options"
)

_CUDA_FAILS: Final = "check `nvidia-smi` and `dmesg | grep -i nvrm` on the host, and `lab doctor`"

_NODE_MENDS: Final = {
    "Permission denied": _FILE_MODE,
    "Operation not permitted": _RESTART,  # so the engine's fence refuses
}
"""Why a node cannot be opened → the mend; whatever else it is, the card does not answer."""

_CUDA_MENDS: Final = {
    "802": "start the fabric manager: `sudo systemctl start nvidia-fabricmanager` on the host",
    "803": "reboot the host: its driver and the driver's library differ",
    "804": "update the NVIDIA driver",
    "999": "`sudo nvidia-modprobe -u -c=0` on the host, else see `dmesg`",
}
"""CUDA's codes for a driver that is there and cannot start → the mend."""


def why_lost(planned: Planned, sight: Sight, minors: Mapping[str, int]) -> tuple[str, str] | None:
    """Why cards that are this task's cannot be used, and how to mend it."""
    if not planned.ids or not sight.isolated:
        return None
    wanted = {minors[each] for each in planned.ids if each in minors}
    for minor, fault in (sight.nodes or {}).items():
        if fault and (minor in wanted or not wanted):
            mend = _NODE_MENDS.get(fault, _DEAD)
            return f"/dev/nvidia{minor} cannot be opened ({fault})", mend
    reason = sight.reasons.get("nvml", "")
    if reason not in LOST.values():
        return None
    return f"NVML says: {reason}", _RESTART if reason == LOST[UNKNOWN_ERROR] else _DEAD


def why_failing(planned: Planned, sight: Sight) -> tuple[str, str] | None:
    """Why CUDA's driver cannot start, and how to mend it; None where it can, or there is none.

    A program would train on CPUs without a word.
    """
    reason = sight.reasons.get("cuda", NOT_ASKED)
    if not planned.ids or sight.cuda is not None or reason in {NOT_ASKED, NO_LIBCUDA}:
        return None
    code = CUDA_CODE.search(reason)
    mend = _CUDA_MENDS.get(code[1], _CUDA_FAILS) if code else _CUDA_FAILS
    return f"CUDA says: {short(reason, 120)}", mend
