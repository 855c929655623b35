"""Checks whether this user can create namespaces for pseudo-nodes.

As a program, this module is the probe: it builds a network with one node in its own namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.backends.local.state import NodeRecord, address
from lab.backends.process import boot_id
from lab.backends.python import base_environ, module_command
from lab.base.text import short
from lab.base.variables import LAB_LOCAL

# The supervisor is process 1 of these namespaces. If it or `unshare` dies, all processes end.
UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--net", "--uts", "--mount", "--pid", "--fork"),
    *("--kill-child=SIGKILL", "--mount-proc", "--"),
)
_PROBE_TIMEOUT_S = 30.0


def unavailable_reason(cache: Path | None = None) -> str | None:
    """Why namespaces are not available here; None if the probe succeeds.

    Distributions forbid parts of them in different ways (sysctls, AppArmor, seccomp in containers),
    some only at the last step. So the probe builds and removes a network with one node.

    Args:
        cache: A file that caches a successful probe until the next boot of the host: the probe
            takes 0.4 s. If namespaces are forbidden later, the boot of an environment fails.
            `clear_cache` then makes the next boot probe again.
    """
    if (reason := _forbidden()) is not None:
        return reason
    if cache is None:
        return _probe()
    with contextlib.suppress(OSError):
        if cache.read_text(encoding="ascii") == boot_id():
            return None
    if (reason := _probe()) is None:
        with contextlib.suppress(OSError):  # without the file the next boot probes again
            cache.write_text(boot_id(), encoding="ascii")
    return reason


def clear_cache(cache: Path) -> None:
    """Remove the cached result, so that the next call probes again."""
    with contextlib.suppress(OSError):
        cache.unlink()


def _forbidden() -> str | None:
    """Why namespaces are disabled or impossible, as far as that is known without a probe."""
    if "namespaces" not in os.environ.get(LAB_LOCAL, "namespaces").split(","):
        return f"{LAB_LOCAL} has no namespaces"
    missing = [name for name in ("unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (package util-linux)"
    return None


def _probe() -> str | None:
    """Run the probe; return the reason of a failure."""
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
            return f"the probe took more than {_PROBE_TIMEOUT_S:.0f} s"
    if probed.returncode == 0:
        return None
    lines = probed.stderr.strip().splitlines() or [b"no reason given"]
    return short(lines[-1], 200)


def main(argv: list[str]) -> int:
    """Build a network with one node and start a program on it; return the exit code.

    If the code is not 0, the last line of standard error is the reason.
    """
    # Imported here: netlink takes 0.4 s.
    from lab.backends.local.network import NetworkError, build, hosts_text  # noqa: PLC0415

    hosts = Path(argv[0])
    nodes = (NodeRecord("probe", address(0), None),)
    hosts.write_text(hosts_text(nodes), encoding="utf-8")
    try:
        namespaces = build(nodes, hosts)["probe"]
    except NetworkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    enter = [*namespaces.enter(), "true"]
    return subprocess.run(enter, check=False, pass_fds=namespaces.descriptors()).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
