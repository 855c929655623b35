"""`lab class up | status | handouts | reset | down` as commands; nothing is started."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends.compose.client import Engine
from lab.backends.process import ProcessHandle
from lab.classroom import environment, image, names
from lab.classroom.config import Times
from lab.classroom.planning import NOT_ISOLATED
from lab.classroom.processes import check_installed
from lab.classroom.queue.overview import Queued
from lab.classroom.state import ClassDir, StoredClass
from lab.classroom.status import RunReport, SeatStatus
from lab.cli.class_actions import ClassOptions
from lab.errors import InputError
from lab.run.project import find_root
from lab.service import classroom
from tests.golden.boxes import box, uuid_of
from tests.support.agents import ROOT
from tests.support.classes import CLASS, CLUSTER, a_plan, stored
from tests.support.cli import lab, refused

status = importlib.import_module("lab.cli.class_actions.status")
down = importlib.import_module("lab.cli.class_actions.down")
reset = importlib.import_module("lab.cli.class_actions.reset")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a class config; commands in it have their own state directory."""
    (tmp_path / "class.yaml").write_text(CLASS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path


def running(name: str = "w") -> ClassDir:
    """A class that is up: its JupyterHub is this process."""
    folder = ClassDir(name)
    folder.create(stored(replace(a_plan(), name=name)))
    folder.write_hub(ProcessHandle.of(os.getpid()))
    return folder


def call(place: Path, *words: str) -> Any:
    return lab(place, "class", *words, LAB_STATE=str(place / "state"))


# ---- What applies to which action


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("up ada", "SEAT"),
        ("up --json", "--json"),
        ("up --yes", "--yes"),
        ("up --gpus 8", "--gpus"),
        ("status --backend local", "--backend"),
        ("down --backend local", "--backend"),
        ("status ada", "SEAT"),
        ("status --output x", "--output"),
        ("handouts --json", "--json"),
        ("handouts -y", "--yes"),
        ("reset ada --output x", "--output"),
        ("reset ada --url https://h", "--url"),
        ("down ada", "SEAT"),
        ("down --json", "--json"),
        ("validate --yes", "--yes"),
    ],
)
def test_an_argument_that_does_not_apply(words: str, wrong: str, place: Path) -> None:
    folder = running()
    action = words.split(maxsplit=1)[0]
    line = refused(call(place, *words.split()))
    assert line == f"error: `lab class {action}` does not take {wrong}; leave out {wrong}"
    assert folder.is_up


# ---- Which class


@pytest.mark.parametrize("action", ["status", "handouts", "reset ada", "down --yes"])
def test_no_class_is_up(action: str, place: Path) -> None:
    line = refused(call(place, *action.split()))
    assert line == "error: no class is up; start one with `lab class up`"


def test_the_class_of_the_config(place: Path) -> None:
    running("w")
    running("other")
    call(place, "handouts")
    assert (place / "w-handouts.html").is_file()
    (place / "b.yaml").write_text(CLASS.replace("name: w", "name: other"))
    call(place, "handouts", "--file", "b.yaml")
    assert (place / "other-handouts.html").is_file()


def test_a_config_of_a_class_that_is_not_up(place: Path) -> None:
    running("first")
    line = refused(call(place, "down", "--yes"))
    assert line == "error: the class 'w' is not up; name the config of first by --file"
    running("second")
    line = refused(call(place, "handouts"))
    assert line == "error: the class 'w' is not up; name the config of first, second by --file"
    assert [each.name for each in classroom.class_dirs()] == ["first", "second"]


def test_the_only_class_needs_no_config(place: Path) -> None:
    running("other")
    (place / "class.yaml").unlink()
    assert call(place, "handouts").returncode == 0
    running("second")
    assert "there is no file class.yaml" in refused(call(place, "handouts"))


# ---- up


@pytest.fixture
def booted(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[StoredClass]:
    """What would be booted, on a host with two GPUs."""
    found: list[StoredClass] = []
    monkeypatch.setattr(classroom, "chosen_host", lambda gpus: box(2))
    monkeypatch.setattr(classroom, "routes", list)
    monkeypatch.setattr(image, "ensure_image", lambda engine, **options: f"image {options['gpus']}")
    monkeypatch.setattr(environment, "up", lambda what, notify: found.append(what))
    monkeypatch.setattr(classroom, "find_root", lambda path: find_root(Path(__file__)))
    monkeypatch.setattr(classroom, "check_installed", lambda root: None)
    monkeypatch.setattr(Engine, "is_podman", lambda engine: False)
    return found


def test_a_class_is_booted_as_planned(place: Path, booted: list[StoredClass]) -> None:
    (place / "class.yaml").write_text(f"{CLASS}lessons: [async]\n")
    done = call(place, "up")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-2:] == [
        "class w: 2 seats at http://127.0.0.1:8000",
        "print the passwords with `lab class handouts`; see the seats with `lab class status`",
    ]
    (what,) = booted
    assert [each.gpus for each in what.plan.seats] == [(uuid_of(0),), (uuid_of(1),)]
    assert (what.image, what.cluster, what.lessons) == ("image True", CLUSTER, ("async",))


