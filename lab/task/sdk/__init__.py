"""What training programs import: records, data, flags, the start, interrupts, models.

    from lab.task.sdk import begin, load_mnist, save_trained

A name is imported when it is used: a program without data needs no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_MODULES: Final = {
    "lab.protocol.mnist": ("CLASSES", "PIXELS", "load_mnist", "load_test", "train_files"),
    "lab.protocol.records.error_line": ("first_message_line",),
    "lab.protocol.volume.layout": ("LOST_CONTACT",),
    "lab.task.sdk.flags": ("experiment_flags", "parse", "task_flags"),
    "lab.task.sdk.interrupt": ("leave_on_interrupt",),
    "lab.task.sdk.program": (
        *("ProgramError", "begin", "begin_task", "checkpoint_directory", "ended_tasks"),
        *("make_directory", "report_failure", "run_directory", "save_trained"),
    ),
    "lab.task.sdk.recorder": ("Recorder",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (each name has a type of its own)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
