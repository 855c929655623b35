"""A class without Docker: two seats as processes, from its boot to its end."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from lab.classroom.planning import NOT_ISOLATED
from lab.classroom.processes import check_installed
from lab.classroom.state import ClassDir
from lab.variables import LAB_CLASS_DIR, LAB_STATE
from tests.support.agents import PATIENCE_S, ROOT, processes_with
from tests.support.browser import Browser
from tests.support.commands import free_port

pytestmark = pytest.mark.tensorflow

CLASS = """\
version: 1
name: e2e-local
seats: [ada, bob]
lessons: [async]
address: 127.0.0.1:{port}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def call(place: Path, *command: str, env: dict[str, str] | None = None) -> str:
    """The output of a command of `lab` that succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *command],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in this project with the files of a class; its state is in another one."""
    check_installed(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    monkeypatch.setenv(LAB_STATE, str(tmp_path / "state"))
    with TemporaryDirectory(dir=ROOT / "build") as folder:
        (Path(folder) / "class.yaml").write_text(CLASS.format(port=free_port()))
        (Path(folder) / "cluster.yaml").write_text(CLUSTER)
        yield Path(folder)


def test_a_student_signs_in_and_trains_and_the_end_collects_the_work(place: Path) -> None:
    lines = call(place, "class", "up", "--backend", "local").splitlines()
    assert set(NOT_ISOLATED) < set(lines)
    room = ClassDir("e2e-local")
    tokens = room.tokens().seats
    assert Browser(room.stored().plan.url).sign_in("ada", tokens["bob"])[0] == 403
    browser = Browser(room.stored().plan.url)
    assert browser.sign_in("ada", tokens["ada"])[0] == 200
    pages = ("/user/ada/lab", "/user/bob/api/contents", "/hub/admin")
    assert [browser.get(page)[0] for page in pages] == [200, 403, 403]

    pids = processes_with(f"{LAB_CLASS_DIR}={room.seats / 'ada'}\0")
    running = map(psutil.Process, sorted(pids))
    server = next(each for each in running if "jupyterhub.singleuser" in each.cmdline())
    call(room.seats / "ada/home", "run", "async", "--epochs", "1", env=server.environ())
    assert re.search(r"ada +ready +none .*succeeded", call(place, "class", "status"))

    out = call(place, "class", "down", "--yes", "--output", "work.zip")
    assert re.search(r"removed \d+ programs, 2 seats; the work of its seats is in work.zip", out)
    with zipfile.ZipFile(place / "work.zip") as work:
        found = [name for name in work.namelist() if re.search(r"^ada/runs/[^/]+/run\.json", name)]
    assert found
    assert not room.path.exists()
    assert processes_with(f"{LAB_CLASS_DIR}={room.seats}") == []
