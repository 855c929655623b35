"""A temporary network fault of one node: disconnect the node, or slow its link.

It must run inside the node's network namespace, with the permission to change it::

    python -m lab.protocol.network.fault cut:5s
    python -m lab.protocol.network.fault link:rate=10mbit,delay=20ms,30s

It prints one line when the fault is active. When the time is over, or at SIGTERM, it restores the
address, the routes, the packet size and the link of the config. As for the node's anchor,
`LAB_LINK` describes this link.

Exit codes: 0 the fault has ended, 1 the fault failed, 2 wrong usage.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from lab.protocol.experiments.faults import Fault, Kind, parse
from lab.protocol.network import link
from lab.protocol.network.link import LinkError, link_of

MODULE: Final = __name__
_USAGE: Final = "usage: cut:5s | link:rate=10mbit,delay=20ms,30s"
_EXIT_FAILED, _EXIT_USAGE = 1, 2
_STOP_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_LOCK_NAME: Final = "\0lab.netfault"
"""An abstract socket name, used as a lock. Each network namespace has its own names."""

_PACKETS: Final = 4
"""The number of packets of maximum size that fit into the queue."""

_HEADERS: Final = 64
_MAIN_TABLE: Final = 254
_BY_KERNEL: Final = 2


def fault_of(argv: Sequence[str]) -> Fault:
    """Read the command line.

    Raises:
        ValueError: It names no network fault.
    """
    if len(argv) != 1:
        raise ValueError(_USAGE)
    fault = parse(f"{argv[0]} node")
    if not fault.kind.on_network:
        raise ValueError(_USAGE)
    return fault


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Lock this node's network: each fault restores the state that it found.

    Raises:
        LinkError: Another fault is active.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(_LOCK_NAME)
        except OSError as error:
            raise LinkError(
                "another network fault is active on this node; wait until it ends"
            ) from error
        yield


@contextlib.contextmanager
def network_cut() -> Iterator[str]:
    """Disconnect the node from the network; yield the interface's name.

    Raises:
        LinkError: There is no interface, or the permission is missing.
    """
    with link.netlink_to_kernel("the change") as netlink:
        name, index = link.interface(netlink)
        routes = list(_routes(netlink, index))
        netlink.link("set", index=index, state="down")
        try:
            yield name
        finally:
            netlink.link("set", index=index, state="up")
            for route in routes:
                # The kernel restores the routes of the address itself.
                netlink.route("replace", oif=index, **route)


@contextlib.contextmanager
def network_slowed(
    rate_bits: int | None, delay_us: int | None, before: tuple[int | None, int | None]
) -> Iterator[str]:
    """Slow the node's link; yield the interface's name.

    The packet size stays the same, because open connections have negotiated it.

    Args:
        rate_bits: Maximum outgoing bits per second, or None for no change.
        delay_us: Delay of every packet in microseconds, or None for no change.
        before: The rate and delay of the link in the config.

    Raises:
        LinkError: There is no interface, the permission is missing, or the kernel lacks a queueing
            discipline.
    """
    rate_bits = before[0] if rate_bits is None else rate_bits
    delay_us = before[1] if delay_us is None else delay_us
    with link.netlink_to_kernel("the change") as netlink:
        name, index = link.interface(netlink)
        try:
            link.clear(netlink, index)
            mtu = netlink.get_links(index)[0].get("mtu") if rate_bits is not None else 0
            largest = _HEADERS + int(mtu)
            link.shape(
                netlink,
                index,
                rate_bits,
                delay_us,
                least_burst=largest,
                least_queue=_PACKETS * largest,
            )
            yield name
        finally:
            link.clear(netlink, index)
            if before != (None, None):
                link.apply_link(*before)


def _routes(netlink: Any, index: int) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield the routes of an interface that the kernel does not restore itself."""
    for route in netlink.get_routes(family=socket.AF_INET, oif=index, table=_MAIN_TABLE):
        if route["proto"] == _BY_KERNEL:
            continue
        fields = {
            "dst": f"{route.get('dst') or '0.0.0.0'}/{route['dst_len']}",  # noqa: S104
            "gateway": route.get("gateway"),
            "priority": route.get("priority"),
            "prefsrc": route.get("prefsrc"),
        }
        yield {name: value for name, value in fields.items() if value is not None}


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Inject one fault and wait until it ends; return the exit code."""
    # Blocked first, so that an early signal is not lost: `sigtimedwait` receives it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        fault = fault_of(argv)
        before = link_of(environ)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    context: AbstractContextManager[str]
    if fault.kind is Kind.CUT:
        context, effect = network_cut(), "off the network"
    else:
        context, effect = network_slowed(fault.rate_bits, fault.delay_us, before), "slowed"
    try:
        with exclusive(), context as name:
            print(f"{name} is {effect} for {fault.seconds:g} s", flush=True)
            signal.sigtimedwait(_STOP_SIGNALS, fault.seconds)
    except LinkError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
