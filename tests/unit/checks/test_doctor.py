"""What each check of the doctor finds, and how a look-up is limited."""

from __future__ import annotations

import os
import sys
import threading
from collections import namedtuple
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.backends.checks import Check, Outcome, Status, ok
from lab.backends.engine import error_hints
from lab.backends.engine import info as compose
from lab.backends.local import checks as local
from lab.base.errors import LabError
from lab.checks import gpus, host
from lab.checks.report import Report
from lab.checks.view import lines
from lab.cluster.gpu import Condition, Fault, Inventory, NvmlError
from tests.support.doctor import (
    BOX,
    CLUSTER,
    ENGINE,
    NO_BOX,
    PODMAN,
    ROOTLESS,
    UUID,
    Examinations,
    Examine,
    assert_found,
    fault,
    told,
)
from tests.support.fakes import raising
from tests.support.shown import assert_shows

REQUIRED = ["rich==15.*", "docker==7.2.*", "absent==1.*; extra == 'dev'"]


def test_packages_at_their_required_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = host.check_packages(host.requirements())
    assert (found.status, int(found.what.split()[1][:-1]) > 5) == (Status.OK, True)
    found = host.check_packages(REQUIRED, {"rich": "14.1.0"}.get)
    assert (found.what, found.stops) == ("rich 14.1.0 is not ==15.*; docker is missing", True)
    assert "host.txt" in found.fix
    # An installed lab has no pyproject.toml.
    monkeypatch.setattr(host, "CLONE", None)
    monkeypatch.setattr(metadata, "requires", lambda name: [f"{name}-needs==1"])
    assert host.requirements() == ["gpulab-needs==1"]


