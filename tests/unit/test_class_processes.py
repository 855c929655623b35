"""A class without Docker: its processes, directories and ports. JupyterHub does not run."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from traitlets.config import Config

from lab.backends.names import LOCAL
from lab.classroom import hub, processes
from lab.classroom.hub_api import hub_api
from lab.classroom.planning import ClassPlan
from lab.classroom.processes import Processes, end_processes
from lab.classroom.state import TEACHER, ClassDir, LocalPorts, StoredClass
from lab.errors import LabError
from tests.golden.boxes import uuid_of
from tests.support.agents import ROOT, processes_with, wait_for
from tests.support.classes import CLUSTER, a_plan, certificate, own_state  # noqa: F401

FOLDER = ClassDir("w")
PLAN = replace(a_plan(("ada", "bob"), 1), backend=LOCAL)


def a_class(plan: ClassPlan = PLAN) -> Processes:
    """A class of processes; the project is this one."""
    what = StoredClass(plan, "", CLUSTER, ("async",), str(ROOT))
    FOLDER.create(what)
    backend = Processes(what)
    backend.create()
    return backend


# ---- Processes

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


# ---- Directories


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


def test_jupyterhub_gets_free_ports_and_seats_report_their_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "check_installed", lambda root: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        backend = a_class(replace(PLAN, port=port))
        with pytest.raises(LabError, match=f"listen at 127.0.0.1, port {port}: address already in"):
            backend.start_proxy()
    backend.start_proxy()
    assert hub_api(FOLDER).url == f"http://127.0.0.1:{FOLDER.ports().hub}/hub/api"
    (backend.directory("bob") / "lab.py").write_text("raise SystemExit('the student's file')")
    assert backend.reports() == {"ada": None, "bob": None}


# ---- JupyterHub's settings, and the spawner


def configured() -> Config:
    FOLDER.write_ports(LocalPorts(4001, 4002))
    config = Config()
    hub.configure(config, FOLDER)
    return config


def test_jupyterhub_listens_only_on_the_loopback(tmp_path: Path) -> None:
    backend = a_class(replace(PLAN, tls=certificate(tmp_path), address="::"))
    config = configured()
    assert (config.JupyterHub.hub_ip, config.JupyterHub.hub_port) == ("127.0.0.1", 4001)
    assert config.JupyterHub.bind_url == "https://[::]:8000"
    assert config.JupyterHub.ssl_key == str(certificate(tmp_path).key)
    assert config.Spawner.ip == "127.0.0.1"
    proxy = config.ConfigurableHTTPProxy
    assert (proxy.api_url, proxy.auth_token) == ("http://127.0.0.1:4002", FOLDER.tokens().proxy)
    assert proxy.command == backend.proxy_command
    assert subprocess.run([proxy.command[0], "-v"], capture_output=True).stdout[:1] == b"v"  # noqa: PLW1510


@pytest.mark.parametrize(("count", "ids"), [(2, f"{uuid_of(2)},{uuid_of(3)}"), (0, "")])
def test_a_seat_gets_its_own_gpus_and_directories(count: int, ids: str) -> None:
    backend = a_class(replace(a_plan(gpus=count), backend=LOCAL))
    assign, seat = configured().Spawner.pre_spawn_hook, FOLDER.seats / "bob"
    spawner: Any = SimpleNamespace(user=SimpleNamespace(name="bob"))
    assign(spawner)
    assert spawner.notebook_dir == str(backend.directory("bob"))
    assert spawner.environment.pop("PATH").startswith(f"{Path(sys.executable).parent}:")
    assert spawner.environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ids or "-1",
        "HOME": str(seat / "home"),
        "LAB_CLASS_DIR": str(seat),
        "LAB_GPUS": ids,
        "LAB_GPU_RECORD": str(seat / "gpu-record"),
        "SHELL": "/bin/bash",
        "TMPDIR": str(seat / "tmp"),
    }
    with pytest.raises(RuntimeError, match="teacher has no seat"):
        assign(SimpleNamespace(user=SimpleNamespace(name=TEACHER)))


def test_the_end_of_jupyterlab_ends_all_processes_of_the_seat(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyterhub.objects import Hub  # noqa: PLC0415  (takes a second)

    from lab.classroom.local_spawner import ProcessSpawner  # noqa: PLC0415

    a_class()
    config, seat = configured(), FOLDER.seats / "ada"
    monkeypatch.setenv("LAB_CLASS", "w")
    monkeypatch.setenv("TEACHERS_SECRET", "x")
    config.Spawner.cmd = [sys.executable, "-c", f"import time; {READY}"]
    user = SimpleNamespace(name="ada", escaped_name="ada", id=1, url="", settings={}, db=None)
    orm = SimpleNamespace(name="", server=None, state={}, user_options={})
    names = {"oauth_client_id": "x", "api_token": "t"}
    spawner = ProcessSpawner(config=config, user=user, hub=Hub(), orm_spawner=orm, **names)
    spawner.load_state({"pid": os.getpid()})  # of an earlier JupyterHub
    assert spawner.pid == 0
    spawner.pre_spawn_hook(spawner)
    spawner.args = []
    training = start(seat)
    try:
        assert asyncio.run(spawner.start())[0] == "127.0.0.1"
        wait_for(lambda: (seat / "jupyter.log").read_bytes() == b"ready\n", "the seat's output")
        process = psutil.Process(spawner.pid)
        assert process.cwd() == str(seat / "home")
        assert "TEACHERS_SECRET" not in process.environ()
        assert (seat / "home" / "notebooks/01_async.ipynb").is_file()
        assert asyncio.run(spawner.poll()) is None
        assert training.poll() is None
        asyncio.run(spawner.stop())
        assert asyncio.run(spawner.poll()) is not None
        assert training.wait(10) == -signal.SIGTERM
    finally:
        end_processes(FOLDER.path)
