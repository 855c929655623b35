"""Checks of the network of pseudo-nodes on the local backend, and of proxies."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lab.backends.local import isolation, manifest
from lab.backends.local.manifest import NETWORK, check_ports_free
from lab.backends.local.state import Isolation
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.doctor.resources import number_in, text_of
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.text import short
from lab.threads import with_timeout
from lab.variables import LAB_LOCAL_NAMESPACES

PROBE_S: Final = 40.0
"""Time limit for creating a pseudo-node, in seconds; the probe has its own limit of 30 s."""

_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_UPPER: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")

# The kernel's switches for namespaces, the value that forbids them, and one that allows them.
_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", 1, 0),
    ("kernel/unprivileged_userns_clone", 0, 1),
    ("user/max_user_namespaces", 0, 10000),
    ("user/max_net_namespaces", 0, 10000),
)

Route = tuple[ipaddress.IPv4Network, str]


def why_no_namespaces() -> str | None:
    """Return why a pseudo-node cannot have its own network; None if a trial succeeded."""
    try:
        return with_timeout(PROBE_S, isolation.unavailable_reason)
    except TimeoutError:
        return f"creating one took more than {PROBE_S:.0f} s"


def kernel_switches(proc: Path = Path("/proc/sys")) -> dict[str, int]:
    """Return the values of this kernel's switches for namespaces, by path below /proc/sys."""
    values = {path: number_in(proc / path) for path, _, _ in _SWITCHES}
    return {path: value for path, value in values.items() if value is not None}


def judge_namespaces(why_no_namespaces: str | None, switches: Mapping[str, int]) -> Outcome:
    """Check that a pseudo-node of the local backend can have its own network."""
    if why_no_namespaces is None:
        return ok("every pseudo-node gets its own hostname and network")
    closed = [
        f"{path.replace('/', '.')}={allows}"
        for path, forbids, allows in _SWITCHES
        if switches.get(path) == forbids
    ]
    if "util-linux" in why_no_namespaces:
        fix = "`sudo apt-get install util-linux`"
    elif LAB_LOCAL_NAMESPACES in why_no_namespaces:
        fix = "`unset LAB_LOCAL_NAMESPACES`"
    elif closed:
        fix = f"`sudo sysctl -w {' '.join(closed)}`"
    else:
        fix = "if this is a container, allow user namespaces in it; otherwise use containers"
    return warning(
        f"none ({short(why_no_namespaces, 120)}): all local tasks share the loopback, links have "
        "no effect, and TensorFlow's servers listen on every interface of this host",
        fix,
    )


Ports = tuple[Sequence[int] | None, LabError | None]
"""The ports that tasks need, or None without a plan; and why a port cannot be used, or None."""


def check_ports(plan: Plan | None, why_no_namespaces: str | None) -> Ports:
    """Find the ports that local tasks need on the loopback. With namespaces they need none."""
    if plan is None:
        return None, None
    if why_no_namespaces is None:
        return [], None
    wanted = manifest.ports_of(manifest.addresses_of(plan, Isolation.PROCESSES))
    try:
        check_ports_free(wanted)
    except LabError as error:
        return wanted, error
    return wanted, None


def judge_ports(ports: Ports) -> Outcome:
    """Check that the ports of local tasks on the loopback are free."""
    wanted, error = ports
    if wanted is None:
        return skipped("unknown without a config")
    if not wanted:
        return ok("each pseudo-node has its own")
    if error is not None:
        return failed(error.what, error.fix, "a port is in use")
    shown = str(wanted[0]) if len(wanted) == 1 else f"{wanted[0]} to {wanted[-1]}"
    return ok(f"{shown} are free")


def routes(table: Path = Path("/proc/net/route")) -> list[Route]:
    """Return this host's IPv4 routes and their devices, without the default route."""
    found = []
    for line in text_of(table).splitlines()[1:]:
        fields = line.split()
        device, destination, mask = fields[0], fields[1], fields[7]
        prefix = int(mask, 16).bit_count()
        if prefix:
            # The kernel prints addresses in the byte order of its memory.
            number = int.from_bytes(int(destination, 16).to_bytes(4, "little"))
            found.append((ipaddress.IPv4Network((number, prefix), strict=False), device))
    return found


def judge_addresses(routes: Sequence[Route]) -> Outcome:
    """Report whether this host uses the addresses of pseudo-nodes."""
    same = [f"{net} by {device}" for net, device in routes if net.overlaps(NETWORK)]
    if not same:
        return ok(f"{NETWORK} is not in use")
    return ok(
        f"{NETWORK} is also {short(', '.join(same))}: harmless, because pseudo-nodes cannot reach "
        "other networks"
    )


def judge_proxies(environ: Mapping[str, str], plan: Plan | None) -> Outcome:
    """Check that no proxy intercepts the traffic between TensorFlow's servers.

    gRPC uses the proxies of curl's lower-case variables, also inside a cluster.

    Args:
        environ: The environment variables of this process.
        plan: The plan, whose nodes the proxy should exempt; or None.
    """
    given = next((each for each in _PROXIES if environ.get(each)), None)
    if given is None:
        upper = next((each for each in _UPPER if environ.get(each)), None)
        return ok("none" if upper is None else f"only {upper}, which gRPC does not read")
    exempt = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    nodes = [node.name for node in plan.nodes] if plan else []
    hosts = {each.strip() for each in exempt.split(",")}
    shown = f"{given}={_without_password(environ[given])}"
    missing = [node for node in (*nodes, "localhost") if node not in hosts]
    if not missing or "*" in hosts:
        return ok(f"{shown}, and no_proxy exempts every node")
    return warning(
        f"{shown}: lab's tasks do not use it, but gRPC in a program that you start yourself does, "
        "to reach other tasks",
        f"`export no_grpc_proxy={','.join(missing)}` before you start a program yourself",
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return short(f"{parts.scheme}://***@{parts.hostname}" if parts.username else url, 80)
