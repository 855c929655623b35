"""A class whose seats take turns on two GPUs, on a real engine: from `lab run` in a seat."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.base.threads import in_background
from lab.cluster.config import parse_cluster
from lab.teach.board.class_feed import ClassFeed
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.config import parse_class
from lab.teach.classroom.disks import unavailable_reason
from lab.teach.classroom.planning import HostFacts, plan_class
from lab.teach.classroom.protocol import State
from lab.teach.classroom.queue.host import read_ledger
from lab.teach.classroom.queue.ledger import Entry
from lab.teach.classroom.up_down import down, reset, up
from tests.golden.boxes import box, uuid_of
from tests.support.agents import wait_for
from tests.support.browser import host
from tests.support.commands import free_port, run_command
from tests.support.conditions import lacking
from tests.support.docker import docker, inspect, left_behind, reached

pytestmark = pytest.mark.engine

NAME = "e2e-queue"
SLICE_S = 10
CONFIG = """\
version: 1
name: e2e-queue
seats: [ada, bob]
seat: {{gpus: {{queue: true}}, cpus: 2, memory: 2GiB, disk: 128MiB}}
cpu_runs: 1
network: 10.88.1.0/24
slice: {slice}s
address: 127.0.0.1:{port}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {gpus: 2}, tf2: {}}
jobs: {worker: {on: [tf1, tf2]}}
port: 2222
"""
LONG = """\
import os, signal, socket, sys, time
from lab.task.sdk.recorder import Recorder
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
server = socket.create_server(("", 2222))
open(f"{os.environ['LAB_TASK']}.txt", "w").write(os.environ.get("NVIDIA_VISIBLE_DEVICES", ""))
print("listens", flush=True)
job, _, index = os.environ["LAB_TASK"].partition("-")
Recorder(job, int(index)).write("step", global_step=1, local_step=1)  # the slice begins
time.sleep(600)
"""
SHORT = """\
import os
open(f"{os.environ['LAB_TASK']}.txt", "w").write("done")
"""


@pytest.fixture(scope="module")
def before(class_image: str, pinning: None) -> dict[str, list[str]]:
    """This host before the class."""
    return host()


@pytest.fixture(scope="module")
def room(class_image: str, before: dict[str, list[str]]) -> Iterator[ClassDir]:
    """The class; its two GPUs are those of a made-up host."""
    text = CONFIG.format(port=free_port(), slice=SLICE_S)
    plan = plan_class(
        parse_class(text.encode(), "class.yaml"),
        HostFacts(box(2), disk_unenforced=unavailable_reason()),
        parse_cluster(CLUSTER.encode(), "cluster"),
    )
    root = Path(__file__).parents[2]
    up(StoredClass(plan, class_image, CLUSTER, str(root)))
    folder = ClassDir(NAME)
    yield folder
    if folder.path.exists():
        down(folder, folder.path.parent / "left.zip")


def in_seat(seat: str, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    flags = ["--interactive", "--workdir", names.MOUNT]
    return run_command(
        ["docker", "exec", *flags, names.seat_object(NAME, seat), *command], input=text
    )


def write(seat: str, file: str, text: str) -> None:
    assert in_seat(seat, "tee", file, text=text).returncode == 0


def lab(seat: str, *arguments: str) -> Future[subprocess.CompletedProcess[str]]:
    return in_background(lambda: in_seat(seat, "lab", *arguments))


def entry(room: ClassDir, seat: str) -> Entry | None:
    """The live environment of a seat."""
    found = read_ledger(room).entries.get(seat)
    return found if found is not None and found.is_live else None


def live(room: ClassDir) -> dict[str, str]:
    """The id of the live environment of each seat."""
    entries = read_ledger(room).entries.values()
    return {each.seat: each.order.id for each in entries if each.is_live}


def up_with_a_run(room: ClassDir, seat: str) -> Entry:
    def found() -> bool:
        one = entry(room, seat)
        environment = ComposeBackend().find(one.project) if one else None
        return environment is not None and bool(environment.runs())

    wait_for(found, f"{seat} has no run", 120)
    one = entry(room, seat)
    assert one.state is State.UP
    return one


def addresses(project: str) -> list[str]:
    network: list[Any] = json.loads(docker("network", "inspect", f"{project}_cluster"))
    return [each["IPv4Address"].partition("/")[0] for each in network[0]["Containers"].values()]


def service_of(room: ClassDir) -> int | None:
    hub = room.hub()
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(hub.pid).children(recursive=True):
            if "lab.teach.classroom.queue.service" in each.cmdline():
                return each.pid
    return None


def test_two_seats_take_turns(room: ClassDir) -> None:
    write("ada", "long.py", LONG)
    write("bob", "short.py", SHORT)
    first = lab("ada", "run", "long.py", "--backend", "class")
    ada = up_with_a_run(room, "ada")
    plan = room.stored().plan
    assert ada.gpus == plan.queue_gpus == (uuid_of(0), uuid_of(1))
    has_limits_and_own_network(room, ada)
    no_other_seat_reaches(room, ada)
    (line,) = ClassFeed(room).now().queue
    assert re.fullmatch(r"ada: running for .*, 2 GPUs", line)

    second = lab("bob", "run", "short.py", "--backend", "class")
    done = first.result(120)
    assert done.returncode == 1
    assert f"its turn of {SLICE_S} s has ended; start it again" in done.stderr
    # What it wrote before was collected.
    for task, gpus in (("worker-0", ",".join(ada.gpus)), ("worker-1", "void")):
        assert in_seat("ada", "sh", "-c", f"cat runs/*/files/{task}.txt").stdout == gpus
    done = second.result(120)
    assert done.returncode == 0, done.stderr
    assert "position 1 in the queue" in done.stderr
    assert in_seat("bob", "sh", "-c", "cat runs/*/files/worker-1.txt").stdout == "done"
    assert (entry(room, "ada"), entry(room, "bob")) == (None, None)
    assert left_behind(ada.project) == []


def has_limits_and_own_network(room: ClassDir, ada: Entry) -> None:
    environment = ComposeBackend().find(ada.project)
    assert environment is not None
    found = inspect(environment)
    host = found["worker-0"]["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == list(ada.gpus)
    assert not found["worker-1"]["HostConfig"]["DeviceRequests"]
    for task in ("worker-0", "worker-1"):
        limits = found[task]["HostConfig"]
        assert (limits["NanoCpus"], limits["Memory"]) == (10**9, 2**30)
        assert limits["CapDrop"] == ["ALL"]
        assert limits["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "1"}
        # The whole volume of the seat, and nothing mounted in it.
        mounts = {each["Destination"]: each.get("Name") for each in found[task]["Mounts"]}
        assert mounts == {names.MOUNT: names.seat_object(NAME, "ada"), "/lab/data": None}
    size = ("python", "-c", "import os; print(os.statvfs('/home/student').f_blocks)")
    in_run = docker("exec", f"{ada.project}-worker-0-1", *size)
    assert in_run.split() == in_seat("ada", *size).stdout.split()
    (network,) = [each for each in room.stored().plan.run_networks if str(each) == ada.network]
    assert len(addresses(ada.project)) == 2
    assert all(ip_address(each) in network for each in addresses(ada.project))


def no_other_seat_reaches(room: ClassDir, ada: Entry) -> None:
    plan = room.stored().plan
    places = [f"{each}:2222" for each in addresses(ada.project)]
    worker = f"{ada.project}-worker-0-1"
    wait_for(lambda: reached(worker, *places) == {*places}, "the programs do not listen", 60)
    for seat in ("ada", "bob"):
        assert reached(names.seat_object(NAME, seat), *places) == set()
    gateway = names.gateway(plan.proxy_network)
    host = [f"{gateway}:{port}" for port in (names.HUB_PORT, names.QUEUE_PORT)]
    seats = [f"{each.network[3]}:{names.SEAT_PORT}" for each in plan.seats]
    relays = [f"{names.proxy_address(plan.proxy_network)}:{names.QUEUE_RELAY_PORT}"]
    assert reached(worker, *host, *seats, *relays) == set()
    # The other seat's token has no access to the environment.
    done = in_seat("bob", "python", "-c", ATTACK, ada.order.id)
    assert done.stdout.split() == ["404", "404", "403", "403"], done.stderr


ATTACK = """\
import os, sys, urllib.error, urllib.request
(url, token), one = os.environ["LAB_QUEUE"].split(), sys.argv[1]
for method, path, key in (
    ("GET", "environment", token),
    ("DELETE", f"environment?id={one}", token),
    ("DELETE", "environment?seat=ada", token),
    ("GET", "environment", "0" * 32),
):
    headers = {"Authorization": f"token {key}"}
    request = urllib.request.Request(f"{url}/{path}", method=method, headers=headers)
    try:
        print(urllib.request.urlopen(request, timeout=30).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_a_run_without_gpus_has_containers_meanwhile_and_a_killed_service_loses_nothing(
    room: ClassDir, tmp_path: Path
) -> None:
    for seat in ("ada", "bob"):
        write(seat, "long.py", LONG)
    first = lab("ada", "run", "long.py", "--backend", "class")
    ada = up_with_a_run(room, "ada")
    second = lab("bob", "run", "long.py", "--backend", "class", "--gpus", "none")
    bob = up_with_a_run(room, "bob")
    assert (bob.gpus, bob.network) == ((), str(room.stored().plan.run_networks[-1]))
    seats, queue = status(tmp_path)
    assert [(each["seat"], each["state"], each["gpus"]) for each in queue] == [
        ("ada", "up", list(ada.gpus)),
        ("bob", "up", []),
    ]
    assert [each["state"] for each in seats] == ["ready", "ready"]
    environment = ComposeBackend().find(bob.project)
    assert environment is not None
    requests = [each["HostConfig"]["DeviceRequests"] for each in inspect(environment).values()]
    assert not any(requests)

    service = service_of(room)
    assert service is not None
    os.kill(service, signal.SIGKILL)
    wait_for(lambda: service_of(room) not in {None, service}, "no new service", 120)
    assert live(room) == {"ada": ada.order.id, "bob": bob.order.id}
    wait_for(lambda: "mine" in in_seat("ada", "lab", "ps").stdout, "it does not answer", 60)
    for seat, future in (("ada", first), ("bob", second)):
        cancelled = in_seat(seat, "lab", "cancel", "last")
        assert cancelled.returncode == 0, cancelled.stderr
        assert "cancelled by `lab cancel`" in future.result(120).stderr
        assert entry(room, seat) is None
    assert "void" in in_seat("bob", "sh", "-c", "cat runs/*/files/worker-0.txt").stdout


def status(place: Path) -> tuple[list[Any], list[Any]]:
    """The seats and the queue, as `lab class status` prints them."""
    command = [sys.executable, "-m", "lab", "class", "status", "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["seats"], found["queue"]


def left_under_way(room: ClassDir, seat: str, *flags: str) -> Entry:
    """A run that no client follows."""
    done = in_seat(seat, "lab", "run", "long.py", "--backend", "class", "--detach", *flags)
    assert done.returncode == 0, done.stderr
    found = up_with_a_run(room, seat)
    listens = ("lab", "logs", "--task", "worker-0")
    wait_for(lambda: "listens" in in_seat(seat, *listens).stdout, "the program does not begin", 60)
    return found


def has_the_run(archive: Path, seat: str, gpus: str) -> None:
    """What a run that no client followed wrote is in an archive."""
    files = f"{seat}/.local/state/lab/class/mine/runs/[^/]+-long-[^/]+/files/worker-0.txt"
    with zipfile.ZipFile(archive) as work:
        (one,) = [name for name in work.namelist() if re.fullmatch(files, name)]
        assert work.read(one).decode() == gpus


def test_what_a_seat_writes_on_its_disk_keeps_no_turn_and_its_own_scripts_train(
    room: ClassDir,
) -> None:
    ada = left_under_way(room, "ada")
    done = in_seat("ada", "sh", "-c", FORGE)
    assert done.returncode == 0, done.stderr
    write("bob", "scripts/all_reduce.py", SHORT)
    done = lab("bob", "run", "multiworker", "--backend", "class").result(120)
    found = in_seat("bob", "sh", "-c", "cat runs/*-multiworker-*/files/worker-1.txt")
    assert found.stdout == "done", done.stderr
    wait_for(lambda: "ada" not in live(room), "the turn does not end", 60)
    assert left_behind(ada.project) == []
    assert in_seat("ada", "rm", "-r", ".local/state/lab/class/mine", "state").returncode == 0


FORGE = """\
set -e
ln -s .local/state/lab/class/mine state
for status in state/runs/*/status/*.json; do echo '{"state": "training"}' > "$status"; done
mv state/runs state/mine && ln -s / state/runs
ln -sf /etc/shadow state/environment.json
"""


FILL = """\
with open("large.bin", "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 20))
"""


def test_a_queued_run_that_fills_the_disk_of_its_seat_ends_truthfully(room: ClassDir) -> None:
    if reason := unavailable_reason():
        lacking(f"no limits of disks here: {reason}")

    def free(seat: str) -> int:
        place = f"import os; print(os.statvfs({names.MOUNT!r}).f_bavail)"
        return int(in_seat(seat, "python", "-c", place).stdout)

    before = free("bob")
    write("ada", "fill.py", FILL)
    done = lab("ada", "run", "fill.py", "--backend", "class", "--gpus", "none").result(300)
    assert done.returncode == 1
    assert "error: the disk is full; free some space" in done.stderr
    assert free("bob") == before
    wait_for(lambda: "ada" not in live(room), "the turn does not end", 120)
    assert in_seat("ada", "sh", "-c", "rm -rf runs/*-fill-* .local/state/lab/class").returncode == 0
    write("ada", "short.py", SHORT)
    done = lab("ada", "run", "short.py", "--backend", "class", "--gpus", "none").result(120)
    assert done.returncode == 0, done.stderr


def test_a_reset_and_the_end_keep_the_files_of_runs_and_remove_their_containers(
    room: ClassDir, before: dict[str, list[str]], tmp_path: Path
) -> None:
    ada = left_under_way(room, "ada")
    bob = left_under_way(room, "bob", "--gpus", "none")
    reset(room, "bob")
    assert live(room) == {"ada": ada.order.id}
    assert left_behind(bob.project) == []
    (copy,) = room.copies.glob("bob-*.zip")
    has_the_run(copy, copy.stem, "void")

    down(room, tmp_path / "work.zip")
    has_the_run(tmp_path / "work.zip", "ada", ",".join(ada.gpus))
    assert left_behind(ada.project) == []
    assert host() == before
