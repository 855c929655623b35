"""The backends themselves, imported when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from lab.backends.names import AUTO, CAPABILITIES, capabilities
from lab.backends.options import Values, read_options
from lab.base.errors import InputError

if TYPE_CHECKING:
    from lab.backends.base import Backend


def backends(name: str = AUTO) -> list[Backend]:
    """Return the backend of a name; for `auto` all backends, the preferred one first."""
    return [backend_named(each) for each in (CAPABILITIES if name == AUTO else (name,))]


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
    """Return the backend of a name that `lab.backends.names` lists.

    Args:
        name: The name.
        own: The values of its own options that differ from the defaults.
    """
    module, _, class_ = CAPABILITIES[name].type.partition(":")
    backend: Backend = getattr(import_module(module), class_)(own)
    return backend
