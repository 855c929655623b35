"""The backends themselves, imported when they are needed: docker-py takes 0.3 s."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lab.backends.names import AUTO, CAPABILITIES

if TYPE_CHECKING:
    from lab.backends import Backend
    from lab.backends.planner import Planner


def backends(name: str = AUTO) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first."""
    return [backend_named(each) for each in (CAPABILITIES if name == AUTO else [name])]


def backend_named(name: str) -> Backend:
    """Return the backend of a name that `lab.backends.names` lists."""
    made: Backend = _made(CAPABILITIES[name].type)
    return made


def planner_named(name: str) -> Planner:
    """Return the part of a backend that places configs and renders files."""
    made: Planner = _made(CAPABILITIES[name].planner or CAPABILITIES[name].type)
    return made


def _made(type_: str) -> Any:  # noqa: ANN401  (the class is a text)
    module, _, class_ = type_.partition(":")
    return getattr(import_module(module), class_)()
