"""The results of an experiment: from its records to the summary, the table and the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import LabError
from lab.base.tables import show
from lab.protocol.records import format_record, parse_record
from lab.protocol.records.reader import Result, result_of, unexpected
from lab.protocol.volume.states import State
from lab.runner.result_table import result_table
from lab.runner.store.directory import RunDir
from lab.runner.store.summarize import summary_of
from lab.runner.store.summary import Summary
from lab.runner.store.task_progress import TaskProgress
from lab.runner.verdict import check_succeeded
from tests.support.specs import changed, prepared


@pytest.mark.parametrize(
    ("value", "low", "high", "as_expected"),
    [
        (2.0, 1.95, 2.05, True),
        (1.95, 1.95, 2.05, True),
        (2.06, 1.95, 2.05, False),
        (1.94, 1.95, 2.05, False),
        (3, 3, 3, True),
        (2, 3, 3, False),
        (5, None, None, True),
        (5, 6, None, False),
        (5, None, 4, False),
        (math.nan, None, None, False),
        (math.nan, 0, 1, False),
    ],
)
def test_a_result_is_in_its_band_or_not(
    value: float, low: float | None, high: float | None, as_expected: bool
) -> None:
    assert Result("w", value, low, high).is_as_expected is as_expected


def test_a_record_holds_a_result() -> None:
    line = format_record({"kind": "result", "name": "w now", "value": 2, "low": 1.5, "high": 2.5})
    assert line == 'lab kind=result name="w now" value=2.0 low=1.5 high=2.5'
    record = parse_record(line)
    assert record is not None
    assert result_of(record) == Result("w now", 2.0, 1.5, 2.5)
    assert result_of({"name": "w", "value": 3.0}) == Result("w", 3.0)
    assert result_of({"name": "w"}) is None
    assert result_of({"name": 7, "value": 1.0}) is None
    assert result_of({"name": "w", "value": "x"}) is None


def test_results_that_are_not_as_expected(tmp_path: Path) -> None:
    def told(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    good = '{"kind": "result", "name": "w", "value": 2.0, "low": 1.9, "high": 2.1}'
    bad = '{"kind": "result", "name": "w", "value": 3.0, "low": 1.9, "high": 2.1}'
    other = '{"kind": "step", "name": "w", "value": 9.0, "high": 1.0}'
    assert unexpected([told("a", good, other, "half a lin", "7")], ["w"]) == []
    assert unexpected([told("a", bad, good)], ["w"]) == []  # the newest counts
    assert unexpected([told("a", good), told("b", bad)], ["w"]) == ["w"]
    assert unexpected([told("a", good), tmp_path / "none"], ["w", "b"]) == ["b"]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepared(tmp_path)


def summary(run: RunDir, *found: Result, state: State = State.SUCCEEDED) -> Summary:
    info = changed(run.read(), experiment="linear", results=("w", "b"), state=state)
    progress = {task: TaskProgress(task) for task in info.task_names()}
    for each in found:
        fields = {"name": each.name, "value": each.value, "low": each.low, "high": each.high}
        progress["worker-0"].add({"kind": "result", **fields})
    return summary_of(info, {}, progress)


W, B = Result("w", 2.01, 1.95, 2.05), Result("b", 9.99, 9.9, 10.1)


def test_the_newest_of_several_counts(run: RunDir) -> None:
    whole = summary(run, replace(W, value=3.0), W, B)
    assert whole.as_expected
    check_succeeded(run, whole)


@pytest.mark.parametrize(
    ("results", "error", "shown"),
    [
        (
            [replace(W, value=2.5), B],
            r"w is 2\.5, not 1\.95 to 2\.05; see",
            "2.5, NOT 1.95 to 2.05",
        ),
        ([W, B, replace(W, value=3.0)], "w is 3", "9.99, as expected 9.9 to 10.1"),  # the newest
        ([W], "b was not found", "NOT FOUND"),
    ],
)
def test_a_result_that_is_not_as_expected_is_no_success(
    run: RunDir, results: list[Result], error: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = summary(run, *results)
    with pytest.raises(LabError, match=f"succeeded, but {error}"):
        check_succeeded(run, whole)
    show(result_table(whole))
    assert shown in capsys.readouterr().out


def test_equal_results_of_several_tasks_are_shown_once(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    info = replace(run.read(), state=State.SUCCEEDED)
    progress = {task: TaskProgress(task) for task in info.task_names()}
    for task, apart in (("worker-0", 1588000), ("worker-1", 7)):
        progress[task].add({"kind": "result", "name": "same", "value": 3, "low": 3, "high": 3})
        progress[task].add({"kind": "result", "name": "apart", "value": apart})
    show(result_table(summary_of(info, {}, progress)))
    output = capsys.readouterr().out
    assert output.count("same") == 1
    assert "3, as expected 3" in output
    assert [line.split() for line in output.splitlines() if "apart" in line] == [
        ["apart,", "worker-0", "1,588,000"],
        ["apart,", "worker-1", "7"],
    ]
