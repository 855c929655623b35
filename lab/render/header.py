"""The header of a rendered file: its config, its options and how to use it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from lab.placement.plan import Plan, PlannedRun
from lab.task.text import short, visible

_STATE = re.compile(
    r"^# lab: gpus=(uuid|index|none) tensorflow=([0-9.]+) cluster-sha256=[0-9a-f]{64}$"
    r"(?:\n# lab: run=(.+)$)?",
    re.MULTILINE,
)
_MAX_HEADER: Final = 4000  # characters that are searched for the header


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The options of a rendered file, in addition to its config.

    Attributes:
        mode: How GPUs are pinned: `uuid`, `index` or `none`.
        tensorflow: The TensorFlow version of its tasks.
        run: The value of `--run` with its flags; None: the config's run.
    """

    mode: str
    tensorflow: str
    run: str | None = None


def header(plan: Plan, cluster_file: str, run: PlannedRun | None, override: str) -> str:
    """Return the comment at the top of the file.

    Args:
        plan: The plan.
        cluster_file: The path of its config.
        run: The run that `docker compose up` starts, or None.
        override: The override of the config's run, or "".
    """
    file = visible(cluster_file)
    last = last_task(plan)
    up = "# docker compose up            boots the cluster; every task waits for a run\n"
    if run is not None:
        up = (
            "# docker compose up            boots the cluster, trains"
            f" {short(shlex.join(run.arguments))}, waits for more runs\n"
            "# LAB_RUN= docker compose up   boots the cluster; every task waits for a run\n"
        )
    return (
        f"# Rendered from {file} by `python -m lab render`; do not edit.\n"
        f"# Change {file} and render again. `python -m lab render --check` compares.\n"
        "#\n"
        f"{up}"
        f"# LAB_EXPERIMENT=async docker compose up --exit-code-from {last}\n"
        "#                              trains once and ends\n"
        "#\n"
        f"# lab: gpus={plan.mode} tensorflow={plan.tensorflow}"
        f" cluster-sha256={plan.cluster_sha256}\n"
        + (f"# lab: run={override}\n" if override else "")
        + "\n"
    )


def last_task(plan: Plan) -> str:
    """Return the task for `--exit-code-from`: ps-0, which ends last, or the first task."""
    names = [task.name for task in plan.tasks]
    return "ps-0" if "ps-0" in names else names[0]


def read_header(text: str) -> RenderOptions | None:
    """Return the options in a rendered file's header; None if it has none."""
    state = _STATE.search(text[:_MAX_HEADER])
    return None if state is None else RenderOptions(*state.groups())
