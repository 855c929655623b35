"""`lab down`.

Examples:
    # the environment of ./cluster.yaml
    lab down
    # all environments, without a question
    lab down --all --yes
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

from lab.api.environments import down
from lab.console import confirm
from lab.errors import InputError
from lab.log import LOG
from lab.options import Switch, presents


@presents(down)
def command(
    removed: Callable[..., list[str]],
    *,
    yes: Annotated[bool, Switch("remove without a question", short="-y")] = False,
) -> None:
    """Collect the runs of an environment, then remove it."""
    if not (removed() if yes else removed(confirm=_confirm)):
        LOG.info("no environment is up")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"cannot ask: {question} (stdin is not a terminal)", "add --yes")
    if not confirm(question):
        raise InputError("no environment was removed", "answer y, or add --yes")
