"""Change TensorFlow's `SessionManager` for printed programs.

Supervisor and MonitoredTrainingSession restore any checkpoint that they find. Their workers check
every 30 seconds whether the chief is ready. A printed program always uses the same directory, such
as `/tmp/train`: without a check, its second run would end at once.
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
    """Make Supervisor and MonitoredTrainingSession check for a ready model twice a second."""
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    original_init = SessionManager.__init__
    signature = inspect.signature(original_init)

    @functools.wraps(original_init)
    def init_with_short_wait(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments[_SECONDS] = min(given.arguments[_SECONDS], POLL_S)
        original_init(*given.args, **given.kwargs)

    SessionManager.__init__ = init_with_short_wait


def check_checkpoint_age(checkpoint: str | None, begun_unix: float) -> None:
    """Check that a checkpoint is not older than this run.

    Args:
        checkpoint: The newest checkpoint in the program's directory, or None.
        begun_unix: When this run began, in seconds since the epoch.

    Raises:
        ProgramError: The checkpoint is older.
    """
    index = None if checkpoint is None else Path(f"{checkpoint}.index")
    if index is not None and index.exists() and index.stat().st_mtime < begun_unix:
        raise ProgramError(
            f"{index.parent} holds {index.stem}, a checkpoint of an earlier run",
            "remove that directory, or use --faithful to resume from it",
        )


def refuse_stale_checkpoints(begun_unix: float) -> None:
    """Make Supervisor and MonitoredTrainingSession restore only checkpoints of this run."""
    from tensorflow.python.training import checkpoint_management  # noqa: PLC0415
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    original_prepare = SessionManager.prepare_session
    signature = inspect.signature(original_prepare)

    @functools.wraps(original_prepare)
    def prepare_with_check(*args: Any, **kwargs: Any) -> Any:
        folder = signature.bind(*args, **kwargs).arguments.get("checkpoint_dir")
        if folder is not None:
            check_checkpoint_age(checkpoint_management.latest_checkpoint(folder), begun_unix)
        return original_prepare(*args, **kwargs)

    SessionManager.prepare_session = prepare_with_check
