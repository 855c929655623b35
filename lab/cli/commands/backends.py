"""`lab backends`.

Examples:
    # all backends, with the options of each one alone
    lab backends
    # as JSON
    lab backends --json
"""

from __future__ import annotations

from lab.backends.names import capabilities
from lab.backends.options import text_of
from lab.backends.registry import backends
from lab.console import print_json
from lab.options.shared import AsJson
from lab.tables import show, table_of


def command(*, json: AsJson = False) -> None:
    """List the backends, whether they can be used here, and the options of each one alone."""
    reasons = {each.name: each.unavailable_reason() for each in backends()}
    if json:
        print_json([_as_json(name, reason) for name, reason in reasons.items()])
        return
    rows = [
        (name, capabilities(name).tasks, _abilities(name), reason or "yes")
        for name, reason in reasons.items()
    ]
    show(table_of(("backend", "tasks", "has", "can be used here"), rows))
    options = [
        (name, f"-o {each.usage}", text_of(each.default) or "none", each.help)
        for name in reasons
        for each in capabilities(name).options
    ]
    show(table_of(("backend", "its own option", "default", "what it does"), options))


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
        "tasks": able.tasks,
        "containers": able.containers,
        "host_gpus": able.host_gpus,
        "queued": able.queued,
        "network_faults": able.network_faults,
        "renders": able.renders[0] if able.renders else None,
        "options": [
            {"name": each.name, "form": each.shows, "default": each.default, "help": each.help}
            for each in able.options
        ],
    }
