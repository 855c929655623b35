"""A class without Docker: two seats as processes, by its commands and by a browser."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
import websocket

from lab.backends.state import SEAT_VARIABLE, STATE_VARIABLE
from lab.classroom.planning import NOT_ISOLATED
from lab.classroom.processes import check_installed
from lab.classroom.state import TEACHER, ClassDir
from tests.support.agents import PATIENCE_S, ROOT, processes_with, wait_for
from tests.support.browser import Browser, signed_in
from tests.support.classes import CERTIFICATE, KEY

pytestmark = pytest.mark.tensorflow

CLASS = """\
version: 1
name: e2e-local
seats: [ada, bob]
lessons: [async]
address: 127.0.0.1:{port}
tls: {{certificate: cert.pem, key: key.pem}}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def lab(place: Path, *arguments: str, code: int = 0) -> str:
    """The standard output, then the standard error of `lab class`."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", "class", *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in this project with the files of a class; its state is in another one."""
    check_installed(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    own = tmp_path_factory.mktemp("class")
    (own / "tmp").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with TemporaryDirectory(dir=ROOT / "build") as folder, pytest.MonkeyPatch.context() as patch:
        (Path(folder) / "class.yaml").write_text(CLASS.format(port=port))
        (Path(folder) / "cluster.yaml").write_text(CLUSTER)
        (Path(folder) / "cert.pem").write_text(CERTIFICATE)
        (Path(folder) / "key.pem").write_text(KEY)
        (Path(folder) / "key.pem").chmod(0o600)
        patch.setenv(STATE_VARIABLE, str(own / "state"))
        patch.setenv("TMPDIR", str(own / "tmp"))
        yield Path(folder)


@pytest.fixture(scope="module")
def room(place: Path) -> Iterator[ClassDir]:
    """The class, which is up."""
    found = ClassDir("e2e-local")
    before = left(place)
    lines = lab(place, "up", "--backend", "local").splitlines()
    assert set(NOT_ISOLATED) < set(lines)
    assert lines[-2] == f"class e2e-local: 2 seats at {found.stored().plan.url}"
    yield found
    if found.path.exists():
        lab(place, "down", "--yes", "--output", "work.zip")
    (place / "work.zip").unlink()
    assert left(place) == before


def left(place: Path) -> tuple[list[int], list[str]]:
    """The processes of the class, and the files that it can leave."""
    state = ClassDir("e2e-local").path.parent.parent
    folders = (place, state, state.parent / "tmp")
    files = [str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir()]
    return processes_with(f"{SEAT_VARIABLE}={state}"), sorted(files)


def in_terminal(browser: Browser, seat: str, command: str) -> None:
    """Type a command in a new terminal of JupyterLab."""
    found = {each.name: each.value for each in browser.cookies if each.path == f"/user/{seat}/"}
    request = urllib.request.Request(  # noqa: S310  (the scheme is fixed)
        f"{browser.url}/user/{seat}/api/terminals",
        method="POST",
        headers={"X-XSRFToken": found["_xsrf"] or ""},
    )
    with browser.opener.open(request, timeout=30) as answer:
        name = json.loads(answer.read())["name"]
    cookies = "; ".join(f"{each.name}={each.value}" for each in browser.cookies)
    url = f"wss{browser.url.removeprefix('https')}/user/{seat}/terminals/websocket/{name}"
    unchecked = {"cert_reqs": ssl.CERT_NONE}
    terminal = websocket.create_connection(url, cookie=cookies, timeout=30, sslopt=unchecked)
    terminal.send(json.dumps(["stdin", f"{command}\r"]))
    assert any(command in terminal.recv() for _ in range(50))
    terminal.close()


def statuses(place: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(lab(place, "status", "--json"))
    return {each["seat"]: each for each in found["seats"]}


def jupyterlab(room: ClassDir, seat: str) -> psutil.Process:
    """The process of a seat's JupyterLab."""
    pids = processes_with(f"{SEAT_VARIABLE}={room.seats / seat}\0")
    found = (psutil.Process(pid) for pid in pids)
    return next(each for each in found if "jupyterhub.singleuser" in each.cmdline())


def run_of(place: Path, seat: str, state: str) -> bool:
    run = statuses(place)[seat]["run"]
    return run is not None and run["state"] == state and (run["global_step"] or 0) > 0


def test_a_student_signs_in_with_the_handout_s_password(room: ClassDir, place: Path) -> None:
    lab(place, "handouts")
    page = place / "e2e-local-handouts.html"
    password = room.tokens().seats["ada"]
    assert password in page.read_text()
    page.unlink()
    assert Browser(room).sign_in("ada", "wrong")[0] == 403
    assert Browser(room).sign_in("ada", room.tokens().seats["bob"])[0] == 403
    browser = Browser(room)
    assert browser.sign_in("ada", password)[0] == 200
    assert browser.get("/user/ada/lab")[0] == 200
    assert browser.get("/user/bob/api/contents")[0] == 403
    assert browser.get("/hub/admin")[0] == 403
    assert signed_in(room, TEACHER).get("/user/ada/api/contents")[0] == 403


LOOK = """
import json, os, pathlib, ssl, sys, urllib.request
room, url = pathlib.Path(sys.argv[1]), sys.argv[2]
(room / "seats/bob/home/note.txt").write_text("from ada")
print(sorted(json.loads((room / "tokens.json").read_text())["seats"]))
mark = f"LAB_CLASS_DIR={room}/seats/bob".encode()
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found = path.read_bytes().split(b"\\0")
    except OSError:
        continue
    if mark in found:
        token = dict(each.split(b"=", 1) for each in found if each)[b"JUPYTERHUB_API_TOKEN"]
        headers = {"Authorization": f"token {token.decode()}"}
        asked = urllib.request.Request(f"{url}/user/bob/api/contents", headers=headers)
        unchecked = ssl._create_unverified_context()
        print(urllib.request.urlopen(asked, timeout=30, context=unchecked).status)
        break
print(urllib.request.urlopen(os.environ["JUPYTERHUB_API_URL"], timeout=30).status)
"""


def test_what_a_seat_without_docker_can_reach(room: ClassDir) -> None:
    """What lab says that it cannot isolate is open; docs/evidence/seats.md lists it."""
    own = jupyterlab(room, "ada").environ()
    command = [sys.executable, "-c", LOOK, str(room.path), room.stored().plan.url]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["['ada', 'bob', 'teacher']", "200", "200"], done.stderr
    note = room.seats / "bob/home/note.txt"
    assert note.read_text() == "from ada"
    note.unlink()


def test_a_student_trains_in_a_terminal(room: ClassDir, place: Path) -> None:
    browser = signed_in(room, "bob")
    browser.get("/user/bob/lab")
    in_terminal(browser, "bob", "lab run async --epochs 1")
    wait_for(lambda: run_of(place, "bob", "succeeded"), "the run of bob")
    assert statuses(place)["ada"]["run"] is None
    table = lab(place, "status").splitlines()
    assert table[0].split()[:3] == ["seat", "state", "gpus"]
    assert re.search(r"^bob +ready +none .*succeeded", table[3])


def test_a_reset_ends_a_training_and_keeps_its_copy(room: ClassDir, place: Path) -> None:
    seat = room.seats / "ada"
    browser = signed_in(room, "ada")
    browser.get("/user/ada/lab")
    (seat / "home/notebooks/01_async.ipynb").write_text("mine")
    in_terminal(browser, "ada", "lab run async --epochs 5000")
    wait_for(lambda: run_of(place, "ada", "training"), "the training of ada")
    before = set(processes_with(f"{SEAT_VARIABLE}={seat}\0"))
    assert len(before) > 4
    other = jupyterlab(room, "bob")
    lab(place, "reset", "ada", "--yes")
    after = set(processes_with(f"{SEAT_VARIABLE}={seat}\0"))
    assert before.isdisjoint(after)
    assert other == jupyterlab(room, "bob")
    assert not (seat / "home/runs").exists()
    assert json.loads((seat / "home/notebooks/01_async.ipynb").read_text())["cells"]
    (copy,) = room.copies.iterdir()
    with zipfile.ZipFile(copy) as archive:
        assert archive.read(f"{copy.stem}/notebooks/01_async.ipynb") == b"mine"
        assert [name for name in archive.namelist() if name.endswith("/run.json")]
    assert statuses(place)["ada"] | {"idle_s": None} == {
        "seat": "ada", "state": "ready", "gpus": [], "idle_s": None, "run": None, "stuck": False,
    }  # fmt: skip
    signed_in(room, "ada")  # the password stays


def test_a_class_goes_on_after_its_jupyterhub_was_killed(room: ClassDir, place: Path) -> None:
    hub, tokens = room.hub(), room.tokens()
    assert hub is not None
    seats = set(processes_with(f"{SEAT_VARIABLE}={room.seats}/"))
    os.kill(hub.pid, 9)
    wait_for(lambda: not room.is_up, "JupyterHub has ended")
    assert "start it with `lab class up`" in lab(place, "status", code=1)
    lab(place, "up")
    assert room.tokens() == tokens
    assert {each["state"] for each in statuses(place).values()} == {"ready"}
    assert seats.isdisjoint(processes_with(f"{SEAT_VARIABLE}={room.seats}/"))
    assert signed_in(room, "bob").get("/user/bob/api/contents")[0] == 200


def test_down_collects_the_work_and_leaves_nothing(room: ClassDir, place: Path) -> None:
    url = room.stored().plan.url
    locked = room.seats / "bob/home/locked"
    locked.mkdir()
    (locked / "mine.txt").write_text("mine")
    locked.chmod(0o500)
    out = lab(place, "down", "--yes", "--output", "work.zip")
    assert re.search(r"removed \d+ programs, 2 seats; the work of its seats is in work.zip", out)
    with zipfile.ZipFile(place / "work.zip") as work:
        names = work.namelist()
        assert work.read("bob/locked/mine.txt") == b"mine"
    assert [name for name in names if name.startswith("resets/ada-")]
    assert [name for name in names if re.fullmatch(r"bob/runs/[^/]+/run\.json", name)]
    assert not room.path.exists()
    host, port = url.removeprefix("https://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_a_failed_boot_leaves_nothing(place: Path) -> None:
    found = re.search(r"address: 127.0.0.1:(\d+)", (place / "class.yaml").read_text())
    assert found is not None
    port = int(found[1])
    before = left(place)
    with socket.create_server(("127.0.0.1", port)):
        out = lab(place, "up", "--backend", "local", code=1)
    assert f"error: the class cannot listen at 127.0.0.1, port {port}: address already in " in out
    assert left(place) == before
