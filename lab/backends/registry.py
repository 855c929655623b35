"""The backends themselves, imported when they are needed: docker-py takes 0.3 s."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from lab.backends.names import AUTO, CLASS, COMPOSE, LOCAL, SLURM

if TYPE_CHECKING:
    from lab.backends import Backend

_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    COMPOSE: ("lab.backends.compose", "ComposeBackend"),
    LOCAL: ("lab.backends.local", "LocalBackend"),
    CLASS: ("lab.backends.classroom", "ClassBackend"),
    SLURM: ("lab.backends.slurm", "SlurmBackend"),
}
"""The package and the class of each backend, the preferred one first."""


def backends(name: str = AUTO) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first."""
    return [backend_named(each) for each in (_CLASSES if name == AUTO else [name])]


def backend_named(name: str) -> Backend:
    """Return the backend of a name that `lab.backends.names` lists."""
    package, class_ = _CLASSES[name]
    made: Backend = getattr(import_module(package), class_)()
    return made
