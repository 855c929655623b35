"""The runs of the queue that a seat has not collected are in its run store at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.backends.environment import no_check
from lab.classroom.seat_collect import collect_all
from lab.store.directory import RunDir
from lab.volume.states import State
from tests.support.queueing import (
    RUN,
    FakeHost,
    QueueUnderTest,
    a_queue,
    collected,
    plan_in_seat,
    request,
)

OTHER = "20261124-0700-async-1111"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueUnderTest]:
    host = FakeHost()
    with a_queue(tmp_path / "queue", host) as found:
        yield found
    host.stop()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def left(queue: QueueUnderTest) -> None:
    """A run on the disk of its seat that no client followed, and whose containers have ended."""
    environment = queue.up("ada", 1)
    environment.submit(request(environment))
    assert collected(environment)
    environment.down(keeps=lambda: True)


def test_a_run_is_collected_and_its_volume_removed(queue: QueueUnderTest, store: Path) -> None:
    left(queue)
    assert collect_all(store) == []
    info = RunDir(store / RUN).read()
    assert (info.state, info.backend, info.collected) == (State.SUCCEEDED, "class", True)
    assert not queue.volume("ada").root.exists()
    assert collect_all(store) == []


def test_a_seat_keeps_the_runs_of_all_its_environments(queue: QueueUnderTest, store: Path) -> None:
    """docs/how-to/class-run.md promises that a run without a client waits until the class ends."""
    runs = [f"20261124-060{number}-async-8602" for number in range(5)]
    for name, run in zip(("a", "b", "c", "a", "b"), runs, strict=True):
        environment = queue.seat("ada").up(plan_in_seat(1, name), root=queue.root, check=no_check)
        environment.submit(request(environment, run))
        assert list(environment.stream(run, {}, follow=True))
        environment.down(keeps=lambda: True)
    assert collect_all(store) == []
    assert [RunDir(store / run).read().state for run in runs] == [State.SUCCEEDED] * 5


def test_a_run_without_its_end_counts_as_lost(queue: QueueUnderTest, store: Path) -> None:
    queue.host.tasks_do = lambda *_: None
    environment = queue.up("ada", 1)
    environment.submit(request(environment))
    (queue.volume("ada").files(RUN) / "mine.txt").write_text("mine")
    environment.down(keeps=lambda: True)
    assert collect_all(store) == []
    assert RunDir(store / RUN).read().state is State.LOST
    assert (store / RUN / "files/mine.txt").read_text() == "mine"


def test_what_was_collected_elsewhere_is_not_collected_again(
    queue: QueueUnderTest, store: Path
) -> None:
    left(queue)
    collect_all(store.with_name("mine"))
    assert collect_all(store) == []
    assert not store.exists()


def test_what_cannot_be_collected_is_named_and_stays(queue: QueueUnderTest, store: Path) -> None:
    left(queue)
    (queue.volume("ada").files(RUN) / "link").symlink_to("/etc/passwd")
    broken = queue.volume("ada").root.parent.with_name("broken")
    broken.mkdir()
    (broken / "environment.json").write_text("{")
    (line,) = collect_all(store)
    assert line.startswith(f"broken: {broken}/environment.json cannot be read")
    assert RunDir(store / RUN).read().state is State.SUCCEEDED
    assert not os.path.lexists(store / RUN / "files/link")
    assert broken.exists()
