"""The run volume from outside: submit, cancel, list, and its command line."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lab.protocol.volume import Request, TaskStatus, Volume, control
from lab.protocol.volume import __main__ as volumes
from lab.protocol.volume.control import NoSuchRun, VolumeBusy, cancel, find, requests, submit
from lab.protocol.volume.framing import decode_frames
from lab.protocol.volume.layout import new_run_id
from lab.protocol.volume.states import State
from lab.protocol.volume.status import read_status, write_status
from lab.protocol.volume.transfer import stream
from tests.support.agents import PATIENCE_S, ROOT
from tests.support.fakes import os_error, raising
from tests.support.specs import changed
from tests.support.volumes import REQUEST, end, with_a_run


@pytest.fixture
def empty(tmp_path: Path) -> Volume:
    (tmp_path / "runs").mkdir()
    return Volume(tmp_path / "runs")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return with_a_run(tmp_path)


def test_submit_writes_request_and_pending_states(volume: Volume) -> None:
    (found,) = requests(volume)
    assert replace(found, submitted_unix=0.0) == REQUEST
    assert found.submitted_unix > 0
    for task in ("ps-0", "worker-0"):
        assert read_status(volume.status("r1", task), task).state is State.PENDING
    assert not list(volume.root.rglob(".*.*"))


def test_a_second_run_is_refused_and_its_uploads_stay(volume: Volume) -> None:
    second = changed(REQUEST, run_id="r2", own=True)
    uploaded = volume.incoming("r2") / "program"
    uploaded.mkdir(parents=True)
    (uploaded / "own.py").write_text("")
    with pytest.raises(VolumeBusy) as busy:
        submit(volume, second)
    assert busy.value.run_id == "r1"
    end(volume)
    with pytest.raises(FileExistsError):
        submit(volume, REQUEST)
    with control.uploads(volume, "r2"):
        submit(volume, second)
    assert [request.run_id for request in requests(volume)] == ["r1", "r2"]
    assert (volume.program("r2") / "own.py").is_file()
    assert not volume.incoming("r2").exists()


def test_a_failed_submission_leaves_no_run(empty: Volume) -> None:
    obstacle = empty.request("r1")
    obstacle.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(FileExistsError, match=r"requests/r1\.json"):
            submit(empty, REQUEST)
    obstacle.rmdir()
    submit(empty, REQUEST)
    assert requests(empty)[0].run_id == "r1"


def test_one_of_many_submits_succeeds(empty: Volume) -> None:
    barrier = threading.Barrier(8)

    def one(number: int) -> bool:
        barrier.wait()
        try:
            submit(empty, replace(REQUEST, run_id=f"r{number}"))
        except VolumeBusy:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(8))) == 1
    assert len(requests(empty)) == 1


def test_requests_are_oldest_first(empty: Volume) -> None:
    for run_id, submitted in (("b", 3.0), ("a", 3.0), ("c", 1.0)):
        submit(empty, replace(REQUEST, run_id=run_id, submitted_unix=submitted))
        end(empty, run_id)
    assert [request.run_id for request in requests(empty)] == ["c", "a", "b"]


def test_a_damaged_request_is_no_run_and_a_damaged_list_an_error(volume: Volume) -> None:
    volume.request("r1").write_text("{")
    assert requests(volume) == []
    with pytest.raises(NoSuchRun, match="no run 'r1'"):
        find(volume, "r1")
    volume.requests.rename(volume.root / "moved")
    assert requests(volume) == []
    volume.requests.touch()
    for read in (requests, control.collected):
        with pytest.raises(NotADirectoryError):
            read(volume)


def test_cancel_keeps_the_first_reason(volume: Volume) -> None:
    cancel(volume, "r1", "first")
    cancel(volume, "r1", "second")
    assert json.loads(volume.cancel("r1").read_text())["reason"] == "first"


@pytest.mark.parametrize("run_id", ["r2", "../r1", "", "/etc"])
def test_unknown_runs(volume: Volume, run_id: str) -> None:
    with pytest.raises(NoSuchRun):
        cancel(volume, run_id, "x")
    with pytest.raises(NoSuchRun):
        list(stream(volume, run_id, {}, follow=False))


def test_run_ids() -> None:
    first, second = new_run_id("async"), new_run_id("My Program_2!")
    assert first.split("-")[2:-1] == ["async"]
    assert second.split("-")[2:-1] == ["my", "program", "2"]
    assert Request.from_json(replace(REQUEST, run_id=second).to_json()).run_id == second
    assert len({new_run_id("async") for _ in range(50)}) > 45
    assert Request.from_json(replace(REQUEST, run_id=new_run_id("é" * 300)).to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../x"},
        {"run_id": 7},
        {"cluster": {"../ps": ["h:1"]}},
        {"cluster": ["h:1"]},
        {"cluster": {"ps": 1}},
        {"spec": {"experiment": "x", "args": [1]}},
        {"spec": {"experiment": "x", "programs": {"worker-0": {"program": "a.py"}}}},
        {"spec": {"experiment": "x", "restarts": True}},
        {"spec": {"experiment": "x", "restarts": 2**64}},
        {"spec": {"experiment": "x", "on_failure": "never"}},
        {"spec": {"args": []}},
        {"more": 1},
    ],
)
def test_invalid_requests(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a"):
        Request.from_json(json.dumps({**json.loads(REQUEST.to_json()), **change}))


COMMAND = [sys.executable, "-m", "lab.protocol.volume"]


def environ(volume: Volume) -> dict[str, str]:
    return {**os.environ, "LAB_RUNS": str(volume.root), "PYTHONPATH": str(ROOT)}


def command(volume: Volume, *argv: str) -> subprocess.CompletedProcess[bytes]:
    env = environ(volume)
    return subprocess.run([*COMMAND, *argv], env=env, capture_output=True, check=False)


def test_command_line(empty: Volume) -> None:
    volume = empty
    assert command(volume, "submit", REQUEST.to_json()).returncode == 0
    volume.incoming("r2").mkdir(parents=True)
    busy = command(volume, "submit", replace(REQUEST, run_id="r2").to_json())
    assert not volume.incoming("r2").exists()
    assert (busy.returncode, busy.stderr) == (3, b"run r1 is under way\n")
    assert json.loads(command(volume, "requests").stdout)["run_id"] == "r1"
    assert command(volume, "cancel", "r1", "enough").returncode == 0
    none = command(volume, "cancel", "r9", "enough")
    assert (none.returncode, none.stderr) == (4, b"no run 'r9' on this volume\n")
    end(volume)
    shipped = command(volume, "ship", "r1", "{}", "--follow")
    assert shipped.returncode == 0
    sent = {chunk.path for chunk in decode_frames([shipped.stdout]) if chunk}
    assert {"request.json", "cancel.json", "status/ps-0.json"} <= sent


def test_where_a_run_was_collected_is_noted(volume: Volume) -> None:
    assert command(volume, "collected").stdout == b"{}"
    for directory in ("/home/anna/runs", "/home/anna/other"):
        assert command(volume, "collected", "r1", directory).returncode == 0
    assert json.loads(command(volume, "collected").stdout) == {"r1": "/home/anna/other"}
    assert command(volume, "collected", "r9", "/runs").returncode == 4
    assert command(volume, "collected", "r1").returncode == 2
    # A program's file in its place is no note.
    volume.collected("r1").unlink()
    volume.collected("r1").symlink_to("/etc/passwd")
    volume.collected("r2").write_bytes(b"\xff")
    assert command(volume, "collected").stdout == b"{}"
    assert [request.run_id for request in requests(volume)] == ["r1"]


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("subm",),
        ("submit", "{"),
        ("submit", "[]"),
        ("ship", "r1", "x"),
        ("ship", "r1", "--follow"),
        ("ship", "r1", "{}", "--all"),
    ],
)
def test_command_line_used_wrongly(
    volume: Volume, argv: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert volumes.main(list(argv), volume.root) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_volume_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command(Volume(tmp_path / "file"), "submit", REQUEST.to_json())
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


@pytest.mark.parametrize("leash", [False, True], ids=["without a reader", "with stdin"])
def test_shipping_ends(volume: Volume, leash: bool) -> None:
    shipping = subprocess.Popen(
        [*COMMAND, "ship", "r1", "{}", "--follow", *["--leash"] * leash],
        env=environ(volume),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with shipping:
        assert shipping.stdout.readline().startswith(b"{")
        assert shipping.poll() is None
        (shipping.stdin if leash else shipping.stdout).close()
        assert shipping.wait(PATIENCE_S) == 0
        assert shipping.stderr.read() == b""


def test_state_written_on_a_full_disk(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    path = volume.status("r1", "ps-0")
    long = TaskStatus("ps-0", State.TRAINING, reason="x" * 200)
    write_status(path, long)
    monkeypatch.setattr(
        "lab.protocol.volume.status.write_atomically", raising(os_error(errno.ENOSPC))
    )
    for status in (TaskStatus("ps-0", State.FAILED, reason="full"), long):
        write_status(path, status)
        assert read_status(path, "ps-0") == status
    assert control.state_of(volume, REQUEST) is State.TRAINING
