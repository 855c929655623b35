"""The backends themselves, imported when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import isabstract
from types import MappingProxyType
from typing import TYPE_CHECKING

from lab.backends.names import AUTO, BUILT_IN, backend_plugins, capabilities, known
from lab.backends.options import Values, read_options
from lab.base.errors import InputError, LabError
from lab.base.plugins import warn_once

if TYPE_CHECKING:
    from lab.backends.base import Backend


def backends(name: str = AUTO) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first.

    Of all backends, a plug-in that cannot be used is left out, with a warning.

    Raises:
        LabError: The plug-in of this name cannot be used.
    """
    if name != AUTO:
        return [backend_named(name)]
    found = []
    for each in known():
        try:
            found.append(backend_named(each))
        except LabError as error:
            warn_once(str(error))
    return found


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


def backend_named(name: str, own: Values = MappingProxyType({})) -> Backend:
    """Return the backend of a name that `lab.backends.names` knows.

    Args:
        name: The name.
        own: The values of its own options that differ from the defaults.

    Raises:
        LabError: It is a plug-in that cannot be used.
    """
    place = capabilities(name).type
    backend: Backend
    if name in BUILT_IN:
        module, _, class_ = place.partition(":")
        backend = getattr(import_module(module), class_)(own)
        return backend
    plugin = backend_plugins()[name]
    loaded = plugin.load(place)
    if isabstract(loaded):
        raise plugin.broken(f"{place} has no {', '.join(sorted(loaded.__abstractmethods__))}")
    try:
        backend = loaded(own)
    except Exception as error:  # the package may raise anything
        raise plugin.broken(f"{type(error).__name__}: {error}") from error
    if getattr(backend, "name", "") != name:
        raise plugin.broken(f"{place} is not a backend named {name}")
    return backend
