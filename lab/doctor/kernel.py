"""Checks whether the kernel lets this user create namespaces."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.doctor.model import Outcome, ok, warning
from lab.text import short
from lab.variables import LAB_LOCAL

_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", 0),
    ("kernel/unprivileged_userns_clone", "0", 1),
    ("user/max_user_namespaces", "0", 10000),
    ("user/max_net_namespaces", "0", 10000),
)
"""The kernel's switches for namespaces, the value that forbids them, and one that allows them."""


def check_namespaces(why_none: str | None, switches: Path = Path("/proc/sys")) -> Outcome:
    """Check that a pseudo-node can have its own network.

    Args:
        why_none: Why it cannot; None if a trial succeeded.
        switches: The directory of the kernel's switches.
    """
    if why_none is None:
        return ok("every pseudo-node gets its own hostname and network")
    closed = [
        f"{path.replace('/', '.')}={allows}"
        for path, forbids, allows in _SWITCHES
        if _text_of(switches / path) == forbids
    ]
    fix = "if this is a container, allow user namespaces in it; otherwise use `--backend compose`"
    if "util-linux" in why_none:
        fix = "`sudo apt-get install util-linux`"
    elif LAB_LOCAL in why_none:
        fix = f"`unset {LAB_LOCAL}`"
    elif closed:
        fix = f"`sudo sysctl -w {' '.join(closed)}`"
    return warning(
        f"none ({short(why_none, 120)}): all local tasks share the loopback, links have no effect, "
        "and TensorFlow's servers listen on every interface of this host",
        fix,
    )


def _text_of(file: Path) -> str:
    with suppress(OSError):
        return file.read_text("ascii").strip()
    return ""
