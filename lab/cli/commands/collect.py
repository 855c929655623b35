"""`lab collect [RUN]`."""

from __future__ import annotations

from typing import Annotated

from lab.backends import Environment
from lab.backends.choose import backends, environments, left
from lab.cli.arguments import Word
from lab.cli.options import RunsDir
from lab.cli.output import say
from lab.errors import InputError
from lab.run.directory import all_runs, resolve, runs_dir
from lab.run.homecoming import bring_all_home, bring_one_home
from lab.run.project import default_name
from lab.run.view import result, show


def command(
    *,
    run: Annotated[str | None, Word("a run's id, a unique beginning of it, or last")] = None,
    runs_dir_: RunsDir = None,
) -> None:
    """Bring home what is on the run volumes of the environments that are up."""
    home = runs_dir(runs_dir_)
    reachable = _reachable()
    if run is None:
        for environment in reachable:
            bring_all_home(environment, home, say)
        say(f"all that there is of every run is in {home}")
        return
    there = [(request, each) for each in reachable for request in each.runs()]
    there.sort(key=lambda pair: pair[0].submitted_unix)
    ids = [request.run_id for request, _ in there]
    at_home = [each.run_id for each in all_runs(home) if each.run_id not in ids]
    wanted = resolve(run, [*at_home, *ids], where="any environment")
    for request, environment in there:
        if request.run_id == wanted:
            show(result(bring_one_home(request, environment, home, say)))
            return
    raise InputError(
        f"run {wanted} is at home, and its environment has gone",
        f"see what there is with `lab show {wanted}`",
    )


def _reachable() -> list[Environment]:
    """All environments that are up, and what is left of the one of this directory."""
    known = backends()
    up = environments(known)
    here = default_name()
    gone = left(here, known) if here and all(each.project != here for each in up) else None
    return [*up, gone] if gone else up
