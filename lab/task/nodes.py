"""The device nodes of NVIDIA cards, `/dev/nvidia0`: what an engine lets into a container."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DEVICES: Final = Path("/dev")

_PREFIX: Final = "nvidia"


def nodes(devices: Path = DEVICES) -> dict[int, Path]:
    """Minor number to device node, ascending; `/dev/nvidiactl` and its like are no cards.

    Raises:
        OSError: The directory cannot be read.
    """
    found = {}
    for path in devices.iterdir():
        minor = path.name.removeprefix(_PREFIX)
        if minor != path.name and minor.isascii() and minor.isdecimal():
            found[int(minor)] = path
    return dict(sorted(found.items()))
