"""Whether this user can have namespaces for pseudo-nodes, and how they are made.

As a program, this module builds a network with one node in its own namespaces: the probe.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.backends.local.manifest import address
from lab.backends.local.processes import base_environ, module_command
from lab.backends.local.state import NodeRecord
from lab.backends.process import boot_id
from lab.task.text import short

# Process 1 of these namespaces is the supervisor; the death of either process ends everything.
UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--net", "--uts", "--mount", "--pid", "--fork"),
    *("--kill-child=SIGKILL", "--mount-proc", "--"),
)
_SWITCH = "LAB_LOCAL_NAMESPACES"
_PROBE_TIMEOUT_S = 30.0


def unavailable_reason(memory: Path | None = None) -> str | None:
    """Why there can be no namespaces here; None where a node was really built in them.

    Distributions forbid parts of it in different ways (sysctls, AppArmor, seccomp in containers),
    and some only at the last step; so a network with one node is built and thrown away.

    Args:
        memory: A file that remembers for this boot of the machine that there can be namespaces:
            the probe costs 0.4 s. Where that has changed since, the boot of an environment fails,
            and `forget` has the next one probe again.
    """
    if (reason := _forbidden()) is not None:
        return reason
    if memory is None:
        return _probe()
    with contextlib.suppress(OSError):
        if memory.read_text(encoding="ascii") == boot_id():
            return None
    if (reason := _probe()) is None:
        with contextlib.suppress(OSError):  # the next one probes again
            memory.write_text(boot_id(), encoding="ascii")
    return reason


def clear_cache(memory: Path) -> None:
    """Ask again the next time."""
    with contextlib.suppress(OSError):
        memory.unlink()


def _forbidden() -> str | None:
    """Why there shall or can be none, as far as that is known without a try."""
    if os.environ.get(_SWITCH) == "0":
        return f"{_SWITCH} is 0"
    if sys.platform != "linux":
        return f"{sys.platform} has none"
    missing = [name for name in ("unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (package util-linux)"
    return None


def _probe() -> str | None:
    """Build a network with one node and throw it away."""
    with tempfile.TemporaryDirectory(prefix="lab-probe-") as folder:
        try:
            probed = subprocess.run(
                [
                    *UNSHARE,
                    *module_command("lab.backends.local.isolation"),
                    str(Path(folder) / "hosts"),
                ],
                env=base_environ(),
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


def main(argv: list[str]) -> int:
    """Build a network with one node and start a program on it; returns the exit code.

    The last line of standard error is the reason where the code is not 0.
    """
    # Imported here: netlink costs 0.4 s and exists on Linux only.
    from lab.backends.local.network import NetworkError, build, hosts_text  # noqa: PLC0415

    hosts = Path(argv[0])
    nodes = (NodeRecord("probe", address(0), None),)
    hosts.write_text(hosts_text(nodes), encoding="utf-8")
    try:
        space = build(nodes, hosts)["probe"]
    except NetworkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    enter = [*space.enter(), "true"]
    return subprocess.run(enter, check=False, pass_fds=space.descriptors()).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
