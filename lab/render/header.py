"""The header of a rendered file: its config, its options and how to use it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from lab.config.validation import RUN_SERVICE
from lab.placement.plan import Plan, PlannedRun
from lab.text import short, visible

GPUS_BY: Final = ("nvidia", "cdi")
"""The ways to request GPUs of an engine; the first is the default."""

NETWORKS: Final = ("portable", "isolated")
"""The kinds of the cluster's network; the first is the default."""

_STATE = re.compile(
    r"^# lab: gpus=(uuid|index|none)"
    rf" gpus-by=({'|'.join(GPUS_BY)}) network=({'|'.join(NETWORKS)})"
    r" tensorflow=([0-9.]+) cluster-sha256=[0-9a-f]{64}$"
    r"(?:\n# lab: run=(.+)$)?",
    re.MULTILINE,
)
_REACHES_HOST: Final = """\
# `docker compose up` lets tasks reach services of this host that listen on all addresses.
# `lab up` and `lab run` block them. On Engine 28 or later, so does
# `python -m lab render --network isolated`.
"""
_ISOLATED: Final = """\
# On Engine 28 or later, the host has no address on the cluster's network. Earlier engines ignore
# this: there, only `lab up` and `lab run` block the services of this host.
"""
_MAX_HEADER: Final = 4000  # characters that are searched for the header


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The options of a rendered file, in addition to its config.

    Attributes:
        mode: How GPUs are pinned: `uuid`, `index` or `none`; `auto`: as the host allows.
        tensorflow: The TensorFlow version of its tasks; None: the run's, or the current one.
        run: The value of `--run` with its flags; "": the config's run.
        gpus_by: How GPUs are requested of the engine: one of `GPUS_BY`.
        network: The cluster's network: one of `NETWORKS`.
        subnet: The range of its addresses, such as `10.89.1.0/28`; "": the engine chooses one.
    """

    mode: str = "auto"
    tensorflow: str | None = None
    run: str = ""
    gpus_by: str = GPUS_BY[0]
    network: str = NETWORKS[0]
    subnet: str = ""


DEFAULTS: Final = RenderOptions()


def header(plan: Plan, cluster_file: str, run: PlannedRun | None, options: RenderOptions) -> str:
    """Return the comment at the top of the file.

    Args:
        plan: The plan.
        cluster_file: The path of its config.
        run: The run that `docker compose up` starts, or None.
        options: The options; the plan has the final mode and TensorFlow version.
    """
    file = visible(cluster_file)
    up = "# docker compose up            boots the cluster; every task waits for a run\n"
    if run is not None:
        up = (
            "# docker compose up            boots the cluster, trains"
            f" {short(shlex.join(run.arguments))}, waits for more runs\n"
            "# LAB_RUN= docker compose up   boots the cluster; every task waits for a run\n"
            f"# LAB_ONCE=1 docker compose up --exit-code-from {RUN_SERVICE}\n"
            "#                              trains once and ends\n"
        )
    return (
        f"# Rendered from {file} by `python -m lab render`; do not edit.\n"
        f"# Change {file} and render again. `python -m lab render --check` compares.\n"
        "#\n"
        f"{up}"
        "#\n"
        f"{_ISOLATED if options.network == 'isolated' else _REACHES_HOST}"
        "#\n"
        f"# lab: gpus={plan.mode} gpus-by={options.gpus_by} network={options.network}"
        f" tensorflow={plan.tensorflow} cluster-sha256={plan.cluster_sha256}\n"
        + (f"# lab: run={options.run}\n" if options.run else "")
        + "\n"
    )


def read_header(text: str) -> RenderOptions | None:
    """Return the options in a rendered file's header; None if it has none."""
    state = _STATE.search(text[:_MAX_HEADER])
    if state is None:
        return None
    mode, gpus_by, network, tensorflow, run = state.groups()
    return RenderOptions(mode, tensorflow, run or "", gpus_by, network)
