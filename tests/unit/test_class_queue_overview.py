"""The queue of a class for its teacher, as the ledger on the disk has it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.classroom.protocol import State
from lab.classroom.queue.folder import QueueDir
from lab.classroom.queue.ledger import START_S, Entries, Entry
from lab.classroom.queue.overview import Queued, queued
from tests.golden.boxes import uuid_of
from tests.support.classes import a_plan, created

NOW = 1_000_000.0
SLICE_S = 600.0


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    monkeypatch.setattr(time, "time", lambda: NOW)


def entry(seat: str, needs: int, **fields: object) -> Entry:
    known = {"id": seat, "seat": seat, "name": f"of-{seat}", "project": seat, "needs": needs}
    return Entry(**known, **fields)  # type: ignore[arg-type]


def overview(*entries: Entry) -> list[Queued] | None:
    folder = created(a_plan(("ada", "bob", "cy", "dan"), gpus={"queue": True}))
    ledger: Entries = entries
    QueueDir(folder).ledger().write(ledger)
    return queued(folder)


def test_what_waits_and_what_holds_gpus() -> None:
    gpus = tuple(map(uuid_of, range(4)))
    network = "10.89.0.80/28"
    waiting = entry("ada", 2, requested_unix=NOW - 60)
    holding = entry(
        "bob",
        4,
        state=State.UP,
        gpus=gpus,
        network=network,
        requested_unix=NOW - 900,
        granted_unix=NOW - 200,
    )
    ended = entry("cy", 1, state=State.ENDED, granted_unix=NOW - 50)
    assert overview(waiting, holding, ended, entry("dan", 3, requested_unix=NOW)) == [
        Queued("bob", "of-bob", "up", None, 4, gpus, 200.0, None),
        Queued("ada", "of-ada", "waiting", 1, 2, (), 60.0, START_S + SLICE_S - 200),
        Queued("dan", "of-dan", "waiting", 2, 3, (), 0.0, START_S + 2 * SLICE_S - 200),
    ]


def test_an_empty_queue_and_no_queue() -> None:
    assert overview() == []
    assert queued(created(replace(a_plan(gpus=1), name="other"))) is None
