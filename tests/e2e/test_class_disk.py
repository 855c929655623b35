"""The limits of the disks of seats, on a real engine: each seat has a file system of its own."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.classroom import names
from lab.classroom.config import parse_class
from lab.classroom.disks import SeatDisk, unavailable_reason
from lab.classroom.environment import down, reset, up
from lab.classroom.planning import ClassPlan, HostFacts, plan_class
from lab.classroom.state import ClassDir, StoredClass
from lab.classroom.status import seat_statuses
from lab.config import parse_cluster
from lab.errors import LabError
from lab.units import MIB
from tests.golden.boxes import box
from tests.support.agents import wait_for
from tests.support.commands import free_port
from tests.support.conditions import lacking
from tests.support.docker import docker, no_word

pytestmark = pytest.mark.engine

NAME = "e2e-disk"
SIZE = 64 * MIB
CONFIG = """\
version: 1
name: e2e-disk
seats: 2
seat: {{cpus: 2, memory: 2GiB, disk: 64MiB}}
lessons: [tour]
network: 10.88.2.0/24
address: 127.0.0.1:{port}
"""
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}}
jobs: {worker: {on: [tf1]}}
"""


def a_plan(port: int) -> ClassPlan:
    if reason := unavailable_reason():
        lacking(f"no limits of disks here: {reason}")
    config = parse_class(CONFIG.format(port=port).encode(), "class.yaml")
    host = HostFacts(box(0), disk_unenforced="")
    return plan_class(config, host, parse_cluster(CLUSTER.encode(), "cluster"))


@pytest.fixture(scope="module")
def room(class_image: str) -> Iterator[ClassDir]:
    """The class."""
    up(StoredClass(a_plan(free_port()), class_image, CLUSTER, ("tour",)), no_word)
    folder = ClassDir(NAME)
    yield folder
    if folder.path.exists():
        down(folder, folder.path.parent / "left.zip", no_word)


def inside(seat: str, program: str) -> str:
    """The output of a Python program in a seat's container, as its student."""
    return docker("exec", names.seat_object(NAME, seat), "python", "-c", program)


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
LOOK = """
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
OPEN = """
import os, stat
for name in ("/dev/loop-control", *(f"/dev/loop{number}" for number in range(64))):
    try:
        os.close(os.open(name, os.O_RDONLY))
        print("opened", name)
    except OSError:
        pass
for place in ("/tmp/device", "/home/student/device"):
    try:
        os.mknod(place, stat.S_IFBLK | 0o600, os.makedev(7, 0))
        print("made", place)
    except OSError:
        pass
"""
FLOOD = """
with open("/proc/1/fd/1", "wb") as file:
    for _ in range(96):
        file.write(bytes(range(1, 256)) * 4096 + b"\\n")
