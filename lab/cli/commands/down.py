"""`lab down`.

Examples:
    # the environment of ./cluster.yaml
    lab down
    # all environments, without a question
    lab down --all --yes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from lab.api.environments import down
from lab.base.options import Switch, presents
from lab.console import confirm
from lab.log import LOG


@presents(down)
def command(
    removed: Callable[..., list[str]],
    *,
    yes: Annotated[bool, Switch("remove without a question", short="-y")] = False,
) -> None:
    """Collect the runs of an environment, then remove it."""
    if not (removed() if yes else removed(confirm=confirm)):
        LOG.info("no environment is up")
