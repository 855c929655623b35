"""A class of three seats on a real engine: boot, isolation of the seats, reset and end."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.backends.gpu_record import Holder, hold_gpus
from lab.backends.process import ProcessHandle
from lab.classroom import names
from lab.classroom.config import ClassConfig, parse_class
from lab.classroom.environment import down, reset, up
from lab.classroom.planning import HostFacts, plan_class
from lab.classroom.state import TEACHER, ClassDir, StoredClass
from lab.classroom.status import seat_statuses
from lab.config import parse_cluster
from lab.errors import InputError, LabError
from tests.golden.boxes import box, uuid_of
from tests.support.agents import wait_for
from tests.support.browser import Browser, host, signed_in
from tests.support.classes import CERTIFICATE, KEY
from tests.support.commands import free_port
from tests.support.docker import HOST, docker, docker_output, no_word

pytestmark = pytest.mark.engine

CONFIG = """\
version: 1
name: e2e
seats: 3
seat: {{gpus: 1, cpus: 2, memory: 3GiB}}
lessons: [async]
network: {network}
address: 127.0.0.1:{port}
tls: {{certificate: {folder}/certificate.pem, key: {folder}/key.pem}}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {gpus: 1}}
jobs: {ps: {on: [tf1], gpus: 0}, worker: {on: [tf2], gpus: 1}}
"""


def a_config(tls: Path, text: str = CONFIG, port: int | None = None) -> ClassConfig:
    port = free_port() if port is None else port
    content = text.format(network="10.88.0.0/24", port=port, folder=tls)
    return parse_class(content.encode(), "class.yaml")


@pytest.fixture(scope="module")
def before(class_image: str, pinning: None) -> dict[str, list[str]]:
    """This host before the class."""
    return host()


@pytest.fixture(scope="module")
def room(
    class_image: str, before: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClassDir]:
    """The class, with a GPU of a made-up host for each seat."""
    files = tmp_path_factory.mktemp("tls")
    (files / "certificate.pem").write_text(CERTIFICATE)
    (files / "key.pem").write_text(KEY)
    (files / "key.pem").chmod(0o600)
    config = a_config(files)
    plan = plan_class(config, HostFacts(box(4)), parse_cluster(CLUSTER.encode(), "cluster"))
    said: list[str] = []
    up(StoredClass(plan, class_image, CLUSTER, ("async",)), said.append)
    assert said[-1].endswith("ready (3 of 3)")
    folder = ClassDir("e2e")
    yield folder
    if folder.path.exists():
        down(folder, folder.path.parent / "left.zip", no_word)


def inside(seat: str, program: str, *arguments: str, code: int = 0) -> str:
    """The output of a Python program in a seat's container, as its student."""
    command = ["docker", "exec", names.seat_object("e2e", seat), "python", "-c", program]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout.strip()


# ---- Use


def test_a_student_signs_in_and_trains(room: ClassDir) -> None:
    browser = signed_in(room, "seat-01")
    code, url, _ = browser.get("/user/seat-01/lab")
    assert (code, urllib.parse.urlsplit(url).path) == (200, "/user/seat-01/lab")
    train = ["lab", "run", "async", "--epochs", "1", "--gpus", "none", "--json"]
    container = names.seat_object("e2e", "seat-01")
    summary = json.loads(docker("exec", "--workdir", names.MOUNT, container, *train))
    assert summary["state"] == "succeeded"
    first, second, _ = seat_statuses(room)
    assert first.run is not None
    assert (first.run.run_id, first.run.state) == (summary["run_id"], "succeeded")
    assert (first.state, second.state, second.run) == ("ready", "ready", None)


def test_each_seat_has_its_own_gpu(room: ClassDir) -> None:
    read = "print(open('/proc/1/environ').read())"
    seen = set()
    for seat in room.stored().plan.seats:
        variables = dict(each.split("=", 1) for each in inside(seat.name, read).split("\0") if each)
        assert variables["NVIDIA_VISIBLE_DEVICES"] == ",".join(seat.gpus)
        seen.add(variables["NVIDIA_VISIBLE_DEVICES"])
    assert seen == {uuid_of(0), uuid_of(1), uuid_of(2)}


