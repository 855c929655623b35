"""`lab class up`."""

from __future__ import annotations

from lab.classroom.preparation import boot
from lab.cli.class_actions import ClassOptions
from lab.formatting import counted
from lab.log import LOG


def run(options: ClassOptions) -> None:
    """Boot a class, and print where to go on."""
    plan = boot(options.file)
    LOG.info(f"class {plan.name}: {counted(len(plan.seats), 'seat')} at {plan.url}")
    LOG.info("print the passwords with `lab class handouts`; see the seats with `lab class status`")
