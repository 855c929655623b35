"""The run volume from outside: submit, cancel, list, ship, and the frames on a pipe."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.backends.directory import remove_tree
from lab.task.probes import sync as shipping
from lab.task.probes import volume as volumes
from lab.task.probes.sync import stream
from lab.task.protocol import (
    Chunk,
    Request,
    RunSpec,
    TaskProgram,
    TaskStatus,
    Volume,
    control,
    new_run_id,
)
from lab.task.protocol.control import (
    NoSuchRun,
    VolumeBusy,
    cancel,
    collected,
    find,
    requests,
    submit,
)
from lab.task.protocol.framing import FrameError, decode_frames, encode_frame, is_safe
from lab.task.protocol.states import State
from lab.task.protocol.statuses import read_status, write_status
from tests.support.agents import PATIENCE_S, ROOT, wait_for
from tests.support.specs import changed

REQUEST = Request(
    "r1", RunSpec("async", "p.py", ("--a", "b c")), {"ps": ["h:1"], "worker": ["h:2"]}
)


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    root = tmp_path / "runs"
    root.mkdir()
    return Volume(root)


def end(volume: Volume, run_id: str = "r1", state: State = State.SUCCEEDED) -> None:
    for task in ("ps-0", "worker-0"):
        write_status(volume.status(run_id, task), TaskStatus(task, state))


class Home:
    """The offsets of a collector."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.order: list[str] = []
        self.faults: dict[str, tuple[str, bool]] = {}

    def take(self, chunk: Chunk | None) -> None:
        if chunk is None:
            return
        if chunk.fault:
            assert not chunk.data
            assert chunk.path not in self.faults
            self.faults[chunk.path] = (chunk.fault, chunk.kept)
            return
        self.order.append(chunk.path)
        if chunk.offset is None:
            self.files[chunk.path] = chunk.data
        else:
            have = self.files.get(chunk.path, b"")
            assert len(have) == chunk.offset, f"{chunk.path}: a gap or a repetition"
            self.files[chunk.path] = have + chunk.data

    def take_all(
        self, volume: Volume, *, follow: bool = False, all_sizes: bool = False, rest: bool = False
    ) -> Home:
        offsets = self.offsets()
        for chunk in stream(volume, "r1", offsets, follow=follow, all_sizes=all_sizes, rest=rest):
            self.take(chunk)
        return self

    def offsets(self) -> Mapping[str, int]:
        return {path: len(data) for path, data in self.files.items() if "status/" not in path}


def test_submit_writes_request_and_pending_states(volume: Volume) -> None:
    submit(volume, REQUEST)
    (found,) = requests(volume)
    assert replace(found, submitted_unix=0.0) == REQUEST
    assert found.submitted_unix > 0
    for task in ("ps-0", "worker-0"):
        assert json.loads(volume.status("r1", task).read_text())["state"] == "pending"
    assert not list(volume.root.rglob(".*.*"))


def test_submit_refuses_a_second_run(volume: Volume) -> None:
    submit(volume, REQUEST)
    with pytest.raises(VolumeBusy) as busy:
        submit(volume, replace(REQUEST, run_id="r2"))
    assert busy.value.run_id == "r1"
    end(volume)
    submit(volume, replace(REQUEST, run_id="r2"))
    assert [request.run_id for request in requests(volume)] == ["r1", "r2"]


def test_submit_refuses_a_run_of_the_same_name(volume: Volume) -> None:
    submit(volume, REQUEST)
    end(volume)
    with pytest.raises(FileExistsError):
        submit(volume, REQUEST)


def test_uploads_stay_while_another_run_is_under_way(volume: Volume) -> None:
    submit(volume, REQUEST)
    refused = changed(REQUEST, run_id="r2", own=True)
    uploaded = volume.incoming("r2") / "program"
    uploaded.mkdir(parents=True)
    (uploaded / "own.py").write_text("")
    with pytest.raises(VolumeBusy):
        submit(volume, refused)
    end(volume)
    with control.uploads(volume, "r2"):
        submit(volume, refused)
    assert (volume.program("r2") / "own.py").is_file()
    assert not volume.incoming("r2").exists()


