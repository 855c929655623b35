"""Whether this kernel allows pseudo-nodes of their own to this user, and how they are asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.backends.local.interpreter import command, environ
from lab.task.text import short

# Process 1 of these namespaces is the supervisor; the death of either process ends everything.
UNSHARE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--uts",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=SIGKILL",
    "--mount-proc",
    "--",
)
_SWITCH = "LAB_LOCAL_NAMESPACES"
_PROBE_TIMEOUT_S = 30.0


def why_not() -> str | None:
    """Why there can be no namespaces here; None where a node was really built in them.

    Distributions forbid parts of it in different ways (sysctls, AppArmor, seccomp in containers),
    and some only at the last step; so a network with one node is built and thrown away.
    """
    if os.environ.get(_SWITCH) == "0":
        return f"{_SWITCH} is 0"
    if sys.platform != "linux":
        return f"{sys.platform} has none"
    missing = [name for name in ("unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (package util-linux)"
    with tempfile.TemporaryDirectory(prefix="lab-probe-") as folder:
        try:
            probed = subprocess.run(
                [*UNSHARE, *command("lab.backends.local.probe"), str(Path(folder) / "hosts")],
                env=environ(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_PROBE_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"building one took more than {_PROBE_TIMEOUT_S:.0f} s"
    if probed.returncode == 0:
        return None
    lines = probed.stderr.strip().splitlines() or [b"no reason given"]
    return short(lines[-1], 200)
