"""The doctor: every finding as it is when all is well, and when it is not."""

from __future__ import annotations

import ipaddress
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import doctor
from lab.backends.compose.mends import explain
from lab.backends.local.layout import NETWORK
from lab.cli import main
from lab.doctor import (
    Finding,
    Need,
    Report,
    Verdict,
    data,
    engine,
    gpus,
    images,
    network,
    python,
    resources,
)
from lab.doctor.asking import Answer, ask
from lab.doctor.view import lines
from lab.errors import LabError
from lab.gpu import Condition, Fault, Gpu, Inventory, NvmlError
from lab.threads import within
from tests.unit.fakes import PLAN

OK, WARNING, FAILED, SKIPPED = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.SKIPPED
UUID = "GPU-5f2a0000-0000-0000-0000-000000000001"
H100 = Gpu(0, UUID, "NVIDIA H100 80GB HBM3", 80 * 2**30)
BOX = Inventory("uuid", (H100,), 8, 2**36, driver="580.95.05", cuda="13.0")
NO_BOX = Inventory("none", (), 8, 2**36)
INFO = {
    "Name": os.uname().nodename,
    "ServerVersion": "28.2.2",
    "Driver": "overlay2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "DockerRootDir": "/var/lib/docker",
    "Runtimes": {"runc": {}},
}
ANSWERS = engine.Answers(INFO)
CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {gpus: GPUS}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def raising(error: Exception) -> Callable[..., Any]:
    def refuse(*_: object) -> Any:
        raise error

    return refuse


def fault(condition: Condition, where: str = "driver") -> Fault:
    return Fault(condition, where, "NVML's words", "the inventory's mend")


# ---- Asking what may hang


def test_what_hangs_is_left_to_itself() -> None:
    go_on = threading.Event()  # set only here: whoever waits for its end waits for ever
    with pytest.raises(TimeoutError):
        within(0.05, go_on.wait)
    go_on.set()
    assert ask(["sleep", "86400"], 0.05) == Answer(None)


def test_what_was_asked_is_answered() -> None:
    assert within(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    assert ask(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], 5) == Answer(
        3, "out\n", "first\nlast\n"
    )
    assert ask(["no-such-command-here"], 5).code == 127
    assert Answer(1, "", "first\nlast\n").last == "last"
    assert Answer(1).last == "it gave no reason"


# ---- Python


def test_the_version_of_python() -> None:
    assert python.version().verdict is OK
    assert python.version((3, 14, 0)).verdict is WARNING
    old = python.version((3, 10, 12))
    assert (old.verdict, old.needed_for, old.blocks) == (
        FAILED,
        Need.EVERYTHING,
        "Python is too old",
    )
    assert "make install" in old.mend
    assert python.version((3, 12, 1), 32).verdict is FAILED


def test_packages_at_their_pinned_versions() -> None:
    found = python.packages()
    assert found.verdict is OK, found.what
    assert found.what.endswith(", at the versions that lab asks for")

    required = ["rich==15.*", "docker==7.2.*", "absent==1.*; extra == 'dev'"]
    versions = {"rich": "15.0.0", "docker": "7.2.0"}
    assert python.packages(lambda: required, versions.get).verdict is OK
    del versions["docker"]
    versions["rich"] = "14.1.0"
    bad = python.packages(lambda: required, versions.get)
    assert bad.verdict is FAILED
    assert bad.what == "rich 14.1.0 is not ==15.*; docker is missing"
    assert "requirements/host.txt" in bad.mend


def test_packages_without_the_one_that_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert python.packages().what == "packaging is missing"


def test_requirements_of_an_installed_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python.metadata, "requires", lambda name: [f"{name}-needs==1"])
    assert python.requirements(tmp_path) == ["lab-needs==1"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'another'\ndependencies = []\n")
    assert python.requirements(tmp_path) == ["lab-needs==1"]
    assert "fire==0.7.1" in python.requirements()


@pytest.mark.parametrize(
    ("answer", "verdict", "what", "blocks"),
    [
        (Answer(0, '["2.21.0", ""]\n'), OK, "2.21.0, built for CPUs", ""),
        (Answer(0, 'noise\n["2.21.1", "12.5.1"]\n'), OK, "2.21.1, built for CUDA 12.5.1", ""),
        (Answer(0, '["2.15.1", ""]'), WARNING, "lab was tried with 2.21.*", ""),
        (None, WARNING, "not installed", "no TensorFlow"),
        (Answer(1, "", "Trace\nImportError: no\x1b[31m lib"), FAILED, "lib", "TensorFlow"),
        (Answer(-4, "", ""), FAILED, "it gave no reason", "TensorFlow"),
        (Answer(None), FAILED, "takes more than 60 s", "TensorFlow"),
    ],
)
def test_tensorflow(answer: Answer | None, verdict: Verdict, what: str, blocks: str) -> None:
    found, has_cuda = python.tensorflow("2.21.*", lambda: answer)
    assert (found.verdict, found.blocks, found.needed_for) == (verdict, blocks, Need.LOCAL)
    assert what in found.what
    assert "\x1b" not in found.what
    assert bool(found.mend) == (verdict is not OK)
    assert has_cuda == (answer is not None and "12.5.1" in answer.out)


def test_a_tensorflow_that_hangs() -> None:
    found, _ = python.tensorflow("2.21.*", raising(TimeoutError()))
    assert found.verdict is FAILED


# ---- The data, the description, the directories


def test_the_data_set(tmp_path: Path) -> None:
    assert data.dataset().what == "4 files, 11 MB, checksums right"
    missing = data.dataset(tmp_path)
    assert (missing.verdict, missing.blocks) == (FAILED, "the data set")
    assert "SHA256SUMS cannot be read (No such file" in missing.what
    for file in data.MNIST.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert data.dataset(tmp_path).verdict is OK
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-1] + b"x")
    assert "t10k-labels-idx1-ubyte.gz is damaged" in data.dataset(tmp_path).what
    labels.unlink()
    gone = data.dataset(tmp_path)
    assert "t10k-labels-idx1-ubyte.gz cannot be read" in gone.what
    assert "git checkout" in gone.mend


