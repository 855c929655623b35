"""The doctor: every finding as it is when all is well, and when it is not."""

from __future__ import annotations

import inspect
import ipaddress
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends.compose.error_hints import explain
from lab.cli import main
from lab.doctor import (
    Report,
    cdi,
    data,
    engine,
    examine,
    gpu_support,
    gpus,
    network,
    python,
    resources,
)
from lab.doctor.checks import CHECKS
from lab.doctor.commands import CommandResult, run_command
from lab.doctor.host import Fact, Host
from lab.doctor.model import Finding, Need, Outcome, Status
from lab.doctor.runner import Check, run_checks
from lab.doctor.view import lines
from lab.errors import LabError
from lab.gpu import Condition, Fault, Gpu, Inventory, NvmlError
from lab.threads import with_timeout
from tests.unit.fakes import PLAN

OK, WARNING, FAILED, SKIPPED = Status.OK, Status.WARNING, Status.FAILED, Status.SKIPPED
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
ENGINE = engine.EngineInfo(INFO)
PODMAN = engine.EngineInfo(
    {**INFO, "ServerVersion": "5.4.2", "Driver": "overlay", "CDISpecDirs": None}, is_podman=True
)
ROOTLESS = engine.EngineInfo({**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]})
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


# ---- Checks that may hang


def test_a_hanging_check_is_abandoned() -> None:
    go_on = threading.Event()  # set only here: a check that waits for it never ends
    with pytest.raises(TimeoutError):
        with_timeout(0.05, go_on.wait)
    go_on.set()
    assert run_command(["sleep", "86400"], 0.05) == CommandResult(None)


def test_a_check_returns_its_result() -> None:
    assert with_timeout(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        with_timeout(5, lambda: 1 // 0)
    assert run_command(
        ["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], 5
    ) == CommandResult(3, "out\n", "first\nlast\n")
    assert run_command(["no-such-command-here"], 5).code == 127
    assert CommandResult(1, "", "first\nlast\n").last_line == "last"
    assert CommandResult(1).last_line == "no reason given"


# ---- Python


def test_the_version_of_python() -> None:
    assert python.judge_version((3, 13, 1), 64).status is OK
    assert python.judge_version((3, 14, 0), 64).status is WARNING
    old = python.judge_version((3, 10, 12), 64)
    assert (old.status, old.blocks) == (FAILED, "Python is too old")
    assert "make install" in old.fix
    assert python.judge_version((3, 12, 1), 32).status is FAILED


def test_packages_at_their_pinned_versions() -> None:
    found = python.judge_packages(python.package_faults(python.requirements()))
    assert found.status is OK, found.what
    assert found.what.endswith(", at the required versions")

    required = ["rich==15.*", "docker==7.2.*", "absent==1.*; extra == 'dev'"]
    versions = {"rich": "15.0.0", "docker": "7.2.0"}
    assert python.package_faults(required, versions.get) == (2, [])
    del versions["docker"]
    versions["rich"] = "14.1.0"
    bad = python.judge_packages(python.package_faults(required, versions.get))
    assert bad.status is FAILED
    assert bad.what == "rich 14.1.0 is not ==15.*; docker is missing"
    assert "requirements/host.txt" in bad.fix


def test_packages_without_packaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    assert python.package_faults([])[1] == ["packaging is missing"]


def test_requirements_of_an_installed_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python.metadata, "requires", lambda name: [f"{name}-needs==1"])
    assert python.requirements(tmp_path) == ["lab-needs==1"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'another'\ndependencies = []\n")
    assert python.requirements(tmp_path) == ["lab-needs==1"]
    assert "fire==0.7.1" in python.requirements()


@pytest.mark.parametrize(
    ("answer", "verdict", "what", "blocks"),
    [
        (CommandResult(0, '["2.21.0", ""]\n'), OK, "2.21.0, built for CPUs", ""),
        (
            CommandResult(0, 'noise\n["2.21.1", "12.5.1"]\n'),
            OK,
            "2.21.1, built for CUDA 12.5.1",
            "",
        ),
        (CommandResult(0, '["2.15.1", ""]'), WARNING, "lab is tested with 2.21.*", ""),
        (None, WARNING, "not installed", "no TensorFlow"),
        (CommandResult(1, "", "Trace\nImportError: no\x1b[31m lib"), FAILED, "lib", "TensorFlow"),
        (CommandResult(-4, "", ""), FAILED, "no reason given", "TensorFlow"),
        (CommandResult(None), FAILED, "takes more than 60 s", "TensorFlow"),
    ],
)
def test_tensorflow(answer: CommandResult | None, verdict: Status, what: str, blocks: str) -> None:
    found = python.judge_tensorflow(answer)
    assert (found.status, found.blocks) == (verdict, blocks)
    assert what in found.what
    assert "\x1b" not in found.what
    assert bool(found.fix) == (verdict is not OK)
    has_cuda = answer is not None and "12.5.1" in answer.out
    assert python.tensorflow_build(answer)[1] == ("12.5.1" if has_cuda else "")


# ---- The data, the config, the directories


def test_the_data_set(tmp_path: Path) -> None:
    assert data.judge_dataset(data.verify_dataset()).what == "4 files, 11 MB, checksums correct"
    missing = data.judge_dataset(data.verify_dataset(tmp_path))
    assert (missing.status, missing.blocks) == (FAILED, "the data set")
    assert "SHA256SUMS cannot be read (No such file" in missing.what
    for file in data.MNIST.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert data.judge_dataset(data.verify_dataset(tmp_path)).status is OK
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-1] + b"x")
    assert (
        "t10k-labels-idx1-ubyte.gz is damaged"
        in data.judge_dataset(data.verify_dataset(tmp_path)).what
    )
    labels.unlink()
    gone = data.judge_dataset(data.verify_dataset(tmp_path))
    assert "t10k-labels-idx1-ubyte.gz cannot be read" in gone.what
    assert "git checkout" in gone.fix


def test_missing_config(tmp_path: Path) -> None:
    found = data.read_config(NO_BOX, tmp_path / "cluster.yaml")
    outcome = data.judge_config(found, NO_BOX)
    assert (outcome.status, outcome.stops, found.plan, found.gpus) == (SKIPPED, True, None, 0)


def test_valid_config(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "1"))
    found = data.read_config(BOX, path)
    outcome = data.judge_config(found, BOX)
    assert outcome.status is OK
    assert "mnist, 2 nodes, 2 tasks, 1 GPU" in outcome.what
    assert found.plan is not None
    assert [task.gpus for task in found.plan.tasks] == [(), (UUID,)]

    without = data.read_config(NO_BOX, path)
    outcome = data.judge_config(without, NO_BOX)
    assert outcome.status is OK
    assert "this host has no GPU: tasks train on CPUs" in outcome.what
    assert without.plan is not None
    assert not any(task.gpus for task in without.plan.tasks)


