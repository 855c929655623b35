"""The notices of a run's preparation, printed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.runner.store.directory import RunDir
from tests.support.cli import Cli
from tests.support.specs import run_info


def test_notices_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    for run_id, notices in (
        ("20260102-0000-async-b", ("CPUs", "evil \x1b[31m", "warning: in use")),
        ("20260103-0000-async-c", ()),
    ):
        info = run_info(run_id, cluster_file="cluster.yaml", notices=notices)
        RunDir(Path("runs") / run_id).create(info)
    assert cli("show", "20260102", "--notices").out == "CPUs\nevil \\x1b[31m\nwarning: in use\n"
    assert cli("show", "20260103", "--notices").err == "run 20260103-0000-async-c has no notices\n"
