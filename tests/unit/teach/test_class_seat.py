"""A seat: its start, and its status, of which the student can forge a part."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import docker.errors
import pytest

from lab.backends.engine.client import Done, Engine
from lab.base.errors import LabError
from lab.teach.classroom import names, seat
from lab.teach.classroom.hub_api import HubApi
from lab.teach.classroom.seat_report import RunReport, SeatReport, parse_report
from lab.teach.classroom.seat_status import SeatStatus, seat_statuses
from tests.golden.boxes import uuid_of
from tests.support.classes import a_class, created, plan
from tests.support.commands import ROOT
from tests.support.docker import Output

WAIT = seat.wait_until_isolated


def filled(folder: Path, **variables: str) -> set[str]:
    seat.fill(folder, variables, ROOT)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_student_gets_a_project_with_all_notebooks(tmp_path: Path) -> None:
    found = filled(tmp_path)
    notebooks = {str(path.relative_to(ROOT)) for path in ROOT.glob("notebooks/**/[0-9]*.ipynb")}
    read = {"benchmarks/scaling.json", "docs/evidence/staleness.csv"}  # by notebooks
    assert {*notebooks, *read, "cluster.yaml", "scripts/mnist_async.py"} <= found
    assert {"notebooks/zh/00_tour.ipynb", "notebooks/zh/common.py"} <= found
    # The sources for developers.
    assert not {"notebooks/00_tour.py", "notebooks/zh/00_tour.md"} & found
    assert not any("__pycache__" in name for name in found)


def test_the_class_chooses_the_config(tmp_path: Path) -> None:
    filled(tmp_path, LAB_CLUSTER_CONFIG="name: ada\n")
    assert (tmp_path / "cluster.yaml").read_text() == "name: ada\n"


def test_a_later_start_keeps_the_student_s_work(tmp_path: Path) -> None:
    filled(tmp_path)
    notebook = tmp_path / "notebooks/01_async.ipynb"
    notebook.write_text("mine")
    (tmp_path / "cluster.yaml").write_text("mine, too")
    (tmp_path / "scripts/hello.py").unlink()
    (tmp_path / "scripts/linear.py").unlink()
    (tmp_path / "scripts/linear.py").symlink_to("/nowhere")
    filled(tmp_path, LAB_CLUSTER_CONFIG="name: ada\n")
    assert notebook.read_text() == "mine"
    assert (tmp_path / "cluster.yaml").read_text() == "mine, too"
    assert (tmp_path / "scripts/hello.py").is_file()  # a deleted file is there again
    assert (tmp_path / "scripts/linear.py").readlink() == Path("/nowhere")


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
SUBNET = "eth0\t1000590A\t00000000\t0001\t0\t0\t0\tF0FFFFFF\t0\t0\t0\n"
REJECTED = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"


def test_a_seat_waits_until_the_host_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes, waits = tmp_path / "route", list[float]()
    routes.write_text(HEAD + SUBNET)

    def block(seconds: float) -> None:
        waits.append(seconds)
        routes.write_text(HEAD + REJECTED + SUBNET)

    monkeypatch.setattr(seat, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=block))
    WAIT(routes)
    assert len(waits) == 1


def test_a_seat_that_is_not_blocked_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = tmp_path / "route"
    for text in ("", HEAD):  # without a network, it needs no block
        routes.write_text(text)
        WAIT(routes, 0)
    routes.write_text(HEAD + SUBNET)
    monkeypatch.setattr(seat, "wait_until_isolated", lambda: WAIT(routes, 0.2))
    for name in ("fill", "os.chdir", "os.execv"):
        monkeypatch.setattr(f"lab.teach.classroom.seat.{name}", pytest.fail)
    with pytest.raises(SystemExit, match=r"the host is not blocked after 0.2 s; read .* hub.log"):
        seat.main([])


def test_the_server_starts_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a\x1b[2Jb"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(seat, "wait_until_isolated", lambda: None)
    monkeypatch.setattr(seat, "fill", Mock(side_effect=full))
    monkeypatch.setattr(os, "chdir", Mock())
    execv = Mock()
    monkeypatch.setattr(os, "execv", execv)
    seat.main(["--debug"])
    path, words = execv.call_args.args
    assert (path.name, words[1:]) == ("jupyterhub-singleuser", ["--debug"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lab: the home directory is not complete: No space left on device: /")
    assert line.isprintable()


GOOD: dict[str, Any] = {
    "run_id": "20261201-090000-async",
    "experiment": "async",
    "state": "training",
    "age_s": 12.5,
    "global_step": 300,
    "since_step_s": 0.5,
}


def report(**changes: object) -> bytes:
    return json.dumps({"run": GOOD | changes, "passed": {"async": [2, 3]}}).encode()


def test_a_report() -> None:
    assert parse_report(report()) == SeatReport(RunReport(**GOOD), {"async": (2, 3)})
    assert parse_report(b'{"run": null, "passed": {}}') == SeatReport(None, {})


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
    found = parse_report(report(state=state, since_step_s=since_s)).run
    assert found.is_stuck is expected


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"no JSON", b"{}", b"[]", b"1", b"[" * 4_000, b'{"x":' * 800, b"\xff\xfe"),
        *(report(**{name: "x" * 65}) for name in ("run_id", "experiment", "state")),
        *(report(run_id=1), report(state=None), report(global_step=1.5), report(age_s="1")),
        *(report(age_s=-1), report(age_s=1e11), report(since_step_s=-0.1)),
        *(report(since_step_s=1e300), report(global_step=-1), report(global_step=1 << 63)),
        *(report().replace(b"12.5", each) for each in (b"1e999", b"NaN")),
        report().replace(b"300", b"9" * 3_000),
        report().replace(b"async", b"\xed\xa0\x80"),
        report() + report(),
        *(report().replace(b"[2, 3]", each) for each in (b"[2]", b"[2, 100]", b"[-1, 3]", b"2")),
        report().replace(b'"async": [2, 3]', b'"%s": [2, 3]' % (b"x" * 33)),
        report().replace(b'"async": [2, 3]', b", ".join(b'"%d": [0, 1]' % n for n in range(65))),
    ],
)
def test_a_forged_report_is_no_report(content: bytes) -> None:
    with pytest.raises(LabError, match="the seat sent no report"):
        parse_report(content)


def user(name: str, **server: object) -> dict[str, Any]:
    servers = {"": {"ready": False, "pending": None} | server} if server else {}
    return {"name": name, "servers": servers}


@pytest.fixture
def statuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SeatStatus]]:
    """The status of a class with these users of JupyterHub and these answers of containers."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path))
    folder = created(plan(a_class(["ada", "bob", "cy", "dan", "eve"], 1)))

    def read(users: list[dict[str, Any]], answers: dict[str, Done | LabError]) -> list[SeatStatus]:
        def execute(_: Engine, doing: str, seat: str, command: object, **options: object) -> Done:
            # It does not import the student's files.
            assert command == ("python", "-P", "-m", "lab.teach.classroom.seat_report")
            assert (options["workdir"], options["max_bytes"]) == ("/", 4096)
            answer = answers[seat]
            if isinstance(answer, LabError):
                raise answer
            return answer

        found = [Mock(id=name, labels={names.SEAT: name}, status="running") for name in answers]
        found[-1].status = "exited"
        get = {each.id: each for each in found}.get
        monkeypatch.setattr(Engine, "client", lambda _: Mock(containers=Mock(get=get)))
        monkeypatch.setattr(Engine, "execute", execute)
        monkeypatch.setattr(Engine, "containers", lambda *_: found)
        monkeypatch.setattr(HubApi, "_request", lambda *_: users)
        return seat_statuses(folder)

    return read


