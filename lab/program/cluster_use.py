"""What a program's source shows of its cluster: fixed addresses, and whether it knows its job."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from lab.program.python_source import names_in, texts_in
from lab.text import short

_BUILDS_CLUSTER: Final = frozenset(
    {"ClusterSpec", "SimpleClusterResolver", "ClusterDef", "ClusterDeviceFilters", "Server"}
)
_ADDRESS: Final = re.compile(
    r"(?:grpc://)?(?!127\.|0\.0\.0\.0|localhost:)"
    r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w.-]*(?=:\d{4})):\d{1,5}"
)
"""An address of a server on another host; a name with a shorter number may be a device."""

_OF_JOB: Final = re.compile(r"-*(?:job_?name|task_?type|worker_?type|role(?:_?name)?|lab_task)")
"""A name or a text of a program that learns its job."""


def knows_its_job(trees: Sequence[ast.Module]) -> bool:
    """Whether a program names a flag or a variable with the job of its task."""
    words = names_in(trees) | texts_in(trees)
    return any(_OF_JOB.fullmatch(word.lower().replace("-", "_").lstrip("_")) for word in words)


def fixed_hosts_notice(
    program: str, trees: Sequence[ast.Module], jobs: Mapping[str, int], nodes: Collection[str]
) -> str:
    """Return the notice that a program's own cluster has addresses of other hosts, or "".

    Args:
        program: The program's name.
        trees: The syntax trees of the program and of the modules that it imports.
        jobs: Job to its number of tasks.
        nodes: The config's nodes, whose names are hosts.
    """
    texts = texts_in(trees)
    addresses = filter(None, (_ADDRESS.fullmatch(text) for text in sorted(texts)))
    address = next((found[0] for found in addresses if found["host"] not in nodes), None)
    gets_hosts = any(text.rstrip("=").endswith("hosts") for text in texts)
    has_cluster = not names_in(trees).isdisjoint(_BUILDS_CLUSTER)
    if address is None or gets_hosts or sum(jobs.values()) == 1 or not has_cluster:
        return ""
    return (
        f"{short(program)} has addresses of other hosts in its source, such as {address}: its tasks"
        " do not find each other; replace them by NODE:PORT of the config"
    )
