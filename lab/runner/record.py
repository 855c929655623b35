"""Create the directory of a run: `run.json` and its programs, before anything starts."""

from __future__ import annotations

import platform
import subprocess
import time
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from lab import __version__
from lab.protocol.experiments.experiment import with_seed
from lab.protocol.volume.continuation import copy_checkpoints
from lab.protocol.volume.layout import new_run_id
from lab.protocol.volume.run_spec import registered
from lab.runner.prepared import PreparedRun
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo, parameters_of

_PACKAGES: Final = ("tensorflow", "tensorflow-cpu", "numpy", "docker", "pyroute2")
_GIT_TIMEOUT_S: Final = 10


def create_run(prepared: PreparedRun) -> RunDir:
    """Create `runs/<id>/run.json`, before anything starts.

    Raises:
        LabError: `run.json` of the run that it resumes from cannot be read.
        OSError: The run's directory cannot be written; it is removed.
    """
    spec, plan, project = prepared.spec, prepared.plan, prepared.project
    if experiment := registered(spec):
        spec = replace(spec, args=with_seed(experiment, spec.args))
    info = RunInfo(
        run_id=new_run_id(spec.experiment),
        spec=spec,
        project=plan.name,
        cluster=plan.cluster_spec(),
        cluster_file=str(project.path or ""),
        cluster_sha256=plan.cluster_sha256,
        plan=asdict(plan),
        git=git_state(project.root),
        versions=versions(),
        epoch_workers=prepared.resumes.read().all_epoch_workers if prepared.resumes else 0,
        notices=prepared.notices,
        started_unix=time.time(),
        **parameters_of(spec, prepared.experiment),
    )
    run = RunDir(prepared.runs_dir / info.run_id)
    run.create(info)
    try:
        if prepared.program is not None:
            prepared.program.copy_to(run.program, run.files, run.original)
        if prepared.resumes is not None:
            copy_checkpoints(prepared.resumes.checkpoints, run.checkpoints)
    except BaseException:
        run.discard()
        raise
    return run


def versions() -> dict[str, str]:
    """Return the versions of lab, Python and the libraries of the client."""
    installed = {"lab": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def git_state(root: Path) -> dict[str, Any] | None:
    """Return the commit of a directory, and whether files were changed.

    None outside a repository or without git.
    """
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": changes is None or bool(changes)}


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_GIT_TIMEOUT_S
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
