"""Notices of a run's preparation: those of the last run are one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.config import load_cluster
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.service.notices import FoldedNotices, last_notices
from lab.service.planning import Project
from lab.task.protocol import RunSpec
from tests.support.fakes import CLUSTER

SEEN = ("backend local: as requested", "CPUs only", "warning: GPU 0 is in use")


def shown(known: tuple[str, ...], *lines: str) -> list[str]:
    found: list[str] = []
    with FoldedNotices(known, found.append) as notices:
        for line in lines:
            notices.notify(line)
    return found


def test_notices_of_the_last_run_are_one_line() -> None:
    folded = "2 notices as in the last run; `lab show last --notices` prints them"
    assert shown(SEEN, *SEEN) == [SEEN[2], folded]
    assert shown(SEEN, SEEN[0], "CPUs: 2", SEEN[1]) == ["CPUs: 2", folded]


def test_the_line_names_the_run_store() -> None:
    found: list[str] = []
    with FoldedNotices(SEEN, found.append, ["--runs-dir", "my runs"]) as notices:
        for line in SEEN[:2]:
            notices.notify(line)
    assert found == [
        "2 notices as in the last run; `lab show last --notices --runs-dir 'my runs'` prints them"
    ]


def test_new_notices_and_a_single_old_one_are_shown_in_full() -> None:
    assert shown((), *SEEN) == [*SEEN]
    assert shown(SEEN, SEEN[0], "CPUs: 3") == ["CPUs: 3", SEEN[0]]


def test_after_an_error_every_notice_is_shown() -> None:
    found: list[str] = []
    with pytest.raises(ValueError, match="no"), FoldedNotices(SEEN, found.append) as notices:
        notices.notify(SEEN[0])
        notices.notify(SEEN[1])
        raise ValueError("no")
    assert found == [*SEEN[:2]]


def test_a_notice_after_the_preparation_is_shown_at_once() -> None:
    found: list[str] = []
    with FoldedNotices(SEEN, found.append) as notices:
        pass
    notices.notify(SEEN[0])
    assert found == [SEEN[0]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    path = Path("cluster.yaml")
    path.write_text(CLUSTER)
    return Project(load_cluster(path), path, tmp_path)


def stored(run_id: str, *notices: str, **fields: object) -> RunDir:
    info = RunInfo(run_id, RunSpec("async"), project="mnist", cluster_file="cluster.yaml")
    run = RunDir(Path("runs") / run_id)
    run.create(replace(info, notices=notices, **fields))
    return run


def test_the_last_run_of_the_same_config_counts(project: Project) -> None:
    assert last_notices(Path("runs"), project) == frozenset()
    stored("20260101-0000-async-a", "old")
    stored("20260102-0000-async-b", "new")
    stored("20260103-0000-async-c", "other", cluster_file="other.yaml")
    stored("20260104-0000-async-d", "other", project="anna")
    assert last_notices(Path("runs"), project) == {"new"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"notices": [1]}', "\0"])
def test_a_damaged_file_is_skipped(project: Project, text: str) -> None:
    stored("20260101-0000-async-a", "old").info_path.write_text(text)
    Path("runs", "a file").touch()
    assert last_notices(Path("runs"), project) == frozenset()


def test_the_notices_of_a_run_can_be_read_again(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stored("r1", "no driver", "evil \x1b[31m")
    assert main(["show", "r1", "--notices"]) == 0
    assert capsys.readouterr().out == "no driver\nevil \\x1b[31m\n"
    assert main(["show", "r1", "--notices", "--json"]) == 0
    assert '"no driver"' in capsys.readouterr().out
    stored("r2")
    assert main(["show", "r2", "--notices"]) == 0
    assert "run r2 has no notices\n" in capsys.readouterr().err