def test_config_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "4"))
    found = data.read_config(BOX, path)
    outcome = data.judge_config(found, BOX)
    assert (outcome.status, outcome.stops) == (WARNING, False)
    assert "clusters/" in outcome.fix
    assert found.plan is not None  # on CPUs, for the checks that follow
    assert found.gpus == 4


def test_invalid_configs(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("GPUS", "x"))
    found = data.judge_config(data.read_config(BOX, path), BOX)
    assert (found.status, found.stops) == (WARNING, True)
    assert found.what.endswith("has 1 error")
    assert "lab validate" in found.fix
    path.write_text("name: m\n")
    assert "errors" in data.judge_config(data.read_config(BOX, path), BOX).what
    path.unlink()
    path.mkdir()
    assert data.judge_config(data.read_config(BOX, path), BOX).status is WARNING


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "not" / "yet"
    assert data.judge_writable(data.inspect_directory(new, "runs", "LAB_RUNS_DIR")).status is OK
    assert not new.parent.exists()
    (tmp_path / "file").touch()
    found = data.judge_writable(
        data.inspect_directory(tmp_path / "file" / "runs", "runs", "LAB_RUNS_DIR")
    )
    assert (found.status, found.blocks) == (FAILED, "runs directory cannot be written")
    assert "is not a directory" in found.what
    assert "LAB_RUNS_DIR" in found.fix
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in data.judge_writable(data.inspect_directory(new, "state", "")).what


def test_leftovers_of_ended_environments() -> None:
    assert data.judge_environments([]).what == "none"
    assert data.judge_environments([("a", True)]).what == "1 up, see `lab ls`"
    found = data.judge_environments([("a", True), ("b", False)])
    assert (found.status, found.fix) == (WARNING, "collect its runs and remove it: `lab down b`")


# ---- Resources


def test_cpus_and_memory() -> None:
    assert resources.judge_cpus(8, PLAN).what == "8 CPUs for 3 tasks"
    assert resources.judge_cpus(1, PLAN).what == "1 CPU for 3 tasks, which share CPUs"
    assert resources.judge_cpus(1, None).what == "1 CPU"
    assert resources.judge_memory((2**35, 2**34), PLAN).status is OK
    little = resources.judge_memory((2**31, 2**30), PLAN)
    assert little.status is WARNING
    assert "3 tasks with TensorFlow need about 2.197 GiB" in little.what
    total, available = resources.memory_bytes()
    assert 0 < available <= total


@pytest.mark.parametrize(
    ("free", "verdict"), [(2 * 10**9, OK), (10**9 - 1, WARNING), (10**7, FAILED)]
)
def test_room(free: int, verdict: Status) -> None:
    directory = data.Directory(Path("runs"), Path("/"), "", free, "runs", "LAB_RUNS_DIR")
    found = data.judge_room(directory)
    assert (found.status, bool(found.blocks)) == (verdict, verdict is FAILED)


def test_room_is_measured_where_the_directory_will_be(tmp_path: Path) -> None:
    found = data.inspect_directory(tmp_path / "not" / "yet", "runs", "LAB_RUNS_DIR")
    assert found.existing == tmp_path
    assert found.free > 0


def test_limits_of_the_kernel(tmp_path: Path) -> None:
    assert resources.judge_inotify((128, 65536)).status is OK
    assert resources.judge_inotify((None, None)).status is SKIPPED
    for limits in ((64, 65536), (128, 4096)):
        few = resources.judge_inotify(limits)
        assert few.status is WARNING
        assert "sysctl" in few.fix
    assert resources.judge_open_files(1024, PLAN).status is OK
    assert resources.judge_open_files(-1, PLAN).what == "no limit"
    assert resources.judge_open_files(256, PLAN).status is WARNING
    assert resources.judge_threads(None, 2, PLAN).status is OK
    assert resources.judge_threads(4096, 2, PLAN).status is OK
    many = resources.judge_threads(4096, 2, replace(PLAN, tasks=PLAN.tasks * 50))
    assert many.status is WARNING
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
    found = network.judge_namespaces(why, switches)
    assert (found.status, found.blocks) == (WARNING, "")
    assert "every interface" in found.what
    assert mend in found.fix


def test_namespaces(tmp_path: Path) -> None:
    assert network.judge_namespaces(None, {}).status is OK
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("0\n")
    assert network.kernel_switches(tmp_path) == {"user/max_user_namespaces": 0}


def test_ports() -> None:
    taken = LabError("port 2223 cannot be used: Address already in use", "end what uses it")
    assert network.judge_ports((None, None)).status is SKIPPED
    assert network.judge_ports(([], None)).status is OK
    assert network.judge_ports(([2222], None)).what == "2222 are free"
    assert network.judge_ports(([2222, 2223], None)).what == "2222 to 2223 are free"
    found = network.judge_ports(([2222, 2223], taken))
    assert (found.status, found.what, found.fix) == (FAILED, taken.what, taken.fix)
    assert found.blocks == "a port is in use"


def test_ports_are_tried_where_tasks_share_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Sequence[int]] = []
    monkeypatch.setattr(network, "check_ports_free", tried.append)
    assert network.check_ports(None, "no namespaces") == (None, None)
    assert network.check_ports(PLAN, None) == ([], None)
    assert tried == []
    assert network.check_ports(PLAN, "no namespaces") == ([2222, 2223, 2224], None)
    assert tried == [[2222, 2223, 2224]]
    taken = LabError("port 2223 cannot be used")
    monkeypatch.setattr(network, "check_ports_free", raising(taken))
    assert network.check_ports(PLAN, "no namespaces") == ([2222, 2223, 2224], taken)