print("written")
"""


def look(seat: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(inside(seat, LOOK))
    return found


def disks(room: ClassDir) -> list[SeatDisk]:
    return [SeatDisk(room.disks, seat.name, SIZE) for seat in room.stored().plan.seats]


def loop_devices() -> str:
    command = ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assert_nothing_is_left(folder: ClassDir) -> None:
    label = ("--filter", f"label={names.CLASS}={NAME}", "--quiet")
    assert docker("ps", "--all", *label) == ""
    assert docker("volume", "ls", *label) == ""
    assert not folder.path.exists()
    # The kernel detaches a device when the last process has closed it.
    wait_for(lambda: str(folder.path) not in loop_devices(), "the loop devices are detached")
    assert str(folder.path) not in Path("/proc/self/mountinfo").read_text()


def test_a_seat_that_fills_its_disk_hurts_no_other(room: ClassDir) -> None:
    first, second = disks(room)
    allocated = [each.image.stat().st_blocks for each in (first, second)]
    assert all(blocks * 512 >= SIZE for blocks in allocated), "the host keeps the space for it"
    beside = look("seat-02")
    reason, count = inside("seat-01", FILL).splitlines()
    assert reason == "No space left on device"
    assert SIZE * 0.6 < int(count) < SIZE
    assert look("seat-01")["free"] == 0
    assert look("seat-02") == beside
    assert [each.image.stat().st_blocks for each in (first, second)] == allocated
    assert [each.state for each in seat_statuses(room)] == ["ready", "ready"]


def test_a_seat_has_no_access_to_the_device(room: ClassDir) -> None:
    assert inside("seat-02", OPEN) == ""
    found = look("seat-02")
    assert {"nosuid", "nodev"} <= set(found["options"])  # type: ignore[call-overload]
    assert found["owner"] == [1000, 1000]
    assert "lost+found" not in found["names"]  # type: ignore[operator]
    assert "notebooks" in found["names"]  # type: ignore[operator]


def test_the_output_of_a_seat_is_bounded(room: ClassDir) -> None:
    container = names.seat_object(NAME, "seat-02")
    log = Path(docker("inspect", "--format", "{{.LogPath}}", container))
    assert inside("seat-02", FLOOD) == "written"
    assert sum(each.stat().st_size for each in log.parent.glob("*.log*")) < 25_000_000


def test_a_class_goes_on_after_its_devices_were_detached(room: ClassDir, tmp_path: Path) -> None:
    """As after a restart of the host: no program, no device, and other numbers of devices."""
    before = look("seat-01")
    hub = room.hub()
    assert hub is not None
    subprocess.run(["kill", "-9", str(hub.pid)], check=True)
    wait_for(lambda: not room.is_up, "JupyterHub has ended")
    docker("rm", "--force", *(names.seat_object(NAME, each.seat) for each in disks(room)))
    old = [each.device.readlink() for each in disks(room)]
    for device in old:
        subprocess.run(["losetup", "--detach", str(device)], check=True)
    wait_for(lambda: str(room.path) not in loop_devices(), "the loop devices are detached")
    other = SeatDisk(tmp_path / "other", "mallory", SIZE)
    other.folder.parent.mkdir(exist_ok=True)
    try:
        other.attach()
        assert other.device.readlink() in old, "the number now belongs to another file"
        up(room.stored(), no_word)
    finally:
        other.remove()
    assert [each.state for each in seat_statuses(room)] == ["ready", "ready"]
    after = look("seat-01")
    assert after["size"] == before["size"]
    assert after["free"] == 0, "a full seat starts, too"
    assert set(before["names"]) <= set(after["names"])  # type: ignore[call-overload]


def test_a_full_seat_is_fresh_after_a_reset(room: ClassDir) -> None:
    before = look("seat-01")
    reset(room, "seat-01", no_word)
    after = look("seat-01")
    assert "filler" in before["names"]  # type: ignore[operator]
    assert "filler" not in after["names"]  # type: ignore[operator]
    assert (after["size"], after["owner"]) == (before["size"], [1000, 1000])
    assert int(str(after["free"])) > SIZE * 0.6
    (copy,) = room.copies.iterdir()
    with zipfile.ZipFile(copy) as archive:
        assert archive.getinfo(f"{copy.stem}/filler").file_size > SIZE * 0.6
    assert inside("seat-01", FILL).splitlines()[0] == "No space left on device"


def test_down_leaves_no_device_mount_or_file(room: ClassDir, tmp_path: Path) -> None:
    devices = {str(each.image) for each in disks(room)}
    assert devices <= set(loop_devices().split())
    down(room, tmp_path / "work.zip", no_word)
    with zipfile.ZipFile(tmp_path / "work.zip") as work:
        assert "seat-01/filler" in work.namelist()
    assert_nothing_is_left(room)


def test_a_failed_boot_leaves_no_device_mount_or_file(class_image: str) -> None:
    port = free_port()
    publish = f"127.0.0.1:{port}:80"
    taken = docker("run", "--detach", "--publish", publish, class_image, "sleep", "600")
    try:
        with pytest.raises(LabError, match=f"the address 127.0.0.1:{port} is in use"):
            up(StoredClass(a_plan(port), class_image, CLUSTER, ()), no_word)
        assert_nothing_is_left(ClassDir(NAME))
    finally:
        docker("rm", "--force", taken)
