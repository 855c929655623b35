"""`lab backends`.

Examples:
    # all backends with their own options
    lab backends
    # as JSON
    lab backends --json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lab.backends.names import backend_plugins, capabilities
from lab.backends.options import text_of
from lab.backends.registry import backends
from lab.base.options import verb
from lab.base.plugins import OWN
from lab.base.tables import terminal_width
from lab.base.text import visible, wrapped
from lab.verbs.printing import Tabular, prints

_ABILITIES: Final = ("tasks", "containers", "host_gpus", "queued", "network_faults", "extra")

_INDENT: Final = " " * 6
"""The beginning of the further lines of a line that a terminal wraps."""


@dataclass(frozen=True, slots=True, repr=False)
class Backends(Tabular):
    """The backends.

    Attributes:
        reasons: Name to why the backend cannot be used here; None: it can.
    """

    reasons: Mapping[str, str | None]

    def to_json(self) -> list[dict[str, object]]:
        """Return all of it as a JSON value."""
        return [_as_json(name, reason) for name, reason in self.reasons.items()]

    def _shown(self) -> Iterator[str]:
        """Yield the lines; a terminal wraps them."""
        width = terminal_width(sys.stdout)
        for name, reason in self.reasons.items():
            for line in _lines(name, reason):
                yield from wrapped(line, width, indent=_INDENT) if width else [line]


@verb
def backends_() -> Backends:
    """List the backends, their own options, and whether they work here."""
    return Backends({each.name: each.obstacle() for each in backends()})


def _lines(name: str, reason: str | None) -> Iterator[str]:
    """Describe a backend; `reason` is why it cannot be used here."""
    able = capabilities(name)
    why = "can be used here" if reason is None else f"cannot be used here: {visible(reason)}"
    yield f"{name}: {why}"
    if origin := _origin(name):
        yield f"  from {visible(origin)}"
    yield f"  {visible(able.tasks)}: {_abilities(name)}"
    for each in able.options:
        default = f"; default: {text_of(each.default)}" if text_of(each.default) else ""
        yield visible(f"  -o {each.usage}: {each.help}{default}")


def _origin(name: str) -> str:
    """Return the package of a backend that is not lab's, and its version; "" for lab's own."""
    plugin = backend_plugins().get(name)
    return "" if plugin is None or plugin.origin == OWN else plugin.origin


def _abilities(name: str) -> str:
    """Return what a backend can do, in words."""
    able = capabilities(name)
    words = {
        "GPUs of this host": able.host_gpus,
        "network faults": able.network_faults,
        "a queue": able.queued,
        "`lab render`": bool(able.renders),
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def _as_json(name: str, reason: str | None) -> dict[str, object]:
    able = capabilities(name)
    return {
        "name": name,
        "origin": _origin(name),
        "usable": reason is None,
        "reason": reason,
        **{key: getattr(able, key) for key in _ABILITIES},
        "renders": able.renders[0] if able.renders else None,
        "options": [
            {"name": each.name, "form": each.shows, "default": each.default, "help": each.help}
            for each in able.options
        ],
    }


command = prints(backends_)