@pytest.mark.parametrize(
    ("imported", "gpus", "verdict", "words"),
    [
        ("echo noise; echo 2.21.0 0", False, "ok", "^2.21.0$"),
        ("echo 2.21.0 8", True, "ok", "which finds the GPUs"),
        ("echo 2.21.0 0", True, "failed", "no GPU.* → .*and-cuda.==2.21"),
        ("echo 2.15.1 0", False, "warning", "tested with 2.21"),
        ("printf 'Trace\nError: no\033[31m lib\n' >&2; exit 1", False, "failed", "no.+lib → .*pip"),
        ("echo why; exit 3", False, "failed", "fails: why → "),
        ("sleep 86400", False, "failed", "more than 0 s → stop other programs"),
    ],
)
def test_tensorflow_is_imported(
    imported: str,
    gpus: bool,
    verdict: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python, hidden = tmp_path / "python", "${CUDA_VISIBLE_DEVICES-all}"
    python.write_text(f'#!/bin/sh\necho "$A {hidden}" > {tmp_path}/seen\n{imported}\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(local, "_IMPORT_S", 0.3 if imported.startswith("sleep") else 60)
    monkeypatch.setattr(local, "find_spec", lambda name: name)
    environ = {"A": "b", "PATH": os.environ["PATH"]}
    assert_found(lambda: local.check_tensorflow(environ, gpus=gpus), verdict, words)
    assert (tmp_path / "seen").read_text() == f"b {'all' if gpus else '-1'}\n"
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    assert local.check_tensorflow({}, gpus=gpus).status is Status.SKIPPED


def test_memory_for_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(2**35, 2**30))
    assert_found(lambda: host.check_memory(1), "ok", "^1 GiB of 32 GiB available$")
    assert_found(lambda: host.check_memory(3), "warning", "3 tasks .* need about 2.197 GiB")


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(path: str) -> Outcome:
        return host.check_directory(tmp_path / path, "LAB_RUNS_DIR")

    usage = namedtuple("usage", "free")
    for free, verdict in ((2 * 10**9, "ok"), (10**9 - 1, "warning"), (10**7, "failed")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: usage(free))
        assert_found(lambda: check("not/yet"), verdict, f"not/yet, with {free / 10**9:.1f} GB")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    assert_found(lambda: check("file/runs"), "failed", "is not a directory .*in LAB_RUNS_DIR")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert_found(lambda: check("runs"), "failed", "that this user can write to → fix it .`ls -ld")


@pytest.mark.parametrize(
    ("text", "inventory", "wants", "placed"),
    [
        (None, NO_BOX, False, None),
        (CLUSTER.replace("GPUS", "1"), BOX, True, [(), (UUID,)]),
        (CLUSTER.replace("GPUS", "0"), BOX, False, [(), ()]),
        # Too few GPUs: the checks get a plan on CPUs.
        (CLUSTER.replace("GPUS", "4"), BOX, True, [(), ()]),
        (CLUSTER.replace("GPUS", "x"), BOX, False, None),
    ],
)
def test_the_config_is_placed(
    text: str | None,
    inventory: Inventory,
    wants: bool,
    placed: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lab.cluster.gpu.read_host", lambda: inventory)
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    found = host.examine_host(path)
    assert (found.inventory, found.wants_gpus) == (inventory, wants)
    assert (found.plan and [task.gpus for task in found.plan.tasks]) == placed


def test_a_driver_that_does_not_answer_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lab.cluster.gpu.read_host", raising(NvmlError("x", "", fault(Condition.OTHER)))
    )
    found = host.examine_host(tmp_path / "cluster.yaml").inventory
    assert (found.gpus, found.faults) == ((), (fault(Condition.OTHER),))


def with_faults(inventory: Inventory, *faults: Fault) -> Inventory:
    return replace(inventory, faults=faults)


NO_LIBCUDA = with_faults(
    BOX, Fault(Condition.OTHER, "libcuda.so.1 is not installed", "get it", "CUDA version")
)
OLD_NVML = with_faults(BOX, fault(Condition.OLD_DRIVER, "CUDA version"))
LOST = with_faults(BOX, fault(Condition.GPU_LOST, "GPU 3"))
UNCUT = with_faults(BOX, fault(Condition.NO_SLICES, "GPU 2"))
LEFT_OUT = replace(BOX, gpus=(), left_out=("LAB_GPUS leaves out GPU 0",))
NONE = with_faults(NO_BOX, fault(Condition.NO_DRIVER))
NEWER = with_faults(NO_BOX, fault(Condition.MISMATCH))
OLD_PODMAN = replace(told(ServerVersion="4.9.3"), is_podman=True)
BY_CDI = {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={UUID}"}]}
EXAMINATIONS: Examinations = [
    (lambda: gpus.check_driver(BOX, 1), "ok", "^580.95.05, CUDA up to 13.0$"),
    (lambda: gpus.check_driver(NO_LIBCUDA, 1), "ok", "^580.95.05"),
    (lambda: gpus.check_driver(NONE, 0), "skipped stops", "tasks train on CPUs"),
    (lambda: gpus.check_driver(NO_BOX, 0), "skipped stops", "tasks train on CPUs"),
    (lambda: gpus.check_driver(NONE, 2), "warning stops", "2 NVIDIA GPUs → .*nvidia-driver"),
    (lambda: gpus.check_driver(NEWER, 1), "failed stops", f"{Condition.MISMATCH}: NVML's words → "),
    (lambda: gpus.check_devices(NO_LIBCUDA), "ok", "1 NVIDIA H100 80GB HBM3 of 80 GiB"),
    (lambda: gpus.check_devices(LEFT_OUT), "failed stops", "leaves out"),
    (lambda: gpus.check_devices(LOST), "failed", "1 NVIDIA H100.*; GPU 3: GPU lost → "),
    (lambda: gpus.check_devices(UNCUT), "warning", "GPU 2: MIG mode without slices → "),
    (lambda: gpus.check_devices(replace(UNCUT, gpus=())), "failed", "^none; GPU 2"),
    (lambda: gpus.check_cuda(NO_LIBCUDA), "failed", "libcuda.so.1 .* → get it"),
    # A driver that is too old to report the version has CUDA all the same.
    (lambda: gpus.check_cuda(OLD_NVML, Path("/none")), "ok", "start"),
    (lambda: compose.check_engine(ENGINE), "ok", "^28.2.2$"),
    (lambda: compose.check_engine(ROOTLESS), "ok", "^28.2.2, rootless$"),
    (lambda: compose.check_engine(PODMAN), "ok", "^Podman 5.4.2$"),
    (lambda: compose.check_engine(OLD_PODMAN), "failed", "4.9.3 is too old → install Podman 5"),
    (lambda: compose.check_toolkit(told(Runtimes={"nvidia": {}})), "ok", "runtime `nvidia`"),
    (lambda: compose.check_toolkit(told(ServerVersion="29.2.0", **BY_CDI)), "ok", "uses CDI"),
    (lambda: compose.check_toolkit(PODMAN), "ok", "uses CDI"),
    (lambda: compose.check_toolkit(told(**BY_CDI)), "failed stops", "not installed.*install-guide"),
    (lambda: compose.check_toolkit(ROOTLESS), "failed stops", "--config=.HOME/.config/docker"),
    (lambda: local.check_namespaces(None), "ok", "own hostname"),
    (lambda: local.check_namespaces("no (package util-linux)"), "warning", "install util-linux`"),
    (lambda: local.check_namespaces("LAB_LOCAL has no namespaces"), "warning", "→ `unset LAB_L"),
    (lambda: local.check_namespaces("no", Path("/none")), "warning", "every interface.* → .*comp"),
]


@pytest.mark.parametrize(("examine", "verdict", "words"), EXAMINATIONS)
def test_each_check(
    examine: Examine, verdict: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without the toolkit
    assert_found(examine, verdict, words)


def test_the_toolkit_is_found_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, verdict, words in (
        ("nvidia-ctk", "failed stops", "not configured .* → `sudo nvidia-ctk runtime configure"),
        ("nvidia-container-runtime-hook", "ok", f"{tmp_path}/nvidia-container-runtime-hook"),
    ):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert_found(lambda: compose.check_toolkit(ENGINE), verdict, words)


def test_the_device_node_of_cuda(tmp_path: Path) -> None:
    assert gpus.check_cuda(BOX, tmp_path).status is Status.OK  # without any node, as on WSL
    (tmp_path / "nvidiactl").touch()
    assert_found(lambda: gpus.check_cuda(BOX, tmp_path), "warning", "nvidia-modprobe -u -c=0")
    (tmp_path / "nvidia-uvm").touch()
    assert gpus.check_cuda(BOX, tmp_path).status is Status.OK


@pytest.mark.parametrize(
    ("switch", "value", "fix"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1\n", "apparmor_.*_userns=0`"),
        ("user/max_user_namespaces", "0\n", "-w user.max_user_namespaces=10000`"),
        ("user/max_user_namespaces", "9\n", "if this is a container"),
    ],
)
def test_switches_of_the_kernel(switch: str, value: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / switch).parent.mkdir()
    (tmp_path / switch).write_text(value)
    assert_found(lambda: local.check_namespaces("no", tmp_path), "warning", fix)


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "unplugged").mkdir()
    assert (gpus.pci_gpus(tmp_path), gpus.pci_gpus(tmp_path / "none")) == (1, 0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LabError("odd", "fix it"), "^odd → fix it$"),
        (PermissionError(13, "Permission denied", "x"), "^x: Permission denied → fix its"),
        (TimeoutError(), "no answer within 10 s → find out what hangs"),
    ],
)
def test_an_error_is_an_outcome(error: Exception, words: str) -> None:
    assert_found(Check("x", raising(error)).run, "failed stops", words)


def test_checks_and_commands_have_a_time_limit() -> None:
    go_on = threading.Event()  # set only here: a check that waits for it never ends

    def hang() -> Outcome:
        go_on.wait()
        return ok("late")

    assert_found(Check("x", hang, 0.05).run, "failed stops", "no answer within 0.05 s")
    go_on.set()


def test_the_page_on_hosts_shows_outcomes() -> None:
    page = "docs/how-to/check-a-host.md"
    denied = "permission denied while trying to connect to the Docker daemon socket"
    error = error_hints.explain("reaching the engine", [denied])
    report, shown = Report(backends=["compose", "local"]), []
    report.show = lambda outcome: shown.extend(lines(outcome, 80))
    report.examine("GPUs", [Check("driver", lambda: gpus.check_driver(NONE, 0))])
    report.examine("local", [Check("available", lambda: ok("can be used"))])
    shown.clear()
    report.examine("compose", [Check("available", raising(error))])
    text = "\n".join(line.plain for line in shown)
    assert_shows(page, "compose\n", f"compose\n{text}\n{report.sentence()}")
