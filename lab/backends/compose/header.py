"""The comment at the top of a compose file: what the file is for, and which state it has."""

from __future__ import annotations

from typing import Final

from lab.backends.names import COMPOSE
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering, state_lines
from lab.config.validation import RUN_SERVICE
from lab.placement.plan import Plan
from lab.text import short, visible

_REACHES_HOST: Final = """\
# `docker compose up` lets tasks reach services of this host that listen on all addresses.
# `lab up` and `lab run` block them. On Engine 28 or later, so does
# `python -m lab render -o network=isolated`.
"""
_ISOLATED: Final = """\
# On Engine 28 or later, the host has no address on the cluster's network. Earlier engines ignore
# this: there, only `lab up` and `lab run` block the services of this host.
"""


def header(plan: Plan, options: Values, rendering: Rendering) -> str:
    """Return the comment at the top of the file."""
    file, run = visible(rendering.cluster_file), rendering.run
    up = "# docker compose up            boots the cluster; every task waits for a run\n"
    if run is not None:
        up = (
            "# docker compose up            boots the cluster, trains"
            f" {short(run.command)}, waits for more runs\n"
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
        f"{_ISOLATED if options['network'] == 'isolated' else _REACHES_HOST}"
        "#\n"
        + state_lines(
            plan,
            COMPOSE,
            options,
            rendering.override,
            gpus=plan.mode,
        )
        + "\n"
    )
