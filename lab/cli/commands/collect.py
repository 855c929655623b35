"""`lab collect [RUN]`."""

from __future__ import annotations

from typing import Annotated

from lab.choose import backends, environments
from lab.cli.arguments import Word
from lab.cli.options import RunsDir
from lab.cli.output import say
from lab.errors import InputError
from lab.homecoming import bring_all_home, bring_one_home
from lab.runs import all_runs, resolve, runs_dir
from lab.view import result, show


def command(
    *,
    run: Annotated[str | None, Word("a run's id, a unique beginning of it, or last")] = None,
    runs_dir_: RunsDir = None,
) -> None:
    """Bring home what is on the run volumes of the environments that are up."""
    home = runs_dir(runs_dir_)
    up = environments(backends())
    if run is None:
        if not up:
            say("no environment is up; nothing is left to collect")
        for environment in up:
            bring_all_home(environment, home, say)
        return
    there = [(request, each) for each in up for request in each.runs()]
    there.sort(key=lambda pair: pair[0].submitted_unix)
    ids = [request.run_id for request, _ in there]
    at_home = [each.run_id for each in all_runs(home)]
    wanted = resolve(run, ids or at_home, where="any environment that is up")
    for request, environment in there:
        if request.run_id == wanted:
            show(result(bring_one_home(request, environment, home, say)))
            return
    raise InputError(
        f"run {wanted} is at home, and its environment is not up",
        f"see what there is with `lab show {wanted}`",
    )