def test_another_environment_cannot_take_a_seats_gpu(room: ClassDir) -> None:
    process = ProcessHandle.of(os.getpid())
    holder = Holder("mine", "local", "here", "", (uuid_of(1),), time.time(), process)
    with (
        pytest.raises(LabError, match=r"is held by environment 'e2e' \(class\)"),
        hold_gpus(holder, share=False, notify=lambda _line: None),
    ):
        pytest.fail("the GPU has two owners")


# ---- Attacks from a seat: docs/evidence/seats.md lists them

CONNECT = """
import contextlib, errno, select, socket, sys
waiting = {}
for word in sys.argv[1:]:
    host, port = word.rsplit(":", 1)
    for bound in (False, True):
        each = socket.socket()
        each.setblocking(False)
        if bound:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        with contextlib.suppress(OSError):
            if each.connect_ex((host, int(port))) in {0, errno.EINPROGRESS}:
                waiting[each] = word
while waiting and (ready := select.select([], list(waiting), [], 2)[1]):
    for each in ready:
        if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            print(waiting[each])
        del waiting[each]
"""
"""Prints the addresses that accept a connection, also from sockets that ignore routes."""

SERVE = """
import socket, time
listener = socket.create_server(("0.0.0.0", 2222))
time.sleep(600)
"""

FETCH = """
import os, ssl, sys, urllib.error, urllib.request
url, method, token = sys.argv[1:]
token = os.environ[token] if token.isupper() else token
asked = urllib.request.Request(url, method=method, headers={"Authorization": f"token {token}"})
try:
    unchecked = ssl._create_unverified_context()
    with urllib.request.urlopen(asked, timeout=10, context=unchecked) as answer:
        print(answer.status, answer.read(200))
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print("unreachable")
"""


def reached(seat: str, *addresses: str) -> set[str]:
    return set(inside(seat, CONNECT, *addresses).split())


def test_no_port_of_another_seat_is_reachable(room: ClassDir) -> None:
    first, second, _ = room.stored().plan.seats
    container = names.seat_object("e2e", second.name)
    docker("exec", "--detach", container, "python", "-c", SERVE)
    own, other = names.seat_address(first.network), names.seat_address(second.network)
    # The server listens: its own seat reaches it.
    wait_for(lambda: reached(second.name, f"{other}:2222") != set(), "the server of a training")
    ports = (2222, names.SEAT_PORT)
    assert reached(first.name, *(f"{other}:{port}" for port in ports)) == set()
    through_proxy = names.proxy_address(second.network)
    assert reached(first.name, f"{through_proxy}:{names.PUBLIC_PORT}") == set()
    assert reached(first.name, f"{own}:{names.SEAT_PORT}") != set()
    assert inside(first.name, RESOLVE, container) == "unknown"


RESOLVE = """
import socket, sys
try:
    print(socket.gethostbyname(sys.argv[1]))
except OSError:
    print("unknown")
"""


def test_no_service_of_the_host_is_reachable(room: ClassDir, class_image: str) -> None:
    listener = docker("run", "--detach", "--network", "host", class_image, "python", "-c", HOST)
    try:
        wait_for(lambda: "\n" in docker_output(listener), "the listener on the host")
        port, *addresses = docker_output(listener).split()
        plan = room.stored().plan
        hosts = {names.gateway(each.network) for each in plan.seats}
        hosts |= {each for each in addresses if ":" not in each and not each.startswith("127.")}
        assert names.gateway(plan.proxy_network) in hosts
        wanted = [f"{host}:{each}" for host in hosts for each in (port, names.HUB_PORT)]
        assert reached("seat-01", *wanted) == set()
        # Another container in the same network reaches the host, and so this test could fail.
        network = ("--network", names.seat_object("e2e", "seat-01"))
        stranger = docker("run", "--rm", *network, class_image, "python", "-c", CONNECT, *wanted)
        assert f"{names.gateway(plan.seats[0].network)}:{port}" in stranger.split()
    finally:
        docker("rm", "--force", listener)


