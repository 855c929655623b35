"""Programs of users, written as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.base.log import shown_by
from lab.protocol.records import Record, parse_record
from lab.protocol.volume import RunSpec
from lab.runner.prepared import PlaceOptions, PreparedRun, prepare_run
from lab.verbs import inputs


def write(folder: Path, **files: str) -> Path:
    """Write the sources of modules, `pkg__in__part` as `pkg/part.py`; return the first file."""
    paths = [folder / f"{name.replace('__in__', '/')}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return paths[0]


def printed(text: str) -> list[tuple[str, Record | None]]:
    """The lines of a text, each with the record in the indented line below it; `#` is a comment."""
    lines = [line for line in text.strip("\n").split("\n") if not line.startswith("# ")]
    return [
        (line, parse_record(record.strip()))
        for line, record in zip(lines[::2], lines[1::2], strict=True)
    ]


WORKERS = "worker: {on: [tf1, tf2]}"


def prepared(
    source: str, *args: str, jobs: str = WORKERS, **options: Any
) -> tuple[PreparedRun, list[str]]:
    """The prepared run of `own.py` in this directory, and its notices."""
    Path("cluster.yaml").write_text(
        f"version: 1\nname: own\nnodes: {{tf1: {{}}, tf2: {{}}}}\njobs: {{{jobs}}}\n"
    )
    Path("own.py").write_text(source)
    notices: list[str] = []
    place = PlaceOptions(backend=options.pop("backend", "local"), gpus="none")
    asked = options.pop("spec", RunSpec("own.py", args=args))
    where = inputs.project("cluster.yaml")
    with shown_by(notices.append):
        return prepare_run(asked, where, Path("runs"), place, **options), notices