def test_a_failed_submission_leaves_no_run(volume: Volume) -> None:
    obstacle = volume.request("r1")
    obstacle.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(FileExistsError, match=r"requests/r1\.json"):
            submit(volume, REQUEST)
    obstacle.rmdir()
    submit(volume, REQUEST)
    assert requests(volume)[0].run_id == "r1"


def test_one_of_many_submits_succeeds(volume: Volume) -> None:
    barrier = threading.Barrier(8)

    def one(number: int) -> bool:
        barrier.wait()
        try:
            submit(volume, replace(REQUEST, run_id=f"r{number}"))
        except VolumeBusy:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(8))) == 1
    assert len(requests(volume)) == 1


def test_requests_are_oldest_first(volume: Volume) -> None:
    for run_id, submitted in (("b", 3.0), ("a", 3.0), ("c", 1.0)):
        submit(volume, replace(REQUEST, run_id=run_id, submitted_unix=submitted))
        end(volume, run_id)
    assert [request.run_id for request in requests(volume)] == ["c", "a", "b"]


def test_requests_that_cannot_be_listed_are_an_error(volume: Volume) -> None:
    assert requests(volume) == []
    submit(volume, REQUEST)
    volume.requests.rename(volume.root / "moved")
    volume.requests.touch()
    for read in (requests, collected):
        with pytest.raises(NotADirectoryError):
            read(volume)


def test_a_damaged_request_is_no_run(volume: Volume) -> None:
    submit(volume, REQUEST)
    volume.request("r1").write_text("{")
    assert requests(volume) == []
    with pytest.raises(NoSuchRun, match="no run 'r1'"):
        find(volume, "r1")


def test_cancel_keeps_the_first_reason(volume: Volume) -> None:
    submit(volume, REQUEST)
    cancel(volume, "r1", "first")
    cancel(volume, "r1", "second")
    assert json.loads(volume.cancel("r1").read_text())["reason"] == "first"


@pytest.mark.parametrize("run_id", ["r2", "../r1", "", "/etc"])
def test_unknown_runs(volume: Volume, run_id: str) -> None:
    submit(volume, REQUEST)
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
        {"spec": {"experiment": "x", "args": None}},
        {"spec": {"experiment": "x", "args": [1]}},
        {"spec": {"experiment": "x", "programs": ["a.py"]}},
        {"spec": {"experiment": "x", "programs": {"worker-0": "a.py"}}},
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


def test_a_request_of_an_earlier_version_is_read() -> None:
    """An environment that an earlier version has booted can be collected."""
    request = changed(REQUEST, start={"ps-0": "5s"}, faults=("kill ps-0",), submitted_unix=2.0)
    raw = json.loads(request.to_json())
    flat = {**raw.pop("spec"), **raw}
    assert Request.from_json(json.dumps(flat)) == request


def test_a_program_for_each_task_and_the_files_of_a_run(volume: Volume) -> None:
    programs = {"worker-0": TaskProgram("a.py", ("--task_index={index}",))}
    request = changed(REQUEST, programs=programs, own=True)
    assert Request.from_json(request.to_json()) == request
    assert (request.spec.program_of("worker-0"), request.spec.program_of("ps-0")) == (
        programs["worker-0"],
        None,
    )
    assert REQUEST.spec.program_of("ps-0") == TaskProgram("p.py", REQUEST.spec.cluster_args)
    for name in ("program/a.py", "files/data.csv", "other/x"):
        path = volume.incoming("r1") / name
        path.parent.mkdir(parents=True)
        path.touch()
    submit(volume, request)
    assert (volume.program("r1") / "a.py").is_file()
    assert (volume.files("r1") / "data.csv").is_file()
    assert not (volume.run("r1") / "other").exists()