def test_routes(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "wg0\t00054D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    routes = network.routes(table)
    assert [(str(net), device) for net, device in routes] == [
        ("172.17.0.0/16", "docker0"),
        ("10.77.5.0/24", "wg0"),
    ]
    assert "10.77.5.0/24 by wg0: harmless" in network.judge_addresses(routes).what
    assert network.judge_addresses(routes[:1]).what == "10.77.0.0/16 is not in use"
    assert network.routes(tmp_path / "none") == []


def test_proxies() -> None:
    assert network.judge_proxies({}, PLAN).what == "none"
    assert network.judge_proxies({"HTTPS_PROXY": "x"}, PLAN).status is OK
    given = {"http_proxy": "http://me:secret@proxy:3128", "no_proxy": "localhost"}
    found = network.judge_proxies(given, PLAN)
    assert found.status is WARNING
    assert "secret" not in found.what
    assert found.fix.startswith("`export no_grpc_proxy=tf1,tf2,tf3`")
    exempt = {**given, "no_grpc_proxy": "localhost,tf1,tf2,tf3"}
    assert network.judge_proxies(exempt, PLAN).status is OK
    assert network.judge_proxies({**given, "no_proxy": "*"}, PLAN).status is OK
    assert network.judge_proxies(given, None).status is OK


# ---- Docker


def test_the_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.judge_command("/usr/bin/docker").status is OK
    found = engine.judge_command(None)
    assert (found.status, found.blocks, found.stops) == (WARNING, "no Docker", True)
    monkeypatch.setenv("PATH", "/nowhere")
    assert Host().docker is None


def test_an_engine_that_answers() -> None:
    found = engine.judge_engine(ENGINE, {})
    assert (found.status, found.what) == (OK, "28.2.2")
    rootless = engine.EngineInfo({**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]})
    assert engine.judge_engine(rootless, {}).what == "28.2.2, rootless"
    podman = engine.judge_engine(PODMAN, {})
    assert (podman.status, podman.what) == (OK, "Podman 5.4.2")
    old = replace(PODMAN, info={**INFO, "ServerVersion": "4.9.3"})
    assert engine.judge_engine(old, {}).status is FAILED
    found = engine.judge_engine(engine.EngineInfo({**INFO, "ServerVersion": "19.03.15"}), {})
    assert (found.status, found.blocks, found.stops) == (FAILED, "the engine is too old", False)


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
def test_an_engine_that_fails(error: LabError | OSError, blocks: str, mend: str) -> None:
    found = engine.judge_no_engine(error, {"DOCKER_HOST": "unix:///x.sock"})
    assert (found.status, found.blocks) == (FAILED, blocks)
    assert "unix:///x.sock" in found.what
    assert mend in found.fix


def test_no_engine_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    check = next(each for each in CHECKS["Docker"] if each.name == "engine")
    found = check.run(Host())
    assert (found.status, found.blocks, found.stops) == (FAILED, "no engine answers", True)


