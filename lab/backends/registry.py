"""The backends themselves, imported when they are needed: docker-py takes 0.3 s."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lab.backends.names import AUTO, CAPABILITIES, capabilities
from lab.backends.options import Values, read_options
from lab.errors import InputError
from lab.text import short, visible

if TYPE_CHECKING:
    from lab.backends.base import Backend
    from lab.backends.planner import Planner


def backends(name: str = AUTO, given: Sequence[str] = ()) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first.

    Args:
        name: The name, or `auto`.
        given: Options of the backend alone, `key=value`.

    Raises:
        InputError: See `options_of`.
    """
    values = options_of(name, given)
    if name != AUTO:
        return [backend_named(name).with_options(values)]
    return [backend_named(each) for each in CAPABILITIES]


def options_of(name: str, given: Sequence[str]) -> Values:
    """Return the values of a backend's own options that are given, by their names.

    Args:
        name: The backend's name, or `auto`.
        given: The options, `key=value`.

    Raises:
        InputError: The backend has no such option, a value is not valid, or no backend is named.
    """
    if name != AUTO:
        return read_options(name, capabilities(name).options, given)
    if given:
        raise InputError(
            f"-o {short(visible(given[0]))} needs a backend", "name it with --backend NAME"
        )
    return {}


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
