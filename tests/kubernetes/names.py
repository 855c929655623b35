"""The names of pods: dnsmasq, with the hosts of the cluster's headless Services.

Debian has no CoreDNS. As there, a name is known while its Service has the pod's address.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.kubernetes.api import Api

DOMAIN: Final = "cluster.local"
_PAUSE_S: Final = 0.5


def hosts(endpoints: dict[str, Any]) -> Iterator[str]:
    """The lines of a hosts file for the Endpoints of one Service."""
    metadata = endpoints["metadata"]
    service = f"{metadata['name']}.{metadata['namespace']}.svc.{DOMAIN}"
    for subset in endpoints.get("subsets") or ():
        for address in subset.get("addresses") or ():
            yield f"{address['ip']} {service}"
            if "hostname" in address:
                yield f"{address['ip']} {address['hostname']}.{service}"


def follow(api: Api, file: Path, server: int, end: threading.Event) -> None:
    """Write the hosts file at each change, and let dnsmasq read it, until `end` is set."""
    while not end.is_set():
        known: dict[tuple[str, str], list[str]] = {}
        try:
            with api.open("/api/v1/endpoints?watch=1") as events:
                for line in events:
                    _change(known, json.loads(line))
                    file.write_text("".join(f"{each}\n" for own in known.values() for each in own))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server, signal.SIGHUP)
        except OSError:
            time.sleep(_PAUSE_S)


def _change(known: dict[tuple[str, str], list[str]], event: dict[str, Any]) -> None:
    metadata = event["object"].get("metadata", {})
    key = (metadata.get("namespace", ""), metadata.get("name", ""))
    if event["type"] == "DELETED":
        known.pop(key, None)
    elif event["type"] in {"ADDED", "MODIFIED"}:
        known[key] = [*hosts(event["object"])]