def test_engine_information(monkeypatch: pytest.MonkeyPatch) -> None:
    import docker  # noqa: PLC0415  (0.2 s, for this test only)

    api = SimpleNamespace(
        info=lambda: INFO,
        version=lambda: {"Components": [{"Name": "Engine"}]},
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
    info = engine.read_engine()
    assert [str(each) for each in info.networks] == ["172.17.0.0/16"]
    assert info.projects == {"a": ["running", "exited"], "b": ["exited"]}
    assert info.is_local
    assert info.images_directory == Path("/var/lib/docker")
    newer = {**INFO, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    assert engine.EngineInfo(newer).images_directory == Path("/var/lib/containerd")
    shared = {**newer, "Containerd": {"Address": "/run/containerd/containerd.sock"}}
    assert engine.EngineInfo(shared).images_directory == Path("/var/lib/containerd")
    own = {**newer, "Containerd": {"Address": "/var/run/docker/containerd/containerd.sock"}}
    assert engine.EngineInfo(own).images_directory == Path("/var/lib/docker/containerd")


def test_compose() -> None:
    assert engine.judge_compose("2.40.3").status is OK
    for error in (LabError("docker has no compose plugin", "install it"), TimeoutError()):
        found = engine.judge_no_compose(error)
        assert (found.status, found.blocks, bool(found.fix)) == (
            FAILED,
            "no compose plugin",
            True,
        )


def test_the_builder() -> None:
    assert engine.judge_buildx("0.29.1", "5.6.1", ENGINE, {}).what == "0.29.1"
    found = engine.judge_buildx("", "2.40.3", ENGINE, {})
    assert (found.status, found.what) == (
        OK,
        "not installed; compose 2.40.3 has a builder of its own",
    )
    found = engine.judge_buildx("", "5.6.1", ENGINE, {})
    assert (found.status, found.blocks) == (WARNING, "")
    assert "docker-buildx-plugin" in found.fix


def test_a_builder_that_compose_refuses() -> None:
    error = LabError("building an image: docker's plugin buildx is too old", "install it")
    missing = replace(IMAGE, is_here=False)
    for image, status, blocks in (
        (missing, FAILED, "buildx is too old"),
        (replace(IMAGE, is_old=True), FAILED, "buildx is too old"),
        (IMAGE, WARNING, ""),
        (None, WARNING, ""),
    ):
        found = engine.judge_no_builder(error, image)
        assert found == Outcome(status, "docker's plugin buildx is too old", "install it", blocks)
    assert engine.judge_no_builder(TimeoutError(), missing).status is WARNING


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo github.com/docker/buildx v0.29.1 28f6246", "0.29.1"),
        ("echo github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3", "0.13.1+ds1"),
        ("echo 'docker: unknown command: docker buildx' >&2; exit 1", ""),
        ("echo odd", ""),
    ],
)
def test_the_version_of_buildx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str
) -> None:
    command = tmp_path / "docker"
    command.write_text(f'#!/bin/sh\n[ "$1" = compose ] && exit 0\n{script}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert engine.buildx_version() == version


def test_storage_drivers() -> None:
    assert engine.judge_storage(ENGINE).status is OK
    assert "full copy" in engine.judge_storage(engine.EngineInfo({"Driver": "vfs"})).what
    assert engine.judge_storage(engine.EngineInfo({"Driver": "aufs"})).status is WARNING


def test_limits_of_the_engine() -> None:
    assert "cgroups 2, by systemd" in engine.judge_limits(ENGINE).what
    found = engine.judge_limits(engine.EngineInfo({**INFO, "MemoryLimit": False, "CPUSet": False}))
    assert found.status is WARNING
    assert "cannot limit memory, CPU sets" in found.what
    unlimited = engine.judge_limits(engine.EngineInfo({**INFO, "CgroupDriver": "none"}))
    assert (unlimited.status, "cgroups 2" in unlimited.fix) == (WARNING, True)
    rootless = {**INFO, "MemoryLimit": False, "SecurityOptions": ["name=rootless"]}
    assert "Delegate=" in engine.judge_limits(engine.EngineInfo(rootless)).fix


@pytest.mark.parametrize(("version", "isolates"), [("20.10.24", False), ("28.0.1", True)])
def test_when_tasks_reach_this_host(version: str, isolates: bool) -> None:
    found = engine.judge_host_access(engine.EngineInfo({**INFO, "ServerVersion": version}))
    assert found.status is OK
    assert "after `docker compose up`, tasks reach services of this host" in found.what
    assert ("lab render --network isolated" in found.what) is isolates


IMAGE = engine.TaskImage("lab:cpu", "python:3.11-slim-bookworm", 1690 * 10**6, is_here=True)


def test_the_image() -> None:
    assert engine.judge_image(IMAGE).what == "lab:cpu exists"
    there = replace(IMAGE, is_here=False, base_state="exists")
    assert "exists, and the first run builds it" in engine.judge_image(there).what
    far = replace(IMAGE, is_here=False, base_state="can be downloaded")
    assert "can be downloaded" in engine.judge_image(far).what
    old = replace(there, is_here=True, is_old=True)
    found = engine.judge_image(old)
    assert (found.status, found.what) == (
        OK,
        "lab:cpu has another version of lab/task; its base"
        " python:3.11-slim-bookworm exists, and the first run builds it again",
    )
    found = engine.judge_image(replace(old, base_state=""))
    assert (found.status, found.blocks) == (FAILED, "no image")
    assert found.what.startswith("lab:cpu has another version of lab/task, and its")
    found = engine.judge_image(replace(IMAGE, is_here=False))
    assert (found.status, found.blocks) == (FAILED, "no image")
    assert "base-image.sh" in found.fix
    assert engine.judge_no_image(TimeoutError()).status is WARNING
    assert engine.judge_no_image(LabError("odd", "mend")).status is FAILED


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
def test_room_for_the_image(image: engine.TaskImage | None, free: int, verdict: Status) -> None:
    found = engine.judge_disk((Path("/var/lib/docker"), free), image)
    assert found.status is verdict
    assert bool(found.blocks) == (verdict is FAILED)
    elsewhere = engine.EngineInfo({**INFO, "Name": "another"})
    assert engine.disk(elsewhere) is None
    assert engine.judge_disk(None, image).status is SKIPPED


def networks(*texts: str) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


def test_address_pools() -> None:
    docker0 = networks("172.17.0.0/16")
    assert engine.judge_address_pools(replace(ENGINE, networks=docker0), []).what == (
        "address ranges for 30 more networks"
    )
    full = networks("172.16.0.0/12", "192.168.0.0/17")
    few = engine.judge_address_pools(
        replace(ENGINE, networks=[*full, *networks("192.168.128.0/18")]), []
    )
    assert few.status is OK
    most = networks("192.168.128.0/18", "192.168.192.0/19", "192.168.224.0/20")
    one = engine.judge_address_pools(replace(ENGINE, networks=[*full, *most]), [])
    assert (one.status, one.what) == (
        WARNING,
        "address ranges for 1 more network: 5 networks exist",
    )
    none = engine.judge_address_pools(
        replace(ENGINE, networks=networks("172.16.0.0/12", "192.168.0.0/16")), []
    )
    assert (none.status, none.blocks) == (FAILED, "no address range")
    assert "docker network prune" in none.fix


def test_address_pools_beside_a_private_network_of_the_host() -> None:
    vpn = [(net, "tun0") for net in networks("172.16.0.0/12", "192.168.0.0/16")]
    found = engine.judge_address_pools(ENGINE, vpn)
    assert found.status is FAILED
    assert "172.16.0.0/12 by tun0" in found.what
    assert "default-address-pools" in found.fix
    elsewhere = engine.EngineInfo({**INFO, "Name": "another"})
    assert engine.judge_address_pools(elsewhere, vpn).status is OK


def test_configured_address_pools() -> None:
    pools = [{"Base": "10.99.0.0/24", "Size": 28}, {"Base": "fd00::/8", "Size": 64}]
    answers = engine.EngineInfo({**INFO, "DefaultAddressPools": pools})
    assert engine.judge_address_pools(answers, []).what == "address ranges for 16 more networks"
    large = engine.EngineInfo({**INFO, "DefaultAddressPools": [{"Base": "10.0.0.0/8", "Size": 24}]})
    assert engine.judge_address_pools(large, []).what == "address ranges for 256 more networks"


def test_environments_that_have_stopped() -> None:
    assert engine.judge_environments(ENGINE).what == "no environment is up"
    assert (
        engine.judge_environments(replace(ENGINE, projects={"a": ["running", "exited"]})).what
        == "1 up, see `lab ls`"
    )
    found = engine.judge_environments(
        replace(ENGINE, projects={"a": ["running"], "b": ["exited", "created"]})
    )
    assert (found.status, found.what) == (WARNING, "stopped, but not removed: b")
    assert "collect its runs and remove it: `lab down b`" in found.fix


# ---- GPUs


def test_the_driver() -> None:
    found = gpus.judge_driver(BOX, 1, 1)
    assert (found.status, found.what) == (OK, "580.95.05, CUDA up to 13.0")


def test_no_driver() -> None:
    missing = replace(NO_BOX, faults=(fault(Condition.NO_DRIVER),))
    for asked in (0, 8):  # a missing GPU is no failure, whatever the config requests
        found = gpus.judge_driver(missing, 0, asked)
        assert (found.status, found.blocks) == (WARNING, "no GPU")
        found = gpus.judge_driver(missing, 2, asked)
        assert (found.status, found.blocks) == (WARNING, "no driver")
        assert "the host's 2 NVIDIA GPUs" in found.what
        assert "nvidia-driver" in found.fix


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
    found = gpus.judge_driver(broken, 1, 8)
    assert (found.status, found.blocks) == (FAILED, str(condition))
    assert mend in found.fix
    assert gpus.judge_driver(fault(condition), 1, 0).status is WARNING


def test_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "read_host", lambda: BOX)
    assert gpus.read_nvml() is BOX
    reason = fault(Condition.OTHER)
    error = NvmlError("the NVIDIA driver failed", "", reason)
    monkeypatch.setattr(gpus, "read_host", raising(error))
    assert gpus.read_nvml() is reason
    assert gpus.inventory(reason, 8, (2**36, 2**35)) == NO_BOX
    assert gpus.judge_driver(reason, 1, 1).status is FAILED


def test_cuda(tmp_path: Path) -> None:
    assert gpus.has_uvm(tmp_path)  # without any node, as on WSL
    (tmp_path / "nvidiactl").touch()
    assert not gpus.has_uvm(tmp_path)
    found = gpus.judge_cuda(BOX, False)
    assert (found.status, found.blocks) == (WARNING, "")
    assert "/nvidia-uvm is missing" in found.what
    assert found.fix == "create it with `sudo nvidia-modprobe -u -c=0`"
    (tmp_path / "nvidia-uvm").touch()
    assert gpus.has_uvm(tmp_path)
    assert gpus.judge_cuda(BOX, True).status is OK


