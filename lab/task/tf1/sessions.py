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


def shorten_polling() -> None:
    """Make Supervisor and MonitoredTrainingSession check for a ready model twice a second."""
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    _limit(SessionManager, "__init__", "recovery_wait_secs", POLL_S)


def shorten_stop() -> None:
    """Make coordinators wait only a short time for threads that they ignore afterwards."""
    from tensorflow.python.training.coordinator import Coordinator  # noqa: PLC0415

    _limit(Coordinator, "join", "stop_grace_period_secs", STOP_S, switch="ignore_live_threads")


def _limit(owner: Any, method: str, argument: str, most_s: float, *, switch: str = "") -> None:
    """Limit an argument of a method; with the name of a switch, only if that argument is true."""
    original = getattr(owner, method)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call_limited(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        if not switch or call.arguments[switch]:
            call.arguments[argument] = min(call.arguments[argument], most_s)
        return original(*call.args, **call.kwargs)

    setattr(owner, method, call_limited)


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
