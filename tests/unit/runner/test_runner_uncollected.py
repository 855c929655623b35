"""Records that were changed: the end of a run names them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lab.protocol.volume import Request, TaskStatus, Volume
from lab.protocol.volume.states import State
from lab.protocol.volume.status import write_status
from lab.runner.runner import execute_run
from lab.runner.view import View
from tests.support.fakes import FakeEnvironment
from tests.support.specs import place_in, prepared


@pytest.mark.parametrize("written", [b"", b"what the agent wrote"])
def test_records_that_are_not_those_of_the_agent_fail_the_run(
    tmp_path: Path, written: bytes
) -> None:
    def forge(volume: Volume, request: Request) -> None:
        if not written:  # otherwise the file was removed
            volume.records(request.run_id, "worker-0").write_text("forged\n")
        for task in request.tasks():
            digest = hashlib.sha256(written if task == "worker-0" else b"").hexdigest()
            status = TaskStatus(task, State.SUCCEEDED, records_sha256=digest)
            write_status(volume.status(request.run_id, task), status)

    environment = FakeEnvironment(tmp_path / "volume", forge)
    with place_in(environment) as place:
        _, summary = execute_run(prepared(tmp_path), place, View)
    assert summary.state == State.FAILED
    assert summary.reason == "the collected records of worker-0 are not those that its agent wrote"