def test_ship_follows_to_the_end(volume: Volume) -> None:
    submit(volume, REQUEST)
    collected, ticks = Home(), 0
    chunks = stream(volume, "r1", {}, follow=True)
    records, log = volume.records("r1", "worker-0"), volume.log("r1", "worker-0")
    expected = b""
    for number, chunk in enumerate(chunks):
        collected.take(chunk)
        ticks += chunk is None
        if number < 30:
            expected += b"%d\n" % number
            with records.open("ab") as file:
                file.write(b"%d\n" % number)
        if number == 30:
            log.write_bytes(b"bye")
            end(volume)
    assert collected.files["tasks/worker-0.jsonl"] == expected
    assert collected.files["logs/worker-0.log"] == b"bye"
    assert json.loads(collected.files["status/ps-0.json"])["state"] == "succeeded"
    assert json.loads(collected.files["request.json"])["run_id"] == "r1"


def test_ship_ticks_when_nothing_happens(volume: Volume) -> None:
    submit(volume, REQUEST)
    chunks = stream(volume, "r1", {}, follow=True)
    seen = [next(chunks) for _ in range(5)]
    assert [chunk for chunk in seen if chunk is not None] == seen[:3]
    assert seen[3:] == [None, None]


def test_a_volume_that_stays_read_only_ends_the_run(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "READ_ONLY_S", 0.8)
    submit(volume, REQUEST)
    write_status(volume.status("r1", "ps-0"), TaskStatus("ps-0", State.CANCELLED))
    volume.log("r1", "worker-0").write_bytes(b"bye")
    answers = iter([True, False])  # a short read-only phase ends nothing
    monkeypatch.setattr(shipping, "is_read_only", lambda _: next(answers, True))
    collected = Home().take_all(volume, follow=True)
    assert collected.files["logs/worker-0.log"] == b"bye"
    states = {t: json.loads(collected.files[f"status/{t}.json"]) for t in ("ps-0", "worker-0")}
    assert states["ps-0"]["state"] == "cancelled"
    assert (states["worker-0"]["state"], states["worker-0"]["cause"]) == ("failed", "volume")
    assert states["worker-0"]["reason"].startswith("the run volume has been read-only for 0.8 s")
    assert next(answers, None) is None
    write_status(volume.status("r1", "worker-0"), TaskStatus("worker-0", State.TRAINING))
    collected.take_all(volume)  # without --follow there is no verdict
    assert json.loads(collected.files["status/worker-0.json"])["state"] == "training"


def test_state_is_sent_after_the_last_records(volume: Volume) -> None:
    submit(volume, REQUEST)
    volume.records("r1", "worker-0").write_bytes(b"x" * 3_000_000)
    end(volume)
    collected = Home().take_all(volume)
    assert collected.order.index("status/worker-0.json") > collected.order.index(
        "tasks/worker-0.jsonl"
    )
    assert collected.files["tasks/worker-0.jsonl"] == b"x" * 3_000_000


def test_ship_resumes_from_offsets(volume: Volume) -> None:
    submit(volume, REQUEST)
    volume.log("r1", "ps-0").write_bytes(b"one\ntwo")
    collected = Home().take_all(volume)
    with volume.log("r1", "ps-0").open("ab") as file:
        file.write(b"\nthree\n")
    collected.order.clear()
    collected.take_all(volume)
    assert collected.files["logs/ps-0.log"] == b"one\ntwo\nthree\n"
    assert "request.json" not in collected.order


def test_ship_resends_a_shrunk_file(volume: Volume) -> None:
    submit(volume, REQUEST)
    volume.log("r1", "ps-0").write_bytes(b"short\n")
    collected = Home()
    collected.files["logs/ps-0.log"] = b"what was torn by a full disk"
    collected.take_all(volume)
    assert collected.files["logs/ps-0.log"] == b"short\n"


def test_other_files_are_sent_once_at_the_end(volume: Volume) -> None:
    submit(volume, REQUEST)
    model = volume.run("r1") / "model" / "variables"
    model.mkdir(parents=True)
    (model / "data").write_bytes(os.urandom(2_500_000))
    (model / "empty").touch()
    assert not any(path.startswith("model") for path in Home().take_all(volume).files)
    end(volume)
    collected = Home().take_all(volume)
    assert collected.files["model/variables/data"] == (model / "data").read_bytes()
    assert collected.files["model/variables/empty"] == b""
    collected.order.clear()
    collected.take_all(volume)
    assert not any(path.startswith("model") for path in collected.order)
    collected.files["model/variables/data"] = b"half of it"
    collected.take_all(volume)
    assert collected.files["model/variables/data"] == (model / "data").read_bytes()


