"""A node's network: its link, its faults, and the filter that blocks the host."""

from __future__ import annotations

from typing import Final

MTU: Final = 65_535
"""Maximum bytes of a packet between nodes without a link; the largest value, as on the loopback.

Parameters of 31 kB then need one packet, not 22. A parameter server and three workers on two CPUs
made an eighth more steps.
"""
