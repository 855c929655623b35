"""The backends themselves, imported when they are needed: docker-py takes 0.3 s."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lab.backends.names import AUTO, CAPABILITIES, capabilities
from lab.backends.options import Values, read_options
from lab.base.errors import InputError

if TYPE_CHECKING:
    from lab.backends.base import Backend, Planner


def backends(name: str = AUTO, options: Sequence[str] = ()) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first.

    Args:
        name: The name, or `auto`.
        options: The backend's own options, `key=value`.

    Raises:
        InputError: See `options_of`.
    """
    values = options_of(name, options)
    if name != AUTO:
        return [backend_named(name).with_options(values)]
    return [backend_named(backend) for backend in CAPABILITIES]


def options_of(name: str, options: Sequence[str]) -> Values:
    """Return the values of a backend's own options, by name.

    Args:
        name: The backend's name, or `auto`.
        options: The options, `key=value`.

    Raises:
        InputError: The backend has no such option, a value is not valid, or no backend is named.
    """
    if name != AUTO:
        return read_options(name, capabilities(name).options, options)
    if options:
        raise InputError(f"-o {options[0]} needs a backend", "name it with --backend NAME")
    return {}


def backend_named(name: str) -> Backend:
    """Return the backend of a name that `lab.backends.names` lists."""
    backend: Backend = _made(CAPABILITIES[name].type)
    return backend


def planner_named(name: str) -> Planner:
    """Return the part of a backend that places configs and renders files."""
    planner: Planner = _made(CAPABILITIES[name].planner or CAPABILITIES[name].type)
    return planner


def _made(type_: str) -> Any:  # noqa: ANN401  (the class is a text)
    module, _, class_ = type_.partition(":")
    return getattr(import_module(module), class_)()
