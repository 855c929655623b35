"""Blocks the host from the tasks of one node.

The bridge of a container network has an address on the host. So tasks reach every service of the
host that listens on all addresses, even if the network is internal. This module blocks them. It
runs inside the node's network namespace, with the permission to change it::

    python -m lab.protocol.network.host_block 172.21.0.1

It has two parts:

- A packet filter lets the node send only to itself and to the other addresses of its network: not
  to the addresses in the arguments, not to all, and not by IPv6.
- Routes give programs an error at once. They are not enough: a program can bind its socket to the
  interface, and the kernel then ignores them. `is_blocked` reads them, which needs no rights.

The node may still ask a name server on the host, if /etc/resolv.conf names it: Podman's is there.

With `--replies` the node may answer connections that the host opened, for example to a server::

    python -m lab.protocol.network.host_block --replies 10.89.0.17

Exit codes: 0 the host is blocked, 1 the kernel refused, 2 wrong usage.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.protocol.network import link

MODULE: Final = __name__
ROUTES: Final = "/proc/net/route"
"""The file with a namespace's IPv4 routes."""

NAME_SERVERS: Final = Path("/etc/resolv.conf")
"""The file that names the addresses of a container's name servers."""

_USAGE: Final = "usage: [--replies] and one or more IPv4 addresses of the host"
_IPV6: Final = Path("/proc/net/if_inet6")
_IPV4_FAMILY, _IPV6_FAMILY = 2, 10  # the kernel's numbers
_DROP, _ACCEPT = 0, 1
_EVERYWHERE: Final = "0.0.0.0/0"
_REJECTS: Final = 0x200
_OUTGOING_INTERFACE: Final = 7
_PROTOCOL: Final = 16
_UDP, _TCP = b"\x11", b"\x06"
_TRANSPORT_HEADER, _PORT_AT, _PORT_BYTES = 2, 2, 2  # where a packet has its destination's port
_DNS: Final = b"\x00\x35"  # port 53
_CT_DIRECTION, _REPLY = 1, b"\x01"  # of a packet in a tracked connection
_NAME_BYTES: Final = 16


def is_blocked(routes: str) -> bool:
    """Whether the host is blocked, by the text of `ROUTES` of a node."""
    lines = [line.split() for line in routes.splitlines()[1:]]
    return any(
        int(fields[1], 16) == int(fields[7], 16) == 0 and int(fields[3], 16) & _REJECTS
        for fields in lines
        if len(fields) > 7  # noqa: PLR2004  (a whole line)
    )


def name_servers(lines: str, hosts: Sequence[str]) -> list[str]:
    """Return the hosts that are name servers, by the text of `NAME_SERVERS`."""
    named = [line.split()[1:2] for line in lines.splitlines() if line.startswith("nameserver")]
    return [host for host in hosts if [host] in named]


def block(hosts: Sequence[str], *, replies: bool = False) -> None:
    """Block the host; it may be blocked already.

    Args:
        hosts: The addresses of the host on this network.
        replies: Whether the node may answer connections that the host opened.

    Raises:
        LinkError: There is not exactly one interface, the permission is missing, or the kernel has
            no packet filter.
    """
    try:
        with link.netlink_to_kernel("to block the host") as netlink:
            _, index = link.interface(netlink)
            networks = [
                ipaddress.IPv4Interface(f"{address.get('address')}/{address['prefixlen']}").network
                for address in netlink.get_addr(family=_IPV4_FAMILY, index=index)
            ]
            servers = name_servers(NAME_SERVERS.read_text("utf-8", "replace"), hosts)
            _filter(networks, hosts, servers, replies=replies)
            # Last, because they show that all is done. Replies and questions need a route.
            for host in () if replies else sorted({*hosts} - {*servers}):
                netlink.route("replace", dst=f"{host}/32", type="unreachable")
            netlink.route("replace", dst=_EVERYWHERE, type="unreachable")
    except OSError as error:
        raise link.LinkError(f"the kernel has no packet filter: {error.strerror}") from error


def _equals(value: bytes) -> Any:  # noqa: ANN401  (pyroute2 has no types)
    """Return the expression that compares the value read by the one before it."""
    from pyroute2.netlink.nfnetlink.nftsocket import Cmp  # noqa: PLC0415
    from pyroute2.nftables.expressions import genex  # noqa: PLC0415

    data = {"attrs": [("NFTA_DATA_VALUE", value)]}
    return genex("cmp", {"sreg": 1, "op": Cmp.NFT_CMP_EQ, "data": data})


def _questions(servers: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rules that let the node ask name servers."""
    from pyroute2.nftables.expressions import genex, ipv4addr, verdict  # noqa: PLC0415

    port = {"dreg": 1, "base": _TRANSPORT_HEADER, "offset": _PORT_AT, "len": _PORT_BYTES}
    return [
        (
            ipv4addr(dst=server),
            [genex("meta", {"dreg": 1, "key": _PROTOCOL}), _equals(protocol)],
            [genex("payload", port), _equals(_DNS)],
            verdict(_ACCEPT),
        )
        for server in servers
        for protocol in (_UDP, _TCP)
    ]


def _filter(
    networks: Sequence[ipaddress.IPv4Network],
    hosts: Sequence[str],
    servers: Sequence[str],
    *,
    replies: bool,
) -> None:
    """Filter the packets that this node sends."""
    from pyroute2.netlink.nfnetlink.nftsocket import Cmp  # noqa: PLC0415
    from pyroute2.nftables.expressions import genex, ipv4addr, verdict  # noqa: PLC0415
    from pyroute2.nftables.main import NFTables  # noqa: PLC0415

    to_itself = [
        genex("meta", {"dreg": 1, "key": _OUTGOING_INTERFACE}),
        _equals(b"lo".ljust(_NAME_BYTES, b"\0")),
    ]
    is_reply = [genex("ct", {"dreg": 1, "key": _CT_DIRECTION}), _equals(_REPLY)]
    to_nodes: list[tuple[Any, ...]] = [(is_reply, verdict(_ACCEPT))] if replies else []
    to_nodes += _questions(servers)
    to_nodes += [(ipv4addr(dst=host), verdict(_DROP)) for host in hosts]
    # Compared with the first and the last address: pyroute2 has wrong masks for a prefix of 20.
    to_nodes += [
        (
            ipv4addr(dst=str(network[1]), op=Cmp.NFT_CMP_GTE),
            ipv4addr(dst=str(network[-2]), op=Cmp.NFT_CMP_LTE),
            verdict(_ACCEPT),
        )
        for network in networks
    ]
    families: dict[int, list[tuple[Any, ...]]] = {_IPV4_FAMILY: to_nodes}
    if _IPV6.exists():
        families[_IPV6_FAMILY] = []
    for family, rules in families.items():
        filters = NFTables(nfgen_family=family)
        try:
            filters.table("add", name="lab")
            filters.chain(
                "add", table="lab", name="output", hook="output", type="filter", policy=_ACCEPT
            )
            # The last rule drops, not the policy: training may continue while the rules are added.
            for rule in ((to_itself, verdict(_ACCEPT)), *rules, (verdict(_DROP),)):
                filters.rule("add", table="lab", chain="output", expressions=rule)
        finally:
            filters.close()


def main(argv: Sequence[str]) -> int:
    """Block the host; return the exit code."""
    replies = "--replies" in argv[:1]
    try:
        hosts = [str(ipaddress.IPv4Address(argument)) for argument in argv[replies:]]
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if not hosts:
        sys.stderr.write(f"error: {_USAGE}\n")
        return 2
    try:
        block(hosts, replies=replies)
    except link.LinkError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