def test_the_state_of_each_seat(statuses: Callable[..., list[SeatStatus]]) -> None:
    users = [
        user("dan"),
        user("cy", pending="stop", ready=True),
        user("bob", pending="spawn"),
        user("ada", ready=True),
        user("teacher"),
    ]
    found = statuses(users, {"eve": LabError("not asked")})
    assert {each.seat: each.state for each in found} == {
        "ada": "ready", "bob": "starting", "cy": "stopping", "dan": "stopped", "eve": "stopped",
    }  # fmt: skip
    assert found[0].gpus == (uuid_of(0),)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (Output(*[b"x" * 4_000] * 1_000), "reading: it printed more than 10000 bytes"),
        (Output(b"begins", silent=True), "reading: it did not end within 0.1 s"),
        (docker.errors.APIError("no process left"), "reading: no process left"),
    ],
)
def test_a_command_in_a_container_has_a_limit_of_its_output_and_its_time(
    output: Output | Exception, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Output(b"a", b"b"), output]
    api = Mock(exec_start=Mock(side_effect=answers), exec_create=lambda *_: {"Id": "x"})
    api.exec_inspect.return_value = {"ExitCode": 3}
    monkeypatch.setattr(Engine, "client", lambda _: Mock(api=api))
    done = Engine().execute("reading", "c1", ["cat"], within_s=20, max_bytes=2)
    assert done == Done(3, b"ab", b"")
    with pytest.raises(LabError, match=error):
        Engine().execute("reading", "c1", ["cat"], within_s=0.1, max_bytes=10_000)
    if "more" in error:
        assert isinstance(output, Output)
        assert len(list(output)) == 1_000 - 3, "only the beginning is read"


def test_one_seat_cannot_hide_the_others(statuses: Callable[..., list[SeatStatus]]) -> None:
    answers = {
        "ada": LabError("it did not end within 10 s"),
        "bob": Done(0, b"forged", b""),
        "cy": Done(0, report(since_step_s=99), b""),
        "dan": Done(0, report(), b""),  # it does not run
    }
    found = ada, bob, cy, dan, eve = statuses([], answers)
    assert {each.state for each in found} == {"stopped"}  # JupyterHub does not know them
    assert [each.run for each in (ada, bob, dan, eve)] == [None] * 4
    assert cy.run == RunReport(**GOOD | {"since_step_s": 99.0})
    assert [each.stuck for each in found] == [False, False, True, False, False]
    assert [each.passed for each in found] == [{}, {}, {"async": (2, 3)}, {}, {}]
    assert [each.answers for each in found] == [False, False, True, True, True]
