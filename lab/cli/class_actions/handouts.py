"""`lab class handouts`."""

from __future__ import annotations

from pathlib import Path

from lab.classroom.handouts import write_handouts
from lab.classroom.preparation import running_class
from lab.cli.class_actions import ClassOptions
from lab.log import LOG


def run(options: ClassOptions) -> None:
    """Write a page with a handout for each seat, to print."""
    folder = running_class(options.file)
    page = options.output or Path(f"{folder.name}-handouts.html")
    write_handouts(folder, page, options.url)
    LOG.info(f"print {page}, and then delete it: it has the password of every seat")