def test_no_description(tmp_path: Path) -> None:
    found = data.described(NO_BOX, tmp_path / "cluster.yaml")
    assert (found.finding.verdict, found.plan, found.gpus) == (SKIPPED, None, 0)


def test_a_description(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "1"))
    found = data.described(BOX, path)
    assert found.finding.verdict is OK
    assert "mnist, 2 nodes, 2 tasks, 1 GPU" in found.finding.what
    assert found.plan is not None
    assert [task.gpus for task in found.plan.tasks] == [(), (UUID,)]

    without = data.described(NO_BOX, path)
    assert without.finding.verdict is OK
    assert "without GPUs here, so on CPUs" in without.finding.what
    assert without.plan is not None
    assert not any(task.gpus for task in without.plan.tasks)


def test_a_description_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "4"))
    found = data.described(BOX, path)
    assert found.finding.verdict is WARNING
    assert "clusters/" in found.finding.mend
    assert found.plan is not None  # on CPUs, for the checks that follow
    assert found.gpus == 4


def test_descriptions_with_faults(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "x"))
    found = data.described(BOX, path)
    assert found.finding.verdict is WARNING
    assert found.finding.what.endswith("has a fault")
    assert "lab validate" in found.finding.mend
    path.write_text("name: m\n")
    assert "faults" in data.described(BOX, path).finding.what
    path.unlink()
    path.mkdir()
    assert data.described(BOX, path).finding.verdict is WARNING


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "not" / "yet"
    assert data.writable("runs directory", new, "LAB_RUNS_DIR").verdict is OK
    assert not new.parent.exists()
    (tmp_path / "file").touch()
    found = data.writable("runs directory", tmp_path / "file" / "runs", "LAB_RUNS_DIR")
    assert (found.verdict, found.blocks) == (FAILED, "runs directory cannot be written")
    assert "is no directory" in found.what
    assert "LAB_RUNS_DIR" in found.mend
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in data.writable("state directory", new, "LAB_STATE").what


def test_what_dead_environments_have_left() -> None:
    assert data.leftovers(lambda: []).what == "none"
    assert data.leftovers(lambda: [("a", True)]).what == "1 up, see `lab ls`"
    found = data.leftovers(lambda: [("a", True), ("b", False)])
    assert (found.verdict, found.mend) == (WARNING, "`lab down b`")


# ---- Resources


def test_cpus_and_memory() -> None:
    assert resources.cpus(8, PLAN).what == "8 CPUs for 3 tasks"
    assert resources.cpus(1, PLAN).what == "1 CPU for 3 tasks: they take turns"
    assert resources.cpus(1, None).what == "1 CPU"
    assert resources.memory(2**35, 2**34, PLAN).verdict is OK
    little = resources.memory(2**31, 2**30, PLAN)
    assert little.verdict is WARNING
    assert "3 tasks with TensorFlow take about 2.197 GiB" in little.what
    total, available = resources.memory_bytes()
    assert 0 < available <= total
    assert resources.memory_bytes(Path("/no/such/file")) == (total, total)


@pytest.mark.parametrize(
    ("free", "verdict"), [(2 * 10**9, OK), (10**9 - 1, WARNING), (10**7, FAILED)]
)
def test_room(free: int, verdict: Verdict) -> None:
    found = resources.disk("room for runs", Path("runs"), lambda path: (path, free))
    assert (found.verdict, bool(found.blocks)) == (verdict, verdict is FAILED)


def test_room_is_measured_where_the_directory_will_be(tmp_path: Path) -> None:
    where, free = resources.free_bytes(tmp_path / "not" / "yet")
    assert where == tmp_path
    assert free > 0


def test_limits_of_the_kernel(tmp_path: Path) -> None:
    assert resources.inotify(128, 65536).verdict is OK
    assert resources.inotify(None, None).verdict is SKIPPED
    for few in (resources.inotify(64, 65536), resources.inotify(128, 4096)):
        assert few.verdict is WARNING
        assert "sysctl" in few.mend
    assert resources.files(1024, PLAN).verdict is OK
    assert resources.files(-1, PLAN).what == "no limit"
    assert resources.files(256, PLAN).verdict is WARNING
    assert resources.threads(None, 2, PLAN).verdict is OK
    assert resources.threads(4096, 2, PLAN).verdict is OK
    many = resources.threads(4096, 2, replace(PLAN, tasks=PLAN.tasks * 50))
    assert many.verdict is WARNING
    assert "150 tasks with TensorFlow may need 13,500" in many.what


