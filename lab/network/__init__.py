"""A node's network: its link, its faults, and the filter that blocks the host.

The modules change a network through netlink, inside its namespace. This one has what other
packages need.
"""

from __future__ import annotations

from typing import Final

from lab.variables import LAB_LINK

MTU: Final = 65_535
"""Maximum bytes of a packet between nodes without a link; the largest value, as on the loopback.

Parameters of 31 kB then need one packet, not 22. A parameter server and three workers on two CPUs
then made an eighth more steps.
"""

FAULT_MODULE: Final = "lab.network.fault"
"""The program that injects a fault."""


def link_environ(rate_bits: int | None, delay_us: int | None) -> dict[str, str]:
    """Return the environment variable that describes the link of a node in the config."""
    return {LAB_LINK: f"{rate_bits or 0} {delay_us or 0}"}
