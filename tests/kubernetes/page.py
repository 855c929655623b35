"""The page `docs/evidence/kubernetes.md`: written from `kubernetes.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

NAME: Final = "kubernetes"
_HEAD: Final = """\
# Tests on a real Kubernetes

`make test-kubernetes` writes this page from [`kubernetes.json`](kubernetes.json). It compiles the
control plane and the kubelet from Debian's source package once, and runs the tests in
`tests/kubernetes` with one node. Each row has the date of its last run.
"""

Record = dict[str, Any]
"""`facts`: name → text. `tests`: name → `date`, `result` and `seconds`."""


def record(facts: Mapping[str, str], tests: Mapping[str, Record], before: Record) -> Record:
    """The record with what was run now; a test that did not run now stays."""
    return {"facts": dict(facts), "tests": {**before.get("tests", {}), **tests}}


def page(found: Record) -> str:
    """The page."""
    return "\n".join([_HEAD, *_parts(found)])


def _parts(found: Record) -> Iterator[str]:
    yield "| | |\n| --- | --- |"
    yield from (f"| {name} | {value} |" for name, value in found["facts"].items())
    yield "\n| test | result | seconds | date |\n| --- | --- | ---: | --- |"
    for name, each in sorted(found["tests"].items()):
        yield f"| `{name}` | {each['result']} | {each['seconds']} | {each['date']} |"
    yield ""


def read(folder: Path) -> Record:
    """The record so far."""
    file = folder / f"{NAME}.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def write(folder: Path, found: Record) -> None:
    """Write the page and its file."""
    (folder / f"{NAME}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    (folder / f"{NAME}.md").write_text(page(found), "utf-8")
