"""Workers of printed programs ask every 30 seconds whether the chief is ready: too seldom here."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

POLL_S: Final = 0.5
_SECONDS: Final = "recovery_wait_secs"


def shorten_polls() -> None:
    """Let Supervisor and MonitoredTrainingSession ask for a ready model twice a second at least."""
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    begin = SessionManager.__init__
    takes = inspect.signature(begin)

    @functools.wraps(begin)
    def begin_soon(*args: Any, **kwargs: Any) -> None:
        given = takes.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments[_SECONDS] = min(given.arguments[_SECONDS], POLL_S)
        begin(*given.args, **given.kwargs)

    SessionManager.__init__ = begin_soon