def test_the_proxys_routes_cannot_be_changed(room: ClassDir) -> None:
    plan = room.stored().plan
    addresses = [names.proxy_address(plan.proxy_network), "proxy"]
    ports = (names.PROXY_API_PORT, names.RELAY_PORT + 1)
    wanted = [f"{address}:{port}" for address in addresses for port in ports]
    assert reached("seat-01", *wanted) == set()
    # Through the relay, JupyterHub's own list of routes is for administrators only.
    relay = f"http://proxy:{names.RELAY_PORT}/hub/api/proxy"
    assert inside("seat-01", FETCH, relay, "GET", "JUPYTERHUB_API_TOKEN") == "403"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "users"),
        ("GET", "users/seat-02"),
        ("POST", "users/seat-02/server"),
        ("DELETE", "users/seat-02/server"),
        ("POST", "users/seat-02/tokens"),
        ("POST", "users/mallory"),
        ("POST", "shutdown"),
    ],
)
def test_jupyterhubs_api_refuses_a_seat(room: ClassDir, method: str, path: str) -> None:
    url = f"http://proxy:{names.RELAY_PORT}/hub/api/{path}"
    # JupyterHub answers 404 for a user that this token must not know.
    assert inside("seat-01", FETCH, url, method, "JUPYTERHUB_API_TOKEN") in {"403", "404"}
    assert inside("seat-01", FETCH, url, method, "0123456789abcdef") == "403"


def test_a_seats_token_opens_no_other_server(room: ClassDir) -> None:
    url = f"https://proxy:{names.PUBLIC_PORT}/user/{{}}/api/contents"
    own = inside("seat-01", FETCH, url.format("seat-01"), "GET", "JUPYTERHUB_API_TOKEN")
    assert own.startswith("200"), "the test can succeed"
    other = inside("seat-01", FETCH, url.format("seat-02"), "GET", "JUPYTERHUB_API_TOKEN")
    assert other == "403"


def test_a_browser_opens_only_its_own_seat(room: ClassDir) -> None:
    browser = signed_in(room, "seat-01")
    assert browser.get("/user/seat-01/api/contents")[0] == 200
    assert browser.get("/user/seat-02/api/contents")[0] == 403
    assert browser.get("/hub/admin")[0] == 403
    teacher = signed_in(room, TEACHER)
    assert teacher.get("/hub/admin")[0] == 200, "the test can succeed"
    assert teacher.get("/user/seat-01/api/contents")[0] == 403


@pytest.mark.parametrize("user", ["seat-02", TEACHER, "mallory"])
def test_signing_in_needs_the_password(room: ClassDir, user: str) -> None:
    for password in ("", "a-new-password", room.tokens().seats["seat-01"]):
        assert Browser(room).sign_in(user, password)[0] == 403


LOOK = """
import glob, os, pathlib, sys
print(sorted(os.listdir("/home")))
print([each for each in ("/run/docker.sock", "/var/run/docker.sock") if os.path.exists(each)])
others = [each for each in glob.glob("/proc/[0-9]*/environ") if os.access(each, os.R_OK)]
text = b"".join(pathlib.Path(each).read_bytes() for each in others)
print(sorted(word for word in sys.argv[1:] if word.encode() in text))
print(pathlib.Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0])
mounts = [line.split() for line in open("/proc/mounts")]
print(*(each[1] for each in mounts if each[0].startswith("/dev/")))
"""


def test_a_seat_sees_no_secret_socket_or_home_of_another(room: ClassDir) -> None:
    tokens = room.tokens()
    secrets = [*tokens.seats.values(), tokens.proxy, tokens.service]
    homes, sockets, found, rights, mounts = inside("seat-01", LOOK, *secrets).splitlines()
    assert (homes, sockets, found) == ("['student']", "[]", "[]")
    assert int(rights, 16) == 0
    engines = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}
    assert {each for each in mounts.split() if not each.endswith("docker-init")} <= {
        names.MOUNT,
        *engines,
    }


def test_nothing_outside_the_home_is_writable(room: ClassDir) -> None:
    program = "import pathlib; pathlib.Path('/lab/lab/__init__.py').write_text('')"
    inside("seat-01", program, code=1)


# ---- Faults, reset and end


def test_a_class_that_is_up_is_not_booted_again(room: ClassDir) -> None:
    with pytest.raises(InputError, match="the class 'e2e' is up already"):
        up(room.stored(), no_word)
    assert [each.state for each in seat_statuses(room)] == ["ready"] * 3


