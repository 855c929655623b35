"""The comment at the top of a compose file: what the file is for, and which state it has."""

from __future__ import annotations

from typing import Final

from lab.backends import rendered_file
from lab.backends.names import COMPOSE
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering
from lab.config.validation import RUN_SERVICE
from lab.placement.plan import Plan
from lab.text import short

_IDLE: Final = "boots the cluster; every task waits for a run"
_REACHES_HOST: Final = (
    "`docker compose up` lets tasks reach services of this host that listen on all addresses.",
    "`lab up` and `lab run` block them. On Engine 28 or later, so does",
    "`python -m lab render -o network=isolated`.",
)
_ISOLATED: Final = (
    "On Engine 28 or later, the host has no address on the cluster's network. Earlier engines",
    "ignore this: there, only `lab up` and `lab run` block the services of this host.",
)


def header(plan: Plan, options: Values, rendering: Rendering) -> str:
    """Return the comment at the top of the file."""
    usage, run = [f"docker compose up            {_IDLE}"], rendering.run
    if run is not None:
        usage = [
            "docker compose up            boots the cluster, trains"
            f" {short(run.command)}, waits for more runs",
            f"LAB_RUN= docker compose up   {_IDLE}",
            f"LAB_ONCE=1 docker compose up --exit-code-from {RUN_SERVICE}",
            "                             trains once and ends",
        ]
    note = _ISOLATED if options["network"] == "isolated" else _REACHES_HOST
    return rendered_file.header(plan, COMPOSE, options, rendering, *usage, "", *note)
