"""The table of `lab runs`: its columns in a narrow terminal, and its filters."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lab.base import tables
from lab.base.tables import fitting, show
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.files import read_regular
from lab.runner.run_list import DAMAGED, STATES, Row, filtered, runs_table
from lab.runner.store.summarize import summarize
from lab.verbs.experiments import _experiments_table
from tests.support.cli import ROOT, Cli
from tests.support.recorded import make

ID = "20260101-0000-estimator-mirrored-aaaa"


def row(
    run_id: str = ID, experiment: str = "async", state: str = "succeeded", **changes: Any
) -> Row:
    return Row(
        run_id=run_id,
        experiment=experiment,
        backend="compose",
        state=state,
        epochs=50,
        global_step=123_456_789,
        steps_per_s=1234.6,
        accuracy=0.9123,
        started="2026-01-01 00:00:00",
        **changes,
    )


def drawn(renderable: object, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False).print(renderable)
    return stream.getvalue()


@pytest.mark.parametrize("width", range(60, 161, 5))
def test_names_are_never_cut_and_lines_fit(width: int) -> None:
    found, left_out = runs_table([row(experiment="estimator-mirrored")], width)
    text = drawn(found, width)
    assert ID in text
    assert "estimator-mirrored" in text.replace(ID, "")
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert all(name not in text.splitlines()[0] for name in left_out)


def test_the_least_important_columns_give_way_first() -> None:
    left_out = [runs_table([row()], width)[1] for width in range(140, 59, -1)]
    order = [
        *("started (UTC)", "backend", "global step"),
        *("steps/s", "epochs", "accuracy", "state"),
    ]
    assert left_out[0] == []
    assert len(left_out[-1]) > 1
    for narrower in left_out:
        assert narrower == order[: len(narrower)]
    assert all(len(a) <= len(b) for a, b in itertools.pairwise(left_out))


def test_a_name_longer_than_the_terminal_continues_and_a_pipe_gets_every_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, _ = runs_table([row("a" * 30 + "b" * 30 + "c" * 20)], 60)
    text = drawn(found, 60)
    assert "…" not in text
    assert [text.count(letter) >= 20 for letter in "abc"] == [True] * 3
    show(runs_table([row("r" * 80, "e" * 120)])[0])
    values = ["r" * 80, "e" * 120, "compose", "succeeded", "50", "123,456,789", "1,235", "0.9123"]
    assert {*values, "2026-01-01", "00:00:00"} <= {*capsys.readouterr().out.split()}


def test_a_run_with_a_fault_is_marked_and_one_without_a_worker_is_named(
    cli: Cli, tmp_path: Path
) -> None:
    kill = ("kill worker-1 after 500 steps",)
    whole, degraded = (
        make(tmp_path, f"20260101-000{n}-async-aaaa", steps=60, faults=kill * n) for n in range(2)
    )
    status = json.loads(degraded.status("worker-1").read_text()) | {"state": "failed"}
    degraded.status("worker-1").write_text(json.dumps(status))
    for run in (whole, degraded):
        run.summary_path.write_text(summarize(run).to_json())
    out, err = cli("runs", "--runs-dir", str(tmp_path))
    assert [line.split()[3] for line in out.splitlines()[2:]] == ["succeeded", "succeeded*"]
    assert f"run {degraded.run_id} succeeded: without worker-1" in err
    assert "* with an injected fault; " in err
    assert whole.run_id not in err
    found = json.loads(cli("runs", "--runs-dir", str(tmp_path), "--json").out)
    assert [row["faults"] for row in found] == [[], [*kill]]
    assert [row["missing"] for row in found] == [[], ["worker-1"]]
    cell = runs_table([row(missing=("worker-1",))])[0].columns[3]._cells[0]
    assert str(cell.style) == "yellow"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_experiments_are_complete_at_every_width(width: int) -> None:
    text = drawn(_experiments_table(list(EXPERIMENTS.values())), width)
    assert "…" not in text
    for each in EXPERIMENTS.values():
        assert {each.name, *each.summary.split()} <= {*text.split()}


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
    found = filtered(ROWS, **filters)
    assert "".join(each.run_id for each in found) == expected


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    for name in ("aaaa", "bbbb", "cccc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{")
    return ["runs", "--runs-dir", str(tmp_path)]


def test_the_command_filters(store: list[str], cli: Cli) -> None:
    found = json.loads(cli(*store, "--json", "--last", "2").out)
    assert [each["run_id"] for each in found] == ["bbbb", "cccc"]
    captured = cli(*store, "--state", "damaged", "--last", "1")
    assert "cccc" in captured.out
    assert "bbbb" not in captured.out + captured.err
    error = cli("runs", "--state", "broken", code=2).err
    assert all(state in error for state in (DAMAGED, *STATES))


def test_without_a_number_the_newest_20_of_the_runs_are_listed(tmp_path: Path, cli: Cli) -> None:
    names = [f"r{number:03d}" for number in range(23)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{")

    def listed(*arguments: str) -> list[str]:
        found = cli("runs", "--runs-dir", str(tmp_path), *arguments, "--json").out
        return [each["run_id"] for each in json.loads(found)]

    assert listed() == names[-20:] == listed("--state", DAMAGED)
    assert listed("-n", "2") == names[-2:]
    assert listed("--all") == names
    assert "the newest 20 runs; --all lists all 23" in cli("runs", "--runs-dir", str(tmp_path)).err


def test_a_settled_run_costs_one_read_of_two_files(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def count(path: Path) -> str:
        read.append(path)
        return read_regular(path)

    for module in ("lab.runner.store.directory", "lab.runner.store.summary"):
        monkeypatch.setattr(f"{module}.read_regular", count)
    assert cli("runs", "--all", "--runs-dir", str(ROOT / "notebooks/samples")).out
    runs = [path for path in (ROOT / "notebooks/samples").iterdir() if path.is_dir()]
    assert sorted(read) == sorted(
        run / name for run in runs for name in ("run.json", "summary.json")
    )


@given(
    st.lists(st.tuples(*[st.text("ab[]世\n ", max_size=6)] * 3), min_size=1, max_size=5),
    st.sampled_from([None, 8, 40]),
)
def test_many_rows_look_as_few_do(rows: list[tuple[str, ...]], width: int | None) -> None:
    def shown() -> str:
        table, left_out = fitting(
            ["a", ">right", "last"], rows, width=width, give_way=["last"], whole=["a"]
        )
        return f"{left_out}\n{drawn(table, width or 40)}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_MANY", 1)
        many = shown()
    assert many == shown()


def test_an_empty_result_names_the_filters(store: list[str], cli: Cli) -> None:
    arguments = [*store, "--experiment", "mine\x1b", "--state", "failed"]
    assert cli(*arguments, "--json") == ("[]\n", "")
    out, err = cli(*arguments)
    assert out == ""
    assert "none of the 3 runs" in err
    assert "--experiment mine\\x1b --state failed" in err


def test_a_collected_run_shows_its_epochs_and_its_rate(cli: Cli) -> None:
    directory = ROOT / "notebooks/samples"
    heading, _, line, *_ = cli("runs", "--runs-dir", str(directory)).out.splitlines()
    assert heading.split()[4:8] == ["epochs", "global", "step", "steps/s"]
    assert line.split()[4:7] == ["50", "82,500", "332"]
