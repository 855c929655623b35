"""Where a run is that a user names: on the run volume of an environment, or at home only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.backends import Backend, Environment
from lab.backends.selection import find_leftover, list_running
from lab.errors import InputError
from lab.run.collect import status_in
from lab.run.store import RunDir, before_last, infos, resolve
from lab.task.protocol import Request, TaskStatus


@dataclass(frozen=True, slots=True)
class LocatedRun:
    """A run that a user named.

    Attributes:
        run: Its directory at home, which may not be there yet.
        request: What its agents were told, or None where no volume has it any more.
        environment: Whose volume has it, or None.
    """

    run: RunDir
    request: Request | None
    environment: Environment | None


def reachable(known: Sequence[Backend], here: str | None) -> list[Environment]:
    """All environments that are up, and what is left of the one of this directory.

    Args:
        known: All backends.
        here: The name in this directory's description, or None.
    """
    up = list_running(known)
    gone = find_leftover(here, known) if here and all(each.project != here for each in up) else None
    return [*up, gone] if gone else up


def find(argument: str, store: Path, among: Sequence[Environment], here: str | None) -> LocatedRun:
    """The run that is meant: its id, a unique beginning of it, or `last`.

    An engine is shared, and the environments of others are up on it too. So `last` is the newest
    run of this directory's project, or begun from this home; only a run that is named may be
    anyone's.

    Args:
        argument: What the user typed.
        store: The directory of all runs.
        among: The environments that can be reached.
        here: The name in this directory's description, or None.

    Raises:
        InputError: No run, or several, fit; or it is not clear whose last one is meant.
        LabError: A run volume that had to be asked cannot be read.
    """
    stored = infos(store)
    collected = {run.run_id: info for run, info in stored.items() if info is not None}
    damaged = {run.run_id: run for run, info in stored.items() if info is None}
    where = "any environment"
    if before_last(argument) is not None:
        requested = _of_here(among, here)
        where = f"{store} or an environment {here!r}" if here else where
        foreign = {each.project for each in among} - {each.project for each in requested}
        collected = {
            run_id: info
            for run_id, info in collected.items()
            if info.has_started and (info.cluster_file or info.project not in foreign)
        }
    else:
        requested = [] if argument in collected else among
    there = _runs(requested)
    begun = {run_id: request.submitted_unix for run_id, (request, _) in there.items()}
    begun |= {run_id: info.started_unix for run_id, info in collected.items()}
    if before_last(argument) is None:
        begun |= dict.fromkeys(damaged, 0.0)
    wanted = resolve(argument, sorted(begun, key=lambda each: (begun[each], each)), where=where)
    if wanted in damaged:
        damaged[wanted].read()  # which says what is wrong
    if wanted not in there:
        its = collected[wanted].project
        there = _runs([each for each in among if each.project == its])
    request, environment = there.get(wanted, (None, None))
    return LocatedRun(RunDir(store / wanted), request, environment)


def locate(argument: str, store: Path, known: Sequence[Backend], here: str | None) -> LocatedRun:
    """The same, where an environment that has stopped may have the run, too.

    Raises:
        InputError: No run, or several, fit; or it is not clear whose last one is meant.
        LabError: A run volume that had to be asked cannot be read.
    """
    found = find(argument, store, reachable(known, here), here)
    if found.environment is None and found.run.info_path.is_file():
        gone = find_leftover(found.run.read().project, known)
        there = _runs([gone] if gone else [])
        if found.run.run_id in there:
            return LocatedRun(found.run, *there[found.run.run_id])
    return found


def _of_here(among: Sequence[Environment], here: str | None) -> Sequence[Environment]:
    if here is not None:
        return [each for each in among if each.project == here]
    if len(among) > 1:
        names = ", ".join(sorted({each.project for each in among}))
        raise InputError(f"several environments are up ({names})", "name the run")
    return among


def _runs(among: Sequence[Environment]) -> dict[str, tuple[Request, Environment]]:
    return {request.run_id: (request, each) for each in among for request in each.runs()}


def statuses_of(environment: Environment, run_id: str) -> dict[str, TaskStatus]:
    """The status of every task of a run, by its name.

    Raises:
        LabError: There is no such run, or its volume cannot be read.
    """
    found: dict[str, TaskStatus] = {}
    for chunk in environment.stream(run_id, {}, follow=False):
        if chunk is not None and not chunk.fault and (status := status_in(chunk.path, chunk.data)):
            found[status.task] = status
    return found


def under_way(environment: Environment, *, besides: str = "") -> str | None:
    """The run of an environment whose tasks have not all ended, if there is one.

    Args:
        environment: The environment.
        besides: A run that does not count.

    Raises:
        LabError: Its volume cannot be read.
    """
    others = [request for request in environment.runs() if request.run_id != besides]
    for request in others[-1:]:  # the one before it had ended when it was submitted
        statuses = statuses_of(environment, request.run_id)
        if not all(each.state.ended for each in statuses.values()):
            return request.run_id
    return None
