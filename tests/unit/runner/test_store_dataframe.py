"""Records as a data frame: all of them, in order, with their types; damage is named."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.protocol.records import FIELDS
from lab.protocol.records.reader import LineReader, read_records
from lab.protocol.volume import RunSpec
from lab.runner.store.dataframe import DAMAGED, records_frame, steps_frame
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.task_progress import read_progress
from tests.support.fakes import record

CLUSTER = {"ps": ["a:1"], "worker": [f"b:{port}" for port in range(11)]}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "r")
    made.create(RunInfo(run_id="r", spec=RunSpec(experiment="async"), cluster=CLUSTER))
    (made.path / "tasks").mkdir()
    return made


def write(run: RunDir, task: str, *lines: object) -> None:
    with run.records(task).open("ab") as file:
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode()
            file.write(data + b"\n")


def damage_of(run: RunDir) -> tuple[pd.DataFrame, tuple[str, ...]]:
    output: list[str] = []
    with shown_by(output.append):
        frame = records_frame(run)
    assert bool(output) == bool(frame.attrs[DAMAGED])
    return frame, frame.attrs[DAMAGED]


def test_every_field_has_its_column_and_its_type(run: RunDir) -> None:
    full = {
        "loss": 0.5, "accuracy": 0.25, "epoch": 0, "local_step": 2**62, "message": "a b",
        "name": "ratio", "value": 3, "status": "succeeded",
    }  # fmt: skip
    write(run, "worker-0", record("worker-0", 0, "step", **full), record("worker-0", 1, "final"))
    frame = records_frame(run)
    assert list(frame.columns) == ["task", *FIELDS]
    first, second = frame.iloc[0], frame.iloc[1]
    assert {name: first[name] for name in full} == full
    assert (first["task"], first["kind"], first["job_name"]) == ("worker-0", "step", "worker")
    assert math.isnan(second["loss"])
    assert second["local_step"] is pd.NA
    assert {str(frame[name].dtype) for name, kind in FIELDS.items() if kind is int} == {"Int64"}
    assert {str(frame[name].dtype) for name, kind in FIELDS.items() if kind is float} == {"float64"}
    assert {str(frame[name].dtype) for name in ("task", "kind", "run")} == {"category"}
    assert pd.isna(second["message"])
    assert frame.attrs[DAMAGED] == ()


def test_rows_are_in_the_order_of_the_cluster_and_the_file(run: RunDir) -> None:
    for task in ("worker-10", "worker-2", "ps-0"):
        write(run, task, record(task, 1), record(task, 0))
    write(run, "chief-0", record("chief-0", 7))  # of a task that the cluster has not
    frame = records_frame(run)
    assert list(zip(frame["task"], frame["seq"], strict=True)) == [
        ("ps-0", 1), ("ps-0", 0), ("worker-2", 1), ("worker-2", 0), ("worker-10", 1),
        ("worker-10", 0), ("chief-0", 7),
    ]  # fmt: skip
    assert list(frame["task"].cat.categories) == ["ps-0", "worker-2", "worker-10", "chief-0"]
    assert set(records_frame(run, ["worker-2"])["task"]) == {"worker-2"}


def test_a_run_without_records_has_an_empty_frame(run: RunDir) -> None:
    frame = records_frame(run)
    assert (len(frame), list(frame.columns)) == (0, ["task", *FIELDS])
    assert str(frame["global_step"].dtype) == "Int64"
    assert list(frame["task"].cat.categories) == []
    kinds = ("start", "step", "epoch", "eval", "result", "final", "event")
    write(run, "worker-0", *(record("worker-0", n, kind) for n, kind in enumerate(kinds)))
    steps = steps_frame(run)
    assert (list(steps["seq"]), list(steps.index)) == ([1, 2], [0, 1])


LINE = "tasks/worker-0.jsonl:2: "


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        *((line, "not a record") for line in (
            b"", b"[1]", b'{"kind":"step"', b"\xff\xfe", b"[" * 100_000, b"7",
            b'{"seq": 5, "kind": 3}',
            b'{"a":' + b"[" * 99_999, b'{"global_step": ' + b"1" * 5000 + b"}")),
        *((b'{"seq": 5, "' + field.encode() + b'": ' + value + b"}", f"wrong type of {field}")
          for field, value in (
            ("global_step", b'"many"'), ("global_step", b"1.5"), ("global_step", b"true"),
            ("global_step", b"9223372036854775808"), ("global_step", b"-9223372036854775809"),
            ("loss", b'"low"'), ("loss", b"1" + b"0" * 400), ("loss", b"[]"),
            ("message", b"{}"))),
    ],
)  # fmt: skip
def test_an_invalid_line_is_named_and_its_other_fields_are_kept(
    run: RunDir, line: bytes, damage: str
) -> None:
    write(run, "worker-0", record("worker-0", 0), line, record("worker-0", 1))
    frame, damaged = damage_of(run)
    assert damaged == (f"{LINE}{damage}",)
    assert read_progress(run.records("worker-0"), "worker-0").records == len(frame)
    is_wrong = damage.startswith("wrong")
    assert list(frame["seq"]) == ([0, 5, 1] if is_wrong else [0, 1])
    assert not is_wrong or frame[damage.rpartition(" ")[2]].isna()[1]


def test_odd_values_that_are_no_damage(run: RunDir) -> None:
    write(run, "worker-0", *(record("worker-0", 0, loss=x) for x in (math.nan, math.inf, 2)))
    # Half a surrogate pair becomes text that can be written, and half a line is ignored.
    write(run, "worker-0", b'{"kind": "event", "message": "\\ud800!"}')
    with run.records("worker-0").open("ab") as file:
        file.write(b'{"kind": "st')
    frame, damaged = damage_of(run)
    assert (len(frame), damaged) == (4, ())
    assert math.isnan(frame["loss"][0])
    assert list(frame["loss"][1:3]) == [math.inf, 2.0]
    assert frame["message"][3].encode() == b"?!"


def test_a_line_has_a_limit(run: RunDir) -> None:
    good = record("worker-0", 0)
    write(run, "worker-0", {"kind": "step", "message": "x" * 10**6, "seq": 1}, good)
    frame, damaged = damage_of(run)
    assert (list(frame["seq"]), damaged) == ([0], ("tasks/worker-0.jsonl:1: not a record",))
    assert [*read_records(run.records("worker-0"))] == [good]
    reader, data = LineReader(), run.records("worker-0").read_bytes()
    pieces = [data[start : start + 4096] for start in range(0, len(data), 4096)]
    assert [found for piece in pieces for found in reader.feed(piece)] == [good]


def test_records_are_not_read_through_a_link(run: RunDir) -> None:
    write(run, "worker-1", record("worker-1", 0))
    run.records("worker-0").symlink_to(run.records("worker-1"))
    assert list(records_frame(run)["task"]) == ["worker-1"]
    assert [*read_records(run.records("worker-0"))] == []


def test_damage_is_a_warning(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    write(run, "worker-0", b"x", b"y")
    records_frame(run)
    ((_, level, line),) = caplog.record_tuples
    assert level == logging.WARNING
    assert re.match(r"run r has 2 damaged lines .*worker-0\.jsonl:1: not", line)


def test_files_beside_the_records_are_no_tasks(run: RunDir) -> None:
    write(run, "worker-0", record("worker-0", 0))
    write(run, "..-0", record("worker-0", 1))
    run.records("worker-1").mkdir()
    assert list(records_frame(run)["seq"]) == [0]


def test_names_in_run_json_are_no_paths(tmp_path: Path) -> None:
    made = RunDir(tmp_path / "r")
    made.create(
        RunInfo(
            run_id="r",
            spec=RunSpec(experiment="x"),
            cluster={"../../secret": ["a:1"], "..": ["b:1"]},
        )
    )
    (made.path / "tasks").mkdir()
    made.path.joinpath("tasks/..-0.jsonl").write_text('{"seq": 1}\n')
    (tmp_path / "secret-0.jsonl").write_text('{"seq": 1}\n')
    with pytest.raises(LabError, match="not a valid job name"):
        records_frame(made)


def test_without_a_run_json_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"run\.json is missing"):
        records_frame(RunDir(tmp_path))


def test_records_with_different_fields_are_joined(run: RunDir) -> None:
    write(run, "worker-0", record("worker-0", 0), record("worker-0", 1, "final", status="lost"))
    write(run, "worker-1", {"seq": 2})
    frame = records_frame(run)
    assert [each == "lost" for each in frame["status"]] == [False, True, False]
    assert list(frame["kind"][:2]) == ["step", "final"]
    assert list(frame["kind"].isna()) == [False, False, True]