def test_a_class_goes_on_after_its_jupyterhub_was_killed(room: ClassDir) -> None:
    write = "import pathlib; pathlib.Path.home().joinpath('mine.txt').write_text('kept')"
    inside("seat-03", write)
    tokens = room.tokens()
    hub = room.hub()
    assert hub is not None
    subprocess.run(["kill", "-9", str(hub.pid)], check=True)
    wait_for(lambda: not room.is_up, "JupyterHub has ended")
    up(room.stored(), no_word)
    assert room.tokens() == tokens
    assert [each.state for each in seat_statuses(room)] == ["ready"] * 3
    assert inside("seat-03", "print(open('/home/student/mine.txt').read())") == "kept"


def test_a_reset_keeps_a_copy_and_leaves_nothing(room: ClassDir) -> None:
    write = "import pathlib; pathlib.Path.home().joinpath('{}').write_text('old')"
    inside("seat-02", write.format("notes.txt"))
    inside("seat-02", write.format("notebooks/01_async.ipynb"))
    reset(room, "seat-02", no_word)
    (copy,) = room.copies.iterdir()
    with zipfile.ZipFile(copy) as archive:
        assert archive.read(f"{copy.stem}/notes.txt") == b"old"
    look = "import os; print(os.path.exists('/home/student/notes.txt'))"
    assert inside("seat-02", look) == "False"
    notebook = inside("seat-02", "print(open('/home/student/notebooks/01_async.ipynb').read())")
    assert json.loads(notebook)["cells"]
    signed_in(room, "seat-02")


def test_down_collects_the_work_and_leaves_nothing(
    room: ClassDir, before: dict[str, list[str]], tmp_path: Path
) -> None:
    archive = tmp_path / "work.zip"
    archive.write_text("not ours")
    with pytest.raises(InputError, match="exists already"):
        down(room, archive, no_word)
    assert archive.read_text() == "not ours"
    archive.unlink()
    hub = room.hub()
    during = host()
    assert [name for name in before if before[name] == during[name]] == []
    lines: list[str] = []
    down(room, archive, lines.append)
    *_, removed, first, second, third = lines
    assert ": removed 5 containers, 4 networks, 4 volumes; " in removed
    # These GPUs are UUIDs without a driver.
    assert all(": not proved: " in line for line in (first, second, third))
    with zipfile.ZipFile(archive) as work:
        assert work.read("seat-03/mine.txt") == b"kept"
        assert [name for name in work.namelist() if name.startswith("resets/seat-02-")]
        assert [name for name in work.namelist() if name.startswith("seat-01/runs/")]
        rows = list(csv.DictReader(work.read("gradebook.csv").decode().splitlines()))
    assert [(row["resets"], row["async runs"], row["async cells"]) for row in rows] == [
        ("0", "1 succeeded", "0 of 11"), ("1", "", "0 of 11"), ("0", "", "0 of 11"),
    ]  # fmt: skip
    assert float(rows[0]["async last accuracy"]) > 0
    assert hub is not None
    assert not hub.alive()
    after = host()
    assert {name: after[name] for name in before} == before


def left() -> str:
    label = ["--filter", f"label={names.CLASS}=e2e", "--quiet"]
    return (
        docker("ps", "--all", *label)
        + docker("network", "ls", *label)
        + docker("volume", "ls", *label)
    )


def test_a_failed_boot_leaves_nothing(class_image: str, tmp_path: Path) -> None:
    port = free_port()
    taken = docker(
        "run", "--detach", "--publish", f"127.0.0.1:{port}:80", class_image, "sleep", "600"
    )
    try:
        text = CONFIG.replace("gpus: 1, ", "").partition("tls:")[0]
        cluster = parse_cluster(CLUSTER.encode(), "cluster")
        plan = plan_class(a_config(tmp_path, text, port), HostFacts(box(0)), cluster)
        with pytest.raises(LabError, match=f"the address 127.0.0.1:{port} is in use"):
            up(StoredClass(plan, class_image, CLUSTER, ()), no_word)
        assert left() == ""
        assert not ClassDir("e2e").path.exists()
    finally:
        docker("rm", "--force", taken)
