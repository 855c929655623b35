"""The network interface that has an address, for programs that must be told its name."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

LOOPBACK: Final = "lo"

_ANY_PORT: Final = 9
_SIOCGIFADDR: Final = 0x8915  # <linux/sockios.h>
_NAME_BYTES: Final = 16  # IFNAMSIZ of <linux/if.h>
_ADDRESS: Final = slice(20, 24)  # of the sockaddr_in after the name


def interface_of(host: str, others: Iterable[str] = ()) -> str:
    """Return the name of the interface by which the other hosts reach this one, `eth0`.

    It is that of the host's IPv4 address. A host may know itself by a loopback address only, such
    as 127.0.1.1 in Debian's /etc/hosts; then it is that of the route to another host.

    Args:
        host: A name or an address of this host, as the other tasks reach it.
        others: Those of the other tasks' hosts.

    Raises:
        OSError: A name cannot be resolved, or no interface has the address.
    """
    address = address_of(host)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for other in map(address_of, dict.fromkeys(others) if _is_loopback(address) else ()):
            if not _is_loopback(other):
                asked.connect((other, _ANY_PORT))  # sends nothing
                address = asked.getsockname()[0]
                break
        if _is_loopback(address):
            return LOOPBACK
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                request = struct.pack("256s", name.encode()[: _NAME_BYTES - 1])
                packed = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[_ADDRESS]
                if socket.inet_ntoa(packed) == address:
                    return name
    raise OSError(0, f"no network interface has the address {address} of {host}")


def check_hostname(others: Iterable[str]) -> None:
    """Check that others reach the address of this host's name, which JAX's Gloo gives them.

    Args:
        others: The hosts of all tasks.

    Raises:
        OSError: It is a loopback address, and a task is on another host.
    """
    name = socket.gethostname()
    if all(_is_loopback(address_of(other)) for other in others):
        return
    if _is_loopback(address := address_of(name)):
        raise OSError(
            0,
            f"the host {name} has the address {address} in its /etc/hosts, which JAX's Gloo gives"
            " to the others; write its network address there",
        )


def address_of(host: str) -> str:
    """Return the IPv4 address of a host.

    Raises:
        OSError: This host cannot resolve its name; the message has the name.
    """
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise OSError(0, f"the host {host} has no address here: {error.strerror}") from error


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