def test_podman_runs_no_class(
    place: Path, booted: list[StoredClass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "is_podman", lambda engine: True)
    (place / "class.yaml").write_text(CLASS)
    done = call(place, "up")
    assert done.returncode == 1
    assert "this engine is Podman; use `lab class up --backend local`" in done.stderr
    assert booted == []


def test_a_class_without_gpus_gets_the_small_image(place: Path, booted: list[StoredClass]) -> None:
    (place / "class.yaml").write_text("version: 1\nname: w\nseats: 1\n")
    (place / "cluster.yaml").write_text(CLUSTER.replace("gpus: 1", ""))
    assert call(place, "up").returncode == 0
    assert booted[0].image == "image False"


def test_runs_without_gpus_have_their_image(
    place: Path, booted: list[StoredClass], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def ensure(_engine: object, *, cpu_runs: bool, **_options: object) -> str:
        asked.append(cpu_runs)
        return "image"

    monkeypatch.setattr(image, "ensure_image", ensure)
    (place / "class.yaml").write_text(f"{CLASS}cpu_runs: 1\n")
    assert call(place, "up").returncode == 0
    assert asked == [True]
    assert len(booted[0].plan.run_networks) == 1


def test_a_class_that_is_up_is_not_booted_again(place: Path, booted: list[StoredClass]) -> None:
    folder = running()
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    line = refused(call(place, "up"))
    assert line == (
        "error: the class 'w' is up already; see it with `lab class status`, or remove it with "
        "`lab class down`"
    )
    assert booted == []
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_class_whose_jupyterhub_ended_keeps_its_own_plan(
    place: Path, booted: list[StoredClass]
) -> None:
    folder = running()
    folder.write_hub(ProcessHandle(os.getpid(), "0", "0"))
    (place / "class.yaml").write_text(CLASS.replace("[ada, bob]", "9"))  # changed since then
    assert call(place, "up").returncode == 0
    assert booted == [folder.stored()]


def test_a_class_without_docker_needs_no_image(place: Path, booted: list[StoredClass]) -> None:
    done = call(place, "up", "--backend", "local")
    assert (done.returncode, done.stdout) == (0, "")
    (what,) = booted
    assert what.plan.is_local
    assert what.image == ""
    assert what.root == str(ROOT)
    for line in NOT_ISOLATED:
        assert line in done.stderr.splitlines()


def test_a_class_without_docker_names_what_is_not_installed(
    place: Path, booted: list[StoredClass], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classroom, "check_installed", check_installed)
    monkeypatch.setattr(classroom, "find_root", lambda path: place)
    line = refused(call(place, "up", "--backend", "local"), code=1)
    assert line == (
        "error: configurable-http-proxy is not installed, which a class without Docker needs; run "
        "`make class-local` in the project's directory"
    )
    assert booted == []


@pytest.mark.parametrize("other", ["compose", "local"])
def test_a_class_goes_on_with_its_own_backend(
    other: str, place: Path, booted: list[StoredClass]
) -> None:
    own = "local" if other == "compose" else "compose"
    folder = ClassDir("w")
    folder.create(stored(replace(a_plan(), backend=own)))
    line = refused(call(place, "up", "--backend", other))
    assert line == (
        f"error: the class 'w' goes on with the backend {own}; leave out --backend, or remove the "
        "class with `lab class down` first"
    )
    assert booted == []
    assert call(place, "up", "--backend", own).returncode == 0
    assert call(place, "up").returncode == 0
    assert [each.plan.backend for each in booted] == [own, own]


def test_a_class_that_is_over(place: Path, booted: list[StoredClass]) -> None:
    end = f"{datetime.now() - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    (place / "class.yaml").write_text(f"{CLASS}times: {{end: {end}}}\n")
    done = call(place, "up")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: class.yaml: the class is over; set another `end:`, or leave it out"
    )
    assert booted == []


# ---- status

RUN = RunReport("r1", "async", "training", 61.0, 1_200, 2.0)
HOSTILE = RunReport("\x1b[2J[bold]", "x\x07", "\x1b]0;owned\x07", 1.0, None, None)


@pytest.fixture
def seats(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    found = [
        SeatStatus("ada", "ready", (uuid_of(0),), 30.0, RUN, stuck=False),
        SeatStatus("bob", "ready", (), None, HOSTILE, stuck=False),
        SeatStatus("cy", "stopped", (), None, None, stuck=False),
        SeatStatus("dan", "ready", (), 1.0, RUN, stuck=True),
    ]
    monkeypatch.setattr(status, "seat_statuses", lambda folder: found)


def test_the_table_of_the_seats(place: Path, seats: None) -> None:
    done = call(place, "status")
    assert (done.returncode, done.stderr) == (0, "")
    heading, _, ada, bob, cy, dan = done.stdout.splitlines()
    assert heading.split()[:3] == ["seat", "state", "gpus"]
    assert ada.split()[:3] == ["ada", "ready", uuid_of(0)[:12]]
    assert "training" in ada
    assert "1,200" in ada
    assert "stuck" in dan
    assert "training" not in dan
    assert cy.split() == ["cy", "stopped", "none"]
    assert r"\x1b[2J[bold]" in bob


def test_a_narrow_terminal_shows_what_the_teacher_needs_first(
    place: Path, seats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "terminal_width", lambda stream: 60)
    done = call(place, "status")
    assert max(map(len, done.stdout.splitlines())) <= 60
    assert done.stdout.split("\n")[0].split()[:2] == ["seat", "state"]
    assert "stuck" in done.stdout
    assert done.stderr.startswith("not shown at this width: active, started")


def test_a_report_cannot_control_the_terminal(place: Path, seats: None) -> None:
    for words in (["status"], ["status", "--json"]):
        printed = call(place, *words).stdout
        assert "owned" in printed
        assert not any(sign in printed for sign in ("\x1b", "\x07"))


def test_the_status_as_json(place: Path, seats: None) -> None:
    found = json.loads(call(place, "status", "--json").stdout)
    ada, bob, cy, dan = found["seats"]
    assert [each["seat"] for each in (ada, bob, cy, dan)] == ["ada", "bob", "cy", "dan"]
    assert ada["run"]["global_step"] == 1_200
    assert dan["stuck"] is True
    assert cy["run"] is None
    assert found["queue"] is None


@pytest.mark.parametrize(
    ("end", "line"),
    [
        ("2026-12-01T12:00:00+01:00", "class w: ends at 12:00, in 35 min"),
        ("2026-12-03T12:00:00+01:00", "class w: ends at 2026-12-03 12:00, in 48 h 35 min"),
        ("2026-12-01T11:24:59+01:00", "class w: over since 11:24"),
        ("2026-11-30T12:00:00+01:00", "class w: over since 2026-11-30 12:00"),
    ],
)
def test_the_end_of_the_class_is_above_the_seats(
    end: str, line: str, place: Path, seats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=datetime.fromisoformat("2026-12-01T10:25:00+00:00").astimezone)
    monkeypatch.setattr(status, "datetime", clock)
    times = Times.model_construct(
        start=None, end=datetime.fromisoformat(end), slice=timedelta(minutes=10)
    )
    plan = replace(ClassDir("w").stored().plan, times=times)
    monkeypatch.setattr(ClassDir, "stored", lambda folder: stored(plan))
    assert call(place, "status").stderr == f"{line}\n"
    found = json.loads(call(place, "status", "--json").stdout)
    assert (found["start"], found["end"]) == (None, end)


QUEUE = [
    Queued("dan", "mnist", "up", None, 2, (uuid_of(0), uuid_of(1)), 70.0, None),
    Queued("cy", "\x1b[2Jmine", "waiting", 1, 2, (), 30.0, 600.0),
    Queued("ada", "mnist", "waiting", 1, 0, (), 90.0, 1200.0),
]


def test_the_queue_is_below_the_seats(
    place: Path, seats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "queued", lambda folder: QUEUE)
    done = call(place, "status")
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    heading = lines.index("") + 1
    assert lines[heading].split() == [
        "seat",
        "environment",
        "state",
        "position",
        "gpus",
        "since",
        "wait",
    ]
    rows = [line.split() for line in lines[heading + 2 :]]
    assert rows == [
        ["dan", "mnist", "up", uuid_of(0)[:12], uuid_of(1)[:12], "70", "s", "ago"],
        ["cy", r"\x1b[2Jmine", "waiting", "1", "needs", "2", "30", "s", "ago", "10", "min"],
        ["ada", "mnist", "waiting", "1", "none", "90", "s", "ago", "20", "min"],
    ]
    # Of each seat, the newest counts: ada has a run after its request, and dan's turn has begun.
    ada, _, cy, dan = lines[2:6]
    assert "queue: waiting" in cy
    assert "training" in ada
    assert "stuck" in dan
    found = json.loads(call(place, "status", "--json").stdout)["queue"]
    assert found[0]["gpus"] == [uuid_of(0), uuid_of(1)]
    assert (found[1]["position"], found[1]["wait_s"]) == (1, 600.0)


def test_both_tables_fit_into_80_columns(
    place: Path, seats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = Queued("dan", "n" * 31, "granted", None, 4, tuple(map(uuid_of, range(4))), 70.0, None)
    monkeypatch.setattr(status, "queued", lambda folder: [wide])
    monkeypatch.setattr(status, "terminal_width", lambda stream: 80)
    done = call(place, "status")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "granted" in done.stdout
    assert done.stderr.endswith("gpus; --json prints all\n")


def test_an_empty_queue_is_named(place: Path, seats: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "queued", lambda folder: [])
    assert call(place, "status").stderr == "the queue is empty\n"


def test_a_status_without_jupyterhub(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(names, "HUB_PORT", server.getsockname()[1])
    monkeypatch.setattr(names, "gateway", lambda network: "127.0.0.1")
    done = call(place, "status")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "JupyterHub does not answer: " in done.stderr


# ---- handouts


def test_the_page_is_written_and_not_printed(place: Path) -> None:
    folder = running()
    done = call(place, "handouts", "--output", "my.html", "--url", "https://lab.example.org")
    assert done.returncode == 0
    assert done.stderr == ("print my.html, and then delete it: it has the password of every seat\n")
    text = (place / "my.html").read_text()
    assert "https://lab.example.org" in text
    for token in folder.tokens().seats.values():
        assert token in text
        assert token not in done.stdout + done.stderr


# ---- reset


def test_reset_names_a_seat_of_the_class(place: Path) -> None:
    running()
    line = refused(call(place, "reset", "--yes"))
    assert line == (
        "error: no seat is given in the class 'w'; see the seats with `lab class status`"
    )
    line = refused(call(place, "reset", "bop", "--yes"))
    assert line == (
        "error: no seat 'bop' in the class 'w'; did you mean 'bob'? see the seats with "
        "`lab class status`"
    )
    for seat in ("teacher", "../bob", "BOB"):
        assert "error: no seat '" in refused(call(place, "reset", seat, "--yes"))


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["reset", "bob"], "reset bob? A copy of its work is kept."),
        (["down"], "remove the class 'w'? Its work is collected first."),
    ],
)
def test_a_question_needs_a_terminal(words: list[str], question: str, place: Path) -> None:
    folder = running()
    line = refused(call(place, *words))
    assert line == f"error: cannot ask: {question} (stdin is not a terminal); add --yes"
    assert folder.is_up


def options(**given: Any) -> ClassOptions:
    known = {
        "backend": None,
        "gpus": "auto",
        "json": False,
        "seat": "",
        "output": None,
        "url": None,
        "yes": False,
    }
    return ClassOptions(**{"file": Path("class.yaml"), **known, **given})


@pytest.mark.parametrize(
    ("answer", "removed"), [("y", True), ("Yes ", True), ("n", False), ("", False), (None, False)]
)
def test_only_a_yes_removes(
    answer: str | None, removed: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running()
    calls: list[tuple[object, ...]] = []
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))

    def respond() -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", respond)
    monkeypatch.setattr(down, "down", lambda *given: calls.append(given[:2]))
    monkeypatch.setattr(reset, "reset", lambda *given: calls.append(given[:2]))
    requests = [
        (down.run, options(output=Path("work.zip"))),
        (reset.run, options(seat="ada")),
    ]
    for run, given in requests:
        if removed:
            run(given)
            continue
        with pytest.raises(InputError) as caught:
            run(given)
        assert str(caught.value) == "nothing was removed; answer y, or add --yes"
    expected = [(ClassDir("w"), Path("work.zip")), (ClassDir("w"), "ada")]
    assert calls == (expected if removed else [])


def test_the_archive_has_a_name_with_the_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(down, "down", lambda *given: calls.append(given))
    assert call(place, "down", "--yes").returncode == 0
    ((folder, archive, _),) = calls
    assert folder == ClassDir("w")
    assert datetime.strptime(archive.name, "w-%Y%m%d-%H%M%S.zip")
