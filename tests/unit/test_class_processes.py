"""A class without Docker: what it kills and removes. JupyterHub does not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.names import LOCAL
from lab.classroom import processes
from lab.classroom.processes import Processes
from lab.classroom.state import ClassDir, StoredClass
from tests.support.agents import ROOT, processes_with
from tests.support.classes import CLUSTER, a_plan, own_state  # noqa: F401

FOLDER = ClassDir("w")


def a_class() -> Processes:
    """A class of processes; the project is this one."""
    what = StoredClass(replace(a_plan(), backend=LOCAL), "", CLUSTER, ("async",), str(ROOT))
    FOLDER.create(what)
    backend = Processes(what)
    backend.create()
    return backend


READY = "print('ready', flush=True); time.sleep(600)"
IGNORES = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}"
DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {READY}
    os._exit(0)
os.wait()
time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program with the variable of a seat or a class."""
    started: list[subprocess.Popen[bytes]] = []

    def run(value: Path | str, code: str = f"import time; {READY}") -> subprocess.Popen[bytes]:
        variables = {**os.environ, "LAB_CLASS_DIR": str(value)}
        command = [sys.executable, "-c", code]
        found = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE)
        started.append(found)
        assert found.stdout is not None
        assert found.stdout.readline() == b"ready\n"
        return found

    yield run
    for each in started:
        each.kill()
        each.wait()


def test_the_end_of_a_seat_ends_only_its_processes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_ENDS", ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)))
    backend, ada = a_class(), FOLDER.seats / "ada"
    own = [start(ada), start(ada, DAEMON), start(ada, IGNORES), start(ada / "below")]
    others = [start(FOLDER.path), start(FOLDER.seats / "ada2"), start("ada"), start("")]
    assert not backend.is_stopped("ada")
    assert len(processes_with(f"LAB_CLASS_DIR={ada}\0")) == 4  # with the daemon
    backend.stop("ada")
    assert backend.is_stopped("ada")
    assert [each.wait(10) for each in own] == [-15, -15, -9, -15]
    assert processes_with(f"LAB_CLASS_DIR={ada}\0") == []
    assert [each.poll() for each in others] == [None] * 4


def test_the_files_of_a_seat_are_replaced_whatever_their_permissions(tmp_path: Path) -> None:
    backend = a_class()
    backend.prepare("ada")
    home = backend.directory("ada")
    assert home.stat().st_mode & 0o077 == 0
    assert [path.name for path in home.rglob("*.ipynb")] == ["01_async.ipynb"]
    assert (home / "cluster.yaml").read_text() == CLUSTER
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (home / "notebooks" / "link").symlink_to(outside)
    (home / "notebooks").chmod(0)
    backend.replace_storage("ada")
    assert list(home.iterdir()) == []
    assert outside.stat().st_mode & 0o777 == 0o500
