"""Environments from Python: `lab up` without its command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lab.api.planning import AnyPath, project
from lab.api.results import runs_path
from lab.backends import Environment
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.backends.selection import require_agents
from lab.config import Cluster
from lab.console import messages_shown
from lab.options import Flag, Switch, read_options
from lab.options.shared import BackendName, GpuMode, OwnOptions, Tensorflow
from lab.run.planning import make_plan
from lab.run.prepared import find_place
from lab.tf_versions import CURRENT


@dataclass(frozen=True, slots=True)
class Booted:
    """An environment that is up.

    Attributes:
        environment: The environment.
        is_new: Whether this call booted it; otherwise it was already up.
    """

    environment: Environment
    is_new: bool


@messages_shown()
def up(
    cluster: Annotated[Cluster | AnyPath | None, Flag(shows="FILE")] = None,
    *,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    explain: Annotated[bool, Switch()] = False,
    strict: Annotated[bool, Switch()] = False,
    share: Annotated[bool, Switch()] = False,
    tensorflow: Tensorflow = None,
    runs_dir: Annotated[AnyPath | None, Flag(shows="DIR")] = None,
) -> Booted:
    """Boot the environment of a config, unless it exists; its tasks wait for runs.

    Args:
        cluster: The cluster config (default: cluster.yaml).
        backend: A backend, such as `local` or `compose`, or `auto`.
        option: Options of the backend alone (`lab backends` lists them): `{"time": "2h"}`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        explain: Explain which GPUs each node gets, and which CPUs each task gets.
        strict: Fail if GPUs are busy or too old, or if the host has less than the config asks for.
        share: Also use GPUs that another environment of lab holds.
        tensorflow: The tasks' TensorFlow version.
        runs_dir: The directory of the run store (default: LAB_RUNS_DIR, or ./runs).

    Raises:
        InputError: An argument is invalid, or another environment has this name.
        LabError: The plan does not fit the host, or the environment cannot be booted.
    """
    given = read_options(up, locals())
    where = project(cluster)
    placed = make_plan(
        where.cluster,
        gpus,
        tensorflow=tensorflow or CURRENT.tensorflow,
        backend=backend,
        file=where.path,
        explain=explain,
    )
    chosen, found = find_place(
        backend,
        gpus,
        placed,
        where,
        runs_path(given["runs_dir"]),
        strict=strict,
        option=given["option"],
    )
    if found is None:
        made = boot(chosen, placed.plan, root=where.root, share=share)
        return Booted(made, is_new=True)
    require_agents(placed.plan.name, found.tasks())
    found.block_host()
    return Booted(found, is_new=False)
