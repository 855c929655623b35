"""The gradebook of a class: a table with a row for each seat, from the archive of its work.

All files of a seat come from its student, who can forge them. No text of theirs gets into the
table: a spreadsheet would run a cell that begins with `=`.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lab.experiments.registry import EXPERIMENTS
from lab.store.run_info import RunInfo
from lab.store.summary import Summary
from lab.strict_json import parse
from lab.volume.run_spec import registered
from lab.volume.states import State

OWN: Final = "own programs"
"""The columns of all runs of the student's own programs."""

_UNREADABLE: Final = "unreadable"
_MAX_BYTES: Final = 16 << 20  # of a file that is read
_MAX_SEAT_BYTES: Final = 128 << 20  # of all files of a seat that are read
_MOST_STEPS: Final = 1 << 63

_FILE: Final = re.compile(
    r"(?P<seat>[^/]+)/(?:runs/(?P<run>[^/]+)/run\.json"
    r"|notebooks/\d\d_(?P<lesson>\w+)\.ipynb)"
)
_COPY: Final = re.compile(r"resets/(.+)-\d{8}-\d{6}\.zip")


class _Run(NamedTuple):
    started_unix: float
    state: State
    accuracy: float | None
    global_step: int | None


@dataclass(slots=True)
class _Seat:
    """What the archive has of a seat."""

    runs: dict[str, list[_Run]] = field(default_factory=dict)
    read_bytes: int = 0
    unreadable: int = 0
    imported: int = 0
    copies: int = 0
    lessons: dict[str, str] = field(default_factory=dict)


def gradebook(archive: zipfile.ZipFile, seats: Sequence[str], lessons: Sequence[str]) -> str:
    """Return the gradebook as CSV: a header and one row for each seat.

    Args:
        archive: The work of the seats, open for reading, too.
        seats: The seats, in the order of the rows.
        lessons: The names of the notebooks that each seat got.

    Raises:
        OSError: The archive cannot be read.
    """
    found = {seat: _Seat() for seat in seats}
    for name in archive.namelist():
        if (copy := _COPY.fullmatch(name)) and copy[1] in found:
            found[copy[1]].copies += 1
        elif (file := _FILE.fullmatch(name)) and file["seat"] in found:
            seat = found[file["seat"]]
            if file["run"]:
                _add_run(seat, archive, name.removesuffix("/run.json"))
            elif file["lesson"] in lessons:
                seat.lessons[file["lesson"]] = _cells(seat, archive, name)
    used = {name for seat in found.values() for name in seat.runs}
    return _csv(found, [name for name in (*EXPERIMENTS, OWN) if name in used], lessons)


def _add_run(seat: _Seat, archive: zipfile.ZipFile, folder: str) -> None:
    try:
        info = RunInfo.from_json(_text(seat, archive, f"{folder}/run.json"))
        summary = None
        if f"{folder}/summary.json" in archive.NameToInfo:
            summary = Summary.from_json(_text(seat, archive, f"{folder}/summary.json"))
        accuracy, step = (summary.accuracy, summary.global_step) if summary else (None, None)
        if not 0 <= (accuracy or 0) <= 1 or not 0 <= (step or 0) < _MOST_STEPS:
            raise ValueError("no accuracy or no step")  # noqa: TRY301
    except ValueError:
        seat.unreadable += 1
        return
    if info.imported:
        seat.imported += 1
        return
    experiment = registered(info.spec)
    runs = seat.runs.setdefault(experiment.name if experiment else OWN, [])
    runs.append(_Run(info.started_unix, info.state, accuracy, step))


def _cells(seat: _Seat, archive: zipfile.ZipFile, name: str) -> str:
    """Return how many code cells of a notebook have run: `12 of 14`."""
    try:
        cells = parse(_text(seat, archive, name))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return f"{sum(bool(cell['execution_count']) for cell in code)} of {len(code)}"
    except (ValueError, LookupError, TypeError):
        return _UNREADABLE


def _text(seat: _Seat, archive: zipfile.ZipFile, name: str) -> str:
    size = archive.getinfo(name).file_size
    if size > _MAX_BYTES or seat.read_bytes + size > _MAX_SEAT_BYTES:
        raise ValueError("too large")
    seat.read_bytes += size
    return archive.read(name).decode()


def _csv(found: dict[str, _Seat], experiments: Iterable[str], lessons: Iterable[str]) -> str:
    rows = []
    for name, seat in found.items():
        row: dict[str, object] = {"seat": name, "resets": seat.copies}
        row |= {_UNREADABLE: seat.unreadable, "imported": seat.imported}
        for each in experiments:
            row |= _columns(each, seat.runs.get(each, ()))
        rows.append(row | {f"{each} cells": seat.lessons.get(each, "") for each in lessons})
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns(experiment: str, runs: Sequence[_Run]) -> dict[str, object]:
    runs = sorted(runs, key=lambda run: run.started_unix)
    states = Counter(str(run.state) for run in runs)
    return {
        f"{experiment} runs": ", ".join(f"{states[each]} {each}" for each in sorted(states)),
        f"{experiment} best accuracy": max(
            (run.accuracy for run in runs if run.accuracy is not None), default=None
        ),
        f"{experiment} last accuracy": runs[-1].accuracy if runs else None,
        f"{experiment} last step": runs[-1].global_step if runs else None,
    }
