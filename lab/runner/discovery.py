"""Find the run that a user names: on the run volume of an environment, or in the run store."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.selection import find_leftover, folders_on, is_same_folder, list_running, name_of
from lab.base.errors import InputError
from lab.cluster.project import default_name, default_root
from lab.protocol.volume import Request
from lab.runner.store.directory import RunDir, infos
from lab.runner.store.names import before_last, resolve
from lab.runner.store.run_info import RunInfo


@dataclass(frozen=True, slots=True)
class LocatedRun:
    """A run that a user named.

    Attributes:
        run: Its directory in the run store, which may not exist yet.
        request: The request that its agents received; None if no run volume has the run.
        environment: The environment whose run volume has the run, or None.
    """

    run: RunDir
    request: Request | None
    environment: Environment | None


def name_here() -> str | None:
    """Return the name of this directory's environment; None if its config is invalid."""
    name = default_name()
    return None if name is None else name_of(name, default_root(), folders_on(backends()))


def reachable(known: Sequence[Backend], here: str | None) -> list[Environment]:
    """Return all environments that are up, and the rest of this directory's if it is not up.

    Args:
        known: All backends.
        here: The name of this directory's environment, or None.
    """
    up = list_running(known)
    if here is None or any(environment.project == here for environment in up):
        return up
    stopped = find_leftover(here, known)
    return [*up, stopped] if stopped else up


def find(argument: str, store: Path, among: Sequence[Environment], here: str | None) -> LocatedRun:
    """Find a run by its id, a unique beginning of the id, or `last`.

    Users share an engine, and with it their environments. So `last` is the newest run of this
    directory's project, or one that was started with this run store. A run of another user must be
    named by its id.

    Args:
        argument: What the user typed.
        store: The run store.
        among: The environments that can be reached.
        here: The name of this directory's environment, or None.

    Raises:
        InputError: No run matches, several do, or `last` is ambiguous.
        LabError: A run volume cannot be read.
    """
    stored = {run.run_id: info for run, info in infos(store).items()}
    requested, named, where = among, stored, "any environment"
    if before_last(argument) is not None:
        requested = _of_here(among, here)
        where = f"{store} or an environment {here!r}" if here else where
        foreign = {each.project for each in among} - {each.project for each in requested}
        named = {run_id: info for run_id, info in stored.items() if _counts(info, foreign)}
    elif stored.get(argument):
        requested = []  # its own environment is enough, see below
    on_volumes = _runs(requested)
    begun = {run_id: request.submitted_unix for run_id, (request, _) in on_volumes.items()}
    begun |= {run_id: info.started_unix if info else 0.0 for run_id, info in named.items()}
    wanted = resolve(
        argument, sorted(begun, key=lambda run_id: (begun[run_id], run_id)), where=where
    )
    run = RunDir(store / wanted)
    if wanted in stored:
        info = stored[wanted] or run.read()  # of a damaged run, this raises what is damaged
        if info.imported:
            return LocatedRun(run, None, None)
        if wanted not in on_volumes:
            on_volumes = _runs([each for each in among if each.project == info.project])
    return _located(run, on_volumes)


def _counts(info: RunInfo | None, foreign: Container[str]) -> bool:
    """Whether `last` counts a run: one that started, here and not by another user."""
    if info is None or info.imported or not info.has_started:
        return False
    return bool(info.cluster_file) or info.project not in foreign


def locate(argument: str, store: Path, known: Sequence[Backend], here: str | None) -> LocatedRun:
    """Find a run as `find` does, also on the run volume of an environment that has stopped.

    Raises:
        InputError: No run matches, several do, or `last` is ambiguous.
        LabError: A run volume cannot be read.
    """
    location = find(argument, store, reachable(known, here), here)
    if location.environment is None and location.run.info_path.is_file():
        info = location.run.read()
        if not info.imported and (stopped := find_leftover(info.project, known)):
            return _located(location.run, _runs([stopped]))
    return location


def _of_here(among: Sequence[Environment], here: str | None) -> Sequence[Environment]:
    if here is not None:
        root = default_root()
        return [up for up in among if up.project == here and is_same_folder(up.folder, root)]
    if len(among) > 1:
        names = ", ".join(sorted({environment.project for environment in among}))
        raise InputError(f"several environments are up ({names})", "name the run")
    return among


def _runs(among: Sequence[Environment]) -> dict[str, tuple[Request, Environment]]:
    return {
        request.run_id: (request, environment)
        for environment in among
        for request in environment.runs()
    }


def _located(run: RunDir, on_volumes: Mapping[str, tuple[Request, Environment]]) -> LocatedRun:
    request, environment = on_volumes.get(run.run_id, (None, None))
    return LocatedRun(run, request, environment)