def test_a_driver_without_libcuda() -> None:
    told = Fault(Condition.OTHER, "CUDA version", "libcuda.so.1 is not installed", "install it")
    box = replace(BOX, cuda="", faults=(told,))
    assert gpus.judge_driver(box, 1, 1).what == "580.95.05"
    assert gpus.judge_driver(replace(box, driver=""), 1, 1).status is OK
    assert gpus.judge_gpus(box, 1).status is OK
    found = gpus.judge_cuda(box, True)
    assert (found.status, found.what, found.fix, found.blocks) == (
        WARNING,
        "libcuda.so.1 is not installed",
        "install it",
        "no CUDA",
    )
    # A driver that is too old to report the version has CUDA all the same.
    old = replace(box, faults=(replace(told, condition=Condition.OLD_DRIVER),))
    assert gpus.judge_cuda(old, True).status is OK
    version = fault(Condition.OTHER, "driver version")
    assert gpus.judge_gpus(replace(BOX, faults=(version,)), 1).status is OK


def test_gpus() -> None:
    two = replace(BOX, gpus=(H100, replace(H100, index=1)))
    assert gpus.judge_gpus(two, 2).what == "2 NVIDIA H100 80GB HBM3 of 80 GiB"
    hidden = "CUDA_VISIBLE_DEVICES=1 does not limit lab; set LAB_GPUS=1"
    assert gpus.judge_gpus(replace(two, notices=(hidden,)), 2).what.endswith(f"; {hidden}")
    cut = fault(Condition.NO_SLICES, "GPU 0")
    left_out = ("GPU 0 is in MIG mode without slices and is left out",)
    mig = replace(BOX, gpus=(), faults=(cut,), notices=left_out, left_out=left_out)
    assert gpus.judge_gpus(mig, 1).what == left_out[0]
    none = gpus.judge_gpus(replace(BOX, gpus=()), 0)
    assert (none.status, none.blocks) == (WARNING, "no GPU")


def test_a_lost_gpu() -> None:
    lost = replace(BOX, faults=(fault(Condition.GPU_LOST, "GPU 3"),))
    found = gpus.judge_gpus(lost, 2)
    assert (found.status, found.blocks) == (FAILED, "GPU lost")
    assert "GPU 3: GPU lost" in found.what
    assert "Xid" in found.fix
    found = gpus.judge_gpus(lost, 0)
    assert (found.status, found.blocks) == (WARNING, "")
    assert gpus.judge_gpus(replace(lost, gpus=()), 0).blocks == "GPU lost"


@pytest.mark.parametrize(
    ("capabilities", "status", "what", "blocks"),
    [
        (("9.0",), OK, "TensorFlow 2.21.0 has code for all GPUs", ""),
        (("5.2", "5.2"), WARNING, "GPU 0, 1: TensorFlow 2.21 needs compute", "GPU too old"),
        (("9.0", "5.2"), WARNING, "GPU 1: TensorFlow 2.21 needs compute", ""),
        (("6.0", "5.2"), WARNING, "GPU 1: TensorFlow 2.21 needs compute", ""),
        (("6.0",), WARNING, "GPU 0: cuDNN ", ""),
        (("12.0",), WARNING, "GPU 0: TensorFlow 2.21 has no machine code", ""),
        (("", "9.0"), SKIPPED, "GPU 0: the GPU's compute capability is unknown", ""),
    ],
)
def test_tensorflow_has_code_for_the_gpus(
    capabilities: tuple[str, ...], status: Status, what: str, blocks: str
) -> None:
    gpus = tuple(
        replace(H100, index=index, compute_capability=each)
        for index, each in enumerate(capabilities)
    )
    found = gpu_support.judge_support(replace(BOX, gpus=gpus), {})
    assert (found.status, found.blocks) == (status, blocks)
    assert found.what.startswith(what)
    assert bool(found.fix) == (status is WARNING)


def test_tensorflow_needs_a_recent_driver() -> None:
    gpu = replace(H100, compute_capability="9.0")
    host = replace(BOX, gpus=(gpu,), driver="550.54.15", cuda="12.4")
    found = gpu_support.judge_support(host, {})
    assert (found.status, found.blocks) == (WARNING, "driver too old")
    assert found.fix == "update the driver to 555.42.02 or later, or use `--gpus none`"
    both = replace(
        host, gpus=(replace(gpu, compute_capability="8.0"), gpu), driver="470.1", cuda=""
    )
    found = gpu_support.judge_support(both, {})
    assert "for CUDA 12.0, not" in found.what
    assert "555.42.02" in found.fix
    unknown = gpu_support.judge_support(host, {"LAB_IMAGE": "mine"})
    assert unknown.status is SKIPPED
    assert "does not know" in unknown.what


def test_mig() -> None:
    piece = Gpu(1, "MIG-1", "NVIDIA A100 MIG 3g.20gb", slice_of="GPU-1")
    assert gpus.judge_mig(BOX).what == "no GPU has slices"
    assert gpus.judge_mig(replace(BOX, gpus=(piece,))).what == "1 slice, by UUID, on all GPUs"
    assert (
        "1 slice, by UUID, and 1 whole GPU" in gpus.judge_mig(replace(BOX, gpus=(H100, piece))).what
    )
    found = gpus.judge_mig(replace(BOX, faults=(fault(Condition.NO_SLICES, "GPU 2"),)))
    assert found.status is WARNING
    assert "-i 2 -mig 0" in found.fix


