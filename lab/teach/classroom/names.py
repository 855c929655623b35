"""Names, addresses, labels and rights of the containers, networks and volumes of a class."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any, Final

from lab.backends.engine.client import LOG_LIMIT

CLASS: Final = "lab.class"
"""Label with the name of the class."""

SEAT: Final = "lab.seat"
"""Label with the name of the seat; the proxy has none."""

COPIES: Final = "resets"
"""The directory of the archive with the copies of resets; no seat has this name."""

# The ports in the proxy's container.
PUBLIC_PORT: Final = 8000  # browsers arrive here
PROXY_API_PORT: Final = 8001  # JupyterHub changes the routes
RELAY_PORT: Final = 8081  # seats reach JupyterHub, without TLS
QUEUE_RELAY_PORT: Final = 8083  # seats reach the queue

# The ports on the host's address in the proxy's network.
HUB_PORT: Final = 8081
QUEUE_PORT: Final = 8082

SEAT_PORT: Final = 8888
"""The port of JupyterLab in a seat's container."""

USER: Final = "1000:1000"
"""The user and the group of the seats' image."""

MOUNT: Final = "/home/student"
"""Where a seat's volume is mounted."""

FEW_RIGHTS: Final[Mapping[str, Any]] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "read_only": True,
    "tmpfs": {"/tmp": ""},  # noqa: S108  (in the container)
    "init": True,
    "log_config": LOG_LIMIT,  # a student can write to it
}
"""The engine's options for every container of a class."""


def prefix(name: str) -> str:
    """Return the first part of all names of a class; the proxy's network has this name."""
    return f"lab-class-{name}"


def seat_object(name: str, seat: str) -> str:
    """Return the name of a seat's container, of its network and of its volume."""
    return f"{prefix(name)}-{seat}"


def proxy_object(name: str, part: str) -> str:
    """Return the name of a part of the proxy.

    Args:
        name: The class.
        part: `proxy`: its container; `relay-hub` or `relay-queue`: the container through which
            seats reach JupyterHub or the queue; `tls`: the volume with the certificate and its key.
    """
    return f"{prefix(name)}.{part}"  # no seat has a dot in its name


def gateway(network: IPv4Network) -> str:
    """Return the host's address in a network of the class."""
    return str(network[1])


def hub_url(network: IPv4Network) -> str:
    """Return JupyterHub's address in the proxy's network, without a path."""
    return f"http://{gateway(network)}:{HUB_PORT}"


def proxy_address(network: IPv4Network) -> str:
    """Return the proxy's address in a network of the class."""
    return str(network[2])
