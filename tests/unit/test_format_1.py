"""Runs that were recorded in format 1, whose `run.json` had no `spec`: read like all others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lab.run.run_info import FORMAT, RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request
from tests.support.cli import Cli

RECORDED = Path(__file__).parent / "format_1"
"""A real run by processes, without its logs, its model and its checkpoints."""

RUN = "20261124-0600-async-8602"


def test_it_is_read_with_its_specification(tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(RECORDED / RUN, tmp_path / RUN)
    info = RunDir(tmp_path / RUN).read()
    request = Request.from_json((RECORDED / "request.json").read_text())
    assert (info.spec.args, info.spec.ready_s) == (("--seed=1437316627", "--epochs=1"), 120)
    assert (request.run_id, request.spec) == (RUN, info.spec)
    assert RunInfo.from_json(info.to_json()) == info
    assert json.loads(info.to_json())["format"] == FORMAT == 2  # an earlier lab refuses it by this
    shown = json.loads(cli("show", RUN, "--runs-dir", str(tmp_path), "--json").out)
    assert len(shown["tasks"]) == 4
