"""The harms of `tests/hostile/programs/harm.py`, and what a run with each of them must come to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.commands import ROOT, lab

HARM: Final = ROOT / "tests/hostile/programs/harm.py"
CLUSTER: Final = """\
version: 1
name: harm
nodes: {a: {}, b: {}}
jobs:
  ps: {on: [a]}
  worker: {on: [a, b]}
"""
TASKS: Final = frozenset({"ps-0", "worker-0", "worker-1"})
NOT_THOSE: Final = "the collected records of {} are not those that its agent wrote"


@dataclass(frozen=True)
class Expected:
    """What is found of a run with a harm."""

    code: int = 0
    reason: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False
    whole: frozenset[str] = TASKS


# Files under lab's names are collected beside lab's own.
_LITTER: Final = (
    *("report.html", "run.json", "summary.json", "figures/loss.png", "tasks/mine.csv"),
    *("tasks/worker-0.jsonl", "status/x", "logs/worker-0.log", ".hidden"),
)
_NAMES: Final = ("x" * 250, "new%0Aline", "esc%1B%5B31m", "%FF%FE", "$(touch pwned)", "-rf")
_NOT_REGULAR: Final = "it is not a regular file"
_SPECIAL: Final = ("dangling", "folder", "loop", "passwd", "pipe", "socket")

HARMS: Final[dict[str, Expected]] = {
    "litter": Expected(files={name: f"mine: {name}" for name in _LITTER} | {"empty": ""}),
    "wipe": Expected(),
    "links": Expected(
        files={"plain": "mine"},
        left=dict.fromkeys((f"files/{name}" for name in _SPECIAL), _NOT_REGULAR),
    ),
    "names": Expected(files=dict.fromkeys((*_NAMES, f"{'deep/' * 150}plain"), "mine")),
    "forge": Expected(1, NOT_THOSE.format("worker-1"), whole=frozenset({"worker-0"})),
    "vanish": Expected(1, NOT_THOSE.format("ps-0"), whole=frozenset()),
    "steal": Expected(
        code=1,
        left=dict.fromkeys(("tasks/worker-1.jsonl", "logs/worker-1.log"), _NOT_REGULAR),
        kept=True,
        whole=TASKS - {"worker-1"},
    ),
    "confuse": Expected(left={"faults.json": _NOT_REGULAR}),
}


def make_project(folder: Path, backend: str) -> None:
    """A project with a running environment."""
    (folder / "cluster.yaml").write_text(CLUSTER)
    for name in ("scripts", "data"):
        (folder / name).mkdir()
    lab(folder, "up", "--backend", backend, "--gpus", "none")


def found(project: Path, harm: str) -> Expected:
    """Run the program with one harm; what a run with it came to."""
    expected = HARMS[harm]
    out, _ = lab(project, "run", str(HARM), "--json", "--", harm, code=expected.code)
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    run = project / "runs" / summary["run_id"]
    assert json.loads((run / "run.json").read_text())["state"] == summary["state"]
    files = [path for path in (run / "files").rglob("*") if path.is_file()]
    assert not list(project.rglob("pwned"))
    return Expected(
        expected.code,
        summary["reason"] if expected.reason else None,
        {path.relative_to(run / "files").as_posix(): path.read_text() for path in files},
        {each["path"]: each["reason"] for each in summary["left"]},
        any(each["kept"] for each in summary["left"]),
        frozenset(filter(lambda task: _is_whole(run, task), expected.whole)),
    )


def _is_whole(run: Path, task: str) -> bool:
    lines = (run / f"tasks/{task}.jsonl").read_text().splitlines()
    steps = [json.loads(line)["local_step"] for line in lines]
    return steps == [1, 2, 3] and (run / f"logs/{task}.log").read_text() == "the last line\n"
