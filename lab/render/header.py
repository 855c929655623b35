"""The first lines of a rendered file: what it is, what it was made from, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lab.plan import Plan
from lab.task.text import visible

_STATE = re.compile(
    r"^# lab: gpus=(uuid|index|none) tensorflow=([0-9.]+) cluster-sha256=[0-9a-f]{64}$",
    re.MULTILINE,
)
_WITHIN: Final = 2000  # characters; what stands further down is not the header


@dataclass(frozen=True, slots=True)
class Recorded:
    """How a file was rendered, beside what its description says.

    Attributes:
        mode: How GPUs are pinned: `uuid`, `index` or `none`.
        tensorflow: The version that its tasks have.
    """

    mode: str
    tensorflow: str


def header(plan: Plan, cluster_file: str) -> str:
    """The comment above the rendered text.

    Args:
        plan: The plan.
        cluster_file: The description that it was made from.
    """
    file = visible(cluster_file)
    last = leader(plan)
    return (
        f"# Rendered from {file} by `python -m lab render`; do not edit.\n"
        f"# Change {file} and render again. `python -m lab render --check` compares.\n"
        "#\n"
        "# docker compose up            boots the cluster; every task waits for a run\n"
        f"# LAB_EXPERIMENT=async docker compose up --exit-code-from {last}\n"
        "#                              trains once and ends\n"
        "#\n"
        f"# lab: gpus={plan.mode} tensorflow={plan.tensorflow}"
        f" cluster-sha256={plan.cluster_sha256}\n"
        "\n"
    )


def leader(plan: Plan) -> str:
    """The task that ends last where nobody else watches: ps-0, or the first task of all."""
    names = [task.name for task in plan.tasks]
    return "ps-0" if "ps-0" in names else names[0]


def read_recorded(text: str) -> Recorded | None:
    """How a rendered file was made, by its header; None where it has none."""
    state = _STATE.search(text[:_WITHIN])
    return None if state is None else Recorded(*state.groups())
