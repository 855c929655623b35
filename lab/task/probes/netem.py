"""A node's network link: what it sends is slowed to a rate and delayed.

The kernel's own queueing disciplines do it, through netlink: `tbf` for the rate, `netem` for the
delay. Both act on what leaves the node; a delay between two nodes that both have one adds up.
"""

from __future__ import annotations

import errno
from typing import Any, Final

MTU: Final = 65_535
"""Bytes of a packet between nodes without a link: as large as it gets, like the loopback's.

Parameters of 31 kB are one packet then and not 22: a parameter server and three workers on two
CPUs made an eighth more steps.
"""

LINK_MTU: Final = 1_500
"""Bytes of a packet on a link, as on a real network: a rate's bucket must hold some of them."""

_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_ROOT = 0xFFFFFFFF

_LATENCY_S = 0.05  # how long a packet may wait for its turn before it is dropped
_MIN_BURST_BYTES = 32 * 1024  # a bucket below a few full frames never lets one through
_BURST_S = 0.01  # ten ticks of a kernel with 1000 of them a second


class LinkError(RuntimeError):
    """The link could not be applied; the message says why and how to mend it."""


def apply_link(rate_bits: int | None, delay_us: int | None) -> str:
    """Apply a link to the one interface of this network namespace beside the loopback.

    It replaces a link that was there before. Packets get a real network's size; TCP agrees on it
    with nodes whose packets are larger.

    Args:
        rate_bits: Bits per second that may leave, or None for no limit.
        delay_us: Microseconds that every packet is held back, or None for none.

    Returns:
        The interface's name.

    Raises:
        LinkError: There is no such interface, it is not the only one, the kernel lacks what the
            link needs, or the caller may not change it.
    """
    # Imported here: it costs 0.4 s, and only nodes with a link need it.
    from pyroute2 import IPRoute  # noqa: PLC0415

    with IPRoute() as netlink:
        name, index = interface(netlink)
        clear(netlink, index)
        shape(netlink, index, rate_bits, delay_us)
        # Behind those: who may not change a link is told by them.
        netlink.link("set", index=index, mtu=LINK_MTU)
    return name


def shape(
    netlink: Any,  # noqa: ANN401 (pyroute2 has no types)
    index: int,
    rate_bits: int | None,
    delay_us: int | None,
    *,
    least_burst: int = _MIN_BURST_BYTES,
    least_queue: int = 0,
) -> None:
    """Add the queueing disciplines of a link.

    Args:
        netlink: The kernel.
        index: The interface.
        rate_bits: Bits per second that may leave, or None for no limit.
        delay_us: Microseconds that every packet is held back, or None for none.
        least_burst: Bytes that a rate's bucket holds at least.
        least_queue: Bytes that may wait behind it at least.

    Raises:
        LinkError: The kernel lacks one, or the caller may not add it.
    """
    if delay_us is not None:
        add(netlink, "netem", "the delay", index=index, handle="1:", delay=delay_us)
    if rate_bits is not None:
        # Behind a delay it is netem's child, otherwise it stands alone.
        place = {"parent": "1:1"} if delay_us is not None else {"handle": "1:"}
        rate = max(1, rate_bits // 8)
        burst = max(least_burst, int(rate * _BURST_S))
        limit = burst + max(least_queue, int(rate * _LATENCY_S))
        # A `rate` that is a number means bytes per second.
        options = {"rate": rate, "burst": burst, "limit": limit}
        add(netlink, "tbf", "the rate", index=index, **place, **options)


def interface(netlink: Any) -> tuple[str, int]:  # noqa: ANN401 (pyroute2 has no types)
    """Name and index of the one interface beside the loopback.

    Raises:
        LinkError: There is none, or more than one.
    """
    found = [
        (link.get("ifname"), link["index"])
        for link in netlink.get_links()
        # Tunnels that every namespace is born with are down.
        if link["flags"] & _IFF_UP and not link["flags"] & _IFF_LOOPBACK
    ]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise LinkError(f"a link needs one network interface; there is {names}")
    name, index = found[0]
    return str(name), int(index)


def clear(netlink: Any, index: int) -> None:  # noqa: ANN401
    """Take away what an earlier link left."""
    for discipline in netlink.get_qdiscs(index=index):
        if discipline.get("kind") in {"tbf", "netem"} and discipline["parent"] == _ROOT:
            netlink.tc("del", index=index, parent=_ROOT)


def add(netlink: Any, kind: str, what: str, **options: Any) -> None:  # noqa: ANN401
    """Add a queueing discipline.

    Args:
        netlink: The kernel.
        kind: `tbf` or `netem`.
        what: What it is for, in words: `the rate`.
        **options: Its place and its numbers, as pyroute2 takes them.

    Raises:
        LinkError: The kernel lacks it, or the caller may not add it.
    """
    from pyroute2 import NetlinkError  # noqa: PLC0415

    try:
        netlink.tc("add", kind, **options)
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            raise LinkError(
                f"this kernel has no {kind}, which {what} of a link needs; "
                f"load it with `modprobe sch_{kind}`, or leave {what} out"
            ) from error
        if error.code == errno.EPERM:
            raise LinkError(f"{what} of the link needs the capability NET_ADMIN") from error
        raise
