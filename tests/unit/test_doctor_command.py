"""Which checks the doctor runs, its report, the command, and how it looks up facts."""

from __future__ import annotations

import inspect
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.cli import main
from lab.doctor import containers, data, engine, gpus, images, network, python, resources
from lab.doctor.checks import CHECKS, Check, run_checks
from lab.doctor.commands import CommandResult, run_command
from lab.doctor.host import Fact, Host
from lab.doctor.model import Need, Outcome, Report, Status
from lab.errors import LabError
from lab.gpu import Condition, NvmlError
from lab.threads import with_timeout
from tests.support.doctor import (
    AWAY,
    BOX,
    CLUSTER,
    ENGINE,
    IMAGE,
    INFO,
    NO_BOX,
    ROOTLESS,
    SEEN,
    UUID,
    Commands,
    fault,
    raising,
    told,
)
from tests.support.fakes import PLAN

OK, WARNING, FAILED, SKIPPED = Status.OK, Status.WARNING, Status.FAILED, Status.SKIPPED

# ---- The table of checks, and its runner


def test_the_table_of_checks() -> None:
    """Judges get facts, checks need checks above them, and each has its purpose."""
    local = {
        *("TensorFlow", "local environments", "open files", "threads"),
        *("namespaces", "ports", "addresses"),
    }
    above: set[str] = set()
    for area, checks in CHECKS.items():
        for check in checks:
            for judge in filter(None, (check.judge, check.on_error)):
                for name in set(inspect.signature(judge).parameters) - {"error"}:
                    assert isinstance(vars(Host)[name], Fact), (check.name, name)
            assert above.issuperset(check.needs), check.name
            assert check.name not in above
            above.add(check.name)
            own = {"Docker": Need.COMPOSE, "GPUs": Need.GPUS}.get(area, Need.EVERYTHING)
            assert check.needed_for is (Need.LOCAL if check.name in local else own), check.name


def run(*checks: Check) -> list[tuple[str, str]]:
    table = {"area": checks}
    return [(each.where, each.what) for each in run_checks(table=table)]


def test_checks_after_a_failed_requirement_are_skipped() -> None:
    good, bad = (lambda: Outcome(OK, "good")), (lambda: Outcome(FAILED, "bad", stops=True))
    second = Check("second", Need.LOCAL, good, ["first"])
    third = Check("third", Need.LOCAL, good, ["second"])
    other = Check("other", Need.LOCAL, good)
    first = Check("first", Need.LOCAL, good)
    assert [name for name, _ in run(first, second, third)] == ["first", "second", "third"]
    first = Check("first", Need.LOCAL, bad, without="nothing to check")
    shown = [("first", "bad"), ("further checks", "nothing to check"), ("other", "good")]
    assert run(first, second, third, other) == shown
    assert run(replace(first, without=""), second, third) == [("first", "bad")]
    assert run(replace(first, vital=True), other) == [("first", "bad")]


def test_a_fact_is_looked_up_once_and_its_failure_is_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter((1, 2))
    monkeypatch.setattr(resources, "cpu_count", lambda: next(looks))
    host = Host()
    assert [host.cpus, host.cpus, Host().cpus] == [1, 1, 2]

    def judge(cpus: int) -> Outcome:
        return Outcome(OK, str(cpus))

    check = Check("first", Need.LOCAL, judge)
    second = Check("second", Need.LOCAL, lambda: Outcome(OK, "good"), ["first"])
    monkeypatch.setattr(resources, "cpu_count", raising(LabError("odd", "fix it")))
    assert run(check, second) == [("first", "odd")]
    explained = replace(check, on_error=lambda error: Outcome(FAILED, f"because {error}"))
    assert run(explained, second) == [("first", "because odd; fix it")]


def on(facts: Mapping[str, object], check: str, passed: Sequence[str] = ("engine",)) -> Outcome:
    """Run a check on a host with these facts."""
    host = Host()
    host.passed.update(passed)
    for name, value in facts.items():
        host.found[Host.__dict__[name]] = found = Future()
        found.set_result(value)
    table = {each.name: each for checks in CHECKS.values() for each in checks}
    return table[check].run(host)


def test_a_rootless_engine_has_its_own_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        **{"toolkit": containers.Toolkit(has_ctk=True), "uses_cdi": False, "requested_gpus": 1},
        **{"has_cudnn": False, "trial": containers.Trial(UUID, None, CommandResult(None))},
    }
    own = on({**facts, "engine_info": ROOTLESS}, "container toolkit").fix
    for part in ("--config=$HOME/.config/docker/daemon.json", "no-cgroups", "cdi generate"):
        assert part in own
    by_root = on({**facts, "engine_info": ENGINE}, "container toolkit").fix
    assert "sudo systemctl restart docker" in by_root
    # If it does not answer, its address shows its kind.
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    monkeypatch.setattr(engine, "read_engine", raising(TimeoutError("late")))
    late = on({}, "engine", passed=())
    assert (late.status, late.stops, "docker -u" in late.fix) == (FAILED, True, False)
    for fix, is_own in ((own, True), (by_root, False), (late.fix, True)):
        assert ("systemctl --user restart docker" in fix) is is_own


