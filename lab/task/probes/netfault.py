"""A fault of one node's network, for a time: off it, or on it through a slower link.

It is called inside the node's network namespace, by whoever may change it there::

    python -m lab.task.probes.netfault cut:5s
    python -m lab.task.probes.netfault link:rate=10mbit,delay=20ms,30s

One line on standard output says that it holds. When the time is over, or at SIGTERM, everything is
as before: the address, the routes, the size of packets, and the link of the description, which
`LAB_LINK_RATE_BITS` and `LAB_LINK_DELAY_US` tell as they tell it to the node's anchor.

Exit codes: 0 it has held and is over, 1 it could not be done, 2 wrong usage.
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

from lab.task.probes import netem
from lab.task.probes.netem import LinkError
from lab.task.probes.pause import link_of
from lab.task.protocol.faults import Fault, Kind, parse

MODULE: Final = __name__
_USAGE: Final = "usage: cut:5s | link:rate=10mbit,delay=20ms,30s"
_EXIT_FAILED, _EXIT_USAGE = 1, 2
_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_ALONE: Final = "\0lab.netfault"
"""A socket's name without a file, which each network namespace has for itself."""

_PACKETS: Final = 4
"""How many of the largest packets may wait for their turn before one is dropped."""

_HEADERS: Final = 64
_MAIN_TABLE: Final = 254
_BY_KERNEL: Final = 2


def argv(fault: Fault) -> tuple[str, ...]:
    """The arguments of this module's command line that do a fault."""
    return (fault.action,)


def link_environ(rate_bits: int | None, delay_us: int | None) -> dict[str, str]:
    """The variables that tell it of the link of the description."""
    reported = {"LAB_LINK_RATE_BITS": rate_bits, "LAB_LINK_DELAY_US": delay_us}
    return {name: str(amount) for name, amount in reported.items() if amount is not None}


def fault_of(argv: Sequence[str]) -> Fault:
    """Read the command line.

    Raises:
        ValueError: It names no fault of a network.
    """
    if len(argv) != 1:
        raise ValueError(_USAGE)
    fault = parse(f"{argv[0]} node")
    if not fault.kind.on_network:
        raise ValueError(_USAGE)
    return fault


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Be the only one that disturbs this node's network: each restores what it has found.

    Raises:
        LinkError: Another one does so now.
    """
    with socket.socket(socket.AF_UNIX) as taken:
        try:
            taken.bind(_ALONE)
        except OSError as error:
            raise LinkError(
                "another fault of this node's network is under way; wait until it is over"
            ) from error
        yield


@contextlib.contextmanager
def network_cut() -> Iterator[str]:
    """Off the network; the interface's name.

    Raises:
        LinkError: There is no interface, or it may not be changed.
    """
    with _netlink() as netlink:
        name, index = netem.interface(netlink)
        routes = list(_routes(netlink, index))
        _set(netlink, index, "down")
        try:
            yield name
        finally:
            _set(netlink, index, "up")
            for route in routes:
                # The kernel itself brings back the routes of the address.
                netlink.route("replace", oif=index, **route)


@contextlib.contextmanager
def network_slowed(
    rate_bits: int | None, delay_us: int | None, before: tuple[int | None, int | None]
) -> Iterator[str]:
    """On the network through a link; the interface's name.

    The size of packets stays as it is, for connections that are open have agreed on it.

    Args:
        rate_bits: Bits per second that may leave, or None: as before.
        delay_us: Microseconds that every packet is held back, or None: as before.
        before: The link of the description: the same two.

    Raises:
        LinkError: There is no interface, it may not be changed, or the kernel lacks what is needed.
    """
    rate_bits = before[0] if rate_bits is None else rate_bits
    delay_us = before[1] if delay_us is None else delay_us
    with _netlink() as netlink:
        name, index = netem.interface(netlink)
        try:
            netem.clear(netlink, index)
            # Room for packets of any size.
            largest = _HEADERS + (_mtu(netlink, index) if rate_bits is not None else 0)
            netem.shape(
                netlink,
                index,
                rate_bits,
                delay_us,
                least_burst=largest,
                least_queue=_PACKETS * largest,
            )
            yield name
        finally:
            netem.clear(netlink, index)
            if before != (None, None):
                netem.apply_link(*before)


@contextlib.contextmanager
def _netlink() -> Iterator[Any]:
    """The kernel's ear, whose refusals are told in words."""
    # Imported here: it costs 0.4 s.
    from pyroute2 import IPRoute, NetlinkError  # noqa: PLC0415

    try:
        with IPRoute() as netlink:
            yield netlink
    except NetlinkError as error:
        raise LinkError(f"the kernel refused: {os.strerror(error.code)}") from error


def _mtu(netlink: Any, index: int) -> int:  # noqa: ANN401
    return int(netlink.get_links(index)[0].get("mtu"))


def _set(netlink: Any, index: int, state: str) -> None:  # noqa: ANN401
    netlink.link("set", index=index, state=state)


def _routes(netlink: Any, index: int) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """The routes through an interface that would not come back with it."""
    for route in netlink.get_routes(family=socket.AF_INET, oif=index, table=_MAIN_TABLE):
        if route["proto"] == _BY_KERNEL:
            continue
        found = {
            "dst": f"{route.get('dst') or '0.0.0.0'}/{route['dst_len']}",  # noqa: S104
            "gateway": route.get("gateway"),
            "priority": route.get("priority"),
            "prefsrc": route.get("prefsrc"),
        }
        yield {name: value for name, value in found.items() if value is not None}


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do one fault and stay until it is over; returns the exit code."""
    # Blocked first: one that comes early waits for `sigtimedwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        requested = fault_of(argv)
        before = link_of(environ)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    fault: AbstractContextManager[str]
    if requested.kind is Kind.CUT:
        fault, what = network_cut(), "off the network"
    else:
        fault, what = network_slowed(requested.rate_bits, requested.delay_us, before), "slowed"
    try:
        with exclusive(), fault as name:
            print(f"{name} is {what} for {requested.seconds:g} s", flush=True)
            signal.sigtimedwait(_ENDS, requested.seconds)
    except LinkError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