def test_files_of_a_program_are_collected(volume: Volume) -> None:
    submit(volume, REQUEST)
    run = volume.run("r1")
    paths = {"logs/train/events", "logs/worker-0.txt", "tasks/own/x", "status/own/x", "files/x"}
    for path in paths:
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_bytes(b"own")
    volume.log("r1", "worker-0").write_bytes(b"hello\n")
    end(volume)
    collected = Home().take_all(volume)
    own = {path for path, data in collected.files.items() if data == b"own"}
    assert own == paths
    assert collected.order.count("logs/worker-0.log") == 1


def test_files_that_cannot_be_collected_are_named(volume: Volume, tmp_path: Path) -> None:
    submit(volume, REQUEST)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    files = volume.files("r1")
    (files / "link").symlink_to(secret / "key")
    (files / "folder").symlink_to(secret)
    os.mkfifo(files / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(files / "socket"))
    (files / "plain").write_text("x")
    end(volume)
    collected = Home().take_all(volume)
    assert {path for path in collected.files if path.startswith("files/")} == {"files/plain"}
    assert collected.faults == {
        "files/folder": ("it is a link", False),
        "files/link": ("it is a link", False),
        "files/pipe": ("it is a pipe", False),
        "files/socket": ("it is a socket", False),
    }


def test_names_that_are_not_safe_are_written_in_plain_characters(volume: Volume) -> None:
    submit(volume, REQUEST)
    files = os.fsencode(volume.files("r1"))
    for name in (b"new\nline", b"esc\x1b[2J", b"\xff", b"back\\slash", b"f\xc3\xbcr 100%"):
        Path(os.fsdecode(files + b"/" + name)).write_bytes(name)
    end(volume)
    collected = Home().take_all(volume)
    assert {path: data for path, data in collected.files.items() if path.startswith("files/")} == {
        "files/new%0Aline": b"new\nline",
        "files/esc%1B%5B2J": b"esc\x1b[2J",
        "files/%FF": b"\xff",
        "files/back%5Cslash": b"back\\slash",
        "files/für 100%": b"f\xc3\xbcr 100%",
    }
    assert collected.faults == {}


def test_one_of_two_names_that_are_written_alike_is_a_fault(volume: Volume) -> None:
    submit(volume, REQUEST)
    for name in ("%0A", "\n"):
        (volume.files("r1") / name).write_text(name)
    end(volume)
    collected = Home().take_all(volume)
    assert collected.files["files/%0A"] == b"\n"
    assert collected.faults == {"files/%0A": ("another collected file has this name", True)}


