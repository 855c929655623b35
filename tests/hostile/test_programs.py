"""Programs that do harm: nothing of any run is lost, and every harm is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import lab

HARM = Path(__file__).parent / "programs/harm.py"
CLUSTER = """\
version: 1
name: harm
nodes: {a: {}, b: {}}
jobs:
  ps: {on: [a]}
  worker: {on: [a, b]}
"""
LITTER = {
    "report.html",
    "run.json",
    "summary.json",
    "figures/loss.png",
    "tasks/mine.csv",
    "tasks/worker-0.jsonl",
    "status/x",
    "logs/worker-0.log",
    ".hidden",
}
NAMES = {"x" * 250, "new%0Aline", "esc%1B%5B31m", "%FF%FE", "$(touch pwned)", "-rf"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("harm")
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "scripts").mkdir()
    lab(folder, "up", "--backend", "local", "--gpus", "none")
    yield folder
    lab(folder, "down", "--yes", "--discard")


def do(project: Path, harm: str, code: int = 0) -> tuple[Path, dict[str, object]]:
    """Run the program with one harm; the run's directory, and its summary."""
    out, _ = lab(project, "run", str(HARM), "--json", "--", harm, code=code)
    summary = json.loads(out.splitlines()[-1])
    return project / "runs" / summary["run_id"], summary


def steps(run: Path, task: str) -> list[int]:
    """The steps in a task's records."""
    lines = (run / f"tasks/{task}.jsonl").read_text().splitlines()
    return [json.loads(line)["local_step"] for line in lines]


def files(run: Path) -> dict[str, str]:
    """Path to text of all that the program wrote."""
    found = (path for path in (run / "files").rglob("*") if path.is_file())
    return {path.relative_to(run / "files").as_posix(): path.read_text() for path in found}


def test_files_under_labs_names_are_collected_beside_labs_own(project: Path) -> None:
    run, summary = do(project, "litter")
    expected = {name: f"mine: {name}" for name in LITTER}
    assert files(run) == expected | {"empty": ""}
    assert json.loads((run / "run.json").read_text())["state"] == "succeeded"
    assert steps(run, "worker-0") == [1, 2, 3]
    assert summary["left"] == []


def test_removed_working_directory_loses_no_record(project: Path) -> None:
    run, summary = do(project, "wipe")
    for task in ("ps-0", "worker-0", "worker-1"):
        assert steps(run, task) == [1, 2, 3]
        assert (run / f"logs/{task}.log").read_text() == "the last line\n"
    assert summary["state"] == "succeeded"


def test_links_and_pipes_are_named_and_never_followed(project: Path) -> None:
    run, summary = do(project, "links")
    assert files(run) == {"plain": "mine"}
    assert summary["left"] == [
        {"path": f"files/{name}", "reason": f"it is a {kind}", "kept": False}
        for name, kind in (
            ("dangling", "link"),
            ("folder", "link"),
            ("loop", "link"),
            ("passwd", "link"),
            ("pipe", "pipe"),
            ("socket", "socket"),
        )
    ]


def test_odd_names_are_collected(project: Path) -> None:
    run, summary = do(project, "names")
    deep = "/".join(["deep"] * 150)
    assert files(run) == dict.fromkeys({*NAMES, f"{deep}/plain"}, "mine")
    assert summary["left"] == []
    assert not list(project.rglob("pwned"))


def test_records_that_another_task_has_changed_fail_the_run(project: Path) -> None:
    run, summary = do(project, "forge", code=1)
    assert summary["reason"] == "another process changed or removed the records of worker-1"
    assert steps(run, "worker-0") == [1, 2, 3]


def test_records_that_were_removed_fail_the_run(project: Path) -> None:
    _, summary = do(project, "vanish", code=1)
    assert summary["reason"] == "another process changed or removed the records of ps-0"
    assert (summary["state"], summary["left"]) == ("failed", [])


def test_records_that_are_no_file_are_named_as_not_collected(project: Path) -> None:
    run, summary = do(project, "steal", code=1)
    assert summary["left"] == [
        {"path": "tasks/worker-1.jsonl", "reason": "it is a link", "kept": True},
        {"path": "logs/worker-1.log", "reason": "it is a pipe", "kept": True},
    ]
    for task in ("ps-0", "worker-0"):
        assert steps(run, task) == [1, 2, 3]
        assert (run / f"logs/{task}.log").read_text() == "the last line\n"


def test_pipes_in_place_of_files_stop_no_agent(project: Path) -> None:
    run, summary = do(project, "confuse")
    assert summary["left"] == [{"path": "faults.json", "reason": "it is a pipe", "kept": False}]
    for task in ("ps-0", "worker-0", "worker-1"):
        assert steps(run, task) == [1, 2, 3]
    do(project, "litter")


def test_a_remaining_volume_is_listed_and_blocks_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("harm", "stays"))
    (tmp_path / "scripts").mkdir()
    local = ("--backend", "local", "--gpus", "none")
    out, err = lab(tmp_path, "run", str(HARM), *local, "--json", "--", "collide", code=1)
    summary = json.loads(out.splitlines()[-1])
    left = {"path": "report.html", "reason": "the name is reserved for lab", "kept": True}
    assert (summary["state"], summary["left"]) == ("succeeded", [left])
    assert "files that were not collected: 1" in err.splitlines()[-1]
    lab(tmp_path, "run", str(HARM), *local, "--", "litter")
    (listed,) = json.loads(lab(tmp_path, "ls", "--json")[0])
    assert (listed["name"], listed["alive"], listed["runs"]) == ("stays", 0, 2)
    _, err = lab(tmp_path, "down", "stays", "--yes")
    assert "the run volume of 'stays' is kept" in err
    lab(tmp_path, "down", "stays", "--discard", "--yes")
    assert lab(tmp_path, "ls", "--json")[0] == "[]\n"