NO_TOOLKIT = gpus.Toolkit()
HOOK = gpus.Toolkit(hook="/usr/bin/nvidia-container-runtime-hook", has_ctk=True)
NO_TRIAL = gpus.Trial(UUID, None, CommandResult(None))
SEES_IT = CommandResult(0, f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n")


def judge_toolkit(
    info: Mapping[str, Any],
    toolkit: gpus.Toolkit,
    requested: int,
    *,
    uses_cdi: bool = False,
    cudnn: bool = False,
    trial: gpus.Trial = NO_TRIAL,
) -> Outcome:
    return gpus.judge_toolkit(
        engine.EngineInfo(info),
        toolkit,
        uses_cdi=uses_cdi,
        requested_gpus=requested,
        has_cudnn=cudnn,
        trial=trial,
    )


def test_the_container_toolkit() -> None:
    assert judge_toolkit({**INFO, "Runtimes": {"nvidia": {}}}, NO_TOOLKIT, 1).status is OK
    assert HOOK.hook in judge_toolkit(INFO, HOOK, 1).what
    assert judge_toolkit(INFO, NO_TOOLKIT, 1, uses_cdi=True).what == "the engine uses CDI"


def test_no_container_toolkit() -> None:
    found = judge_toolkit(INFO, NO_TOOLKIT, 1)
    assert (found.status, found.blocks) == (FAILED, "no container toolkit")
    assert "install-guide" in found.fix
    assert judge_toolkit(INFO, NO_TOOLKIT, 0).status is WARNING
    assert judge_toolkit(INFO, NO_TOOLKIT, 1, cudnn=True).blocks == ""
    unknown = judge_toolkit(INFO, gpus.Toolkit(has_ctk=True), 1)
    assert "not configured in the engine" in unknown.what
    assert unknown.fix.startswith("`sudo nvidia-ctk runtime configure")


def on(facts: Mapping[str, object], check: str, passed: Sequence[str] = ("engine",)) -> Outcome:
    """Run a check on a host with these facts."""
    host = Host()
    host.passed.update(passed)
    for name, value in facts.items():
        host.found[Host.__dict__[name]] = found = Future()
        found.set_result(value)
    table = {each.name: each for checks in CHECKS.values() for each in checks}
    return table[check].run(host)


def test_a_rootless_engine_has_its_own_fixes() -> None:
    vfs = replace(ROOTLESS, info={**ROOTLESS.info, "Driver": "vfs"})
    assert on({"engine_info": vfs}, "storage driver").fix == (
        'set `"storage-driver": "overlay2"` in ~/.config/docker/daemon.json, then '
        "`systemctl --user restart docker`, and build images again"
    )
    facts = {
        "engine_info": ROOTLESS,
        "toolkit": gpus.Toolkit(has_ctk=True),
        "uses_cdi": False,
        "requested_gpus": 1,
        "has_cudnn": False,
        "trial": NO_TRIAL,
    }
    fix = on(facts, "container toolkit").fix
    for part in (
        "`nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json",
        "nvidia-container-cli.no-cgroups --in-place && systemctl --user restart docker`",
        "nvidia-ctk cdi generate",
    ):
        assert part in fix
    assert gpus.judge_daemon_reload(ROOTLESS, uses_cdi=False).status is OK
    by_root = on({**facts, "engine_info": ENGINE}, "container toolkit").fix
    assert "sudo systemctl restart docker" in by_root
    assert "--user" not in by_root


def test_a_rootless_engine_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    monkeypatch.setattr(engine, "read_engine", raising(TimeoutError("late")))
    found = on({}, "engine", passed=())
    assert (found.status, found.stops) == (FAILED, True)
    assert "`journalctl --user -u docker`" in found.fix
    assert "`systemctl --user restart docker`" in found.fix


def test_podman_gives_gpus_by_cdi_only(tried: Tried, tmp_path: Path) -> None:
    assert cdi.uses_cdi(PODMAN)
    missing = cdi.judge_cdi(BOX, PODMAN, (), has_refresh_service=False)
    assert (missing.status, "nvidia-ctk cdi generate" in missing.fix) == (WARNING, True)
    spec = cdi.CdiSpec(tmp_path / "nvidia.yaml", {UUID: ("/dev/nvidia0",)})
    assert cdi.judge_cdi(BOX, PODMAN, (spec,), has_refresh_service=False).status is OK
    _, commands = tried(SEES_IT, is_podman=True)
    (command,) = commands.commands
    assert f"--device nvidia.com/gpu={UUID}" in " ".join(command)
    assert "--gpus" not in command


def test_podman_builds_without_buildkit() -> None:
    found = engine.judge_buildx("", "2.40.3", PODMAN, {})
    assert (found.status, "DOCKER_BUILDKIT=0" in found.fix) == (WARNING, True)
    assert engine.judge_buildx("", "2.40.3", PODMAN, {"DOCKER_BUILDKIT": "0"}).status is OK
    assert engine.judge_storage(PODMAN).status is OK
    assert engine.judge_storage(replace(PODMAN, is_podman=False)).status is WARNING
    assert engine.judge_address_pools(PODMAN, ()).status is SKIPPED


def test_the_risk_of_a_daemon_reload() -> None:
    assert (
        gpus.judge_daemon_reload(
            engine.EngineInfo({**INFO, "CgroupDriver": "cgroupfs"}), uses_cdi=False
        ).status
        is OK
    )
    assert gpus.judge_daemon_reload(ENGINE, uses_cdi=True).status is OK
    found = gpus.judge_daemon_reload(ENGINE, uses_cdi=False)
    assert (found.status, found.blocks) == (WARNING, "")
    assert "native.cgroupdriver=cgroupfs" in found.fix
    assert "nvidia-ctk cdi generate" in found.fix


class Commands:
    """Answers one command after the other, and remembers them."""

    def __init__(self, *answers: CommandResult) -> None:
        self.answers = list(answers)
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], limit_s: float) -> CommandResult:
        self.commands.append(command)
        return self.answers.pop(0)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, Commands]]:
    """Tries a GPU in a container whose commands end in this way."""

    def run(*results: CommandResult, is_podman: bool = False) -> tuple[Outcome, Commands]:
        commands = Commands(*results)
        monkeypatch.setattr(gpus, "run_command", commands)
        return gpus.judge_trial(gpus.try_gpu(UUID, CUDA_IMAGE, is_podman=is_podman)), commands

    return run


Tried = Callable[..., tuple[Outcome, Commands]]
CUDA_IMAGE = replace(IMAGE, name="lab:cuda")


def test_a_gpu_in_a_container(tried: Tried) -> None:
    found, commands = tried(SEES_IT)
    assert found.status is OK
    (command,) = commands.commands
    arguments = " ".join(command)
    for needed in ("--rm", "--network none", "--pull never", "--label lab.trial=", UUID):
        assert needed in arguments
    assert "lab.project" not in arguments  # or it would be an environment


def test_a_gpu_missing_in_a_container(tried: Tried) -> None:
    for image in (None, replace(CUDA_IMAGE, is_here=False)):
        assert gpus.judge_trial(gpus.try_gpu(UUID, image)).status is SKIPPED
    refused = 'docker: could not select device driver "nvidia" with capabilities: [[gpu]].\n'
    found, _ = tried(CommandResult(125, "", refused))
    assert (found.status, found.blocks) == (FAILED, "no GPU in a container")
    assert "container toolkit" in found.fix
    odd, _ = tried(CommandResult(9, "NVML: Unknown Error\n"))
    assert odd.what == "NVML: Unknown Error"
    assert odd.fix
    all_of_them = f"GPU 0: H100 (UUID: {UUID})\nGPU 1: H100 (UUID: GPU-other)\n"
    found, _ = tried(CommandResult(0, all_of_them))
    assert "sees 2 GPUs" in found.what
    found, _ = tried(CommandResult(0, ""))
    assert "sees no GPUs" in found.what


