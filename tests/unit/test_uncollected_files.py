"""Files that cannot be collected, and records that were changed: the end of a run names them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.run.outcome import check_succeeded
from lab.run.runner import execute_run
from lab.run.view import View
from lab.store.directory import RunDir
from lab.store.run_info import Uncollected
from lab.store.summary import Summary
from lab.tables import result_table, show
from lab.volume import Request, TaskStatus, Volume
from lab.volume.states import State
from lab.volume.status import write_status
from tests.support.fakes import FakeEnvironment, end
from tests.support.specs import prepared


def executed(
    folder: Path, tasks_do: Callable[[Volume, Request], None]
) -> tuple[RunDir, Summary, FakeEnvironment]:
    """A run whose tasks do this."""
    environment = FakeEnvironment(folder / "volume", tasks_do)
    run = prepared(folder)
    summary = execute_run(
        run,
        boot=lambda _defer: environment,
        running=None,
        keep=False,
        view=lambda _info: View(),
    )
    return run, summary, environment


@pytest.mark.parametrize("name", ["report.html", "files/link"])
def test_a_file_that_cannot_be_collected_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], notices: list[str], name: str
) -> None:
    def leave_files(volume: Volume, request: Request) -> None:
        (volume.files(request.run_id) / "plain").write_text("x")
        path = volume.run(request.run_id) / name
        path.write_text("x") if "link" not in name else path.symlink_to("nowhere")
        for task in request.tasks():
            end(volume, request.run_id, task, State.SUCCEEDED)

    run, summary, environment = executed(tmp_path, leave_files)
    kept = name == "report.html"
    reason = "the name is reserved for lab" if kept else "it is a link"
    assert (run.path / "files/plain").read_text() == "x"
    assert summary.left == [Uncollected(name, reason, kept=kept)]
    assert (environment.is_down, environment.volume_stays) == (True, kept)
    assert (f"`lab attach {run.run_id} --all-sizes`" in "".join(notices)) is kept
    show(result_table(summary))
    assert f"{name}: {reason}" in capsys.readouterr().out
    if not kept:
        check_succeeded(run, summary)
        return
    with pytest.raises(LabError, match=f"run {run.run_id}: files that were not collected: 1, "):
        check_succeeded(run, summary)


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

    _, summary, _ = executed(tmp_path, forge)
    assert summary.state == State.FAILED
    assert summary.reason == "the collected records of worker-0 are not those that its agent wrote"
