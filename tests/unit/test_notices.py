"""Notices of a run's preparation: those of the last run are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.config import load_cluster
from lab.service.notices import FoldedNotices, last_notices
from lab.service.planning import Project
from lab.store.directory import RunDir
from tests.support.cli import Cli
from tests.support.fakes import CLUSTER
from tests.support.specs import run_info


def test_notices_of_the_last_run_of_the_same_config_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("cluster.yaml")
    path.write_text(CLUSTER)
    for run_id, project, notices in (
        ("20260101-0000-async-a", "mnist", ("old",)),
        ("20260102-0000-async-b", "mnist", ("CPUs", "evil \x1b[31m", "warning: in use")),
        ("20260103-0000-async-c", "anna", ("other",)),
    ):
        info = run_info(run_id, project=project, cluster_file="cluster.yaml", notices=notices)
        RunDir(Path("runs") / run_id).create(info)
    known = last_notices(Path("runs"), Project(load_cluster(path), path, tmp_path))
    found: list[str] = []
    with FoldedNotices(known, found.append) as folded:
        for line in (*info.notices, *sorted(known)):
            folded.notify(line)
    last = "2 notices as in the last run; `lab show last --notices` prints them"
    assert found == ["other", "warning: in use", last]
    assert cli("show", "20260102", "--notices").out == "CPUs\nevil \\x1b[31m\nwarning: in use\n"
