"""`lab down`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from lab.backends import Backend, Environment
from lab.backends.choose import backends, check_folder, everything, named
from lab.cli.arguments import Switch, Word
from lab.cli.options import RunsDir
from lab.cli.output import confirm, say
from lab.errors import InputError
from lab.run.directory import runs_dir
from lab.run.homecoming import bring_all_home, bring_one_home
from lab.run.project import cluster_path, default_name, find_root


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
    known = backends()
    doomed = everything(known) if all_ else [_meant(name, known)]
    if not doomed:
        say("no environment is up")
        return
    if not yes and (all_ or discard):
        names = ", ".join(f"{each.project} ({each.backend})" for each in doomed)
        _ask(f"remove {names}?")
    home = runs_dir(runs_dir_)
    for environment in doomed:
        if not discard:
            _bring_home(environment, home, yes=yes)
        environment.down(say)
        say(f"environment {environment.project!r} ({environment.backend}) is down")


def _meant(name: str | None, known: Sequence[Backend]) -> Environment:
    """The environment that is named, or that this directory's description names and has booted."""
    here = default_name()
    environment = named(name, here, known)
    if name is None and environment.project == here:
        check_folder(environment, find_root(cluster_path(None)))
    return environment


def _bring_home(environment: Environment, home: Path, *, yes: bool) -> None:
    """Collect all runs; one that is under way is ended first, if the user agrees."""
    going = bring_all_home(environment, home, say)
    if not going:
        return
    if not yes:
        _ask(f"run {going[0]} is under way in {environment.project}: end it?")
    for request in environment.runs():
        if request.run_id in going:
            environment.cancel(request.run_id, "lab down")
            bring_one_home(request, environment, home, say, follow=True)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"nobody is there to ask: {question}", "add --yes")
    if not confirm(question):
        raise InputError("nothing was removed", "answer y, or add --yes")