# ---- The report


def finding(
    status: Status, need: Need = Need.EVERYTHING, blocks: str = "", fix: str = "fix it"
) -> Outcome:
    return Outcome(status, "what", fix, blocks=blocks, needed_for=need)


@pytest.mark.parametrize(
    ("findings", "usable", "ok"),
    [
        ([finding(OK)], "yyy", True),
        # One backend is enough.
        ([finding(FAILED, Need.LOCAL, "x"), finding(WARNING, Need.GPUS, "y")], "nyn", True),
        ([finding(FAILED, Need.COMPOSE, "no engine")], "yny", True),
        ([finding(WARNING, Need.COMPOSE, "x"), finding(WARNING, Need.LOCAL, "y")], "nnn", False),
        # A broken driver where the config requests GPUs.
        ([finding(FAILED, Need.GPUS, "mismatch")], "yyn", False),
        ([finding(WARNING, Need.GPUS)], "yyy", True),
    ],
)
def test_overall_result(findings: list[Outcome], usable: str, ok: bool) -> None:
    report = Report(findings)
    assert report.ok is ok
    needs = (Need.LOCAL, Need.COMPOSE, Need.GPUS)
    assert "".join("y" if report.usable(need) else "n" for need in needs) == usable
    assert report.as_json()["usable"] == {need.value: report.usable(need) for need in needs}


