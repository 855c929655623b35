"""What tasks compete for: cores and links. First come, first served.

Both are served by arithmetic: whoever comes is told when it will be done. For a queue in order of
arrival that is exact, and it takes one event where requesting, holding and releasing takes three;
but whoever asks has to have come: nothing is asked for ahead of its time.
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
        self._free_at = [0.0] * count

    def serve(self, now: float, seconds: float) -> float:
        """When work that comes now will be done.

        Args:
            now: Not before the last call's.
            seconds: Of one core.
        """
        self.busy_s += seconds
        return self.take(now, seconds)

    def take(self, now: float, seconds: float) -> float:
        """The same for work that is none of the training's; it is not counted."""
        done = max(now, heapq.heappop(self._free_at)) + seconds
        heapq.heappush(self._free_at, done)
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

    def send(self, now: float, size: float) -> tuple[float, float]:
        """When the first and the last byte of a message come to the other end.

        Args:
            now: Not before the last message's.
            size: Bytes.
        """
        sending_s = size / self.bandwidth
        begin = max(now, self._out_free_at)
        self._out_free_at = begin + sending_s
        self.out_busy_s += sending_s
        return begin + self.latency_s, self._out_free_at + self.latency_s

    def receive(self, now: float, size: float, last_byte: float) -> float:
        """When a message will have been received whose first byte comes now.

        It flows through: its first bytes arrive while its last are being sent, so that alone it
        takes the latency and once its size by the bandwidth.

        Args:
            now: Not before the last message's.
            size: Bytes.
            last_byte: When the sender's last byte comes.
        """
        receiving_s = size / self.bandwidth
        self._in_free_at = max(max(now, self._in_free_at) + receiving_s, last_byte)
        self.in_busy_s += receiving_s
        return self._in_free_at
