"""`lab down`.

Examples:
    # the one of ./cluster.yaml
    lab down
    # all that `lab ls` shows, without asking
    lab down --all --yes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from lab.backends import Backend, Environment, nothing
from lab.backends.choose import backends, check_folder, everything, named
from lab.backends.locking import when_free
from lab.cli.arguments import Switch, Word
from lab.cli.inturn import in_turn
from lab.cli.options import RunsDir
from lab.cli.output import confirm, say
from lab.errors import InputError, LabError
from lab.run.directory import RunDir, runs_dir, safe_run_id
from lab.run.homecoming import bring_all_home, bring_one_home, left_on, say_kept
from lab.run.project import cluster_path, default_name, find_root
from lab.run.standing import is_followed
from lab.run.whereabouts import under_way

REASON: Final = "lab down"

FOLLOWER_S: Final = 30.0
"""So long the follower of a run that is ended may take to bring it home, in seconds."""

_POLL_S: Final = 0.1


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
    with in_turn() as one:
        for environment in doomed:
            with one():
                if not discard:
                    _bring_home(environment, home, yes=yes)
                keeps = nothing if discard else partial(_keeps, environment, home)
                when_free(partial(environment.down, say, keeps=keeps))
                say(f"environment {environment.project!r} ({environment.backend}) is down")


def _keeps(environment: Environment, home: Path) -> bool:
    """Whether its run volume stays, because it holds files that are not collected."""
    left = left_on(environment, home)
    if left:
        say_kept(environment, left, say)
    return bool(left)


def _meant(name: str | None, known: Sequence[Backend]) -> Environment:
    """The environment that is named, or that this directory's description names and has booted."""
    here = default_name()
    environment = named(name, here, known)
    if name is None and environment.project == here:
        check_folder(environment, find_root(cluster_path(None)))
    return environment


def _bring_home(environment: Environment, home: Path, *, yes: bool) -> None:
    """Collect all runs; one that is under way is ended first, if the user agrees."""
    _end_followed(environment, home, yes=yes)
    going = bring_all_home(environment, home, say, anywhere=True)
    if not going:
        return
    if not yes:
        _ask_to_end(going[0], environment)
    for request in environment.runs():
        if request.run_id in going:
            environment.cancel(request.run_id, REASON)
            bring_one_home(request, environment, home, say, follow=True)


def _end_followed(environment: Environment, home: Path, *, yes: bool) -> None:
    """End a run that another process brings home, and wait until it has.

    Raises:
        LabError: That process does not end; it may be stopped.
    """
    going = under_way(environment)
    if going is None:
        return
    run = RunDir(home / safe_run_id(going))
    if not run.path.is_dir() or not is_followed(run):
        return
    if not yes:
        _ask_to_end(going, environment)
    environment.cancel(going, REASON)
    say(f"run {going} ends; its follower brings it home")
    give_up = time.monotonic() + FOLLOWER_S
    while is_followed(run):
        if time.monotonic() > give_up:
            raise LabError(
                f"run {going} is followed by another process, which does not end",
                f"end that one, or see that the run has ended with `lab cancel {going}` and remove"
                f" it uncollected with `lab down {environment.project} --discard`",
            )
        time.sleep(_POLL_S)


def _ask_to_end(run_id: str, environment: Environment) -> None:
    _ask(f"run {run_id} is under way in {environment.project}: end it?")


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise InputError(f"nobody is there to ask: {question}", "add --yes")
    if not confirm(question):
        raise InputError("nothing was removed", "answer y, or add --yes")