def test_a_file_over_the_limit_is_collected_on_request(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.task.probes.sync.MAX_FILE", 1_000)
    submit(volume, REQUEST)
    (volume.files("r1") / "large").write_bytes(b"x" * 1_001)
    (volume.files("r1") / "fits").write_bytes(b"x" * 1_000)
    end(volume)
    collected = Home().take_all(volume)
    assert collected.faults == {"files/large": ("it has 1,001 bytes, more than 1,000", True)}
    assert len(collected.files["files/fits"]) == 1_000
    collected.faults.clear()
    collected.take_all(volume, all_sizes=True)
    assert len(collected.files["files/large"]) == 1_001
    assert collected.faults == {}


def test_only_too_deep_directories_are_skipped(volume: Volume) -> None:
    submit(volume, REQUEST)
    here = os.open(volume.files("r1"), os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (volume.files("r1") / "plain").write_text("x")
    end(volume)
    try:
        collected = Home().take_all(volume)
    finally:
        remove_tree(volume.files("r1"))  # deeper than pytest could remove
    assert collected.files["files/plain"] == b"x"
    assert list(collected.faults.values()) == [("file name too long", True)]


def test_more_faults_than_can_be_named_are_counted(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.task.probes.sync.MAX_FAULTS", 3)
    submit(volume, REQUEST)
    for number in range(5):
        (volume.files("r1") / f"link{number}").symlink_to("x")
    end(volume)
    faults = Home().take_all(volume).faults
    assert list(faults) == ["files/link0", "files/link1", "files/link2", "files"]
    assert faults["files"] == ("2 more files are not collected", True)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_replaced_record_file_affects_no_other(volume: Volume, tmp_path: Path, kind: str) -> None:
    submit(volume, REQUEST)
    (tmp_path / "secret").write_text("secret")
    for path in (volume.log("r1", "ps-0"), volume.records("r1", "ps-0")):
        path.symlink_to(tmp_path / "secret") if kind == "link" else os.mkfifo(path)
    volume.records("r1", "worker-0").write_text("{}\n")
    end(volume)
    collected = Home().take_all(volume, follow=True)
    assert collected.files["tasks/worker-0.jsonl"] == b"{}\n"
    assert collected.faults == {
        "tasks/ps-0.jsonl": (f"it is a {kind}", True),
        "logs/ps-0.log": (f"it is a {kind}", True),
    }
    assert json.loads(collected.files["status/ps-0.json"])["state"] == "succeeded"


def test_the_rest_of_a_run_with_lost_agents_is_sent(volume: Volume) -> None:
    submit(volume, REQUEST)
    (volume.files("r1") / "mine").write_text("x")
    assert "files/mine" not in Home().take_all(volume).files
    assert Home().take_all(volume, rest=True).files["files/mine"] == b"x"


CHUNKS = st.lists(
    st.none()
    | st.builds(
        Chunk,
        st.from_regex(r"[a-z{}\"é]{1,20}(/[a-z0-9]{1,9}){0,3}", fullmatch=True),
        st.none() | st.integers(0, 2**40),
        st.binary(max_size=300),
    )
    | st.builds(
        Chunk,
        st.from_regex(r"[a-z]{1,20}", fullmatch=True),
        st.none(),
        st.just(b""),
        st.text(min_size=1, max_size=30),
        st.booleans(),
    ),
    max_size=12,
)


@given(chunks=CHUNKS, cuts=st.lists(st.integers(1, 40), min_size=1, max_size=400))
def test_frames_survive_any_cut(chunks: list[Chunk | None], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, chunks))
    pieces, position, turn = [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        pieces.append(stream[position : position + size])
        position += size
        turn += 1
    assert list(decode_frames(pieces)) == chunks


def test_a_frame_is_returned_when_complete() -> None:
    stream = iter([b"{}\n" + encode_frame(Chunk("a", 0, b"xy"))[:-1], b"y{"])
    frames = decode_frames(stream)
    assert next(frames) is None
    assert next(frames) == Chunk("a", 0, b"xy")


@pytest.mark.parametrize(
    "stream",
    [
        b"Error response from daemon\n",
        b"{}",
        b'{"path": "a", "offset": 0, "size": 5}\nabc',
        b'{"path": "../a", "offset": 0, "size": 0}\n',
        b'{"path": "/etc/passwd", "offset": null, "size": 0}\n',
        b'{"path": "a//b", "offset": null, "size": 0}\n',
        b'{"path": "a", "offset": -1, "size": 0}\n',
        b'{"path": "a", "offset": true, "size": 0}\n',
        b'{"path": "a", "offset": 0, "size": -1}\n',
        b'{"path": "a", "offset": 0, "size": 99999999999}\n',
        b'{"path": 5, "offset": 0, "size": 0}\n',
        b'{"offset": 0, "size": 0}\n',
        b'{"path": "a", "fault": 5}\n',
        b'{"path": "../a", "fault": "it is a link"}\n',
        b'{"path": "a", "fault": "it is a link", "kept": 1}\n',
        b"[]\n",
        b"[" * 16_000 + b"\n",
        b"x" * 20000,
    ],
)
def test_invalid_frames(stream: bytes) -> None:
    with pytest.raises(FrameError):
        list(decode_frames([stream]))


@pytest.mark.parametrize("path", ["a", "a/b.c", "tb/worker-0/events 1", ".hidden", "a..b", "é"])
def test_safe_paths(path: str) -> None:
    assert is_safe(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/a",
        "a/../b",
        "a/..",
        "./a",
        "a/",
        "a//b",
        "a\nb",
        "a\\b",
        "\x9b",
        "a" * 2000,
    ],
)
def test_unsafe_paths(path: str) -> None:
    assert not is_safe(path)


def command(volume: Volume, *argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "lab.task.probes.volume", *argv],
        cwd=ROOT,
        env={**os.environ, "LAB_RUNS": str(volume.root)},
        capture_output=True,
        check=False,
    )


def test_command_line(volume: Volume) -> None:
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
    collected = Home()
    for chunk in decode_frames([shipped.stdout]):
        collected.take(chunk)
    assert {"request.json", "cancel.json", "status/ps-0.json"} <= collected.files.keys()


def test_where_a_run_was_collected_is_noted(volume: Volume) -> None:
    submit(volume, REQUEST)
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


def test_offsets_in_several_arguments(
    volume: Volume, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    submit(volume, REQUEST)
    for name in ("a", "b", "c"):
        (volume.run("r1") / name).write_bytes(b"own")
    end(volume)
    arguments = ['{"a": 3, "request.json": 0}', '{"b": 3}', "{}"]
    assert volumes.main(["ship", "r1", *arguments, "--follow"], volume.root) == 0
    collected = Home()
    for chunk in decode_frames([capfdbinary.readouterr().out]):
        collected.take(chunk)
    assert {path for path, data in collected.files.items() if data == b"own"} == {"c"}


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("subm",),
        ("submit", "{"),
        ("submit", "[]"),
        ("ship", "r1", "x"),
        ("ship", "r1", "{}", "-f"),
        ("ship", "r1", "--follow"),
        ("ship", "r1", "{}", "--leash"),
        ("ship", "r1", "{}", "--follow", "{}"),
        ("ship", "r1", "{}", "--follow", "--follow"),
        ("ship", "r1", "{}", "--all"),
    ],
)
def test_command_line_used_wrongly(volume: Volume, argv: tuple[str, ...]) -> None:
    submit(volume, REQUEST)
    done = command(volume, *argv)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_volume_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command(Volume(tmp_path / "file"), "submit", REQUEST.to_json())
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert b"Traceback" not in done.stderr