# ---- The command


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


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({}, ""),
        ({"tensorflow": None, "docker": None}, "error: no backend can be used on this host; fix "),
        (
            {"nvml": replace(NO_BOX, faults=(fault(Condition.MISMATCH),))},
            "error: required checks fail: driver; fix ",
        ),
    ],
)
def test_the_command(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    facts: Mapping[str, object],
    error: str,
) -> None:
    for name, value in facts.items():
        monkeypatch.setattr(Host, name, value)
    code = int(bool(error))
    assert main(["doctor"]) == code
    shown = capsys.readouterr()
    assert (shown.err.startswith(error), bool(shown.err), "\x1b" in shown.out) == (
        True, bool(error), False
    )  # fmt: skip
    assert main(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is not bool(error)
    if not error:
        assert report["usable"] == {"local": True, "compose": False, "gpus": False}
        assert re.search(r"\nlocal: yes; compose: no \(no .*; GPUs: no \(no GPU\)\n", shown.out)
    names = {(each["area"], each["where"]) for each in report["findings"]}
    assert len(names) == len(report["findings"])
    for each in report["findings"]:
        assert {"area", "where", "status", "what", "fix", "needed_for", "blocks"} <= set(each)
        assert each["status"] in set(Status)
        assert each["status"] != "failed" or (each["fix"] and each["blocks"])
    assert [each.name for each in project.iterdir()] == ["cluster.yaml"]  # it changes nothing


@pytest.fixture
def box(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, an engine without a trace of the toolkit, and an image."""
    # The disk of the machine that runs the tests may be full.
    here = data.Directory(Path("here"), Path("/"), "", 10**11, "runs", "LAB_RUNS_DIR")
    facts: dict[str, object] = {
        **{"nvml": BOX, "docker": "/usr/bin/docker", "engine_info": ENGINE, "image": IMAGE},
        **{
            "compose_version": "2.40.3",
            "buildx_version": "0.29.1",
            "toolkit": containers.Toolkit(),
        },
        **{"routes": [], "engine_disk": (Path("/var/lib/docker"), 10**11)},
        **{"runs": here, "state": here},
    }
    for name, value in facts.items():
        monkeypatch.setattr(Host, name, value)


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    ("cudnn", "trial", "toolkit", "shown"),
    [
        # A trial counts more than the configuration that was not found.
        (False, CommandResult(0, SEEN), OK, "local: yes; compose: yes; GPUs: yes"),
        # Without containers, GPUs need cuDNN.
        (True, CommandResult(125, "", "could not"), WARNING, "local: yes; compose: yes; GPUs: yes"),
    ],
)
def test_a_host_with_a_gpu_and_an_engine(
    monkeypatch: pytest.MonkeyPatch,
    cudnn: bool,
    trial: CommandResult,
    toolkit: Status,
    shown: str,
) -> None:
    monkeypatch.setattr(Host, "tensorflow", CommandResult(0, '["2.21.0", "12.5.1"]'))
    monkeypatch.setattr(gpus, "find_cudnn", lambda: cudnn)
    monkeypatch.setattr(containers, "run_command", Commands(trial))
    watched: list[str] = []
    findings = list(run_checks(watched.append))
    found = {each.where: each.status for each in findings}
    assert found["container toolkit"] is toolkit
    assert ("trial container" in found) is (toolkit is OK)
    assert found["local backend"] is (OK if cudnn else WARNING)
    assert "CUDA" in found
    assert "GPUs: container toolkit" in watched
    assert Report(findings).sentence().endswith(shown)
    assert Report(findings).ok is (toolkit is not FAILED)


def test_unexpected_errors_of_checks_are_findings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(13, "Permission denied", "x")
    monkeypatch.setattr(data, "verify_dataset", raising(denied))
    monkeypatch.setattr(data, "local_environments", raising(LabError("odd", "fix it")))
    hangs = threading.Event()
    monkeypatch.setattr(Host, "runs", Fact(lambda _: hangs.wait(), 0.05))
    monkeypatch.setattr("lab.backends.local.isolation.unavailable_reason", raising(TimeoutError()))
    monkeypatch.setattr(Host, "docker", "/usr/bin/docker")
    found = {each.where: each for each in run_checks()}
    hangs.set()
    for name, what in (
        ("MNIST", "x: Permission denied"),
        ("local environments", "odd"),
        ("room for runs", "no answer within"),
        ("namespaces", "creating one took more than"),
    ):
        assert what in found[name].what
    engine_outcome = found["engine"]
    assert (engine_outcome.blocks, engine_outcome.stops) == ("no engine answers", True)


def test_missing_packages_are_reported_without_any_package(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor itself must start with the standard library alone."""
    script = """if True:
        import sys
        third = ("docker", "jinja2", "msgspec", "numpy", "packaging", "pandas", "psutil")
        sys.modules.update(dict.fromkeys((*third, "pydantic", "pynvml", "rich", "yaml")))
        from lab.doctor.checks import run_checks
        print([(each.where, each.what) for each in run_checks()][-1])
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(data.__file__).parents[2])}
    found = run_command([sys.executable, "-c", script], 60, environ)
    assert found.out == "('packages', 'packaging is missing')\n", found.err
    # Nothing else is checked then.
    monkeypatch.setattr(Host, "packages", (1, ["rich is missing"]))
    assert [each.where for each in run_checks()] == ["version", "packages"]


# ---- The facts of a host


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
    monkeypatch.setattr(metadata, "requires", lambda name: [f"{name}-needs==1"])
    assert python.requirements(tmp_path) == ["gpulab-needs==1"]
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'another'\ndependencies = []\n")
    assert python.requirements(tmp_path) == ["gpulab-needs==1"]
    (tmp_path / "pyproject.toml").write_text("x = [")
    assert python.requirements(tmp_path) == ["gpulab-needs==1"]


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
    assert (info.is_local, images.disk(AWAY)) == (True, None)


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
        assert images.buildx_version() == version


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
    assert containers.find_toolkit() == containers.Toolkit(str(hook), has_ctk=False)
    assert Host().docker is None
    monkeypatch.setattr(gpus, "read_host", raising(NvmlError("x", "", fault(Condition.OTHER))))
    assert gpus.read_nvml() == fault(Condition.OTHER)
    assert gpus.inventory(fault(Condition.OTHER), 8, (2**36, 2**35)) == NO_BOX


@pytest.mark.parametrize("is_podman", [False, True])
def test_a_gpu_is_tried_in_a_container(is_podman: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(CommandResult(0, SEEN), CommandResult(None), CommandResult(0))
    monkeypatch.setattr(containers, "run_command", commands)
    assert containers.try_gpu(UUID, replace(IMAGE, is_here=False)).image is None
    assert containers.try_gpu(UUID, IMAGE, is_podman=is_podman).passed
    (command,) = map(" ".join, commands.commands)
    gpu = f"--device nvidia.com/gpu={UUID}" if is_podman else f"--gpus device={UUID},"
    for needed in ("--rm", "--network none", "--pull never", "--label lab.trial=", gpu):
        assert needed in command
    assert "lab.project" not in command  # or it would be an environment
    assert ("--gpus" in command) is not is_podman
    # A trial that hangs leaves nothing.
    assert not containers.try_gpu(UUID, IMAGE).passed
    _, run, remove = commands.commands
    name = run[run.index("--name") + 1]
    assert list(remove) == ["docker", "rm", "--force", "--volumes", name]
