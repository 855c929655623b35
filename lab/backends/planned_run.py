"""The run that `docker compose up` starts: the config's run, or an override."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from lab.config import Cluster
from lab.config.validation import RUN_SERVICE
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS, misfit
from lab.placement.plan import PlannedRun
from lab.text import short

NO_RUN: Final = "none"
"""The value of `--run` that removes the config's run."""

_MAX_LENGTH: Final = 1000  # characters, so that the header stays within its limit


def run_override(experiment: str | None, flags: Sequence[str]) -> str:
    """Return the value of `--run EXPERIMENT -- FLAGS` for the header; "" if there is none.

    Raises:
        InputError: There are flags and no experiment.
    """
    if flags and experiment in {None, NO_RUN}:
        raise InputError(
            "flags after `--` need an experiment", "name it: `lab render --run sync -- --epochs=2`"
        )
    return shlex.join((experiment, *flags)) if experiment is not None else ""


def planned_run(cluster: Cluster, override: str = "") -> PlannedRun | None:
    """Return the run of a config, or the override.

    Args:
        cluster: The config.
        override: `none`, or an experiment and its flags as in a shell; "": the config's run.

    Raises:
        InputError: There is no such experiment, it does not fit the cluster, or its flags cannot be
            written to a compose file.
    """
    if override == NO_RUN or not (override or cluster.run):
        return None
    if override:
        arguments = tuple(shlex.split(override))
        _check(cluster, arguments[0])
    else:
        arguments = cluster.run.arguments if cluster.run else ()
    text = shlex.join(arguments)
    if not text.isprintable() or set(text) & set("${}") or len(text) > _MAX_LENGTH:
        raise InputError(
            f"the run {short(text)!r} cannot be written to a compose file",
            f"write at most {_MAX_LENGTH} printable characters without $, {{ and }}",
        )
    return PlannedRun(arguments, cluster.start, cluster.faults)


def tensorflow_version(run: PlannedRun | None, wanted: str | None, default: str) -> str:
    """Return the TensorFlow version of the tasks.

    Args:
        run: The run, if there is one.
        wanted: The version that the user names, or None.
        default: The version without a run and without a named version.

    Raises:
        InputError: The run needs another version than the user names.
    """
    if run is None:
        return wanted or default
    needed = EXPERIMENTS[run.arguments[0]].tensorflow
    if wanted not in {None, needed}:
        raise InputError(
            f"the config's run, {run.arguments[0]!r}, needs TensorFlow {needed}",
            "leave out --tensorflow, or leave out the run with `--run none`",
        )
    return needed


def _check(cluster: Cluster, name: str) -> None:
    if name not in EXPERIMENTS:
        raise InputError(f"--run: no experiment {name!r}", "see `lab experiments`")
    if why := misfit(EXPERIMENTS[name], {job: len(each.on) for job, each in cluster.jobs.items()}):
        raise InputError(f"--run: {name} {why}", "choose another experiment or config")
    if RUN_SERVICE in cluster.nodes:
        raise InputError(
            f"--run: the config has a node {RUN_SERVICE!r}; both become services",
            "give the node another name",
        )
