"""Where a run is that a user names: on the run volume of an environment, or at home only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.backends import Backend, Environment
from lab.backends.choose import environments, left
from lab.run.directory import RunDir, all_runs, resolve
from lab.task.protocol import Request, TaskStatus


@dataclass(frozen=True, slots=True)
class Found:
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
    up = environments(known)
    gone = left(here, known) if here and all(each.project != here for each in up) else None
    return [*up, gone] if gone else up


def find(word: str, home: Path, among: Sequence[Environment]) -> Found:
    """The run that is meant: its id, a unique beginning of it, or `last`.

    Raises:
        InputError: No run, or several, fit.
    """
    there = [(request, each) for each in among for request in each.runs()]
    there.sort(key=lambda pair: pair[0].submitted_unix)
    ids = [request.run_id for request, _ in there]
    at_home = [each.run_id for each in all_runs(home) if each.run_id not in ids]
    wanted = resolve(word, [*at_home, *ids], where="any environment")
    for request, environment in there:
        if request.run_id == wanted:
            return Found(RunDir(home / wanted), request, environment)
    return Found(RunDir(home / wanted), None, None)


def statuses_of(environment: Environment, run_id: str) -> dict[str, TaskStatus]:
    """Where every task of a run stands, by its name.

    Raises:
        LabError: There is no such run, or its volume cannot be read.
    """
    found: dict[str, TaskStatus] = {}
    for chunk in environment.ship(run_id, {}, follow=False):
        if chunk is not None and PurePosixPath(chunk.path).parent.name == "status":
            status = TaskStatus.from_json(chunk.data.decode("utf-8", errors="replace"))
            found[status.task] = status
    return found
