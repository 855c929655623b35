"""The directory of an environment whose volume is a directory."""

from __future__ import annotations

from pathlib import Path

from lab.backends.directory import EnvironmentDir
from lab.task.protocol import Request, RunSpec, Volume
from lab.task.protocol.control import submit
from lab.task.protocol.states import State
from tests.support.fakes import end


def test_a_boot_removes_only_unfinished_runs_of_a_kept_volume(tmp_path: Path) -> None:
    state_dir = EnvironmentDir(tmp_path / "mnist")
    volume = Volume(state_dir.runs)
    cluster = {"worker": ["localhost:1"]}
    for run_id in ("damaged", "ended", "unfinished"):
        submit(volume, Request(run_id, RunSpec("async", "mnist_async.py"), cluster))
        if run_id != "unfinished":
            end(volume, run_id, "worker-0", State.SUCCEEDED, exit_code=0)
    volume.request("damaged").write_text("{")
    state_dir.kept.touch()
    notices: list[str] = []
    assert state_dir.clear(notices.append)
    why = "is kept, but not collected: the run's request is damaged"
    assert notices == [f"{volume.run('damaged')} {why}"]
    for run_id in ("damaged", "ended"):
        assert volume.run(run_id).is_dir()
        assert volume.request(run_id).is_file()
    assert not volume.run("unfinished").exists()
    assert not volume.request("unfinished").exists()