def test_a_hanging_trial_leaves_nothing(tried: Tried) -> None:
    found, commands = tried(CommandResult(None), CommandResult(0))
    assert found.status is FAILED
    run, remove = commands.commands
    name = run[run.index("--name") + 1]
    assert list(remove) == ["docker", "rm", "--force", "--volumes", name]


def test_gpu_support_of_the_local_backend() -> None:
    judge = gpus.judge_local_backend
    assert judge("12.5.1", True, False).status is OK
    found = judge("12.5.1", False, True)
    assert (found.status, found.blocks) == (WARNING, "")
    assert "'tensorflow[and-cuda]==2.21.*'` into this Python" in found.fix
    assert judge("12.5.1", False, False).blocks == "no cuDNN"
    assert judge("", False, True).status is OK
    found = judge("", False, False)
    assert (found.status, found.blocks) == (WARNING, "no CUDA")


def test_cudnn_is_a_wheel_or_of_the_system() -> None:
    assert gpus.find_cudnn({"nvidia-cudnn-cu12": "9.3.0"}.get, [])
    assert not gpus.find_cudnn({}.get, ["libno-such-library.so.9"])
    assert gpus.find_cudnn({}.get, ["libno-such-library.so.9", "libc.so.6"])


def test_gpu_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300")):
        (tmp_path / "pci" / name).mkdir(parents=True)
        (tmp_path / "pci" / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / "pci" / name / "class").write_text(f"{kind}\n")
    (tmp_path / "pci" / "unplugged").mkdir()
    assert gpus.pci_gpus(tmp_path / "pci") == 1
    assert gpus.pci_gpus(tmp_path / "none") == 0

    hook = tmp_path / "bin" / "nvidia-container-runtime-hook"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    monkeypatch.setenv("PATH", str(hook.parent))
    assert gpus.find_toolkit() == gpus.Toolkit(str(hook), has_ctk=False)


# ---- All together


def finding(
    status: Status, need: Need = Need.EVERYTHING, blocks: str = "", fix: str = "fix it"
) -> Finding:
    return Finding("area", "name", need, Outcome(status, "what", fix, blocks))


@pytest.mark.parametrize(
    ("findings", "usable", "ok"),
    [
        ([finding(OK)], "yyy", True),
        # One backend is enough.
        (
            [finding(FAILED, Need.LOCAL, "no TF"), finding(WARNING, Need.GPUS, "no GPU")],
            "nyn",
            True,
        ),
        ([finding(FAILED, Need.COMPOSE, "no engine")], "yny", True),
        ([finding(WARNING, Need.COMPOSE, "x"), finding(WARNING, Need.LOCAL, "y")], "nnn", False),
        # Requirements of everything.
        ([finding(FAILED, Need.EVERYTHING, "data")], "nnn", False),
        # A broken driver where the config requests GPUs.
        ([finding(FAILED, Need.GPUS, "mismatch")], "yyn", False),
        ([finding(WARNING, Need.GPUS)], "yyy", True),
    ],
)
def test_overall_result(findings: list[Finding], usable: str, ok: bool) -> None:
    report = Report(findings)
    assert report.ok is ok
    needs = (Need.LOCAL, Need.COMPOSE, Need.GPUS)
    assert "".join("y" if report.usable(need) else "n" for need in needs) == usable
    assert report.as_json()["usable"] == {need.value: report.usable(need) for need in needs}


def test_conclusion() -> None:
    report = Report([finding(FAILED, Need.COMPOSE, "no engine answers"), finding(OK, Need.GPUS)])
    assert report.sentence() == "local: yes; compose: no (no engine answers); GPUs: yes"


def test_lines_wrap_and_are_safe() -> None:
    outcome = Outcome(WARNING, "word " * 30 + "\x1b[31mred", "`fix " + "it " * 30)
    long = replace(finding(WARNING), outcome=outcome)
    shown = [text.plain for text in lines(long, 60)]
    assert max(map(len, shown)) <= 60
    assert not any("\x1b" in line for line in shown)
    assert shown[0].startswith("  warning name               word word")
    assert any(line.strip().startswith("→ `fix") for line in shown)
    assert len(list(lines(long, None))) == 2
    assert len(list(lines(finding(OK, fix=""), 80))) == 1


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a config; no engine, no GPU, and a TensorFlow that is quick."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("GPUS", "1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setattr(Host, "tensorflow", CommandResult(0, '["2.21.0", ""]'))
    monkeypatch.setattr(Host, "nvml", NO_BOX)
    monkeypatch.setattr(Host, "pci_gpus", 0)
    return tmp_path


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "\x1b" not in shown.out
    sentence = shown.out.splitlines()[-1]
    assert sentence.startswith("local: yes; compose: no (no ")
    assert sentence.endswith("; GPUs: no (no GPU)")
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
        assert each["verdict"] in set(Status)
        if each["verdict"] == "failed":
            assert each["mend"]
            assert each["blocks"]


def test_a_host_without_a_backend(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Host, "tensorflow", None)
    monkeypatch.setattr(Host, "docker", None)
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith(
        "local: no (no TensorFlow); compose: no (no Docker)"
    )
    assert shown.err == (
        "error: no backend can be used on this host; fix one backend as shown above\n"
    )


