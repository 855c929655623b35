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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lab.task.sdk.program import ProgramError

POLL_S: Final = 0.5
STOP_S: Final = 10.0
"""The longest wait for threads that TensorFlow ignores afterwards, in seconds."""


def shorten_polling() -> None:
    """Make Supervisor and MonitoredTrainingSession check for a ready model twice a second."""
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    def limit(arguments: dict[str, Any]) -> None:
        arguments["recovery_wait_secs"] = min(arguments["recovery_wait_secs"], POLL_S)

    _before(SessionManager, "__init__", limit)


def shorten_stop() -> None:
    """Make coordinators wait only a short time for threads that they ignore afterwards."""
    from tensorflow.python.training.coordinator import Coordinator  # noqa: PLC0415

    def limit(arguments: dict[str, Any]) -> None:
        if arguments["ignore_live_threads"]:
            arguments["stop_grace_period_secs"] = min(arguments["stop_grace_period_secs"], STOP_S)

    _before(Coordinator, "join", limit)


def refuse_stale_checkpoints(begun_unix: float) -> None:
    """Make Supervisor and MonitoredTrainingSession restore only checkpoints of this run.

    If the newest checkpoint is older, they raise a `ProgramError`.

    Args:
        begun_unix: When this run began, in seconds since the epoch.
    """
    from tensorflow.python.training import checkpoint_management  # noqa: PLC0415
    from tensorflow.python.training.session_manager import SessionManager  # noqa: PLC0415

    def check(arguments: dict[str, Any]) -> None:
        folder = arguments["checkpoint_dir"]
        newest = folder and checkpoint_management.latest_checkpoint(folder)
        index = Path(f"{newest}.index")
        if newest and index.exists() and index.stat().st_mtime < begun_unix:
            raise ProgramError(
                f"{index.parent} holds {index.stem}, a checkpoint of an earlier run",
                "remove that directory, or use --listing=faithful to resume from it",
            )

    _before(SessionManager, "prepare_session", check)


def _before(owner: Any, method: str, action: Callable[[dict[str, Any]], None]) -> None:
    """Run an action before each call of a method, whose arguments it may change."""
    original = getattr(owner, method)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def act_and_call(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        action(call.arguments)
        return original(*call.args, **call.kwargs)

    setattr(owner, method, act_and_call)


def hide_cancelled_queue_runners() -> None:
    """Print no traceback of a queue runner whose session the program has closed."""
    show = threading.excepthook

    def hide(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else ""
        cancelled = args.exc_type.__name__ == "CancelledError"
        if not (cancelled and name.startswith("QueueRunnerThread-")):
            show(args)

    threading.excepthook = hide
