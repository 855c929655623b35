"""`lab report --tensorboard`: an event for each record, in files beside the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from lab.base.errors import LabError
from lab.protocol.volume import RunSpec
from lab.runner.store.directory import EVENTS_FILE, RunDir
from lab.runner.store.run_info import RunInfo
from lab.study.tensorboard import write_events
from tests.support.cli import Cli
from tests.support.fakes import record

RUN_ID = "20261121-0810-async-aaaa"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / RUN_ID)
    cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    made.create(RunInfo(RUN_ID, RunSpec("async"), cluster=cluster, submitted_unix=1.0))
    (made.path / "tasks").mkdir()
    write(made, "ps-0", {"kind": "start", "time_unix": 1000.0})
    for task in ("worker-0", "worker-1"):
        write(
            made,
            task,
            {"kind": "start", "time_unix": 1000.0},
            {"local_step": 100, "global_step": 210, "loss": 0.5, "time_unix": 1001.0},
            {"local_step": 300, "global_step": 400, "staleness": 2, "time_unix": 1002.0,
             "step_time_s": 0.25},
            {"kind": "eval", "accuracy": 0.75, "global_step": 400, "time_unix": 1002.5},
        )  # fmt: skip
    return made


def write(run: RunDir, task: str, *lines: dict[str, Any]) -> None:
    with run.records(task).open("a") as file:
        file.writelines(json.dumps({**record(task, 0), **line}) + "\n" for line in lines)


def written(*runs: RunDir) -> Sequence[str]:
    folder = runs[0].path / "tb"
    return [str(path.relative_to(folder)) for path in write_events(runs, folder)]


def events(run: RunDir, task: str) -> list[tuple[float, int, dict[str, float]]]:
    first, *others = LegacyEventFileLoader(str(run.path / "tb" / task / EVENTS_FILE)).Load()
    assert first.file_version == "brain.Event:2"
    return [
        (each.wall_time, each.step, {v.tag: v.simple_value for v in each.summary.value})
        for each in others
    ]


def test_every_record_with_data_is_an_event(run: RunDir) -> None:
    assert written(run) == [f"worker-{index}/{EVENTS_FILE}" for index in (0, 1)]
    assert events(run, "worker-0") == [
        (1001.0, 210, {"training/loss": 0.5, "work/local_step": 100.0}),
        (1002.0, 400, {"training/staleness": 2.0, "work/local_step": 300.0,
                       "work/local_steps_per_s": 200.0, "work/step_time_ms": 250.0}),
        (1002.5, 400, {"training/accuracy": 0.75}),
    ]  # fmt: skip


def test_invalid_values_are_left_out(run: RunDir) -> None:
    run.records("worker-0").unlink()
    write(
        run,
        "worker-0",
        {"global_step": 1, "loss": float("nan"), "time_unix": 1e300},
        {"global_step": 2, "loss": float("inf"), "staleness": 1, "time_unix": 1003.0},
        {"loss": 0.5},
        {"local_step": 7, "loss": 0.25, "time_unix": float("nan")},
        {"global_step": -(2**62), "loss": "low", "staleness": 3, "time_unix": -1.0},
    )
    written(run)
    assert events(run, "worker-0") == [
        (1003.0, 2, {"training/staleness": 1.0}),
        (1003.0, 7, {"training/loss": 0.25, "work/local_step": 7.0}),
        (1003.0, -(2**62), {"training/staleness": 3.0}),
    ]


@pytest.mark.parametrize(
    ("steps", "speeds"),
    [
        # The clock is changed: attempt, local step, time, and time since the begin.
        ([(0, 0, 1000.0, 0.0), (0, 10, 4601.0, 1.0), (0, 20, 1002.0, 2.0)], [None, 10.0, 10.0]),
        ([(0, 100, 1000.0, None), (0, 200, 1001.0, None), (1, 50, 1002.0, None),
          (1, 60, 1003.0, None)], [None, 100.0, None, 10.0]),
    ],
    ids=["a changed clock", "a second attempt"],
)  # fmt: skip
def test_speeds_are_those_of_one_attempt(
    run: RunDir, steps: list[Any], speeds: list[float | None]
) -> None:
    run.records("worker-0").unlink()
    names = ("attempt", "local_step", "time_unix", "elapsed_s")
    lines = [dict(zip(names, each, strict=True)) for each in steps]
    write(run, "worker-0", *({**line, "global_step": n} for n, line in enumerate(lines)))
    written(run)
    found = [each.get("work/local_steps_per_s") for _, _, each in events(run, "worker-0")]
    assert found == speeds


def test_several_runs_have_a_directory_each(run: RunDir, tmp_path: Path) -> None:
    """Two archives can have the same run."""
    other = RunDir(tmp_path / "other" / RUN_ID)
    other.path.parent.mkdir()
    other.create(run.read())
    (other.path / "tasks").mkdir()
    write(other, "worker-0", {"global_step": 1, "loss": 0.25, "time_unix": 1001.0})
    names = (f"{RUN_ID}/worker-0", f"{RUN_ID}/worker-1", f"{RUN_ID}-2/worker-0")
    assert written(run, other) == [f"{name}/{EVENTS_FILE}" for name in names]
    assert events(run, f"{RUN_ID}-2/worker-0") == [(1001.0, 1, {"training/loss": 0.25})]


def test_the_files_of_an_earlier_report_go(run: RunDir) -> None:
    written(run)
    own = run.path / "tb" / "worker-1" / "events.out.tfevents.1.host"
    own.touch()
    run.records("worker-1").unlink()
    assert written(run) == [f"worker-0/{EVENTS_FILE}"]
    assert list(own.parent.iterdir()) == [own]


@pytest.mark.parametrize("link", ["tb", "tb/worker-1"])
def test_nothing_is_written_through_a_link(run: RunDir, tmp_path: Path, link: str) -> None:
    written(run)
    elsewhere = (run.path / link).rename(tmp_path / "elsewhere")
    (run.path / link).symlink_to(elsewhere)
    before = {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")}
    with pytest.raises(
        LabError, match=rf"{link} is a link, and `lab` does not follow links; remov"
    ):
        written(run)
    assert {path: path.stat().st_mtime_ns for path in elsewhere.rglob("*")} == before


def test_a_file_that_cannot_be_written(run: RunDir) -> None:
    (run.path / "tb").touch()
    with pytest.raises(LabError, match=r"/tb cannot be written: File exists"):
        written(run)


def test_the_command_writes_them_beside_the_page(
    run: RunDir, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path.parent)
    monkeypatch.setattr("lab.study.plots.style._saved", lambda *_, **__: b"\x89PNG")
    for options, folder in (((), run.path / "tb"), (("--output", "a b.html"), Path("a b-tb"))):
        line = ["report", "last", "--runs-dir", ".", "--json", "--tensorboard", *options]
        out, err = cli(*line)
        files = json.loads(out)["events"]
        assert [Path(file).resolve() for file in files] == [
            (folder / f"worker-{index}" / EVENTS_FILE).resolve() for index in (0, 1)
        ]
        assert "2 event files: show them with `tensorboard --logdir " in err
    assert "--logdir 'a b-tb'`" in err
