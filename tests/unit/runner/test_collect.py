"""The collector: every byte once, and nothing outside the run's directory."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.errors import LabError
from lab.protocol.volume import Chunk, TaskStatus, Volume
from lab.protocol.volume.control import submit
from lab.protocol.volume.framing import MAX_DATA
from lab.protocol.volume.states import State
from lab.protocol.volume.status import write_status
from lab.protocol.volume.transfer import stream
from lab.runner.collect import Collector, collect, collected_sizes, is_safe
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo, Uncollected
from lab.runner.view import View
from tests.support.fakes import REQUEST, FakeEnvironment, os_error, raising
from tests.support.specs import request

LINES = b"".join(b'{"seq": %d}\n' % number for number in range(40))


@given(
    cuts=st.lists(st.integers(0, len(LINES)), max_size=12),
    deaths=st.sets(st.integers(0, 12)),
    overlap=st.integers(0, 50),
)
def test_every_byte_is_stored_once_after_interruptions(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], deaths: set[int], overlap: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    heard = bytearray()
    collector = Collector(root, lambda _path, data: heard.extend(data))
    edges = [0, *sorted(cuts), len(LINES)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if number in deaths:
            collector = Collector(root, lambda _path, data: heard.extend(data))
        # A sender with an outdated offset sends some bytes again.
        again = max(0, start - overlap)
        collector.accept(Chunk("tasks/worker-0.jsonl", again, LINES[again:stop]))
    assert (root / "tasks/worker-0.jsonl").read_bytes() == LINES
    assert heard == LINES
    assert collector.offsets() == {"tasks/worker-0.jsonl": len(LINES)}


def test_a_gap_is_refused(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    collector.accept(Chunk("logs/ps-0.log", 0, b"one\n"))
    with pytest.raises(LabError, match="bytes 4 to 9 are missing") as caught:
        collector.accept(Chunk("logs/ps-0.log", 9, b"three\n"))
    assert caught.value.fix == f"collect it again with `lab attach {tmp_path.name}`"
    assert (tmp_path / "logs/ps-0.log").read_bytes() == b"one\n"


WHOLE = [(None, b"abc"), (3, b"def")]


@pytest.mark.parametrize(
    ("chunks", "content"),
    [
        (WHOLE * 2, b"abcdef"),  # a second time, when it has changed on the volume
        ([(0, b"torn torn"), (None, b""), (0, b"{}\n")], b"{}\n"),  # it has shrunk
    ],
)
def test_a_file_is_received_whole_or_by_offset(
    tmp_path: Path, chunks: list[tuple[int | None, bytes]], content: bytes
) -> None:
    collector = Collector(tmp_path)
    for offset, data in chunks:
        collector.accept(Chunk("model/w", offset, data))
    assert (tmp_path / "model/w").read_bytes() == content


def test_an_empty_file_is_created_and_readable_by_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Collector(tmp_path).accept(Chunk("logs/ps-0.log", 0, b""))
    finally:
        os.umask(before)
    file = tmp_path / "logs/ps-0.log"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"", 0o644)


def test_offsets_count_the_bytes_of_every_file_but_the_states(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    for path in ("logs/ps-0.log", "model/export/1/graph", "notes", "status/ps-0.json"):
        collector.accept(Chunk(path, None, b"abc"))
    expected = {"logs/ps-0.log": 3, "model/export/1/graph": 3, "notes": 3}
    assert collector.offsets() == Collector(tmp_path).offsets() == expected
    (tmp_path / "run.json").write_text("12345")
    (tmp_path / "gpu.jsonl").write_text("12345")
    assert collected_sizes(tmp_path) == expected


ESCAPING = "/etc/passwd ../run.json logs/../../x logs//x ./logs/x .run.json.1a2b3c4d"
OF_LAB = (
    "run.json summary.json summary.csv gpu.jsonl docker-compose.yml processes.json containers.json"
    " report.html figures/loss.png tb/worker-0/events.out.tfevents.lab cluster.sbatch"
    " cluster.k8s.yaml"
)
UNREADABLE = ("", "logs/\0", "logs/\x1b[31m", "x/" * 600 + "x")


@pytest.mark.parametrize("path", [*ESCAPING.split(), *OF_LAB.split(), *UNREADABLE])
def test_a_path_outside_the_run_is_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "run"
    root.mkdir()
    collector = Collector(root)
    collector.accept(Chunk(path, None, b"evil"))
    collector.accept(Chunk(path, 0, b"evil"))
    assert not is_safe(path)
    assert collector.left == {path: Uncollected(path, "the name is reserved for lab", kept=True)}
    assert [each for each in tmp_path.rglob("*") if each != root] == []


SUBMITTED = b"print(1)\n"
CHANGED = Uncollected(
    "program/own.py", "a program changed it; the submitted one is kept", kept=False
)


@pytest.mark.parametrize(
    "found",
    [b"print(2)\n", b"print(1)\n\n", b"print(1)", b"", SUBMITTED + b" " * MAX_DATA],
)
def test_a_submitted_source_is_kept_and_its_change_is_reported(
    tmp_path: Path, found: bytes
) -> None:
    volume, run = Volume(tmp_path / "volume"), tmp_path / "runs/r1"
    for program in (run / "program", volume.incoming("r1") / "program"):
        program.mkdir(parents=True)
        (program / "own.py").write_bytes(SUBMITTED)
        (program / "module.py").write_bytes(SUBMITTED)
    submit(volume, request("r1", "own", {"worker": ["tf1:1"]}, own=True, program="own.py"))
    volume.status("r1", "worker-0").write_text(TaskStatus("worker-0", State.SUCCEEDED).to_json())
    (volume.program("r1") / "own.py").write_bytes(found)
    (volume.program("r1") / "out.txt").write_bytes(b"a result")
    for _ in range(2):  # a second client collects the same
        collector = Collector(run)
        for chunk in stream(volume, "r1", collector.offsets(), follow=False):
            if chunk is not None:
                collector.accept(chunk)
        assert list(collector.left.values()) == [CHANGED]
        assert (run / "program/own.py").read_bytes() == SUBMITTED
        assert (run / "program/out.txt").read_bytes() == b"a result"


def test_a_source_is_collected_where_the_run_store_has_none(tmp_path: Path) -> None:
    for _ in range(2):
        collector = Collector(tmp_path)
        collector.accept(Chunk("program/own.py", None, b"a" * MAX_DATA))
        collector.accept(Chunk("program/own.py", MAX_DATA, b"b"))
        assert (tmp_path / "program/own.py").read_bytes() == b"a" * MAX_DATA + b"b"
        assert collector.left == {}


def test_a_local_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "run"
    root.mkdir()
    (root / "tb").symlink_to(outside)
    (root / "logs").mkdir()
    (root / "logs/ps-0.log").symlink_to(outside / "file")
    os.mkfifo(root / "logs/worker-0.log")
    collector = Collector(root)
    names = ("tb/worker-0/events", "logs/ps-0.log", "logs/worker-0.log")
    for name in names:
        collector.accept(Chunk(name, 0, b"x"))
    assert list(collector.left) == list(names)
    assert "links to a directory outside" in collector.left["tb/worker-0/events"].reason
    assert "symbolic links" in collector.left["logs/ps-0.log"].reason
    assert "no such device" in collector.left["logs/worker-0.log"].reason
    assert all(each.kept for each in collector.left.values())
    assert list(outside.iterdir()) == []


def test_unwritable_file_affects_no_other(tmp_path: Path) -> None:
    collector = Collector(tmp_path)
    long = f"files/{'x' * 250}"
    (tmp_path / "files/taken").mkdir(parents=True)
    for path in (long, "files/taken", "files/plain"):
        collector.accept(Chunk(path, None, b"abc"))
        collector.accept(Chunk(path, 3, b"def"))
    assert (tmp_path / long).read_bytes() == b"abcdef"
    assert (tmp_path / "files/plain").read_bytes() == b"abcdef"
    reason = "it cannot be written: is a directory"
    assert collector.left == {"files/taken": Uncollected("files/taken", reason, kept=True)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files"]


def test_a_full_disk_is_no_fault_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "open", raising(os_error(errno.ENOSPC)))
    collector = Collector(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        collector.accept(Chunk("files/plain", None, b"abc"))
    assert collector.left == {}


class Seen(View):
    """Notes what it receives, in short."""

    def __init__(self) -> None:
        super().__init__(RunInfo(REQUEST.run_id, REQUEST.spec, cluster=REQUEST.cluster))
        self.records_of: list[tuple[str, int]] = []
        self.lines: list[tuple[str, str]] = []
        self.states: list[tuple[str, str]] = []
        self.forgotten: list[str] = []

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        super().records(task, records)
        self.records_of += [(task, int(str(each["seq"]))) for each in records]

    def printed(self, task: str, lines: Sequence[str]) -> None:
        self.lines += [(task, line) for line in lines]

    def status(self, status: TaskStatus) -> None:
        super().status(status)
        self.states.append((status.task, status.state.value))

    def forget(self, task: str) -> None:
        super().forget(task)
        self.forgotten.append(task)


def test_a_view_receives_what_is_collected_and_a_later_one_what_was(tmp_path: Path) -> None:
    environment = FakeEnvironment(tmp_path / "volume")
    environment.train()
    for name in ("files/worker-0.log", "logs/notes.log"):  # they are not what a task printed
        path = environment.volume.run(REQUEST.run_id) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a file of the program\n")
    run = RunDir(tmp_path / "runs" / REQUEST.run_id)
    run.create(RunInfo(REQUEST.run_id, REQUEST.spec, cluster=REQUEST.cluster))
    first, second = Seen(), Seen()
    steps: list[int | None] = []
    with run.opened() as opened:
        collect(opened, environment, first, tick=steps.append)
        assert opened.info.collected
        assert not opened.info.state.ended  # its end is written afterwards
        collect(opened, environment, second)
    wanted = [*(("worker-0", seq) for seq in range(6)), *(("worker-1", seq) for seq in range(4))]
    ends = [(task, "succeeded") for task in REQUEST.tasks()]
    assert (first.records_of, first.states, first.forgotten) == (wanted, ends, [])
    assert first.lines == [("worker-1", "hello \\x1b]0;owned\\x07")]
    assert environment.collected() == {REQUEST.run_id: str((tmp_path / "runs").resolve())}
    assert set(steps) == {None}
    # The second one has the records and the states of the run store, and no line again.
    assert (second.records_of, second.lines) == (wanted, [])
    assert second.forgotten == ["worker-0", "worker-1"]
    assert sorted(set(second.states)) == sorted(ends)
    shrunk = environment.volume.records(REQUEST.run_id, "worker-1")
    shrunk.write_text(shrunk.read_text().partition("\n")[0] + "\n")
    environment.volume.log(REQUEST.run_id, "worker-1").write_text("new\n")
    # A file that the disk has damaged is read again from the run volume.
    run.status("worker-0").write_bytes(b"\xff")
    third = Seen()
    with run.opened() as opened:
        collect(opened, environment, third)
    assert third.forgotten == ["worker-0", "worker-1", "worker-1"]
    assert third.records_of == [*wanted, ("worker-1", 0)]
    assert third.lines == [("worker-1", "new")]


def test_a_run_under_way_has_its_state_and_step(tmp_path: Path) -> None:
    environment = FakeEnvironment(tmp_path / "volume", lambda *_: None)
    environment.train()
    for task, step in (("worker-0", 40), ("worker-1", 41)):
        status = TaskStatus(task, State.TRAINING, started_unix=1.0, global_step=step)
        write_status(environment.volume.status(REQUEST.run_id, task), status)
    run = RunDir(tmp_path / "runs" / REQUEST.run_id)
    run.create(RunInfo(REQUEST.run_id, REQUEST.spec, cluster=REQUEST.cluster))
    steps: list[int | None] = []
    with run.opened() as opened:
        collect(opened, environment, View(opened.info), tick=steps.append)
    assert (run.read().state, run.read().collected) == (State.TRAINING, False)
    assert steps[-1] == 41
    assert environment.collected() == {}
