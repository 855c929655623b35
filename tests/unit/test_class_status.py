"""The status of a class: the seats' own reports may be forged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import msgspec
import pytest

from lab.backends.compose.client import Engine, engine_errors
from lab.classroom import containers, hub_api, names
from lab.classroom.seat_report import newest_run
from lab.classroom.status import RunReport, SeatStatus, parse_report, seat_statuses
from tests.golden.boxes import uuid_of
from tests.support.classes import a_plan, created

GOOD: dict[str, Any] = {
    "run_id": "20261201-090000-async",
    "experiment": "async",
    "state": "training",
    "age_s": 12.5,
    "global_step": 300,
    "since_step_s": 0.5,
}


def report(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


# ---- A seat's report


def test_a_report() -> None:
    assert parse_report(report()) == RunReport(**GOOD)
    assert parse_report(b"null") is None
    found = parse_report(report(global_step=None, since_step_s=None))
    assert found is not None
    assert not found.is_stuck


@pytest.mark.parametrize(
    ("state", "since_s", "expected"),
    [
        ("training", 60.0, False),
        ("training", 60.5, True),
        ("training", None, False),
        ("succeeded", 999.0, False),
    ],
)
def test_a_run_is_stuck_if_it_trains_without_steps(
    state: str, since_s: float | None, expected: bool
) -> None:
    found = parse_report(report(state=state, since_step_s=since_s))
    assert found is not None
    assert found.is_stuck is expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"{}",
        b"[]",
        b"1",
        b"[" * 4_000,
        b'{"x":' * 800,
        b"\xff\xfe",
        report(run_id="x" * 65),
        report(experiment="x" * 65),
        report(state="x" * 65),
        report(run_id=1),
        report(state=None),
        report(age_s="1"),
        report(age_s=-1),
        report(age_s=1e11),
        report(since_step_s=-0.1),
        report(since_step_s=1e300),
        report().replace(b"12.5", b"1e999"),
        report().replace(b"12.5", b"NaN"),
        report(global_step=-1),
        report(global_step=1 << 63),
        report().replace(b"300", b"9" * 3_000),
        report(global_step=1.5),
        report(more="x" * 5_000),
        report() + b" " * 5_000,
        report() + report(),
        report().replace(b"async", b"\xed\xa0\x80"),
    ],
)
def test_a_forged_report_is_no_report(content: bytes) -> None:
    assert parse_report(content) is None


def test_a_seat_without_runs(tmp_path: Path) -> None:
    assert newest_run(tmp_path / "runs") is None
    (tmp_path / "runs" / "damaged").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    assert newest_run(tmp_path / "runs") is None


# ---- All seats


class Containers(Engine):
    """An engine with these containers, each with the chunks that its report command prints."""

    def __init__(self, answers: dict[str, Callable[[], Iterator[bytes]]]) -> None:
        super().__init__()
        self.commands: list[list[str]] = []
        self.found = [
            SimpleNamespace(
                id=name, status="exited" if name == "cy" else "running", labels={names.SEAT: name}
            )
            for name in answers
        ]

        def exec_create(container: str, command: list[str], **options: Any) -> dict[str, str]:
            assert options == {"stderr": False, "workdir": "/"}
            self.commands.append(command)
            return {"Id": container}

        def exec_start(container: str, *, stream: bool) -> Iterator[bytes]:
            assert stream
            return answers[container]()

        self._local.client = SimpleNamespace(
            api=SimpleNamespace(exec_create=exec_create, exec_start=exec_start)
        )

    def containers(self, *labels: str) -> Any:
        assert labels == ("lab.class=w", "lab.seat")
        return self.found

    def for_each(self, doing: str, containers: Any, action: Callable[..., Any]) -> Any:
        with engine_errors(doing):
            return [action(each) for each in containers]


def endless() -> Iterator[bytes]:
    while True:
        yield b'{"run_id": "' + b"x" * 4_000


def refused() -> Iterator[bytes]:
    raise docker.errors.APIError("OCI runtime exec failed: no process left")
    yield b""


def user(name: str, **server: object) -> dict[str, Any]:
    servers = {"": {"ready": False, "pending": None} | server} if server else {}
    return {"name": name, "servers": servers, "last_activity": None}


@pytest.fixture
def statuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SeatStatus]]:
    """The status of a class with these users of JupyterHub and these answers of containers."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path))

    def read(
        users: list[dict[str, Any]], answers: dict[str, Callable[[], Iterator[bytes]]]
    ) -> list[SeatStatus]:
        folder = created(a_plan(("ada", "bob", "cy", "dan"), 1))
        monkeypatch.setattr(hub_api, "hub_api", lambda _: SimpleNamespace(users=lambda: users))
        monkeypatch.setattr(containers, "Engine", lambda: Containers(answers))
        return seat_statuses(folder)

    return read


def test_the_state_of_each_seat(statuses: Callable[..., list[SeatStatus]]) -> None:
    moment = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    found = statuses(
        [
            user("dan"),
            user("cy", pending="stop", ready=True),
            user("bob", pending="spawn"),
            user("ada", ready=True) | {"last_activity": moment},
            user("teacher"),
        ],
        {},
    )
    assert [(each.seat, each.state) for each in found] == [
        ("ada", "ready"),
        ("bob", "starting"),
        ("cy", "stopping"),
        ("dan", "stopped"),
    ]
    assert found[0].gpus == (uuid_of(0),)
    assert found[0].idle_s == pytest.approx(300, abs=30)
    assert found[1].idle_s is None


def test_a_seat_that_jupyterhub_does_not_know(statuses: Callable[..., list[SeatStatus]]) -> None:
    assert {each.state for each in statuses([], {})} == {"stopped"}


def test_one_seat_cannot_hide_the_others(statuses: Callable[..., list[SeatStatus]]) -> None:
    answers = {
        "ada": endless,
        "bob": refused,
        "cy": lambda: iter([report()]),  # it does not run
        "dan": lambda: iter([report(since_step_s=99)[:20], report(since_step_s=99)[20:]]),
    }
    ada, bob, cy, dan = statuses([], answers)
    assert (ada.run, bob.run, cy.run) == (None, None, None)
    assert dan.run == RunReport(**GOOD | {"since_step_s": 99.0})
    assert [each.stuck for each in (ada, bob, cy, dan)] == [False, False, False, True]


def test_the_report_command_does_not_import_the_student_s_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    engine = Containers({"ada": lambda: iter([b"null"])})
    monkeypatch.setattr(hub_api, "hub_api", lambda _: SimpleNamespace(users=list))
    monkeypatch.setattr(containers, "Engine", lambda: engine)
    seat_statuses(created())
    assert engine.commands == [["python", "-P", "-m", "lab.classroom.seat_report"]]


def test_the_json_of_a_status() -> None:
    found = SeatStatus("ada", "ready", (), None, RunReport(**GOOD), stuck=False)
    assert msgspec.to_builtins(found) == {
        "seat": "ada",
        "state": "ready",
        "gpus": (),
        "idle_s": None,
        "run": GOOD,
        "stuck": False,
    }
