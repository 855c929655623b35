"""The gradebook: what the archive says of each seat, although students can forge all of it."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.classroom import gradebook as module
from lab.classroom.gradebook import gradebook
from lab.run.run_info import RunInfo
from lab.run.summary import Summary
from lab.task.protocol import RunSpec
from lab.task.protocol.states import State

SEATS = ("ada", "bob", "ada-b")
Files = dict[str, str | bytes]


def run(
    name: str, spec: RunSpec | None = None, state: State = State.SUCCEEDED, **fields: Any
) -> Files:
    """The files of a run of ada that ended; its start is in its name."""
    figures = {"accuracy": 0.9, "global_step": 100, **fields.pop("figures", {})}
    info = RunInfo(name, spec or RunSpec("async"), state, started_unix=float(name[1:]), **fields)
    others = dict.fromkeys(("updates_conserved", "updates_lost", "wall_s", "first_step_s"))
    summary = Summary(
        run_id=name,
        experiment="async",
        backend="local",
        state=state,
        reason="",
        degraded=False,
        steps_redone=0,
        resumed_from="",
        steps_per_s=None,
        records_lost=0,
        tasks=[],
        **others,
        **figures,
    )
    folder = f"ada/runs/{name}"
    return {f"{folder}/run.json": info.to_json(), f"{folder}/summary.json": summary.to_json()}


def notebook(*counts: int | None) -> str:
    cells = [{"cell_type": "code", "execution_count": count} for count in counts]
    return json.dumps({"cells": [{"cell_type": "markdown"}, *cells]})


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., dict[str, dict[str, str]]]:
    """The row of each seat; the archive is still being written, as in `lab class down`."""

    def read(*files: Files) -> dict[str, dict[str, str]]:
        with (
            (tmp_path / "w.zip").open("w+b") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, content in {k: v for each in files for k, v in each.items()}.items():
                archive.writestr(name, content)
            text = gradebook(archive, SEATS, ("tour", "async"))
        found = list(csv.DictReader(io.StringIO(text)))
        assert [row["seat"] for row in found] == list(SEATS)
        return {row["seat"]: row for row in found}

    return read


def test_the_facts_of_each_seat(rows: Callable[..., Any]) -> None:
    found = rows(
        run("r3", figures={"accuracy": 0.5, "global_step": 7}),
        run("r1", figures={"accuracy": 0.75}),
        run("r2", state=State.FAILED, figures={"accuracy": None, "global_step": None}),
        run("r4", RunSpec("sync"), figures={"accuracy": None}),
        run("r5", RunSpec("mine.py", own=True)),
        run("r6", imported=True),
        {
            "ada/notebooks/00_tour.ipynb": notebook(1, None, 7),
            "bob/notebooks/01_async.ipynb": notebook(None),
            "bob/notebooks/02_sync.ipynb": notebook(1),  # not a lesson of this class
            "resets/ada-20261201-090000.zip": b"",
            "resets/ada-20261201-100000.zip": b"",
            "resets/ada-b-20261201-100000.zip": b"",
        },
    )
    assert found["ada"] == {
        "seat": "ada",
        "resets": "2",
        "unreadable": "0",
        "imported": "1",
        "async runs": "1 failed, 2 succeeded",
        "async best accuracy": "0.75",
        "async last accuracy": "0.5",
        "async last step": "7",
        "sync runs": "1 succeeded",
        "sync best accuracy": "",
        "sync last accuracy": "",
        "sync last step": "100",
        "own programs runs": "1 succeeded",
        "own programs best accuracy": "0.9",
        "own programs last accuracy": "0.9",
        "own programs last step": "100",
        "tour cells": "2 of 3",
        "async cells": "",
    }
    assert found["bob"]["async cells"] == "0 of 1"
    assert {found["bob"][name] for name in found["bob"] if name.startswith("sync ")} == {""}
    assert (found["bob"]["resets"], found["ada-b"]["resets"]) == ("0", "1")


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_that_was_collected_at_the_end(order: int, rows: Callable[..., Any]) -> None:
    ended = {name.replace("/runs/", "/queue/"): text for name, text in run("r1").items()}
    files = [run("r1", state=State.TRAINING), ended, run("r2", state=State.FAILED)][::order]
    assert rows(*files)["ada"]["async runs"] == "1 failed, 1 succeeded"


def test_a_run_without_a_summary(rows: Callable[..., Any]) -> None:
    files = run("r1", state=State.TRAINING)
    del files["ada/runs/r1/summary.json"]
    row = rows(files)["ada"]
    assert (row["async runs"], row["async last step"], row["unreadable"]) == ("1 training", "", "0")


@pytest.mark.parametrize(
    "experiment", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "a,\r\n=1", "\t=1"]
)
def test_no_text_of_a_student_gets_into_a_cell(experiment: str, rows: Callable[..., Any]) -> None:
    files = run("r1", RunSpec(experiment), reason=experiment)
    files[f"ada/notebooks/{experiment}.ipynb"] = notebook(1)
    files[f"resets/{experiment}-20261201-090000.zip"] = b""
    files["ada/notebooks/00_tour.ipynb"] = json.dumps(
        {"cells": [{"cell_type": "code", "execution_count": experiment}]}
    )
    for row in rows(files).values():
        for name, cell in row.items():
            assert not {name[:1], cell[:1]} & set("=+-@\t\r\n")
            assert experiment not in {name, cell}


DEEP = "[" * 100_000


@pytest.mark.parametrize("file", ["run.json", "summary.json"])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        b"\xff\xfe",
        DEEP,
        '{"a":' * 100_000,
        "9" * 5000,
        '{"format": 99}',
    ],
    ids=range(10),
)
def test_a_damaged_run_is_counted(
    file: str, content: str | bytes, rows: Callable[..., Any]
) -> None:
    row = rows(run("r1"), run("r2") | {f"ada/runs/r2/{file}": content})["ada"]
    assert (row["async runs"], row["unreadable"]) == ("1 succeeded", "1")


@pytest.mark.parametrize(
    "figures",
    [
        {"accuracy": 1.5},
        {"accuracy": -0.1},
        {"accuracy": float("nan")},
        {"accuracy": float("inf")},
        {"global_step": -1},
        {"global_step": 1 << 63},
    ],
)
def test_impossible_figures(figures: dict[str, Any], rows: Callable[..., Any]) -> None:
    assert rows(run("r1", figures=figures))["ada"]["unreadable"] == "1"


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"cells": 1}', '{"cells": [1]}', '{"cells": [{}]}', '{"cells": "code"}',
        '{"cells": [{"cell_type": "code"}]}', b"\xff", DEEP, '{"cells": {"a": {}}}',
    ],
    ids=range(11),
)  # fmt: skip
def test_a_damaged_notebook(content: str | bytes, rows: Callable[..., Any]) -> None:
    row = rows({"ada/notebooks/00_tour.ipynb": content})["ada"]
    assert row["tour cells"] == "unreadable"


def test_no_seat_makes_the_end_long(
    rows: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, run("r2").values()))
    monkeypatch.setattr(module, "_MAX_BYTES", size)
    monkeypatch.setattr(module, "_MAX_SEAT_BYTES", 3 * size)
    large = run("r1") | {"ada/runs/r1/run.json": "{}" + " " * size}
    other = {"ada/notebooks/09_other.ipynb": " " * size}
    row = rows(other, large, run("r2"), run("r3"), run("r4"), run("r5"))["ada"]
    assert (row["async runs"], row["unreadable"]) == ("3 succeeded", "2")
