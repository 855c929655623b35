"""The signals that each test begins with."""

from __future__ import annotations

import signal


def restore_signals() -> None:
    """Undo the caller's settings: `nohup` ignores SIGHUP, a background job ignores SIGINT.

    A child inherits ignored signals and the blocked ones, so the programs under test would
    ignore them too. Python itself ignores SIGPIPE and SIGXFSZ, and `subprocess` restores these.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    own = {signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - own:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
