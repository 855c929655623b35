"""`lab down`.

Examples:
    # the environment of ./cluster.yaml
    lab down
    # all environments, without confirmation
    lab down --all --yes
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from lab.backends.registry import backends
from lab.backends.selection import list_all
from lab.base.console import confirm
from lab.base.errors import InputError
from lab.base.log import LOG
from lab.base.options import Switch, verb
from lab.runner.recovery import Confirm, remove, run_all
from lab.runner.store.directory import runs_path
from lab.verbs.common_options import EnvironmentArgument, RunsDir
from lab.verbs.inputs import find_environment
from lab.verbs.printing import Said, prints


class Removed(Said, list[str]):
    """The names of the environments that were removed."""

    def _shown(self) -> Iterator[str]:
        yield f"removed: {', '.join(self) or 'no environment'}"


def _agree(_question: str) -> None:
    """Let everything be removed."""


@verb
def down(
    name: EnvironmentArgument = None,
    *,
    all_: Annotated[bool, Switch()] = False,
    discard: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
    yes: Annotated[bool, Switch("do not ask for confirmation", short="-y")] = False,
    confirm: Confirm = _agree,
) -> Removed:
    """Collect the runs of an environment, then remove it; a run in progress is cancelled first.

    Args:
        name: The environment (default: the one of ./cluster.yaml).
        all_: Remove all environments that `lab ps` lists.
        discard: Remove the environment without collecting its runs.
        runs_dir: The run store.
        yes: Whether nothing is asked.
        confirm: Asks the user before several environments, uncollected runs or a run under way are
            removed; raises InputError if the answer is no.

    Raises:
        InputError: No environment has this name, this directory's environment was booted from
            another project, or the user refuses.
        LabError: A run cannot be collected, or an environment cannot be removed.
    """
    if all_ and name is not None:
        raise InputError(f"--all and {name!r} cannot be used together", "use one of them")
    doomed = list_all(backends()) if all_ else [find_environment(name)]
    ask = _agree if yes else confirm
    if doomed and (all_ or discard):
        names = ", ".join(
            f"{environment.project} ({environment.backend})" for environment in doomed
        )
        ask(f"remove {names}?")
    removal = partial(remove, runs_dir=runs_path(runs_dir), confirm=ask, discard=discard)
    run_all(partial(removal, environment) for environment in doomed)
    if not doomed:
        LOG.info("no environment is up")
    return Removed(environment.project for environment in doomed)


command = prints(down, confirm=confirm)
