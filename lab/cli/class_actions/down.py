"""`lab class down`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from lab.classroom.environment import down
from lab.classroom.preparation import running_class
from lab.cli.class_actions import ClassOptions


def run(options: ClassOptions) -> None:
    """Collect the work of every seat, then remove the class."""
    folder = running_class(options.file)
    options.confirm(f"remove the class {folder.name!r}? Its work is collected first.")
    default = Path(f"{folder.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip")
    down(folder, options.output or default)
