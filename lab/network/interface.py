"""The network interface that has an address, for programs that must be told its name."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from typing import Final

LOOPBACK: Final = "lo"

_SIOCGIFADDR: Final = 0x8915  # <linux/sockios.h>
_NAME_BYTES: Final = 16  # IFNAMSIZ of <linux/if.h>
_ADDRESS: Final = slice(20, 24)  # of the sockaddr_in after the name


def interface_of(host: str) -> str:
    """Return the name of the interface with a host's IPv4 address, `eth0`.

    Args:
        host: A name or an address of this host, as the other tasks reach it.

    Raises:
        OSError: The name cannot be resolved, or no interface has its address.
    """
    address = socket.gethostbyname(host)
    if ipaddress.ip_address(address).is_loopback:
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                request = struct.pack("256s", name.encode()[: _NAME_BYTES - 1])
                packed = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)[_ADDRESS]
                if socket.inet_ntoa(packed) == address:
                    return name
    raise OSError(0, f"no network interface has the address {address} of {host}")