def test_shipping_ends_without_a_reader(volume: Volume) -> None:
    submit(volume, REQUEST)
    shipping = subprocess.Popen(
        [sys.executable, "-m", "lab.task.probes.volume", "ship", "r1", "{}", "--follow"],
        cwd=ROOT,
        env={**os.environ, "LAB_RUNS": str(volume.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shipping.stdout is not None
    assert shipping.stderr is not None
    assert shipping.stdout.readline().startswith(b"{")
    shipping.stdout.close()
    wait_for(lambda: shipping.poll() is not None, "it has ended")
    assert (shipping.returncode, shipping.stderr.read()) == (0, b"")
    shipping.stderr.close()


def test_shipping_ends_with_stdin(volume: Volume) -> None:
    submit(volume, REQUEST)
    shipping = subprocess.Popen(
        [sys.executable, "-m", "lab.task.probes.volume", "ship", "r1", "{}", "--follow", "--leash"],
        cwd=ROOT,
        env={**os.environ, "LAB_RUNS": str(volume.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert shipping.stdin is not None
    assert shipping.poll() is None
    shipping.stdin.close()
    assert shipping.wait(timeout=PATIENCE_S) == 0


def test_state_written_on_a_full_disk(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(volume, REQUEST)
    path = volume.status("r1", "ps-0")
    long = TaskStatus("ps-0", State.TRAINING, reason="x" * 200)
    write_status(path, long)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lab.task.protocol.statuses.write_atomically", full)
    for status in (TaskStatus("ps-0", State.FAILED, reason="full"), long):
        write_status(path, status)
        assert read_status(path, "ps-0") == status
    assert control.state_of(volume, REQUEST) is State.TRAINING
