"""The output of `lab __complete`: names that change, such as the collected runs.

A shell waits for it at every press of Tab. Therefore this module imports neither pydantic nor
docker, and reads names, not contents. It leaves out what it cannot read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from lab.shipped import SHIPPED
from lab.variables import LAB_RUNS_DIR, LAB_STATE

_RUN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
_ENVIRONMENT: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_JOB: Final = re.compile(r"[a-z]{1,31}")
_MAX_CONFIG_BYTES: Final = 1 << 16
_MAX_NAMES: Final = 1000
"""The maximum number of names of a kind."""
_RELATIVE: Final = ("last", "last~1")
"""The newest run, and the one before."""


def names_of(kind: str) -> list[str]:
    """Return the current names of a kind; an empty list for an unknown kind."""
    found = SOURCES.get(kind)
    return list(found()) if found else []


def _runs() -> list[str]:
    """Return the collected runs, the newest first: their names begin with their start time."""
    store = Path(os.environ.get(LAB_RUNS_DIR) or "runs")
    names = sorted((name for name in _names(store) if _RUN.fullmatch(name)), reverse=True)
    runs = [name for name in names[:_MAX_NAMES] if (store / name / "run.json").is_file()]
    return [*_RELATIVE[: len(runs)], *runs]


def _tasks() -> Iterator[str]:
    """Yield the tasks of the config in this directory."""
    jobs = _load_config(Path("cluster.yaml")).get("jobs")
    for name, job in (jobs if isinstance(jobs, dict) else {}).items():
        on = job.get("on") if isinstance(job, dict) else None
        if isinstance(on, list) and isinstance(name, str) and _JOB.fullmatch(name):
            yield from (f"{name}-{index}" for index in range(min(len(on), _MAX_NAMES)))


def _environments() -> list[str]:
    """Return the environments with a record here, and those of the configs in this directory."""
    state = os.environ.get(LAB_STATE)
    xdg_state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    base = Path(state) if state else Path(xdg_state) / "lab"
    names = {path.parent.name for path in base.glob("*/*/environment.json")}
    names |= {
        str(_load_config(path).get("name"))
        for path in [Path("cluster.yaml"), *sorted(Path("clusters").glob("*.yaml"))]
        if path.is_file()
    }
    return sorted(name for name in names if _ENVIRONMENT.fullmatch(name))


def _examples() -> list[str]:
    """Return the configs that come with lab."""
    return sorted(path.stem for path in (SHIPPED / "clusters").glob("*.yaml"))


def _recordings() -> list[str]:
    """Return the recordings that come with lab, then the collected runs."""
    try:
        index = json.loads((SHIPPED / "notebooks/samples/index.json").read_bytes())
        names = [str(each.get("recording", "")) for each in index.values()]
    except (OSError, ValueError, AttributeError):
        names = []
    return [*filter(_RUN.fullmatch, names), *_runs()]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _load_config(path: Path) -> dict[object, object]:
    """Read a config without validation; return an empty dict if it cannot be read."""
    from ruamel.yaml import YAML  # noqa: PLC0415  (most calls do not need it)
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        with path.open("rb") as file:
            # `base` reads every scalar as a text.
            found = YAML(typ="base", pure=True).load(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError, YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


SOURCES: Final[Mapping[str, Callable[[], list[str] | Iterator[str]]]] = {
    "runs": _runs,
    "recordings": _recordings,
    "tasks": _tasks,
    "environments": _environments,
    "examples": _examples,
}
