"""`lab backends`.

Examples:
    # all backends, with the options of each one alone
    lab backends
    # as JSON
    lab backends --json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from lab.backends.names import capabilities
from lab.backends.options import text_of
from lab.backends.registry import backends
from lab.console import print_json
from lab.tables import terminal_width
from lab.text import wrapped
from lab.verbs.common_options import AsJson

_ABILITIES: Final = ("tasks", "containers", "host_gpus", "queued", "network_faults")

_INDENT: Final = " " * 6
"""The beginning of the further lines of a line that a terminal wraps."""


def command(*, json: AsJson = False) -> None:
    """List the backends, whether they can be used here, and the options of each one alone."""
    reasons = {each.name: each.unavailable_reason() for each in backends()}
    if json:
        print_json([_as_json(name, reason) for name, reason in reasons.items()])
        return
    width = terminal_width(sys.stdout)
    for name, reason in reasons.items():
        for line in _lines(name, reason):
            print(*(wrapped(line, width, indent=_INDENT) if width else [line]), sep="\n")


def _lines(name: str, reason: str | None) -> Iterator[str]:
    """Describe a backend; `reason` is why it cannot be used here."""
    able = capabilities(name)
    yield f"{name}: {'can be used here' if reason is None else f'cannot be used here: {reason}'}"
    yield f"  {able.tasks}: {_abilities(name)}"
    for each in able.options:
        default = f"; default: {text_of(each.default)}" if text_of(each.default) else ""
        yield f"  -o {each.usage}: {each.help}{default}"


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
        "usable": reason is None,
        "reason": reason,
        **{key: getattr(able, key) for key in _ABILITIES},
        "renders": able.renders[0] if able.renders else None,
        "options": [
            {"name": each.name, "form": each.shows, "default": each.default, "help": each.help}
            for each in able.options
        ],
    }