def test_limits_of_control_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    slices = groups / "user.slice" / "user-1.slice"
    slices.mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/user.slice/user-1.slice\n")
    (slices / "pids.max").write_text("max\n")
    (groups / "user.slice/pids.max").write_text("77\n")
    assert resources.thread_limit(proc, groups) == 77
    (groups / "pids" / "a").mkdir(parents=True)
    (groups / "pids/a/pids.max").write_text("55\n")
    (proc / "self/cgroup").write_text("9:cpu,cpuacct:/b\n8:pids:/a\n0::/\n")
    assert resources.thread_limit(proc, groups) == 55


# ---- Network


@pytest.mark.parametrize(
    ("why", "switches", "mend"),
    [
        ("unshare is not installed (package util-linux)", {}, "apt-get install util-linux"),
        ("LAB_LOCAL_NAMESPACES is 0", {}, "unset"),
        (
            "Operation not permitted",
            {"kernel/apparmor_restrict_unprivileged_userns": 1},
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "No space left on device",
            {"user/max_user_namespaces": 0, "kernel/unprivileged_userns_clone": 1},
            "sudo sysctl -w user.max_user_namespaces=10000",
        ),
        ("Operation not permitted", {}, "use containers"),
    ],
)
def test_no_namespaces(why: str, switches: dict[str, int], mend: str) -> None:
    found = network.namespaces(why, switches)
    assert (found.verdict, found.needed_for, found.blocks) == (WARNING, Need.LOCAL, "")
    assert "every interface" in found.what
    assert mend in found.mend


def test_namespaces(tmp_path: Path) -> None:
    assert network.namespaces(None, {}).verdict is OK
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("0\n")
    assert network.switches(tmp_path) == {"user/max_user_namespaces": 0}


def test_ports() -> None:
    taken = LabError("port 2223 cannot be used: Address already in use", "end what uses it")

    def check(ports: Sequence[int]) -> None:
        if 2223 in ports:
            raise taken

    assert network.ports(None, [], check).verdict is SKIPPED
    assert network.ports(PLAN, [], check).verdict is OK
    assert network.ports(PLAN, [2222], check).what == "2222 are free"
    found = network.ports(PLAN, [2222, 2223], check)
    assert (found.verdict, found.what, found.mend) == (FAILED, taken.what, taken.mend)
    assert found.blocks == "a port is in use"


def test_routes(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "wg0\t00054D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    routes = network.routes_of(table)
    assert [(str(net), device) for net, device in routes] == [
        ("172.17.0.0/16", "docker0"),
        ("10.77.5.0/24", "wg0"),
    ]
    assert "10.77.5.0/24 by wg0: harmless" in network.addresses(routes).what
    assert network.addresses(routes[:1]).what == "10.77.0.0/16 is used by nobody else"
    assert network.routes_of(tmp_path / "none") == []


def test_the_range_is_the_one_that_nodes_get() -> None:
    assert network.LOCAL_RANGE == NETWORK


def test_proxies() -> None:
    assert network.proxies({}, ["tf1"]).what == "none"
    assert network.proxies({"HTTPS_PROXY": "x"}, ["tf1"]).verdict is OK
    given = {"http_proxy": "http://me:secret@proxy:3128", "no_proxy": "localhost"}
    found = network.proxies(given, ["tf1", "tf2"])
    assert found.verdict is WARNING
    assert "secret" not in found.what
    assert found.mend.startswith("`export no_grpc_proxy=tf1,tf2`")
    assert (
        network.proxies({**given, "no_grpc_proxy": "localhost,tf1,tf2"}, ["tf1", "tf2"]).verdict
        is OK
    )
    assert network.proxies({**given, "no_proxy": "*"}, ["tf1"]).verdict is OK


# ---- Docker


def test_the_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.command("/usr/bin/docker").verdict is OK
    found = engine.command(None)
    assert (found.verdict, found.blocks, found.needed_for) == (WARNING, "no Docker", Need.COMPOSE)
    monkeypatch.setenv("PATH", "/nowhere")
    assert engine.docker_path() is None


def test_an_engine_that_answers() -> None:
    found, answers = engine.engine(lambda: ANSWERS)
    assert (found.verdict, found.what, answers) == (OK, "28.2.2", ANSWERS)
    rootless = replace(ANSWERS, info={**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]})
    assert engine.engine(lambda: rootless)[0].what == "28.2.2, rootless"
    old = replace(ANSWERS, info={**INFO, "ServerVersion": "19.03.15"})
    found, _ = engine.engine(lambda: old)
    assert (found.verdict, found.blocks) == (FAILED, "the engine is too old")


