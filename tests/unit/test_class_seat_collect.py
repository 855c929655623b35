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


def test_a_seat_keeps_the_runs_of_all_its_environments(queue: QueueUnderTest, store: Path) -> None:
    """docs/how-to/class-run.md promises that a run without a client waits until the class ends."""
    runs = [f"20261124-060{number}-async-8602" for number in range(3)]
    for name, run in zip(("a", "b", "a"), runs, strict=True):
        environment = queue.seat("ada").up(plan_in_seat(1, name), root=queue.root, check=no_check)
        environment.submit(request(environment, run))
        assert list(environment.stream(run, {}, follow=True))
        environment.down(keeps=lambda: True)
    assert collect_all(store) == []
    found = [RunDir(store / run).read() for run in runs]
    assert {(each.state, each.backend, each.collected) for each in found} == {
        (State.SUCCEEDED, "class", True)
    }
    assert queue.seat("ada").projects() == [], "complete, so the volumes are removed"
    assert collect_all(store.with_name("elsewhere")) == []
    assert not store.with_name("elsewhere").exists()


def test_a_run_without_its_end_counts_as_lost(queue: QueueUnderTest, store: Path) -> None:
    queue.host.tasks_do = lambda *_: None
    environment = queue.up("ada", 1)
    environment.submit(request(environment))
    (queue.volume("ada").files(RUN) / "mine.txt").write_text("mine")
    environment.down(keeps=lambda: True)
    assert collect_all(store) == []
    assert RunDir(store / RUN).read().state is State.LOST
    assert (store / RUN / "files/mine.txt").read_text() == "mine"


def test_what_cannot_be_collected_is_named_and_stays(queue: QueueUnderTest, store: Path) -> None:
    environment = queue.up("ada", 1)
    environment.submit(request(environment))
    assert collected(environment)
    environment.down(keeps=lambda: True)
    (queue.volume("ada").files(RUN) / "link").symlink_to("/etc/passwd")
    broken = queue.volume("ada").root.parent.with_name("broken")
    broken.mkdir()
    (broken / "environment.json").write_text("{")
    (line,) = collect_all(store)
    assert line.startswith(f"broken: {broken}/environment.json cannot be read")
    assert RunDir(store / RUN).read().state is State.SUCCEEDED
    assert not os.path.lexists(store / RUN / "files/link")
    assert broken.exists()
