"""What TensorFlow's `SessionManager` does differently for printed programs.

Supervisor and MonitoredTrainingSession restore whatever checkpoint they find, and their workers ask
every 30 seconds whether the chief is ready. A printed program names its directory for good,
`/tmp/train` say: without a check the second run would be over at once.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any, Final

from lab.task.sdk.program import ProgramError

POLL_S: Final = 0.5
_SECONDS: Final = "recovery_wait_secs"


def shorten_polling() -> None:
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


def check_checkpoint_age(checkpoint: str | None, begun_unix: float) -> None:
    """See that a checkpoint is none of an earlier run.

    Args:
        checkpoint: The newest one where the program looks, or None.
        begun_unix: When this run began, in seconds since the epoch.

    Raises:
        ProgramError: It is older than that.
    """
    index = None if checkpoint is None else Path(f"{checkpoint}.index")
    if index is not None and index.exists() and index.stat().st_mtime < begun_unix:
        raise ProgramError(
            f"{index.parent} holds {index.stem}, which an earlier run has left",
            "remove that directory, or go on from it with --faithful",
        )


def refuse_stale_checkpoints(begun_unix: float) -> None:
    """Let Supervisor and MonitoredTrainingSession restore checkpoints of this run alone."""
    from tensorflow.python.training import checkpoint_management  # noqa: PLC0415
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    prepare = SessionManager.prepare_session
    takes = inspect.signature(prepare)

    @functools.wraps(prepare)
    def prepare_own(*args: Any, **kwargs: Any) -> Any:
        folder = takes.bind(*args, **kwargs).arguments.get("checkpoint_dir")
        if folder is not None:
            check_checkpoint_age(checkpoint_management.latest_checkpoint(folder), begun_unix)
        return prepare(*args, **kwargs)

    SessionManager.prepare_session = prepare_own