@pytest.mark.parametrize(
    ("error", "blocks", "mend"),
    [
        (TimeoutError(), "the engine hangs", "systemctl restart docker"),
        (
            LabError("reaching the engine: the Docker engine does not answer", "see its log"),
            "the engine hangs",
            "systemctl restart docker",
        ),
        (
            explain("reaching the engine", ["Cannot connect to the Docker daemon at unix:///x"]),
            "no engine answers",
            "systemctl start docker",
        ),
        (
            explain(
                "reaching the engine",
                ["permission denied while trying to connect to the Docker daemon socket"],
            ),
            "no permission",
            "usermod -aG docker",
        ),
    ],
)
def test_an_engine_that_does_not(error: Exception, blocks: str, mend: str) -> None:
    found, answers = engine.engine(raising(error), "unix:///x.sock")
    assert (found.verdict, found.blocks, answers) == (FAILED, blocks, None)
    assert "unix:///x.sock" in found.what
    assert mend in found.mend


def test_no_engine_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    found, _ = engine.engine(engine.look, engine.host())
    assert (found.verdict, found.blocks) == (FAILED, "no engine answers")


def test_what_an_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    import docker  # noqa: PLC0415  (0.2 s, for this test only)

    api = SimpleNamespace(
        info=lambda: INFO,
        networks=lambda: [
            {"IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd00::/64"}]}},
            {"IPAM": {"Config": None}},
        ],
        containers=lambda **_: [
            {"Labels": {"lab.project": "a"}, "State": "running"},
            {"Labels": {"lab.project": "a"}, "State": "exited"},
            {"Labels": {"lab.project": "b"}, "State": "exited"},
        ],
    )
    monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=api))
    answers = engine.look()
    assert [str(each) for each in answers.networks] == ["172.17.0.0/16"]
    assert answers.projects == {"a": ["running", "exited"], "b": ["exited"]}
    assert answers.is_here
    assert answers.images_directory == Path("/var/lib/docker")
    newer = {**INFO, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    assert engine.Answers(newer).images_directory == Path("/var/lib/containerd")


def test_compose() -> None:
    assert engine.compose(lambda: "2.40.3").verdict is OK
    for error in (LabError("docker has no compose plugin", "install it"), TimeoutError()):
        found = engine.compose(raising(error))
        assert (found.verdict, found.blocks, bool(found.mend)) == (
            FAILED,
            "no compose plugin",
            True,
        )


def test_storage_drivers() -> None:
    assert engine.storage(INFO).verdict is OK
    assert "whole copy" in engine.storage({"Driver": "vfs"}).what
    assert engine.storage({"Driver": "aufs"}).verdict is WARNING


def test_limits_of_the_engine() -> None:
    assert "cgroups 2, by systemd" in engine.limits(INFO).what
    found = engine.limits({**INFO, "MemoryLimit": False, "CPUSet": False})
    assert found.verdict is WARNING
    assert "cannot limit memory, CPU sets" in found.what
    rootless = {**INFO, "MemoryLimit": False, "SecurityOptions": ["name=rootless"]}
    assert "Delegate=" in engine.limits(rootless).mend


IMAGE = images.Facts("lab:cpu", "python:3.11-slim-bookworm", 1690 * 10**6, is_here=True)


def test_the_image() -> None:
    assert images.available(lambda: IMAGE)[0].what == "lab:cpu is here"
    there = replace(IMAGE, is_here=False, base_is_here=True)
    assert "is here, and the first run builds it" in images.available(lambda: there)[0].what
    far = replace(IMAGE, is_here=False, base_can_be_fetched=True)
    assert "can be fetched" in images.available(lambda: far)[0].what
    old = replace(there, is_here=True, is_old=True)
    found, _ = images.available(lambda: old)
    assert (found.verdict, found.what) == (
        OK,
        "lab:cpu holds another version of lab/task than this lab; its base"
        " python:3.11-slim-bookworm is here, and the first run builds it again",
    )
    found, _ = images.available(lambda: replace(old, base_is_here=False))
    assert (found.verdict, found.blocks) == (FAILED, "no image")
    assert found.what.startswith("lab:cpu holds another version of lab/task than this lab, and its")
    found, facts = images.available(lambda: replace(IMAGE, is_here=False))
    assert (found.verdict, found.blocks) == (FAILED, "no image")
    assert facts is not None
    assert "base-image.sh" in found.mend
    assert images.available(raising(TimeoutError()))[0].verdict is WARNING
    assert images.available(raising(LabError("odd", "mend")))[0].verdict is FAILED


@pytest.mark.parametrize(
    ("image", "free", "verdict"),
    [
        (IMAGE, 2 * 10**9, OK),
        (IMAGE, 10**8, WARNING),
        (None, 2 * 10**9, OK),
        (replace(IMAGE, is_here=False), 3 * 10**9, OK),
        (replace(IMAGE, is_here=False), 2 * 10**9, FAILED),
    ],
)
def test_room_for_the_image(image: images.Facts | None, free: int, verdict: Verdict) -> None:
    found = images.room(ANSWERS, image, lambda path: (path, free))
    assert found.verdict is verdict
    assert bool(found.blocks) == (verdict is FAILED)
    elsewhere = engine.Answers({**INFO, "Name": "another"})
    assert images.room(elsewhere, image, raising(OSError())).verdict is SKIPPED


def networks(*texts: str) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


def test_address_pools() -> None:
    docker0 = networks("172.17.0.0/16")
    assert engine.address_pools(replace(ANSWERS, networks=docker0), []).what == (
        "room for 30 more networks"
    )
    full = networks("172.16.0.0/12", "192.168.0.0/17")
    few = engine.address_pools(
        replace(ANSWERS, networks=[*full, *networks("192.168.128.0/18")]), []
    )
    assert few.verdict is OK
    most = networks("192.168.128.0/18", "192.168.192.0/19", "192.168.224.0/20")
    one = engine.address_pools(replace(ANSWERS, networks=[*full, *most]), [])
    assert (one.verdict, one.what) == (WARNING, "room for 1 more network: 5 networks are there")
    none = engine.address_pools(
        replace(ANSWERS, networks=networks("172.16.0.0/12", "192.168.0.0/16")), []
    )
    assert (none.verdict, none.blocks) == (FAILED, "no address range")
    assert "docker network prune" in none.mend


def test_address_pools_beside_a_private_network_of_the_host() -> None:
    vpn = [(net, "tun0") for net in networks("172.16.0.0/12", "192.168.0.0/16")]
    found = engine.address_pools(ANSWERS, vpn)
    assert found.verdict is FAILED
    assert "172.16.0.0/12 by tun0" in found.what
    assert "default-address-pools" in found.mend
    elsewhere = engine.Answers({**INFO, "Name": "another"})
    assert engine.address_pools(elsewhere, vpn).verdict is OK


def test_configured_address_pools() -> None:
    pools = [{"Base": "10.99.0.0/24", "Size": 28}, {"Base": "fd00::/8", "Size": 64}]
    answers = engine.Answers({**INFO, "DefaultAddressPools": pools})
    assert engine.address_pools(answers, []).what == "room for 16 more networks"
    large = engine.Answers({**INFO, "DefaultAddressPools": [{"Base": "10.0.0.0/8", "Size": 24}]})
    assert engine.address_pools(large, []).what == "room for 256 more networks"


def test_environments_that_have_stopped() -> None:
    assert engine.leftovers({}).what == "no environment is up"
    assert engine.leftovers({"a": ["running", "exited"]}).what == "1 up, see `lab ls`"
    found = engine.leftovers({"a": ["running"], "b": ["exited", "created"]})
    assert (found.verdict, found.what) == (WARNING, "stopped, but not removed: b")
    assert "`lab down b`" in found.mend


# ---- GPUs


def test_the_driver() -> None:
    found = gpus.driver(BOX, 1, 1)
    assert (found.verdict, found.what) == (OK, "580.95.05, CUDA up to 13.0")


def test_no_driver() -> None:
    missing = replace(NO_BOX, faults=(fault(Condition.NO_DRIVER),))
    for asked in (0, 8):  # a missing card is no failure, whatever the description asks for
        found = gpus.driver(missing, 0, asked)
        assert (found.verdict, found.blocks) == (WARNING, "no card")
        found = gpus.driver(missing, 2, asked)
        assert (found.verdict, found.blocks) == (WARNING, "no driver")
        assert "the box's 2 NVIDIA cards" in found.what
        assert "nvidia-driver" in found.mend


@pytest.mark.parametrize(
    ("condition", "mend"),
    [
        (Condition.MISMATCH, "sudo reboot"),
        (Condition.NO_PERMISSION, "ls -l /dev/nvidia*"),
        (Condition.OTHER, "the inventory's mend"),
    ],
)
def test_a_driver_that_is_broken(condition: Condition, mend: str) -> None:
    broken = replace(NO_BOX, faults=(fault(condition),))
    found = gpus.driver(broken, 1, 8)
    assert (found.verdict, found.blocks) == (FAILED, str(condition))
    assert mend in found.mend
    assert gpus.driver(fault(condition), 1, 0).verdict is WARNING


def test_a_driver_that_fails() -> None:
    assert gpus.look(lambda: BOX) is BOX
    reason = fault(Condition.OTHER)
    assert gpus.look(raising(NvmlError("the NVIDIA driver failed", "", reason))) is reason
    assert gpus.driver(reason, 1, 1).verdict is FAILED


def test_cuda(tmp_path: Path) -> None:
    assert gpus.cuda(BOX, tmp_path).verdict is OK  # without any node, as on WSL
    (tmp_path / "nvidiactl").touch()
    found = gpus.cuda(BOX, tmp_path)
    assert (found.verdict, found.blocks) == (WARNING, "")
    assert "/nvidia-uvm is not there" in found.what
    assert found.mend == "`sudo nvidia-modprobe -u -c=0`"
    (tmp_path / "nvidia-uvm").touch()
    assert gpus.cuda(BOX, tmp_path).verdict is OK


def test_a_driver_without_libcuda(tmp_path: Path) -> None:
    told = Fault(Condition.OTHER, "CUDA version", "libcuda.so.1 is not installed", "install it")
    box = replace(BOX, cuda="", faults=(told,))
    assert gpus.driver(box, 1, 1).what == "580.95.05"
    assert gpus.driver(replace(box, driver=""), 1, 1).verdict is OK
    assert gpus.cards(box, 1).verdict is OK
    found = gpus.cuda(box, tmp_path)
    assert (found.verdict, found.what, found.mend, found.blocks) == (
        WARNING,
        "libcuda.so.1 is not installed",
        "install it",
        "no CUDA",
    )
    # A driver that is too old to tell the version has CUDA all the same.
    old = replace(box, faults=(replace(told, condition=Condition.OLD_DRIVER),))
    assert gpus.cuda(old, tmp_path).verdict is OK
    version = fault(Condition.OTHER, "driver version")
    assert gpus.cards(replace(BOX, faults=(version,)), 1).verdict is OK


def test_cards() -> None:
    two = replace(BOX, gpus=(H100, replace(H100, index=1)))
    assert gpus.cards(two, 2).what == "2 NVIDIA H100 80GB HBM3 of 80 GiB"
    none = gpus.cards(replace(BOX, gpus=()), 0)
    assert (none.verdict, none.blocks) == (WARNING, "no card")


def test_a_card_that_is_lost() -> None:
    lost = replace(BOX, faults=(fault(Condition.CARD_LOST, "GPU 3"),))
    found = gpus.cards(lost, 2)
    assert (found.verdict, found.blocks) == (FAILED, "card lost")
    assert "GPU 3: card lost" in found.what
    assert "Xid" in found.mend
    found = gpus.cards(lost, 0)
    assert (found.verdict, found.blocks) == (WARNING, "")
    assert gpus.cards(replace(lost, gpus=()), 0).blocks == "card lost"


def test_mig() -> None:
    piece = Gpu(1, "MIG-1", "NVIDIA A100 MIG 3g.20gb", slice_of="GPU-1")
    assert gpus.mig(BOX).what == "no card is cut"
    assert gpus.mig(replace(BOX, gpus=(piece,))).what == "all cards are cut: 1 slice, by UUID"
    assert (
        "1 slice, by UUID, beside 1 whole card" in gpus.mig(replace(BOX, gpus=(H100, piece))).what
    )
    found = gpus.mig(replace(BOX, faults=(fault(Condition.NO_SLICES, "GPU 2"),)))
    assert found.verdict is WARNING
    assert "-i 2 -mig 0" in found.mend


NO_TOOLKIT = gpus.Toolkit()
HOOK = gpus.Toolkit(hook="/usr/bin/nvidia-container-runtime-hook", has_ctk=True)
CDI = gpus.Toolkit(cdi_files=(Path("/etc/cdi/nvidia.yaml"),))
NEWEST = {**INFO, "ServerVersion": "29.0.1", "CDISpecDirs": ["/etc/cdi"]}


def test_the_container_toolkit() -> None:
    assert gpus.toolkit({**INFO, "Runtimes": {"nvidia": {}}}, NO_TOOLKIT, 1).verdict is OK
    assert HOOK.hook in gpus.toolkit(INFO, HOOK, 1).what
    assert gpus.toolkit(NEWEST, CDI, 1).what == "by CDI"
    known = {**NEWEST, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    assert gpus.toolkit(known, NO_TOOLKIT, 1).what == "by CDI"


def test_no_container_toolkit() -> None:
    found = gpus.toolkit(INFO, NO_TOOLKIT, 1)
    assert (found.verdict, found.blocks) == (FAILED, "no container toolkit")
    assert "install-guide" in found.mend
    assert gpus.toolkit(INFO, NO_TOOLKIT, 0).verdict is WARNING
    assert gpus.toolkit(INFO, NO_TOOLKIT, 1, has_cuda=True).blocks == ""
    unknown = gpus.toolkit(INFO, gpus.Toolkit(has_ctk=True), 1)
    assert "the engine does not know it" in unknown.what
    assert unknown.mend.startswith("`sudo nvidia-ctk runtime configure")
    # An engine that knows CDI, but not for these requests.
    assert gpus.toolkit({**NEWEST, "ServerVersion": "28.3.0"}, CDI, 1).verdict is FAILED


def test_the_risk_of_a_daemon_reload() -> None:
    assert gpus.daemon_reload({**INFO, "CgroupDriver": "cgroupfs"}, HOOK).verdict is OK
    assert gpus.daemon_reload(NEWEST, CDI).verdict is OK
    found = gpus.daemon_reload(INFO, HOOK)
    assert (found.verdict, found.blocks) == (WARNING, "")
    assert "native.cgroupdriver=cgroupfs" in found.mend
    assert "nvidia-ctk cdi generate" in found.mend


class Asked:
    """Answers one command after the other, and remembers them."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> Answer:
        self.commands.append(command)
        return self.answers.pop(0)


def test_a_card_in_a_container() -> None:
    asked = Asked(Answer(0, f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n"))
    assert gpus.trial(UUID, "lab:cuda", asked).verdict is OK
    (command,) = asked.commands
    words = " ".join(command)
    for needed in ("--rm", "--network none", "--pull never", "--label lab.trial=", UUID):
        assert needed in words
    assert "lab.project" not in words  # or it would be an environment


def test_a_card_in_a_container_that_does_not_come() -> None:
    assert gpus.trial(UUID, None, Asked()).verdict is SKIPPED
    refused = 'docker: could not select device driver "nvidia" with capabilities: [[gpu]].\n'
    found = gpus.trial(UUID, "lab:cuda", Asked(Answer(125, "", refused)))
    assert (found.verdict, found.blocks) == (FAILED, "no card in a container")
    assert "container toolkit" in found.mend
    odd = gpus.trial(UUID, "lab:cuda", Asked(Answer(9, "NVML: Unknown Error\n")))
    assert odd.what == "NVML: Unknown Error"
    assert odd.mend
    all_of_them = f"GPU 0: H100 (UUID: {UUID})\nGPU 1: H100 (UUID: GPU-other)\n"
    found = gpus.trial(UUID, "lab:cuda", Asked(Answer(0, all_of_them)))
    assert "sees 2 cards" in found.what
    assert "sees no cards" in gpus.trial(UUID, "lab:cuda", Asked(Answer(0, ""))).what


def test_a_trial_that_hangs_leaves_nothing() -> None:
    asked = Asked(Answer(None), Answer(0))
    assert gpus.trial(UUID, "lab:cuda", asked).verdict is FAILED
    run, remove = asked.commands
    name = run[run.index("--name") + 1]
    assert list(remove) == ["docker", "rm", "--force", "--volumes", name]


def test_what_the_local_backend_can_do_with_cards() -> None:
    cuda = partial(gpus.cuda_locally, has_cuda=True)
    assert cuda(has_cudnn=True, has_engine=False).verdict is OK
    found = cuda(has_cudnn=False, has_engine=True)
    assert (found.verdict, found.blocks) == (WARNING, "")
    assert "'tensorflow[and-cuda]==2.21.*'` into this Python" in found.mend
    assert cuda(has_cudnn=False, has_engine=False).blocks == "no cuDNN"
    none = partial(gpus.cuda_locally, has_cuda=False, has_cudnn=False)
    assert none(has_engine=True).verdict is OK
    found = none(has_engine=False)
    assert (found.verdict, found.blocks) == (WARNING, "no CUDA")


def test_cudnn_is_a_wheel_or_of_the_system() -> None:
    assert gpus.find_cudnn({"nvidia-cudnn-cu12": "9.3.0"}.get, [])
    assert not gpus.find_cudnn({}.get, ["libno-such-library.so.9"])
    assert gpus.find_cudnn({}.get, ["libno-such-library.so.9", "libc.so.6"])


def test_facts_on_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300")):
        (tmp_path / "pci" / name).mkdir(parents=True)
        (tmp_path / "pci" / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / "pci" / name / "class").write_text(f"{kind}\n")
    (tmp_path / "pci" / "unplugged").mkdir()
    assert gpus.pci_cards(tmp_path / "pci") == 1
    assert gpus.pci_cards(tmp_path / "none") == 0

    cdi = tmp_path / "cdi"
    cdi.mkdir()
    (cdi / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (cdi / "amd.json").write_text('{"kind": "amd.com/gpu"}')
    hook = tmp_path / "bin" / "nvidia-container-runtime-hook"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    monkeypatch.setenv("PATH", str(hook.parent))
    found = gpus.find_toolkit([cdi, tmp_path / "none"])
    assert found == gpus.Toolkit(str(hook), False, (cdi / "nvidia.yaml",))


# ---- All together


def finding(
    verdict: Verdict, need: Need = Need.EVERYTHING, blocks: str = "", mend: str = "mend it"
) -> Finding:
    return Finding("area", "name", verdict, "what", mend, need, blocks)


@pytest.mark.parametrize(
    ("findings", "usable", "ok"),
    [
        ([finding(OK)], "yyy", True),
        # One backend is enough.
        (
            [finding(FAILED, Need.LOCAL, "no TF"), finding(WARNING, Need.GPUS, "no card")],
            "nyn",
            True,
        ),
        ([finding(FAILED, Need.COMPOSE, "no engine")], "yny", True),
        ([finding(WARNING, Need.COMPOSE, "x"), finding(WARNING, Need.LOCAL, "y")], "nnn", False),
        # What is needed for everything.
        ([finding(FAILED, Need.EVERYTHING, "data")], "nnn", False),
        # A driver that is broken where the description asks for cards.
        ([finding(FAILED, Need.GPUS, "mismatch")], "yyn", False),
        ([finding(WARNING, Need.GPUS)], "yyy", True),
    ],
)
def test_what_findings_come_to(findings: list[Finding], usable: str, ok: bool) -> None:
    report = Report(findings)
    assert report.ok is ok
    needs = (Need.LOCAL, Need.COMPOSE, Need.GPUS)
    assert "".join("y" if report.usable(need) else "n" for need in needs) == usable
    assert report.as_json()["usable"] == {need.value: report.usable(need) for need in needs}


def test_the_sentence() -> None:
    report = Report([finding(FAILED, Need.COMPOSE, "no engine answers"), finding(OK, Need.GPUS)])
    assert report.sentence() == "local: yes; compose: no (no engine answers); GPUs: yes"


def test_lines_wrap_and_are_harmless() -> None:
    long = replace(finding(WARNING), what="word " * 30 + "\x1b[31mred", mend="`mend " + "it " * 30)
    shown = [text.plain for text in lines(long, 60)]
    assert max(map(len, shown)) <= 60
    assert not any("\x1b" in line for line in shown)
    assert shown[0].startswith("  warning name               word word")
    assert any(line.strip().startswith("→ `mend") for line in shown)
    assert len(list(lines(long, None))) == 2
    assert len(list(lines(finding(OK, mend=""), 80))) == 1


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a description; no engine, no card, and a TensorFlow that is quick."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("GPUS", "1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setattr(python, "import_tensorflow", lambda: Answer(0, '["2.21.0", ""]'))
    monkeypatch.setattr(doctor, "survey", lambda: NO_BOX)
    monkeypatch.setattr(gpus, "pci_cards", lambda: 0)
    return tmp_path


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "\x1b" not in shown.out
    sentence = shown.out.splitlines()[-1]
    assert sentence.startswith("local: yes; compose: no (no ")
    assert sentence.endswith("; GPUs: no (no card)")
    assert [each.name for each in project.iterdir()] == ["cluster.yaml"]  # it changes nothing


def test_the_command_for_a_program(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["usable"] == {"local": True, "compose": False, "gpus": False}
    names = [(each["area"], each["name"]) for each in told["findings"]]
    assert len(set(names)) == len(names)
    for each in told["findings"]:
        assert set(each) == {"area", "name", "verdict", "what", "mend", "needed_for", "blocks"}
        assert each["verdict"] in set(Verdict)
        if each["verdict"] == "failed":
            assert each["mend"]
            assert each["blocks"]


def test_a_box_that_can_do_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python, "import_tensorflow", lambda: None)
    monkeypatch.setattr(engine, "docker_path", lambda: None)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith(
        "local: no (no TensorFlow); compose: no (no Docker)"
    )
    assert shown.err == (
        "error: no backend can be used here; mend one of them as the lines above say\n"
    )


def test_something_that_is_needed_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        doctor, "survey", lambda: replace(NO_BOX, faults=(fault(Condition.MISMATCH),))
    )
    assert main(["doctor", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["ok"] is False
    assert shown.err == "error: what is needed here fails: driver; mend it as the lines above say\n"


def test_without_its_packages_nothing_else_is_looked_at(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = python.packages(lambda: ["rich==15.*"], lambda _: None)
    monkeypatch.setattr(python, "packages", lambda: bad)
    assert [each.name for each in doctor.examine()] == ["version", "packages"]


@pytest.fixture
def box(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card, an engine without a trace of the toolkit, and an image."""
    monkeypatch.setattr(doctor, "survey", lambda: BOX)
    monkeypatch.setattr(engine, "docker_path", lambda: "/usr/bin/docker")
    monkeypatch.setattr(engine, "look", lambda: ANSWERS)
    monkeypatch.setattr(images, "look", lambda plan, root: IMAGE)
    monkeypatch.setattr("lab.backends.compose.cli.compose_version", lambda: "2.40.3")
    monkeypatch.setattr(gpus, "find_toolkit", lambda: NO_TOOLKIT)
    monkeypatch.setattr(network, "routes_of", lambda: [])
    # The disk of whoever runs the tests may be full.
    monkeypatch.setattr(resources, "free_bytes", lambda path: (path, 10**11))


SEES_IT = Answer(0, f"GPU 0: H100 (UUID: {UUID})\n")


@pytest.mark.usefixtures("box")
def test_a_box_with_a_card_and_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "find_toolkit", lambda: HOOK)
    monkeypatch.setattr(doctor, "ask", Asked(SEES_IT))
    watched: list[str] = []
    found = {each.name: each for each in doctor.examine(watched.append)}
    assert found["trial container"].verdict is OK
    assert found["daemon-reload"].verdict is WARNING
    assert "CUDA" in found
    assert "a card in a container" in watched
    assert Report(list(found.values())).sentence() == "local: yes; compose: yes; GPUs: yes"


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(("has_cudnn", "verdict"), [(True, WARNING), (False, FAILED)])
def test_cards_need_containers_where_cudnn_is_missing(
    has_cudnn: bool, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "import_tensorflow", lambda: Answer(0, '["2.21.0", "12.5.1"]'))
    monkeypatch.setattr(gpus, "find_cudnn", lambda: has_cudnn)
    monkeypatch.setattr(doctor, "ask", Asked(Answer(125, "", "could not")))
    found = {each.name: each for each in doctor.examine()}
    assert found["local backend"].verdict is (OK if has_cudnn else WARNING)
    assert found["container toolkit"].verdict is verdict


@pytest.mark.usefixtures("box")
def test_what_a_container_gets_counts_more_than_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ask", Asked(SEES_IT))
    found = {each.name: each for each in doctor.examine()}
    assert found["container toolkit"].verdict is OK
    assert Report(list(found.values())).ok
    monkeypatch.setattr(doctor, "ask", Asked(Answer(125, "", "could not")))
    found = {each.name: each for each in doctor.examine()}
    assert found["container toolkit"].verdict is FAILED
    assert "trial container" not in found
    assert not Report(list(found.values())).ok


def test_looks_that_fail_unforeseen_are_findings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "dataset", raising(PermissionError(13, "Permission denied", "x")))
    monkeypatch.setattr(data, "leftovers", raising(LabError("odd", "mend it")))
    monkeypatch.setattr(resources, "disk", raising(TimeoutError()))
    monkeypatch.setattr("lab.backends.local.isolation.why_not", raising(TimeoutError()))
    found = {each.name: each for each in doctor.examine()}
    assert found["MNIST"].what == "x: Permission denied"
    assert found["local environments"].what == "odd"
    assert "no answer within" in found["room for runs"].what
    assert "building one took more than" in found["namespaces"].what
    assert found["ports"].verdict in {OK, FAILED}
