"""`lab collect [RUN]`.

Examples:
    # every run that is not fully collected
    lab collect
    # one run; no line is copied twice
    lab collect last
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from lab.backends import Environment
from lab.backends.choose import backends
from lab.backends.locking import when_free
from lab.cli.arguments import Switch, Word
from lab.cli.inturn import in_turn
from lab.cli.options import RunsDir
from lab.cli.outcome import check_collected
from lab.cli.output import say
from lab.errors import InputError
from lab.run.cells import show
from lab.run.directory import all_runs, runs_dir
from lab.run.homecoming import bring_all_home, bring_one_home, left_on, say_kept
from lab.run.lifecycle import has_gone
from lab.run.project import default_name
from lab.run.result import result
from lab.run.standing import Volumes, is_followed, settle
from lab.run.whereabouts import locate, reachable


def command(
    *,
    run: Annotated[str | None, Word("a run's id, a unique beginning of it, or last")] = None,
    all_sizes: Annotated[bool, Switch("collect files of any size, not only up to 1 GiB")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Bring home what is on the run volumes of the environments that are up."""
    home = runs_dir(runs_dir_)
    here = default_name()
    known = backends()
    ask = Volumes(lambda: known)
    if run is None:
        with in_turn() as one:
            for environment in reachable(known, here):
                with one():
                    bring_all_home(environment, home, say, all_sizes=all_sizes)
                    _remove(environment, home, all_sizes=all_sizes)
            for each in all_runs(home):
                if not is_followed(each):
                    with one():
                        settle(each, ask)
        say(f"all that there is of every run is in {home}")
        return
    found = locate(run, home, known, here)
    if found.request is None or found.environment is None:
        settle(found.run, ask)
        raise InputError(
            f"run {found.run.run_id} is at home, and its environment has gone",
            f"see what there is with `lab show {found.run.run_id}`",
        )
    summary = bring_one_home(found.request, found.environment, home, say, all_sizes=all_sizes)
    show(result(summary))
    _remove(found.environment, home, all_sizes=all_sizes)
    check_collected(summary)


def _remove(environment: Environment, home: Path, *, all_sizes: bool) -> None:
    """Remove a dead environment's run volume once all its files are collected."""
    if not has_gone(environment):
        return
    left = left_on(environment, home)
    if left:
        say_kept(environment, left, say)
    elif all_sizes:
        when_free(partial(environment.down, say))
