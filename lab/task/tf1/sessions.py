"""Change TensorFlow's `SessionManager` and `Coordinator` for printed programs.

Supervisor and MonitoredTrainingSession restore any checkpoint that they find. Their workers check
every 30 seconds whether the chief is ready. A printed program always uses the same directory, such
as `/tmp/train`: without a check, its second run would end at once.

The chief of a synchronous program waits for two minutes at its end, for a queue runner that waits
for gradients. Then MonitoredTrainingSession ignores the queue runner's thread, and ends.
"""

from __future__ import annotations

import functools
import inspect
import threading
from pathlib import Path
from typing import Any, Final

from lab.task.sdk.program import ProgramError

POLL_S: Final = 0.5
STOP_S: Final = 10.0
"""The longest wait for threads that TensorFlow ignores afterwards, in seconds."""

_SECONDS: Final = "recovery_wait_secs"
_GRACE: Final = "stop_grace_period_secs"


def shorten_polling() -> None:
    """Make Supervisor and MonitoredTrainingSession check for a ready model twice a second."""
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    original_init = SessionManager.__init__
    signature = inspect.signature(original_init)

    @functools.wraps(original_init)
    def init_with_short_wait(*args: Any, **kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        call.arguments[_SECONDS] = min(call.arguments[_SECONDS], POLL_S)
        original_init(*call.args, **call.kwargs)

    SessionManager.__init__ = init_with_short_wait


def shorten_stop() -> None:
    """Make coordinators wait only a short time for threads that they ignore afterwards."""
    from tensorflow.python.training.coordinator import Coordinator  # noqa: PLC0415

    original_join = Coordinator.join
    signature = inspect.signature(original_join)

    @functools.wraps(original_join)
    def join_soon(*args: Any, **kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        if call.arguments["ignore_live_threads"]:
            call.arguments[_GRACE] = min(call.arguments[_GRACE], STOP_S)
        original_join(*call.args, **call.kwargs)

    Coordinator.join = join_soon


def hide_cancelled_queue_runners() -> None:
    """Print no traceback of a queue runner whose session the program has closed."""
    show = threading.excepthook

    def hide(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else ""
        cancelled = args.exc_type.__name__ == "CancelledError"
        if not (cancelled and name.startswith("QueueRunnerThread-")):
            show(args)

    threading.excepthook = hide


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
            "remove that directory, or use --listing=faithful to resume from it",
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
