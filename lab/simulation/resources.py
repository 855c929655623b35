"""What tasks compete for: cores and links. First come, first served.

Both are served by arithmetic: whoever comes is told when it will be done. For a queue in order of
arrival that is exact, and it takes one event where requesting, holding and releasing takes three.
"""

from __future__ import annotations

import heapq


class Cores:
    """The cores of one node.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.busy_s = 0.0
        self.asked = 0
        self._free_at = [0.0] * count

    def serve(self, now: float, seconds: float) -> float:
        """When work that comes now will be done.

        Args:
            now: Not before the last call's.
            seconds: Of one core.
        """
        done = max(now, heapq.heappop(self._free_at)) + seconds
        heapq.heappush(self._free_at, done)
        self.busy_s += seconds
        self.asked += 1
        return done


class Link:
    """A node's link to all others: a queue outward and a queue inward.

    Args:
        bandwidth: Bytes per second of either.
        latency_s: Seconds from the one end to the other.
    """

    def __init__(self, bandwidth: float, latency_s: float) -> None:
        self.bandwidth = bandwidth
        self.latency_s = latency_s
        self.out_busy_s = self.in_busy_s = 0.0
        self._out_free_at = self._in_free_at = 0.0

    def carry(self, now: float, size: float, to: Link) -> float:
        """When the last byte of a message will be there.

        The message flows through: its first bytes arrive while its last are being sent, so that
        alone it takes the latency and once its size by the bandwidth.

        Args:
            now: Not before the last call's.
            size: Bytes.
            to: The receiver's.
        """
        sending_s, receiving_s = size / self.bandwidth, size / to.bandwidth
        begin = max(now, self._out_free_at)
        self._out_free_at = begin + sending_s
        first_byte = max(begin + self.latency_s, to._in_free_at)
        to._in_free_at = max(first_byte + receiving_s, self._out_free_at + self.latency_s)
        self.out_busy_s += sending_s
        to.in_busy_s += receiving_s
        return to._in_free_at
