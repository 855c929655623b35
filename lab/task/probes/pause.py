"""A node's anchor: it owns the network that the node's tasks share, and applies the node's link.

`python -m lab.task.probes.pause` runs no user code. `LAB_LINK_RATE_BITS` and `LAB_LINK_DELAY_US`
describe the link. The anchor is healthy (`lab.task.probes.health`) as soon as the link is applied.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from lab.task.probes.health import READY_FILE
from lab.task.probes.netem import LinkError, apply_link

_EXIT_USAGE = 2
_MAX_RATE_BITS = 10**12
_MAX_DELAY_US = 60 * 10**6


def link_of(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The link's rate in bits per second and delay in microseconds; each can be None.

    Raises:
        ValueError: A variable is not a valid number.
    """
    return (
        _number(environ, "LAB_LINK_RATE_BITS", _MAX_RATE_BITS),
        _number(environ, "LAB_LINK_DELAY_US", _MAX_DELAY_US),
    )


def _number(environ: Mapping[str, str], name: str, limit: int) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= limit:
        raise ValueError(f"{name} is not a whole number from 1 to {limit}: {text!r}")
    return int(text)


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
        sys.stderr.write(f"error: {os.environ.get('LAB_NODE', 'this node')}: {error}\n")
        return 1
    READY_FILE.touch()
    signal.sigwait(stop_signals)
    READY_FILE.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
