"""Ports of the loopback, where tasks without namespaces of their own have to share it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from lab.errors import LabError

_ANY = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 (TensorFlow's choice)


def check_free(ports: Sequence[int]) -> None:
    """See that TensorFlow's servers, which listen on every interface, can have these ports.

    Raises:
        LabError: One is in use or forbidden; it is named.
    """
    for port in ports:
        if not 0 < port <= 65535:  # noqa: PLR2004
            raise LabError(
                f"there is no port {port}", "give `port:` in the description a lower one"
            )
        for family, host in _ANY:
            fault = _fault(family, host, port)
            if fault is not None:
                raise LabError(
                    f"port {port} cannot be used: {fault}",
                    f"end what uses it (`ss -ltnp 'sport = :{port}'`), "
                    "or choose another `port:` in the description",
                )


def _fault(family: socket.AddressFamily, host: str, port: int) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # A port that was used a moment ago is free; one where somebody listens is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
    except OSError as error:
        # Any other error says that this machine has no such protocol, so nobody listens there.
        return error.strerror if error.errno in {errno.EADDRINUSE, errno.EACCES} else None
    return None
