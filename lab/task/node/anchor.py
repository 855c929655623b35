"""A node's anchor: it owns the network that the node's tasks share, and applies the node's link.

`python -m lab.task.node.anchor` runs no user code. `LAB_LINK` describes the link. The
anchor is healthy (`lab.task.node.health`) as soon as the link is applied.
"""

from __future__ import annotations

import os
import signal
import sys

from lab.base.variables import LAB_NODE
from lab.protocol.network.link import LinkError, apply_link, link_of
from lab.task.node.health import READY_FILE

_EXIT_USAGE = 2


def main() -> int:
    """Apply the link and wait for a stop signal; return the exit code."""
    # Blocked first, so that an early signal is not lost: `sigwait` receives it.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    READY_FILE.unlink(missing_ok=True)
    try:
        rate_bits, delay_us = link_of(os.environ)
        if rate_bits is not None or delay_us is not None:
            apply_link(rate_bits, delay_us)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    except LinkError as error:
        sys.stderr.write(f"error: {os.environ.get(LAB_NODE, 'this node')}: {error}\n")
        return 1
    READY_FILE.touch()
    signal.sigwait(stop_signals)
    READY_FILE.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
