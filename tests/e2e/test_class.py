"""A class of three seats on a real engine: use, isolation of the seats, disks, faults and end."""

from __future__ import annotations

import csv
import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import pytest

from lab.backends.gpu_record import Holder, hold_gpus
from lab.base.errors import InputError, LabError
from lab.base.log import shown_by
from lab.base.units import MIB
from lab.cluster.config import parse_cluster
from lab.runner.store.measures import STUCK_S
from lab.teach.board.class_feed import ClassFeed
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.config import TEACHER, parse_class
from lab.teach.classroom.disks import SeatDisk, unavailable_reason
from lab.teach.classroom.gradebook import as_csv, read_gradebook
from lab.teach.classroom.planning import ClassPlan, HostFacts, plan_class
from lab.teach.classroom.seat_status import seat_statuses
from lab.teach.classroom.up_down import down, reset, up
from tests.golden.boxes import box, uuid_of
from tests.support.agents import wait_for
from tests.support.browser import Browser, host, page_of, signed_in
from tests.support.classes import CERTIFICATE, KEY
from tests.support.commands import free_port
from tests.support.conditions import lacking
from tests.support.docker import CONNECT, docker, listening_host, reached

pytestmark = pytest.mark.engine

SIZE = 128 * MIB
CONFIG = """\
version: 1
name: e2e
seats: 3
seat: {{gpus: 1, cpus: 2, memory: 3GiB, disk: 128MiB}}
network: 10.88.0.0/24
address: 127.0.0.1:{port}
"""
DOMAIN = "domain: lab.example.org\n"
TLS = "tls: {{certificate: {folder}/certificate.pem, key: {folder}/key.pem}}\n"
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {gpus: 1}}
jobs: {ps: {on: [tf1], gpus: 0}, worker: {on: [tf2], gpus: 1}}
"""


def a_plan(port: int, text: str = CONFIG, **values: object) -> ClassPlan:
    """The plan on a made-up host with four GPUs."""
    if reason := unavailable_reason():
        lacking(f"no limits of disks here: {reason}")
    config = parse_class(text.format(port=port, **values).encode(), "class.yaml")
    cluster = parse_cluster(CLUSTER.encode(), "cluster")
    return plan_class(config, HostFacts(box(4), disk_unenforced=""), cluster)


@pytest.fixture(scope="module")
def before(class_image: str, pinning: None) -> dict[str, list[str]]:
    """This host before the class."""
    return host()


@pytest.fixture(scope="module")
def room(
    class_image: str, before: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClassDir]:
    """The class, with a GPU and a disk for each seat."""
    files = tmp_path_factory.mktemp("tls")
    (files / "certificate.pem").write_text(CERTIFICATE)
    (files / "key.pem").write_text(KEY)
    (files / "key.pem").chmod(0o600)
    plan = a_plan(free_port(), CONFIG + DOMAIN + TLS, folder=files)
    said: list[str] = []
    with shown_by(said.append):
        up(StoredClass(plan, class_image, CLUSTER))
    assert said[-1].endswith("ready (3 of 3)")
    yield ClassDir("e2e")
    remove_class()


@pytest.fixture
def no_class(class_image: str, pinning: None) -> Iterator[None]:
    """No class is up, also not that of the other tests."""
    remove_class()
    yield
    remove_class()


def remove_class() -> None:
    folder = ClassDir("e2e")
    if folder.path.exists():
        with TemporaryDirectory() as place:
            down(folder, Path(place) / "left.zip")


def in_seat(seat: str, *command: str, code: int = 0) -> str:
    """The output of a command in a seat's container, as its student."""
    execute = ["docker", "exec", "--workdir", names.MOUNT, names.seat_object("e2e", seat)]
    done = subprocess.run([*execute, *command], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout.strip()


def inside(seat: str, program: str, *arguments: str) -> str:
    return in_seat(seat, "python", "-c", program, *arguments)


@pytest.fixture(scope="module")
def trained(room: ClassDir) -> dict[str, Any]:
    """The summary of a training in seat-01, the only run there."""
    train = ["lab", "run", "async", "--epochs", "1", "--gpus", "none", "--json"]
    return json.loads(in_seat("seat-01", *train))


def test_a_student_signs_in_and_trains(room: ClassDir, trained: dict[str, Any]) -> None:
    browser = signed_in(room, "seat-01")
    page = page_of(room.stored().plan, "seat-01", "lab")
    assert browser.get(page)[:2] == (200, page)
    assert trained["state"] == "succeeded"
    first, second, _ = seat_statuses(room)
    assert (first.run.run_id, first.run.state) == (trained["run_id"], "succeeded")
    assert (first.state, second.state, second.run) == ("ready", "ready", None)


STUCK = """
import os, signal
from lab.task.sdk.recorder import Recorder
job, _, index = os.environ["LAB_TASK"].partition("-")
Recorder(job, int(index)).write("step", global_step=7, local_step=7)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.usefixtures("trained")
def test_the_board_shows_who_is_stuck_and_who_has_passed_a_stage(room: ClassDir) -> None:
    inside("seat-02", "import sys; open('stuck.py', 'w').write(sys.argv[1])", STUCK)
    seat, options = names.seat_object("e2e", "seat-02"), ("--detach", "--workdir", names.MOUNT)
    docker("exec", *options, seat, "lab", "run", "stuck.py", "--gpus", "none")
    in_seat("seat-03", "lab", "run", "hello", "--cluster", "clusters/hello.yaml", "--gpus", "none")
    in_seat("seat-03", "lab", "check", "hello", "--answer", "greetings=9")

    def is_stuck() -> bool:
        return seat_statuses(room)[1].stuck

    wait_for(is_stuck, "seat-02 is stuck", 2 * STUCK_S)
    first, second, third = ClassFeed(room).now().seats
    assert (first.state, first.run) == ("succeeded", "async")
    assert (second.stuck, second.run, second.step) == (True, "stuck", "7")
    assert second.state.startswith("stuck for ")
    assert (third.state, third.run, third.passed) == ("succeeded", "hello", "hello 1 of 2")
    in_seat("seat-02", "lab", "cancel", "last")


NOTEBOOK = nbformat.v4.new_notebook(
    cells=[
        nbformat.v4.new_code_cell("from common import at_root, plt\nat_root()\nplt.plot([1, 2])")
    ],
    metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
)


def test_a_seat_has_a_project_with_notebooks_and_a_terminal(room: ClassDir) -> None:
    write = "import sys; open('notebooks/small.ipynb', 'w').write(sys.argv[1])"
    inside("seat-01", write, nbformat.writes(NOTEBOOK))
    in_seat("seat-01", "jupyter", "execute", "notebooks/small.ipynb")
    found = in_seat(
        "seat-01", "sh", "-c", '"$SHELL" -l -c "command -v lab; ls notebooks/01*.ipynb"'
    )
    assert found.splitlines() == ["/opt/venv/bin/lab", "notebooks/01_async.ipynb"]


def test_each_seat_has_its_own_gpu_and_no_other_environment_takes_it(room: ClassDir) -> None:
    seen = {}
    for seat in room.stored().plan.seats:
        read = inside(seat.name, "print(open('/proc/1/environ').read())")
        variables = dict(each.split("=", 1) for each in read.split("\0") if each)
        seen[variables["NVIDIA_VISIBLE_DEVICES"]] = ",".join(seat.gpus)
    assert seen == {uuid_of(index): uuid_of(index) for index in range(3)}
    holder = Holder("mine", "local", "here", (uuid_of(1),))
    with (
        pytest.raises(LabError, match=r"is held by environment 'e2e' \(class\)"),
        hold_gpus(holder, share=False),
    ):
        pytest.fail("the GPU has two owners")


# ---- Attacks from a seat: docs/evidence/seats.md lists them

SERVE = """
import socket, time
listener = socket.create_server(("0.0.0.0", 2222))
time.sleep(600)
"""

FETCH = """
import os, ssl, sys, urllib.error, urllib.request
url, method, token, *host = sys.argv[1:]
token = os.environ[token] if token.isupper() else token
headers = {"Authorization": f"token {token}", **({"Host": host[0]} if host else {})}
asked = urllib.request.Request(url, method=method, headers=headers)
try:
    unchecked = ssl._create_unverified_context()
    with urllib.request.urlopen(asked, timeout=10, context=unchecked) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print("unreachable")
"""

RESOLVE = """
import socket, sys
try:
    print(socket.gethostbyname(sys.argv[1]))
except OSError:
    print("unknown")
"""


def test_no_port_of_another_seat_is_reachable(room: ClassDir) -> None:
    first, second, _ = room.stored().plan.seats
    here, there = (names.seat_object("e2e", each.name) for each in (first, second))
    docker("exec", "--detach", there, "python", "-c", SERVE)
    own, other = str(first.network[3]), str(second.network[3])
    # The server listens: its own seat reaches it.
    wait_for(lambda: reached(there, f"{other}:2222") != set(), "the server of a training")
    through_proxy = f"{names.proxy_address(second.network)}:{names.PUBLIC_PORT}"
    others = (f"{other}:2222", f"{other}:{names.SEAT_PORT}", through_proxy)
    itself = f"{own}:{names.SEAT_PORT}"
    assert reached(here, *others, itself) == {itself}
    assert inside(first.name, RESOLVE, there) == "unknown"


def test_no_service_of_the_host_is_reachable(room: ClassDir, class_image: str) -> None:
    seat = names.seat_object("e2e", "seat-01")
    plan = room.stored().plan
    with listening_host(class_image) as addresses:
        hosts = {each.rpartition(":")[0] for each in addresses if "." in each}
        assert {
            names.gateway(each) for each in (plan.proxy_network, plan.seats[0].network)
        } <= hosts
        wanted = [*addresses, *(f"{each}:{names.HUB_PORT}" for each in hosts)]
        assert reached(seat, *wanted) == set()
        # Another container in the same network reaches the host, and so this test could fail.
        ask = ("--rm", "--network", seat, class_image, "python", "-c", CONNECT)
        stranger = docker("run", *ask, *wanted).split()
        assert names.gateway(plan.seats[0].network) in {each.partition(":")[0] for each in stranger}


def test_the_proxys_routes_and_jupyterhubs_api_refuse_a_seat(room: ClassDir) -> None:
    addresses = [names.proxy_address(room.stored().plan.proxy_network), "proxy"]
    ports = (names.PROXY_API_PORT, names.RELAY_PORT + 1)
    wanted = [f"{each}:{port}" for each in addresses for port in ports]
    assert reached(names.seat_object("e2e", "seat-01"), *wanted) == set()
    relay = f"http://proxy:{names.RELAY_PORT}/hub/api"
    asked = [
        *(("GET", "proxy"), ("GET", "users"), ("GET", "users/seat-02")),
        *(("POST", "users/seat-02/server"), ("DELETE", "users/seat-02/server")),
        *(("POST", "users/seat-02/tokens"), ("POST", "users/mallory"), ("POST", "shutdown")),
    ]
    answers = {
        (method, path, token): inside("seat-01", FETCH, f"{relay}/{path}", method, token)
        for method, path in asked
        for token in ("JUPYTERHUB_API_TOKEN", "0123456789abcdef")
    }
    # JupyterHub answers 404 for a user that this token must not know.
    allowed = {key for key, code in answers.items() if code not in {"403", "404"}}
    assert allowed == set()


def test_a_seat_opens_only_its_own_server(room: ClassDir) -> None:
    url = f"https://proxy:{names.PUBLIC_PORT}/user/{{}}/api/contents"
    token = ("GET", "JUPYTERHUB_API_TOKEN")
    codes = [
        inside("seat-01", FETCH, url.format(seat), *token, f"{seat}.lab.example.org")
        for seat in ("seat-01", "seat-02")
    ]
    assert codes == ["200", "403"]
    plan, browser, teacher = (
        room.stored().plan,
        signed_in(room, "seat-01"),
        signed_in(room, TEACHER),
    )
    own, *others = (page_of(plan, seat, "api/contents") for seat in ("seat-01", "seat-02"))
    others += [page_of(plan, "seat-02", "lab"), "/hub/admin"]
    assert [browser.get(page)[0] for page in (own, *others)] == [200, 403, 403, 403]
    assert [teacher.get(page)[0] for page in (own, *others)] == [403, 403, 403, 200]


@pytest.mark.parametrize("user", ["seat-02", TEACHER, "mallory"])
def test_signing_in_needs_the_password(room: ClassDir, user: str) -> None:
    passwords = ("", "a-new-password", room.tokens().seats["seat-01"])
    url = room.stored().plan.url
    assert [Browser(url).sign_in(user, each)[0] for each in passwords] == [403] * 3


LOOK = """
import glob, json, os, pathlib, stat, sys
others = [each for each in glob.glob("/proc/[0-9]*/environ") if os.access(each, os.R_OK)]
text = b"".join(pathlib.Path(each).read_bytes() for each in others)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
opened = []
for name in ("/dev/loop-control", *(f"/dev/loop{number}" for number in range(64))):
    try:
        os.close(os.open(name, os.O_RDONLY))
        opened.append(name)
    except OSError:
        pass
for place in ("/tmp/device", "/home/student/device"):
    try:
        os.mknod(place, stat.S_IFBLK | 0o600, os.makedev(7, 0))
        opened.append(place)
    except OSError:
        pass
try:
    pathlib.Path("/var/tmp/x").touch()  # each user may write there, but for the mount
except OSError as error:
    opened.append(error.strerror)
print(json.dumps({
    "homes": sorted(os.listdir("/home")),
    "sockets": [each for each in ("/run/docker.sock", "/var/run/docker.sock")
                if os.path.exists(each)],
    "secrets": [word for word in sys.argv[1:] if word.encode() in text],
    "rights": [status[name].split()[0] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")],
    "users": sorted({*status["Uid"].split(), *status["Gid"].split()}),
    "opened": opened,
}))
"""


def test_a_seat_sees_no_secret_socket_device_or_home_of_another(room: ClassDir) -> None:
    tokens = room.tokens()
    found = json.loads(
        inside("seat-01", LOOK, *tokens.seats.values(), tokens.proxy, tokens.service)
    )
    assert found == {
        "homes": ["student"],
        "sockets": [],
        "secrets": [],
        "rights": ["0" * 16, "0" * 16, "1", "2"],
        "users": ["1000"],
        "opened": ["Read-only file system"],
    }
    write = "import pathlib; pathlib.Path('/lab/lab/__init__.py').write_text('')"
    in_seat("seat-01", "python", "-c", write, code=1)


FILL = """
import os
with open("/home/student/filler", "wb", buffering=0) as file:
    for size in (1 << 16, 1):
        try:
            while True:
                file.write(bytes(size))
        except OSError as error:
            reason = error.strerror
print(reason)
print(os.path.getsize("/home/student/filler"))
"""
DISK = """
import json, os
disk = os.statvfs("/home/student")
(mount,) = [each.split() for each in open("/proc/mounts") if "/home/student" in each]
print(json.dumps({
    "size": disk.f_blocks * disk.f_frsize,
    "free": disk.f_bavail * disk.f_frsize,
    "owner": [os.stat("/home/student").st_uid, os.stat("/home/student").st_gid],
    "names": sorted(os.listdir("/home/student")),
    "options": mount[3].split(","),
}))
"""
FLOOD = """
with open("/proc/1/fd/1", "wb") as file:
    for _ in range(96):
        file.write(bytes(range(1, 256)) * 4096 + b"\\n")
"""


def disk(seat: str) -> dict[str, Any]:
    return json.loads(inside(seat, DISK))


def disks(room: ClassDir) -> list[SeatDisk]:
    return [SeatDisk(room.path / "disks", seat.name, SIZE) for seat in room.stored().plan.seats]


def loop_devices() -> str:
    command = ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_seat_that_fills_its_disk_hurts_no_other(room: ClassDir) -> None:
    allocated = [each.image.stat().st_blocks for each in disks(room)]
    assert all(blocks * 512 >= SIZE for blocks in allocated), "the host keeps the space for it"
    beside = disk("seat-03")
    assert {"nosuid", "nodev"} <= set(beside["options"])
    assert beside["owner"] == [1000, 1000]
    assert "lost+found" not in beside["names"]
    reason, count = inside("seat-02", FILL).splitlines()
    assert reason == "No space left on device"
    assert SIZE * 0.6 < int(count) < SIZE
    assert disk("seat-02")["free"] == 0
    assert disk("seat-03") == beside
    assert [each.image.stat().st_blocks for each in disks(room)] == allocated
    assert [each.state for each in seat_statuses(room)] == ["ready"] * 3


STOP_REPORTS = """
import glob, os, pathlib, signal, time
pathlib.Path("/tmp/ready").touch()
while not os.path.exists("/tmp/enough"):
    time.sleep(0.01)
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if b"seat_" b"report" in open(path, "rb").read():  # not this program itself
                os.kill(int(path.split("/")[2]), signal.SIGSTOP)
        except OSError:
            pass
"""


def test_a_seat_that_does_not_report_hides_no_other(room: ClassDir) -> None:
    seat = names.seat_object("e2e", "seat-02")
    docker("exec", "--detach", seat, "python", "-c", STOP_REPORTS)
    look = "import os; print(os.path.exists('/tmp/ready'))"
    wait_for(lambda: inside("seat-02", look) == "True", "the attack has begun")
    found = seat_statuses(room)
    assert [each.answers for each in found] == [True, False, True]
    assert "lab.teach.classroom.seat_report" in docker("top", seat), "it has never answered"
    inside("seat-02", "open('/tmp/enough', 'w')")


def test_the_output_of_a_seat_is_bounded(room: ClassDir) -> None:
    container = names.seat_object("e2e", "seat-03")
    log = Path(docker("inspect", "--format", "{{.LogPath}}", container))
    inside("seat-03", FLOOD)
    assert sum(each.stat().st_size for each in log.parent.glob("*.log*")) < 25_000_000


def test_a_proxy_that_has_ended_is_started_again(room: ClassDir) -> None:
    """What runs in the seats goes on, and all seats are reached again."""
    inside("seat-01", "import subprocess; subprocess.Popen(['sleep', '600'])")
    with pytest.raises(InputError, match="is already up"):
        up(room.stored())
    docker("kill", names.proxy_object("e2e", "proxy"))
    up(room.stored())
    page = page_of(room.stored().plan, "seat-01", "lab")
    assert signed_in(room, "seat-01").get(page)[0] == 200
    assert "sleep 600" in docker("top", names.seat_object("e2e", "seat-01"))
    relay = f"http://proxy:{names.RELAY_PORT}/hub/api"
    inside("seat-01", f"import urllib.request; urllib.request.urlopen({relay!r}, timeout=20)")


def test_a_class_goes_on_after_a_restart_of_the_host(room: ClassDir, tmp_path: Path) -> None:
    """No program of it runs, no device is attached, and the numbers of devices are others."""
    inside("seat-03", "open('mine.txt', 'w').write('kept')")
    inside("seat-03", "open('notebooks/01_async.ipynb', 'w').write('mine')")
    inside("seat-02", FILL)
    before, tokens, hub = disk("seat-02"), room.tokens(), room.hub()
    subprocess.run(["kill", "-9", str(hub.pid)], check=True)
    wait_for(lambda: not room.is_up, "JupyterHub has ended")
    docker("rm", "--force", *(names.seat_object("e2e", each.seat) for each in disks(room)))
    old = [each.device.readlink() for each in disks(room)]
    for device in old:
        subprocess.run(["losetup", "--detach", str(device)], check=True)
    wait_for(lambda: str(room.path) not in loop_devices(), "the loop devices are detached")
    other = SeatDisk(tmp_path / "other", "mallory", SIZE)
    other.folder.parent.mkdir(exist_ok=True)
    try:
        other.attach()
        assert other.device.readlink() in old, "the number now belongs to another file"
        up(room.stored())
    finally:
        other.remove()
    assert room.tokens() == tokens
    assert [each.state for each in seat_statuses(room)] == ["ready"] * 3
    assert in_seat("seat-03", "cat", "mine.txt", "notebooks/01_async.ipynb") == "keptmine"
    after = disk("seat-02")
    assert (after["size"], after["free"]) == (before["size"], 0), "a full seat starts, too"


@pytest.fixture(scope="module")
def reset_disk(room: ClassDir) -> tuple[dict[str, Any], dict[str, Any]]:
    """The disk of seat-02, which was full, before and after a reset of the seat."""
    inside("seat-02", FILL)
    before = disk("seat-02")
    reset(room, "seat-02")
    return before, disk("seat-02")


def test_a_reset_keeps_a_copy_and_leaves_a_fresh_seat(
    room: ClassDir, reset_disk: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    before, after = reset_disk
    assert "filler" in before["names"]
    assert {"filler", "notebooks"} & set(after["names"]) == {"notebooks"}
    assert (after["size"], after["owner"]) == (before["size"], [1000, 1000])
    assert after["free"] > SIZE * 0.6
    (copy,) = room.copies.iterdir()
    with zipfile.ZipFile(copy) as archive:
        assert archive.getinfo(f"{copy.stem}/filler").file_size > SIZE * 0.6
    signed_in(room, "seat-02")


@pytest.mark.usefixtures("trained", "reset_disk")
def test_down_collects_the_work_and_leaves_nothing(
    room: ClassDir, before: dict[str, list[str]], tmp_path: Path
) -> None:
    inside("seat-03", "open('mine.txt', 'w').write('kept')")
    in_seat("seat-01", "lab", "check", "async", "--answer", "updates=1", code=1)
    archive = tmp_path / "work.zip"
    archive.write_text("not ours")
    with pytest.raises(InputError, match="exists already"):
        down(room, archive)
    assert archive.read_text() == "not ours"
    archive.unlink()
    hub = room.hub()
    during = host()
    assert [name for name in before if before[name] == during[name]] == []
    assert {str(each.image) for each in disks(room)} <= set(loop_devices().split())
    lines: list[str] = []
    with shown_by(lines.append):
        down(room, archive)
    *_, removed, gpus = lines
    assert removed == f"class e2e: removed; the work of its seats is in {archive}"
    assert gpus.startswith("not checked: GPU-")  # they are UUIDs without a driver
    with zipfile.ZipFile(archive) as work:
        assert work.read("seat-03/mine.txt") == b"kept"
        assert [name for name in work.namelist() if name.startswith("resets/seat-02-")]
        assert [name for name in work.namelist() if name.startswith("seat-01/runs/")]
        rows = list(csv.DictReader(work.read("gradebook.csv").decode().splitlines()))
    runs = {row["seat"]: row["runs"] for row in rows if row["stage"] == "train"}
    assert runs == {"seat-01": "1", "seat-02": "0", "seat-03": "0"}
    (tmp_path / "again.csv").write_text(as_csv(read_gradebook(archive)))
    with zipfile.ZipFile(archive) as work:
        assert (tmp_path / "again.csv").read_bytes() == work.read("gradebook.csv")
    assert not hub.alive()
    no_disk_is_left(room)
    assert host() == before


def no_disk_is_left(room: ClassDir) -> None:
    # The kernel detaches a device when the last process has closed it.
    wait_for(lambda: str(room.path) not in loop_devices(), "the loop devices are detached")
    assert str(room.path) not in Path("/proc/self/mountinfo").read_text()
    assert not room.path.exists()


@pytest.mark.usefixtures("no_class")
def test_a_failed_boot_leaves_nothing(class_image: str) -> None:
    port = free_port()
    publish = f"127.0.0.1:{port}:80"
    taken = docker("run", "--detach", "--publish", publish, class_image, "sleep", "600")
    try:
        here = host()
        with pytest.raises(LabError, match=f"the address 127.0.0.1:{port} is in use"):
            up(StoredClass(a_plan(port), class_image, CLUSTER))
        no_disk_is_left(ClassDir("e2e"))
        assert host() == here
    finally:
        docker("rm", "--force", taken)
