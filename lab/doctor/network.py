"""Addresses and ports of pseudo-nodes without containers, and what proxies would catch."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lab.doctor.model import Finding, Need, Verdict
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.task.text import short

AREA: Final = "network"
PROBE_S: Final = 40.0
"""Seconds in which a pseudo-node must be built; the probe gives itself 30."""

LOCAL_RANGE: Final = ipaddress.IPv4Network("10.77.0.0/16")
"""Where pseudo-nodes without containers have their addresses."""

_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_UPPER: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")

# The kernel's switches, the value that forbids, and the command that allows again.
_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", 1, 0),
    ("kernel/unprivileged_userns_clone", 0, 1),
    ("user/max_user_namespaces", 0, 10000),
    ("user/max_net_namespaces", 0, 10000),
)

Route = tuple[ipaddress.IPv4Network, str]


def namespaces(why_not: str | None, sysctls: Mapping[str, int]) -> Finding:
    """Whether a pseudo-node of the local backend can have a network of its own.

    Args:
        why_not: Why there can be none, or None.
        sysctls: The kernel's switches that are there, by their path below /proc/sys.
    """
    if why_not is None:
        what = "every pseudo-node gets a hostname and a network of its own"
        return _finding("namespaces", Verdict.OK, what)
    what = (
        f"none ({short(why_not, 120)}): all local tasks share the loopback, links are not applied, "
        "and TensorFlow's servers listen on every interface of this machine"
    )
    closed = [
        f"{path.replace('/', '.')}={allows}"
        for path, forbids, allows in _SWITCHES
        if sysctls.get(path) == forbids
    ]
    if "util-linux" in why_not:
        mend = "`sudo apt-get install util-linux`"
    elif "LAB_LOCAL_NAMESPACES" in why_not:
        mend = "`unset LAB_LOCAL_NAMESPACES`"
    elif closed:
        mend = f"`sudo sysctl -w {' '.join(closed)}`"
    else:
        mend = "inside a container, allow user namespaces to it; elsewhere, use containers"
    return _finding("namespaces", Verdict.WARNING, what, mend)


def ports(
    plan: Plan | None, wanted: Sequence[int], check: Callable[[Sequence[int]], None]
) -> Finding:
    """Whether local tasks that share the loopback can have their ports.

    Args:
        plan: The description, placed; None where there is none.
        wanted: The ports; none where every pseudo-node has a network of its own.
        check: Raises the error of the first one that cannot be had.
    """
    if plan is None:
        return _finding("ports", Verdict.SKIPPED, "without a description none are known")
    if not wanted:
        return _finding("ports", Verdict.OK, "each pseudo-node has all of its own")
    shown = str(wanted[0]) if len(wanted) == 1 else f"{wanted[0]} to {wanted[-1]}"
    try:
        check(wanted)
    except LabError as error:
        return _finding("ports", Verdict.FAILED, error.what, error.mend, "a port is in use")
    return _finding("ports", Verdict.OK, f"{shown} are free")


def addresses(routes: Sequence[Route]) -> Finding:
    """Whether this machine uses the addresses that pseudo-nodes have."""
    same = [f"{net} by {device}" for net, device in routes if net.overlaps(LOCAL_RANGE)]
    if not same:
        return _finding("addresses", Verdict.OK, f"{LOCAL_RANGE} is used by nobody else")
    return _finding(
        "addresses",
        Verdict.OK,
        f"{LOCAL_RANGE} is also {short(', '.join(same))}: harmless, because pseudo-nodes have no "
        "way out",
    )


def proxies(environ: Mapping[str, str], nodes: Sequence[str]) -> Finding:
    """Whether a proxy would catch what TensorFlow's servers send each other.

    gRPC asks the proxies of curl's lower-case variables, whatever lies in the cluster.

    Args:
        environ: This process's environment.
        nodes: Host names of the description's nodes.
    """
    given = next((each for each in _PROXIES if environ.get(each)), None)
    upper = next((each for each in _UPPER if environ.get(each)), None)
    if given is None:
        what = "none" if upper is None else f"{upper} alone, which gRPC does not read"
        return Finding(AREA, "proxies", Verdict.OK, what)
    spared = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    hosts = {each.strip() for each in spared.split(",")}
    shown = f"{given}={_without_password(environ[given])}"
    missing = [node for node in (*nodes, "localhost") if node not in hosts]
    if not missing or "*" in hosts:
        return Finding(AREA, "proxies", Verdict.OK, f"{shown}, and no_proxy spares every node")
    return Finding(
        AREA,
        "proxies",
        Verdict.WARNING,
        f"{shown}: lab keeps its tasks away from it, but gRPC in a program that you start by hand "
        "asks it for the other tasks",
        f"`export no_grpc_proxy={','.join(missing)}` before you start one by hand",
    )


# ---- Facts of this machine


def routes_of(table: Path = Path("/proc/net/route")) -> list[Route]:
    """This machine's IPv4 routes, without the default one, each with its device."""
    try:
        lines = table.read_text("ascii", "replace").splitlines()[1:]
    except OSError:
        return []  # not Linux
    found = []
    for line in lines:
        fields = line.split()
        device, destination, mask = fields[0], fields[1], fields[7]
        prefix = int(mask, 16).bit_count()
        if prefix:
            # The kernel prints addresses as they lie in memory.
            number = int.from_bytes(int(destination, 16).to_bytes(4, "little"))
            found.append((ipaddress.IPv4Network((number, prefix), strict=False), device))
    return found


def switches(proc: Path = Path("/proc/sys")) -> dict[str, int]:
    """Those of the kernel's switches that this kernel has."""
    found = {}
    for path, _, _ in _SWITCHES:
        try:
            found[path] = int((proc / path).read_text("ascii"))
        except (OSError, ValueError):
            continue
    return found


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return short(f"{parts.scheme}://***@{parts.hostname}" if parts.username else url, 80)


def _finding(name: str, verdict: Verdict, what: str, mend: str = "", blocks: str = "") -> Finding:
    return Finding(AREA, name, verdict, what, mend, Need.LOCAL, blocks)
