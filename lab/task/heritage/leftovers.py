"""Checkpoints that an earlier run has left where a printed program looks for its own.

Such programs name a directory for good, `/tmp/train` say, and Supervisor and
MonitoredTrainingSession restore whatever they find there: the second run would be over at once.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

from lab.task.program import ProgramError


def check_own(checkpoint: str | None, begun_unix: float) -> None:
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


def refuse_leftovers(begun_unix: float) -> None:
    """Let Supervisor and MonitoredTrainingSession restore checkpoints of this run alone."""
    from tensorflow.python.training import checkpoint_management  # noqa: PLC0415
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    prepare = SessionManager.prepare_session
    takes = inspect.signature(prepare)

    @functools.wraps(prepare)
    def prepare_own(*args: Any, **kwargs: Any) -> Any:
        folder = takes.bind(*args, **kwargs).arguments.get("checkpoint_dir")
        if folder is not None:
            check_own(checkpoint_management.latest_checkpoint(folder), begun_unix)
        return prepare(*args, **kwargs)

    SessionManager.prepare_session = prepare_own
