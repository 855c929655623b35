"""How the doctor looks up the facts of a host."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.doctor import data, engine, gpus, network, python, resources
from lab.doctor.commands import CommandResult, run_command
from lab.doctor.host import Host
from lab.doctor.model import Status
from lab.gpu import Condition, NvmlError
from lab.threads import with_timeout
from tests.support.doctor import (
    AWAY,
    BOX,
    CLUSTER,
    IMAGE,
    INFO,
    NO_BOX,
    SEEN,
    UUID,
    Commands,
    fault,
    raising,
    told,
)
from tests.support.fakes import PLAN

OK, WARNING, FAILED, SKIPPED = Status.OK, Status.WARNING, Status.FAILED, Status.SKIPPED

# ---- Facts


def test_commands_and_look_ups_have_a_time_limit() -> None:
    go_on = threading.Event()  # set only here: a look-up that waits for it never ends
    with pytest.raises(TimeoutError):
        with_timeout(0.05, go_on.wait)
    go_on.set()
    assert with_timeout(5, lambda: 7) == 7
    assert run_command(["sleep", "86400"], 0.05) == CommandResult(None)
    script = "echo out; echo first >&2; echo last >&2; exit 3"
    found = run_command(["sh", "-c", script], 5)
    assert (found, found.last_line) == (CommandResult(3, "out\n", "first\nlast\n"), "last")
    assert run_command(["no-such-command-here"], 5).code == 127


def test_packages_at_their_pinned_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed, faults = python.package_faults(python.requirements())
    assert (needed > 5, faults) == (True, [])
    required = ["rich==15.*", "docker==7.2.*", "absent==1.*; extra == 'dev'"]
    faults = ["rich 14.1.0 is not ==15.*", "docker is missing"]
    assert python.package_faults(required, {"rich": "14.1.0"}.get) == (2, faults)
    # An installed lab has no pyproject.toml; another project's is not read.
    monkeypatch.setattr(python.metadata, "requires", lambda name: [f"{name}-needs==1"])
    assert python.requirements(tmp_path) == ["lab-needs==1"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'another'\ndependencies = []\n")
    assert python.requirements(tmp_path) == ["lab-needs==1"]


def test_the_data_set_is_verified(tmp_path: Path) -> None:
    files, size, fault = data.verify_dataset()
    assert (files, size > 10**7, fault) == (4, True, "")
    assert "SHA256SUMS cannot be read (No such file" in data.verify_dataset(tmp_path)[2]
    for file in data.MNIST.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-1] + b"x")
    assert f"{labels.name} is damaged" in data.verify_dataset(tmp_path)[2]
    labels.unlink()
    assert f"{labels.name} cannot be read" in data.verify_dataset(tmp_path)[2]


@pytest.mark.parametrize(
    ("text", "host", "verdict", "words", "placed"),
    [
        (None, NO_BOX, (SKIPPED, True), "no ", None),
        (CLUSTER.replace("GPUS", "1"), BOX, (OK, False), "2 nodes, 2 tasks, 1 GPU", [(), (UUID,)]),
        (CLUSTER.replace("GPUS", "1"), NO_BOX, (OK, False), "has no GPU: tasks train", [(), ()]),
        # Too few GPUs: the checks that follow get a plan on CPUs.
        (CLUSTER.replace("GPUS", "4"), BOX, (WARNING, False), "4 GPUs", [(), ()]),
        (CLUSTER.replace("GPUS", "x"), BOX, (WARNING, True), "has 1 error", None),
    ],
)
def test_the_config_is_read_and_placed(
    text: str | None, host: Any, verdict: Any, words: str, placed: Any, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    found = data.read_config(host, path)
    outcome = data.judge_config(found, host)
    assert ((outcome.status, outcome.stops), words in outcome.what) == (verdict, True), outcome
    assert bool(outcome.fix) == (outcome.status is WARNING)
    assert (found.plan and [task.gpus for task in found.plan.tasks]) == placed


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = data.inspect_directory(tmp_path / "not" / "yet", "runs", "LAB_RUNS_DIR")
    assert (new.existing, new.free > 0) == (tmp_path, True)
    assert data.judge_writable(new).status is OK
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    inside = data.inspect_directory(tmp_path / "file" / "runs", "runs", "LAB_RUNS_DIR")
    found = data.judge_writable(inside)
    assert (found.status, found.blocks) == (FAILED, "runs directory cannot be written")
    assert "is not a directory" in found.what
    assert "LAB_RUNS_DIR" in found.fix
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in data.inspect_directory(tmp_path, "state", "").fault


def test_files_of_the_kernel(tmp_path: Path) -> None:
    total, available = resources.memory_bytes()
    assert 0 < available <= total
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    own = groups / "user.slice" / "user-1.slice"
    own.mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/user.slice/user-1.slice\n")
    (own / "pids.max").write_text("max\n")
    (groups / "user.slice/pids.max").write_text("77\n")
    assert resources.thread_limit(proc, groups) == 77
    (groups / "pids" / "a").mkdir(parents=True)
    (groups / "pids/a/pids.max").write_text("55\n")
    (proc / "self/cgroup").write_text("9:cpu,cpuacct:/b\n8:pids:/a\n0::/\n")
    assert resources.thread_limit(proc, groups) == 55
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("0\n")
    assert network.kernel_switches(tmp_path) == {"user/max_user_namespaces": 0}
    (tmp_path / "route").write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "wg0\t00054D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    routes = network.routes(tmp_path / "route")
    assert [(str(net), device) for net, device in routes] == [("10.77.5.0/24", "wg0")]
    assert network.routes(tmp_path / "none") == []
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300")):
        (tmp_path / "pci" / name).mkdir(parents=True)
        (tmp_path / "pci" / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / "pci" / name / "class").write_text(f"{kind}\n")
    (tmp_path / "pci" / "unplugged").mkdir()
    assert (gpus.pci_gpus(tmp_path / "pci"), gpus.pci_gpus(tmp_path / "none")) == (1, 0)


def test_ports_are_tried_where_tasks_share_the_loopback() -> None:
    with socket.socket() as other:
        other.bind(("localhost", 0))
        other.listen()
        tasks = (replace(PLAN.tasks[0], port=other.getsockname()[1]),)
        taken = replace(PLAN, tasks=tasks)
        assert network.check_ports(None, "no namespaces") == (None, None)
        assert network.check_ports(taken, None) == ([], None)
        ports, error = network.check_ports(taken, "no namespaces")
    assert ports == [tasks[0].port]
    assert "cannot be used" in str(error)


def test_engine_information(monkeypatch: pytest.MonkeyPatch) -> None:
    import docker  # noqa: PLC0415  (0.2 s, for this test only)

    states = (("a", "running"), ("a", "exited"), ("b", "exited"))
    listed = [{"Labels": {"lab.project": name}, "State": state} for name, state in states]
    subnets = [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd00::/64"}]
    api = SimpleNamespace(
        info=lambda: INFO,
        version=lambda: {"Components": [{"Name": "Engine"}]},
        networks=lambda: [{"IPAM": {"Config": subnets}}, {"IPAM": {"Config": None}}],
        containers=lambda **_: listed,
    )
    monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=api))
    info = engine.read_engine()
    assert [str(each) for each in info.networks] == ["172.17.0.0/16"]
    assert info.projects == {"a": ["running", "exited"], "b": ["exited"]}
    assert (info.is_local, engine.disk(AWAY)) == (True, None)


@pytest.mark.parametrize(
    ("address", "directory"),
    [
        (None, "/var/lib/docker"),
        ("", "/var/lib/containerd"),
        ("/run/containerd/containerd.sock", "/var/lib/containerd"),
        ("/x.sock", "/var/lib/docker/containerd"),
    ],
)
def test_where_the_engine_has_its_images(address: str | None, directory: str) -> None:
    driver = [["driver-type", "io.containerd.snapshotter.v1"]]
    facts: dict[str, object] = {} if address is None else {"DriverStatus": driver}
    if address:
        facts["Containerd"] = {"Address": address}
    assert told(**facts).images_directory == Path(directory)


def test_the_version_of_buildx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "docker"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for script, version in (
        ("echo github.com/docker/buildx v0.13.1+ds1 28f6246", "0.13.1+ds1"),
        ("echo 'docker: unknown command: docker buildx' >&2; exit 1", ""),
        ("echo odd", ""),
    ):
        command.write_text(f'#!/bin/sh\n[ "$1" = compose ] && exit 0\n{script}\n')
        command.chmod(0o755)
        assert engine.buildx_version() == version


def test_facts_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.has_uvm(tmp_path)  # without any node, as on WSL
    (tmp_path / "nvidiactl").touch()
    assert not gpus.has_uvm(tmp_path)
    (tmp_path / "nvidia-uvm").touch()
    assert gpus.has_uvm(tmp_path)
    assert gpus.find_cudnn({"nvidia-cudnn-cu12": "9.3.0"}.get, [])
    assert not gpus.find_cudnn({}.get, ["libno-such-library.so.9"])
    assert gpus.find_cudnn({}.get, ["libno-such-library.so.9", "libc.so.6"])
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.find_toolkit() == gpus.Toolkit(str(hook), has_ctk=False)
    assert Host().docker is None
    monkeypatch.setattr(gpus, "read_host", raising(NvmlError("x", "", fault(Condition.OTHER))))
    assert gpus.read_nvml() == fault(Condition.OTHER)
    assert gpus.inventory(fault(Condition.OTHER), 8, (2**36, 2**35)) == NO_BOX


@pytest.mark.parametrize("is_podman", [False, True])
def test_a_gpu_is_tried_in_a_container(is_podman: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(CommandResult(0, SEEN), CommandResult(None), CommandResult(0))
    monkeypatch.setattr(gpus, "run_command", commands)
    assert gpus.try_gpu(UUID, replace(IMAGE, is_here=False)).image is None
    assert gpus.try_gpu(UUID, IMAGE, is_podman=is_podman).passed
    (command,) = map(" ".join, commands.commands)
    gpu = f"--device nvidia.com/gpu={UUID}" if is_podman else f"--gpus device={UUID},"
    for needed in ("--rm", "--network none", "--pull never", "--label lab.trial=", gpu):
        assert needed in command
    assert "lab.project" not in command  # or it would be an environment
    assert ("--gpus" in command) is not is_podman
    # A trial that hangs leaves nothing.
    assert not gpus.try_gpu(UUID, IMAGE).passed
    _, run, remove = commands.commands
    name = run[run.index("--name") + 1]
    assert list(remove) == ["docker", "rm", "--force", "--volumes", name]
