"""The table of `lab runs`: its columns in a narrow terminal, and its filters."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest
from rich.console import Console

from lab.cli import main
from lab.cli.commands.experiments import _experiments_table
from lab.run.run_list import DAMAGED, STATES, Row, filtered, runs_table, runs_table_within
from lab.run.tables import show
from lab.task.protocol.experiments import EXPERIMENTS

ID = "20260101-0000-estimator-mirrored-aaaa"


def row(run_id: str = ID, experiment: str = "async", state: str = "succeeded") -> Row:
    return {
        "run_id": run_id,
        "experiment": experiment,
        "backend": "compose",
        "state": state,
        "reason": "",
        "note": "",
        "epochs": 50,
        "global_step": 123_456_789,
        "steps_per_s": 1234.6,
        "accuracy": 0.9123,
        "started": "2026-01-01 00:00:00",
    }


def drawn(renderable: object, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(renderable)
    return stream.getvalue()


@pytest.mark.parametrize("width", range(60, 161, 5))
def test_names_are_never_cut_and_lines_fit(width: int) -> None:
    found, left_out = runs_table_within([row(experiment="estimator-mirrored")], width)
    text = drawn(found, width)
    assert ID in text
    assert "estimator-mirrored" in text.replace(ID, "")
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert all(name not in text.splitlines()[0] for name in left_out)


def test_the_least_important_columns_give_way_first() -> None:
    left_out = [runs_table_within([row()], width)[1] for width in range(140, 59, -1)]
    order = [
        *("started (UTC)", "backend", "global step"),
        *("steps/s", "epochs", "accuracy", "state"),
    ]
    assert left_out[0] == []
    assert len(left_out[-1]) > 1
    for narrower in left_out:
        assert narrower == order[: len(narrower)]
    assert all(len(a) <= len(b) for a, b in itertools.pairwise(left_out))


def test_a_name_longer_than_the_terminal_continues_on_the_next_line() -> None:
    long = "a" * 30 + "b" * 30 + "c" * 20
    found, _ = runs_table_within([row(long)], 60)
    text = drawn(found, 60)
    assert "…" not in text
    assert [text.count(letter * 5) >= 1 for letter in "abc"] == [True] * 3
    assert sum(text.count(letter) for letter in "b") >= 30


def test_a_pipe_gets_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    show(runs_table([row("r" * 80, "e" * 120)]))
    text = capsys.readouterr().out
    for part in (
        *("r" * 80, "e" * 120, "compose", "succeeded", "50", "123,456,789", "1,235", "0.9123"),
        "2026-01-01 00:00:00",
    ):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 160])
def test_experiments_are_complete_at_every_width(width: int) -> None:
    text = drawn(_experiments_table(list(EXPERIMENTS.values())), width)
    assert "…" not in text
    words = text.split()
    for each in EXPERIMENTS.values():
        assert each.name in words
        assert set(each.summary.split()) <= set(words)


ROWS = [
    row("a", "async", "failed"),
    row("b", "sync", "failed"),
    row("c", "async", "succeeded"),
    row("d", "", DAMAGED),
    row("e", "async", "failed"),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "abcde"),
        ({"last": 2}, "de"),
        ({"last": 9}, "abcde"),
        ({"experiment": "async"}, "ace"),
        ({"state": "failed"}, "abe"),
        ({"state": DAMAGED}, "d"),
        ({"experiment": "async", "state": "failed", "last": 1}, "e"),
        ({"experiment": "unknown"}, ""),
    ],
)
def test_filters_apply_together_and_the_newest_remain(
    filters: dict[str, object], expected: str
) -> None:
    found = filtered(ROWS, **filters)  # type: ignore[arg-type]
    assert "".join(each["run_id"] for each in found) == expected


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A run store with damaged runs."""
    for name in ("aaaa", "bbbb", "cccc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{")
    return tmp_path


def test_the_command_filters(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--runs-dir", str(store), "--json", "--last", "2"]) == 0
    assert [each["run_id"] for each in json.loads(capsys.readouterr().out)] == ["bbbb", "cccc"]
    assert main(["runs", "--runs-dir", str(store), "--state", "damaged", "--last", "1"]) == 0
    captured = capsys.readouterr()
    assert "cccc" in captured.out
    assert "bbbb" not in captured.out + captured.err


def test_a_collected_run_shows_its_epochs_and_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    directory = Path(__file__).parent / "format_1"
    assert main(["runs", "--runs-dir", str(directory)]) == 0
    heading, _, line = capsys.readouterr().out.splitlines()
    assert heading.split()[4:8] == ["epochs", "global", "step", "steps/s"]
    assert line.split()[4:7] == ["1", "1,650", "257"]


def test_an_empty_result_names_the_filters(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs", "--runs-dir", str(store), "--experiment", "mine\x1b", "--state", "failed"]
    assert main([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert (json.loads(captured.out), captured.err) == ([], "")
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "none of the 3 runs" in line
    assert "--experiment mine\\x1b --state failed" in line


def test_an_unknown_state_lists_the_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--state", "broken"]) == 2
    error = capsys.readouterr().err
    assert all(state in error for state in STATES)
    assert DAMAGED in STATES
