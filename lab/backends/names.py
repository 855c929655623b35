"""The backends by name: what each can do, and its options. No backend is imported for it.

Processes, containers and a class are lab's own. Slurm and Kubernetes are plug-ins, as backends of
other packages are: see `lab.base.plugins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from lab.backends.options import BackendOption, choice
from lab.base.errors import LabError

if TYPE_CHECKING:
    from lab.base.plugins import Plugin

AUTO: Final = "auto"
LOCAL: Final = "local"
COMPOSE: Final = "compose"
CLASS: Final = "class"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do.

    Attributes:
        type: Its class, `module:Class`.
        tasks: What its tasks are, in the plural.
        containers: Whether tasks see the project's files under other paths than this host.
        host_gpus: Whether tasks use the GPUs that this process sees, so that it can sample them.
        queued: Whether an environment waits in a queue with those of other users. `auto` does not
            choose such a backend.
        network_faults: Whether a fault can change the network of a node.
        renders: The file that `lab render` writes, and others that `lab render --check` looks for
            if it is missing; none: the backend has no such file.
        shares_gpus: Whether another environment may hold the GPUs of its environments.
        down: The command that removes an environment, with `{}` for its name.
        extra: The extra of lab that it needs, or "".
        options: Its own options.
    """

    type: str
    tasks: str
    containers: bool = False
    host_gpus: bool = True
    queued: bool = False
    network_faults: bool = True
    renders: tuple[str, ...] = ()
    shares_gpus: bool = True
    down: str = "lab down {}"
    extra: str = ""
    options: tuple[BackendOption, ...] = ()


BUILT_IN: Final[Mapping[str, Capabilities]] = {
    COMPOSE: Capabilities(
        "lab.backends.compose.backend:ComposeBackend",
        "containers",
        containers=True,
        # `docker compose` reads the second one where the first is missing.
        renders=("compose.yaml", "docker-compose.yml"),
        options=(
            choice("gpus-by", "how to request GPUs from the engine", "nvidia", "cdi"),
            choice(
                "network",
                "isolated: tasks cannot reach this host (Engine 28 or later)",
                "portable",
                "isolated",
            ),
        ),
    ),
    LOCAL: Capabilities("lab.backends.local.backend:LocalBackend", "processes"),
    CLASS: Capabilities(
        "lab.teach.classroom.backend:ClassBackend",
        "queued containers",
        containers=True,
        host_gpus=False,
        queued=True,
        network_faults=False,
        shares_gpus=False,
        down="lab class down",
    ),
}


@cache
def known() -> dict[str, Capabilities]:
    """Return the backends by name, the preferred one first: lab's own, then the plug-ins.

    A plug-in that cannot be used is left out, with a warning.
    """
    from lab.base.plugins import warn_once  # noqa: PLC0415  (as below)

    found = dict(BUILT_IN)
    for name, plugin in backend_plugins().items():
        try:
            if name in {AUTO, *found}:
                raise plugin.broken("lab has one of this name")
            if not isinstance(loaded := plugin.load(), Capabilities):
                raise plugin.broken("it is not an instance of `lab.backends.names.Capabilities`")
        except LabError as error:
            warn_once(str(error))
        else:
            found[name] = loaded
    return found


def backend_plugins() -> dict[str, Plugin]:
    """Return the plug-ins of backends by name; see `lab.base.plugins.plugins`."""
    from lab.base.plugins import plugins  # noqa: PLC0415  (most commands need no plug-in)

    return plugins("backends")


def backend_names() -> tuple[str, ...]:
    """Return what `--backend` takes."""
    return AUTO, *known()


def targets() -> tuple[str, ...]:
    """Return what `lab render --target` takes, the default first."""
    return tuple(name for name, backend in known().items() if backend.renders)


def capabilities(name: str) -> Capabilities:
    """Return what a backend can do; a run from another host may name an unknown one."""
    found = BUILT_IN.get(name) or known().get(name)
    return found or Capabilities("", "tasks", host_gpus=False)
