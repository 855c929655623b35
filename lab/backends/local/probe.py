"""Build a network with one node, start a program on it, and throw both away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.backends.local.addresses import address
from lab.backends.local.network import NetworkError, build, hosts_text
from lab.backends.local.state import NodeRecord


def main(argv: list[str]) -> int:
    """0 if all of it works; otherwise the reason is the last line of standard error."""
    hosts = Path(argv[0])
    nodes = (NodeRecord("probe", address(0), None),)
    hosts.write_text(hosts_text(nodes), encoding="utf-8")
    try:
        space = build(nodes, hosts)["probe"]
    except NetworkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return subprocess.run(
        [*space.enter(), "true"], check=False, pass_fds=space.descriptors()
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
