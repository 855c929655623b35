"""The pseudo-nodes' addresses on their own network."""

from __future__ import annotations

import ipaddress
from typing import Final

NETWORK: Final = ipaddress.ip_network("10.77.0.0/16")

_FIRST_HOST: Final = 2


def address(position: int) -> str:
    """The address of the node at this position of the plan, from 0."""
    return str(NETWORK[_FIRST_HOST + position])