def test_a_required_check_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Host, "nvml", replace(NO_BOX, faults=(fault(Condition.MISMATCH),)))
    assert main(["doctor", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["ok"] is False
    assert shown.err == "error: required checks fail: driver; fix them as shown above\n"


def test_without_packages_nothing_else_is_checked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "packages", (1, ["rich is missing"]))
    assert [each.name for each in examine()] == ["version", "packages"]


@pytest.fixture
def box(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, an engine without a trace of the toolkit, and an image."""
    monkeypatch.setattr(Host, "nvml", BOX)
    monkeypatch.setattr(Host, "docker", "/usr/bin/docker")
    monkeypatch.setattr(Host, "engine_info", ENGINE)
    monkeypatch.setattr(Host, "image", IMAGE)
    monkeypatch.setattr(Host, "compose_version", "2.40.3")
    monkeypatch.setattr(Host, "buildx_version", "0.29.1")
    monkeypatch.setattr(Host, "toolkit", NO_TOOLKIT)
    monkeypatch.setattr(Host, "cdi_specs", ())
    monkeypatch.setattr(Host, "routes", [])
    # The disk of the machine that runs the tests may be full.
    monkeypatch.setattr(Host, "engine_disk", (Path("/var/lib/docker"), 10**11))
    here = data.Directory(Path("here"), Path("/"), "", 10**11, "runs", "LAB_RUNS_DIR")
    monkeypatch.setattr(Host, "runs", here)
    monkeypatch.setattr(Host, "state", here)


@pytest.mark.usefixtures("box")
def test_a_host_with_a_gpu_and_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "toolkit", HOOK)
    monkeypatch.setattr(gpus, "run_command", Commands(SEES_IT))
    watched: list[str] = []
    findings = list(examine(watched.append))
    found = {each.name: each.outcome for each in findings}
    assert found["trial container"].status is OK
    assert found["daemon-reload"].status is WARNING
    assert "CUDA" in found
    assert "GPUs: trial container" in watched
    assert Report(findings).sentence() == "local: yes; compose: yes; GPUs: yes"


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(("has_cudnn", "verdict"), [(True, WARNING), (False, FAILED)])
def test_gpus_need_containers_without_cudnn(
    has_cudnn: bool, verdict: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "tensorflow", CommandResult(0, '["2.21.0", "12.5.1"]'))
    monkeypatch.setattr(gpus, "find_cudnn", lambda: has_cudnn)
    monkeypatch.setattr(gpus, "run_command", Commands(CommandResult(125, "", "could not")))
    found = {each.name: each.outcome for each in examine()}
    assert found["local backend"].status is (OK if has_cudnn else WARNING)
    assert found["container toolkit"].status is verdict


@pytest.mark.usefixtures("box")
def test_container_trial_overrides_configuration_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "run_command", Commands(SEES_IT))
    findings = list(examine())
    assert {each.name: each.outcome for each in findings}["container toolkit"].status is OK
    assert Report(findings).ok
    monkeypatch.setattr(gpus, "run_command", Commands(CommandResult(125, "", "could not")))
    findings = list(examine())
    found = {each.name: each.outcome for each in findings}
    assert found["container toolkit"].status is FAILED
    assert "trial container" not in found
    assert not Report(findings).ok


def test_unexpected_errors_of_checks_are_findings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(13, "Permission denied", "x")
    monkeypatch.setattr(data, "verify_dataset", raising(denied))
    monkeypatch.setattr(data, "local_environments", raising(LabError("odd", "fix it")))
    hangs = threading.Event()
    monkeypatch.setattr(Host, "runs", Fact(lambda _: hangs.wait(), 0.05))
    monkeypatch.setattr("lab.backends.local.isolation.unavailable_reason", raising(TimeoutError()))
    found = {each.name: each.outcome for each in examine()}
    hangs.set()
    assert found["MNIST"].what == "x: Permission denied"
    assert found["local environments"].what == "odd"
    assert "no answer within" in found["room for runs"].what
    assert "creating one took more than" in found["namespaces"].what
    assert found["ports"].status in {OK, FAILED}


def test_missing_packages_are_reported_without_any_package() -> None:
    """The doctor itself must start with the standard library alone."""
    script = """if True:
        import sys
        third = ("docker", "jinja2", "msgspec", "numpy", "packaging", "pandas", "psutil")
        sys.modules.update(dict.fromkeys((*third, "pydantic", "pynvml", "rich", "yaml")))
        from lab.doctor import examine
        print([(each.name, each.outcome.what) for each in examine()][-1])
    """
    found = run_command([sys.executable, "-c", script], 60)
    assert found.out == "('packages', 'packaging is missing')\n", found.err


# ---- The table, and its runner


def test_every_check_gets_facts_of_the_host() -> None:
    for check in chain(*CHECKS.values()):
        for judge in filter(None, (check.judge, check.on_error)):
            for name in set(inspect.signature(judge).parameters) - {"error"}:
                assert isinstance(vars(Host)[name], Fact), (check.name, name)


def test_checks_need_checks_above_them() -> None:
    above: set[str] = set()
    for check in chain(*CHECKS.values()):
        assert above.issuperset(check.needs), check.name
        assert check.name not in above
        above.add(check.name)


def test_purposes_of_checks() -> None:
    local = {
        *("TensorFlow", "local environments", "open files", "threads"),
        *("namespaces", "ports", "addresses"),
    }
    for area, checks in CHECKS.items():
        for check in checks:
            own = {"Docker": Need.COMPOSE, "GPUs": Need.GPUS}.get(area, Need.EVERYTHING)
            assert check.needed_for is (Need.LOCAL if check.name in local else own), check.name


def run(*checks: Check) -> list[tuple[str, str]]:
    table = {"area": checks}
    return [(each.name, each.outcome.what) for each in run_checks(table, lambda _: None)]


def test_checks_after_a_failed_requirement_are_skipped() -> None:
    good, bad = (lambda: Outcome(OK, "good")), (lambda: Outcome(FAILED, "bad", stops=True))
    second = Check("second", Need.LOCAL, good, ["first"])
    third = Check("third", Need.LOCAL, good, ["second"])
    other = Check("other", Need.LOCAL, good)
    first = Check("first", Need.LOCAL, good)
    assert [name for name, _ in run(first, second, third)] == ["first", "second", "third"]
    first = Check("first", Need.LOCAL, bad, without="nothing to check")
    assert run(first, second, third, other) == [
        ("first", "bad"),
        ("further checks", "nothing to check"),
        ("other", "good"),
    ]
    assert run(replace(first, without=""), second, third) == [("first", "bad")]
    assert run(replace(first, vital=True), other) == [("first", "bad")]


def test_a_failed_look_up_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(cpus: int) -> Outcome:
        return Outcome(OK, str(cpus))

    check = Check("first", Need.LOCAL, judge)
    second = Check("second", Need.LOCAL, lambda: Outcome(OK, "good"), ["first"])
    monkeypatch.setattr(resources, "cpu_count", lambda: 7)
    assert run(check, second) == [("first", "7"), ("second", "good")]
    monkeypatch.setattr(resources, "cpu_count", raising(LabError("odd", "fix it")))
    assert run(check, second) == [("first", "odd")]
    explained = replace(check, on_error=lambda error: Outcome(FAILED, f"because {error}"))
    assert run(explained, second) == [("first", "because odd; fix it")]


def test_a_fact_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def count() -> int:
        looks.append(1)
        return len(looks)

    monkeypatch.setattr(resources, "cpu_count", count)
    host = Host()
    assert [host.cpus, host.cpus, Host().cpus] == [1, 1, 2]
