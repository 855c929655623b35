"""The files of a run as they are sent to a client, and the frames on a pipe."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.protocol.volume import (
    Chunk,
    TaskStatus,
    Volume,
)
from lab.protocol.volume import __main__ as volumes
from lab.protocol.volume import transfer as shipping
from lab.protocol.volume.framing import FrameError, decode_frames, encode_frame, is_safe
from lab.protocol.volume.states import State
from lab.protocol.volume.status import write_status
from lab.protocol.volume.transfer import stream
from tests.support.volumes import Home, end, ended, with_a_run


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return with_a_run(tmp_path)


def test_ship_follows_to_the_end(volume: Volume) -> None:
    home, expected = Home(), b""
    records, log = volume.records("r1", "worker-0"), volume.log("r1", "worker-0")
    for number, chunk in enumerate(stream(volume, "r1", {}, follow=True)):
        home.take(chunk)
        if number < 30:
            expected += b"%d\n" % number
            records.write_bytes(expected)
        if number == 30:
            log.write_bytes(b"bye")
            end(volume)
    assert home.files["tasks/worker-0.jsonl"] == expected
    assert home.files["logs/worker-0.log"] == b"bye"
    assert home.state_of("ps-0") == "succeeded"
    assert json.loads(home.files["request.json"])["run_id"] == "r1"


def test_ship_ticks_when_nothing_happens(volume: Volume) -> None:
    chunks = stream(volume, "r1", {}, follow=True)
    assert [next(chunks) is None for _ in range(5)] == [False] * 3 + [True] * 2


def test_a_volume_that_stays_read_only_ends_the_run(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "READ_ONLY_S", 0.8)
    write_status(volume.status("r1", "ps-0"), TaskStatus("ps-0", State.CANCELLED))
    volume.log("r1", "worker-0").write_bytes(b"bye")
    answers = iter([True, False])  # a short read-only phase ends nothing
    monkeypatch.setattr(shipping, "is_read_only", lambda _: next(answers, True))
    home = Home().take_all(volume, follow=True)
    assert home.files["logs/worker-0.log"] == b"bye"
    assert home.state_of("ps-0") == "cancelled"
    failed = json.loads(home.files["status/worker-0.json"])
    assert (failed["state"], failed["cause"]) == ("failed", "volume")
    assert failed["reason"].startswith("the run volume has been read-only for 0.8 s")
    assert next(answers, None) is None
    write_status(volume.status("r1", "worker-0"), TaskStatus("worker-0", State.TRAINING))
    home.take_all(volume)  # without --follow there is no verdict
    assert home.state_of("worker-0") == "training"


def test_state_is_sent_after_the_last_records(volume: Volume) -> None:
    volume.records("r1", "worker-0").write_bytes(b"x" * 3_000_000)
    home = ended(volume)
    last = {path: place for place, path in enumerate(home.order)}
    assert last["status/worker-0.json"] > last["tasks/worker-0.jsonl"]
    assert home.files["tasks/worker-0.jsonl"] == b"x" * 3_000_000


def test_ship_resumes_from_offsets_and_resends_a_shrunk_file(volume: Volume) -> None:
    log = volume.log("r1", "ps-0")
    log.write_bytes(b"one\ntwo")
    home = Home().take_all(volume)
    log.write_bytes(b"one\ntwo\nthree\n")
    home.take_all(volume)
    assert home.files["logs/ps-0.log"] == b"one\ntwo\nthree\n"
    assert "request.json" not in home.order
    log.write_bytes(b"short\n")  # what a full disk tore is removed
    assert home.take_all(volume).files["logs/ps-0.log"] == b"short\n"


def test_other_files_are_sent_once_at_the_end(volume: Volume) -> None:
    model = volume.run("r1") / "model" / "variables"
    model.mkdir(parents=True)
    (model / "data").write_bytes(os.urandom(2_500_000))
    (model / "empty").touch()
    assert not Home().take_all(volume).below("model")
    sent = {f"model/variables/{name}": (model / name).read_bytes() for name in ("data", "empty")}
    assert Home().take_all(volume, rest=True).below("model") == sent  # its agents are lost
    home = ended(volume)
    assert home.below("model") == sent
    assert not [path for path in home.take_all(volume).order if path.startswith("model")]
    home.files["model/variables/data"] = b"half of it"
    assert home.take_all(volume).below("model") == sent


def test_files_of_a_program_are_collected(volume: Volume) -> None:
    paths = {"logs/train/events", "logs/worker-0.txt", "tasks/own/x", "status/own/x", "files/x"}
    for path in paths:
        (volume.run("r1") / path).parent.mkdir(parents=True, exist_ok=True)
        (volume.run("r1") / path).write_bytes(b"own")
    volume.log("r1", "worker-0").write_bytes(b"hello\n")
    home = ended(volume)
    assert {path for path, data in home.files.items() if data == b"own"} == paths
    assert home.order.count("logs/worker-0.log") == 1


def test_names_that_are_not_safe_are_written_in_plain_characters(volume: Volume) -> None:
    files = os.fsencode(volume.files("r1"))
    names = {
        b"new\nline": "new%0Aline",
        b"esc\x1b[2J": "esc%1B%5B2J",
        b"\xff": "%FF",
        b"back\\slash": "back%5Cslash",
        b"f\xc3\xbcr 100%": "für 100%",
        b"\n": "%0A",
    }
    for name in names:
        Path(os.fsdecode(files + b"/" + name)).write_bytes(name)
    (volume.files("r1") / "%0A").write_text("written alike")
    home = ended(volume)
    assert home.below("files/") == {f"files/{plain}": name for name, plain in names.items()}
    assert home.faults == {"files/%0A": ("another collected file has this name", True)}


def test_only_too_deep_directories_are_skipped(volume: Volume) -> None:
    here = os.open(volume.files("r1"), os.O_RDONLY)
    for _ in range(25):
        os.mkdir("deep" * 50, dir_fd=here)
        below = os.open("deep" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (volume.files("r1") / "plain").write_text("x")
    home = ended(volume)
    assert home.files["files/plain"] == b"x"
    assert list(home.faults.values()) == [("file name too long", True)]


def test_more_faults_than_can_be_named_are_counted(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "MAX_FAULTS", 3)
    for number in range(5):
        (volume.files("r1") / f"link{number}").symlink_to("x")
    faults = ended(volume).faults
    assert list(faults) == ["files/link0", "files/link1", "files/link2", "files"]
    assert faults["files"] == ("2 more files are not collected", True)


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
        b'{"path": "a", "offset": -1, "size": 0}\n',
        b'{"path": "a", "offset": true, "size": 0}\n',
        b'{"path": "a", "offset": 0, "size": -1}\n',
        b'{"path": "a", "offset": 0, "size": 99999999999}\n',
        b'{"path": 5, "offset": 0, "size": 0}\n',
        b'{"path": "a", "fault": 5}\n',
        b'{"path": "a", "fault": "it is a link", "kept": 1}\n',
        b"[]\n",
        b"[" * 16_000 + b"\n",
        b"x" * 20000,
    ],
)
def test_invalid_frames(stream: bytes) -> None:
    with pytest.raises(FrameError):
        list(decode_frames([stream]))


SAFE = ["a", "a/b.c", "tb/worker-0/events 1", ".hidden", "a..b", "é"]
UNSAFE = [
    "", ".", "..", "/a", "a/../b", "a/..", "./a", "a/", "a//b", "a\nb", "a\\b", "\x9b", "a" * 2000
]  # fmt: skip


@pytest.mark.parametrize("path", SAFE + UNSAFE)
def test_safe_paths(path: str) -> None:
    assert is_safe(path) is (path in SAFE)


def test_offsets_in_several_arguments(
    volume: Volume, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("a", "b", "c"):
        (volume.run("r1") / name).write_bytes(b"own")
    end(volume)
    arguments = ['{"a": 3, "request.json": 0}', '{"b": 3}', "{}"]
    assert volumes.main(["ship", "r1", *arguments, "--follow"], volume.root) == 0
    sent = decode_frames([capfdbinary.readouterr().out])
    assert [chunk.path for chunk in sent if chunk and chunk.data == b"own"] == ["c"]
