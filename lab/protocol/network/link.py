"""A node's network link: a maximum rate and a delay for the packets that the node sends.

The kernel's queueing disciplines do this: `tbf` for the rate, `netem` for the delay. They are set
through netlink and act on outgoing packets. If both nodes of a connection have a delay, both count.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from lab.base.variables import LAB_LINK
from lab.protocol.experiments.faults import MAX_DELAY_US, MAX_RATE_BITS

MTU: Final = 65_535
"""Maximum bytes of a packet between nodes without a link; the largest value, as on the loopback.

Parameters of 31 kB then need one packet, not 22. A parameter server and three workers on two CPUs
then made an eighth more steps.
"""

LINK_MTU: Final = 1_500
"""Maximum bytes of a packet on a link, as on a real network; a rate's bucket holds several."""

_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_ROOT = 0xFFFFFFFF

_LATENCY_S = 0.05  # a packet that would wait longer is dropped
_MIN_BURST_BYTES = 32 * 1024  # a bucket smaller than a few full frames sends nothing
_BURST_S = 0.01  # ten ticks of a kernel with 1000 of them a second


class LinkError(RuntimeError):
    """The link cannot be applied; the message contains the reason and a hint."""


def link_environ(rate_bits: int | None, delay_us: int | None) -> dict[str, str]:
    """Return the environment variable that describes the link of a node in the config."""
    return {LAB_LINK: f"{rate_bits or 0} {delay_us or 0}"}


def link_of(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the link's rate in bits per second and delay in microseconds; each can be None.

    Raises:
        ValueError: The variable is not valid.
    """
    text = environ.get(LAB_LINK, "0 0")
    if not re.fullmatch(r"[0-9]{1,18} [0-9]{1,18}", text):
        raise ValueError(f"{LAB_LINK} is not a rate and a delay, as whole numbers: {text!r}")
    rate_bits, delay_us = map(int, text.split())
    if rate_bits > MAX_RATE_BITS or delay_us > MAX_DELAY_US:
        raise ValueError(f"{LAB_LINK} exceeds {MAX_RATE_BITS} {MAX_DELAY_US}: {text!r}")
    return rate_bits or None, delay_us or None


@contextmanager
def netlink_to_kernel(doing: str) -> Iterator[Any]:
    """Open a connection to the kernel that turns its errors into `LinkError`.

    Args:
        doing: What is asked of it, for the message: `the change`.
    """
    # Imported here: the import takes 0.4 s, and only nodes with a link need it.
    from pyroute2 import IPRoute, NetlinkError  # noqa: PLC0415

    try:
        with IPRoute() as netlink:
            yield netlink
    except NetlinkError as error:
        raise LinkError(f"the kernel refused {doing}: {os.strerror(error.code)}") from error


def apply_link(rate_bits: int | None, delay_us: int | None) -> str:
    """Apply a link to the one interface of this network namespace besides the loopback.

    It replaces an earlier link. Packets get the size of a real network; TCP negotiates it with
    nodes that allow larger packets.

    Args:
        rate_bits: Maximum outgoing bits per second, or None for no limit.
        delay_us: Delay of every packet in microseconds, or None for no delay.

    Returns:
        The interface's name.

    Raises:
        LinkError: There is not exactly one such interface, the kernel lacks a queueing discipline,
            or the permission is missing.
    """
    with netlink_to_kernel("the link") as netlink:
        name, index = interface(netlink)
        clear(netlink, index)
        shape(netlink, index, rate_bits, delay_us)
        # Last, because `shape` reports a missing permission with a better message.
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
        netlink: The connection to the kernel.
        index: The interface.
        rate_bits: Maximum outgoing bits per second, or None for no limit.
        delay_us: Delay of every packet in microseconds, or None for no delay.
        least_burst: Minimum bytes of a rate's bucket.
        least_queue: Minimum bytes of the queue after it.

    Raises:
        LinkError: The kernel lacks a queueing discipline, or the permission is missing.
    """
    if delay_us is not None:
        add(netlink, "netem", "the delay", index=index, handle="1:", delay=delay_us)
    if rate_bits is not None:
        # With a delay it is a child of netem, otherwise the root.
        parent = {"parent": "1:1"} if delay_us is not None else {"handle": "1:"}
        rate = max(1, rate_bits // 8)
        burst = max(least_burst, int(rate * _BURST_S))
        limit = burst + max(least_queue, int(rate * _LATENCY_S))
        # A `rate` that is a number means bytes per second.
        options = {"rate": rate, "burst": burst, "limit": limit}
        add(netlink, "tbf", "the rate", index=index, **parent, **options)


def interface(netlink: Any) -> tuple[str, int]:  # noqa: ANN401 (pyroute2 has no types)
    """Return the name and index of the one interface besides the loopback.

    Raises:
        LinkError: There is no such interface, or more than one.
    """
    interfaces = [
        (link.get("ifname"), link["index"])
        for link in netlink.get_links()
        # Every new namespace has tunnel interfaces; they are not up.
        if link["flags"] & _IFF_UP and not link["flags"] & _IFF_LOOPBACK
    ]
    if len(interfaces) != 1:
        names = ", ".join(name for name, _ in interfaces) or "none"
        raise LinkError(f"a link needs one network interface; found: {names}")
    name, index = interfaces[0]
    return str(name), int(index)


def clear(netlink: Any, index: int) -> None:  # noqa: ANN401
    """Remove the queueing disciplines of an earlier link."""
    for discipline in netlink.get_qdiscs(index=index):
        if discipline.get("kind") in {"tbf", "netem"} and discipline["parent"] == _ROOT:
            netlink.tc("del", index=index, parent=_ROOT)


def add(netlink: Any, kind: str, purpose: str, **options: Any) -> None:  # noqa: ANN401
    """Add a queueing discipline.

    Args:
        netlink: The connection to the kernel.
        kind: `tbf` or `netem`.
        purpose: Its purpose for messages: `the rate`.
        **options: Its parent and parameters, in pyroute2's format.

    Raises:
        LinkError: The kernel lacks it, or the permission is missing.
    """
    from pyroute2 import NetlinkError  # noqa: PLC0415

    try:
        netlink.tc("add", kind, **options)
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            raise LinkError(
                f"this kernel has no {kind}, which {purpose} of a link needs; "
                f"load it with `modprobe sch_{kind}`, or remove {purpose} from the link"
            ) from error
        if error.code == errno.EPERM:
            raise LinkError(f"{purpose} of the link needs the capability NET_ADMIN") from error
        raise
