"""The first lines of a rendered file: what it is, what it was made from, and how."""

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
_WITHIN: Final = 4000  # characters; what stands further down is not the header


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How a file was rendered, beside what its description says.

    Attributes:
        mode: How GPUs are pinned: `uuid`, `index` or `none`.
        tensorflow: The version that its tasks have.
        run: The value of `--run` with the flags behind it; None: as its description says.
    """

    mode: str
    tensorflow: str
    run: str | None = None


def header(plan: Plan, cluster_file: str, run: PlannedRun | None, override: str) -> str:
    """The comment above the rendered text.

    Args:
        plan: The plan.
        cluster_file: The description that it was made from.
        run: What `docker compose up` trains by itself, or None.
        override: What is recorded of a run that is not the description's, or "".
    """
    file = visible(cluster_file)
    last = last_task(plan)
    up = "# docker compose up            boots the cluster; every task waits for a run\n"
    if run is not None:
        up = (
            "# docker compose up            boots the cluster, trains"
            f" {short(shlex.join(run.arguments))}, waits for more\n"
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
    """The task that ends last where nobody else watches: ps-0, or the first task of all."""
    names = [task.name for task in plan.tasks]
    return "ps-0" if "ps-0" in names else names[0]


def read_header(text: str) -> RenderOptions | None:
    """How a rendered file was made, by its header; None where it has none."""
    state = _STATE.search(text[:_WITHIN])
    return None if state is None else RenderOptions(*state.groups())
