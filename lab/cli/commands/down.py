"""`lab down`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Final

from lab.cli.arguments import Switch, Word
from lab.cli.options import RunsDir
from lab.console import confirm, say
from lab.errors import InputError
from lab.run.store import runs_dir
from lab.service.environments import environments_to_remove, remove, run_all

REASON: Final = "lab down"


def command(
    *,
    name: Annotated[
        str | None, Word("the environment (default: the one of ./cluster.yaml)")
    ] = None,
    all_: Annotated[bool, Switch("all that `lab ls` shows")] = False,
    yes: Annotated[bool, Switch("do not ask", short="-y")] = False,
    discard: Annotated[bool, Switch("remove what is not at home yet, uncollected")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Collect what is not at home, then remove an environment."""
    if all_ and name is not None:
        raise InputError(f"both --all and {name!r} are given", "give one of them")
    doomed = environments_to_remove(name, every=all_)
    if not doomed:
        say("no environment is up")
        return
    if not yes and (all_ or discard):
        names = ", ".join(f"{each.project} ({each.backend})" for each in doomed)
        _ask(f"remove {names}?")
    home = runs_dir(runs_dir_)
    ask = _agree if yes else _ask
    run_all(
        (partial(remove, each, home, say, ask, reason=REASON, discard=discard) for each in doomed),
        say,
    )


def _agree(_question: str) -> None:
    """Take a yes for granted."""


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"nobody is there to ask: {question}", "add --yes")
    if not confirm(question):
        raise InputError("nothing was removed", "answer y, or add --yes")
