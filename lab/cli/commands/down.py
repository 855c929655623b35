"""`lab down`.

Examples:
    # the environment of ./cluster.yaml
    lab down
    # all environments, without a question
    lab down --all --yes
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Final

from lab.console import confirm
from lab.errors import InputError
from lab.log import LOG
from lab.options import Argument, Switch
from lab.options.shared import RunsDir
from lab.service.environments import environments_to_remove, remove, run_all
from lab.store.directory import runs_dir

REASON: Final = "lab down"


def command(
    *,
    name: Annotated[
        str | None, Argument("the environment (default: the one of ./cluster.yaml)")
    ] = None,
    all_: Annotated[bool, Switch("remove all environments that `lab ls` lists")] = False,
    yes: Annotated[bool, Switch("remove without a question", short="-y")] = False,
    discard: Annotated[bool, Switch("remove the environment without collecting its runs")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Collect the runs of an environment, then remove it."""
    if all_ and name is not None:
        raise InputError(f"both --all and {name!r} are given", "give one of them")
    doomed = environments_to_remove(name, every=all_)
    if not doomed:
        LOG.info("no environment is up")
        return
    if not yes and (all_ or discard):
        names = ", ".join(f"{each.project} ({each.backend})" for each in doomed)
        _confirm(f"remove {names}?")
    store = runs_dir(runs_dir_)
    ask = _assume_yes if yes else _confirm
    run_all(
        (partial(remove, each, store, ask, reason=REASON, discard=discard) for each in doomed),
    )


def _assume_yes(_question: str) -> None:
    """Answer yes to every question."""


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"cannot ask: {question} (stdin is not a terminal)", "add --yes")
    if not confirm(question):
        raise InputError("no environment was removed", "answer y, or add --yes")
