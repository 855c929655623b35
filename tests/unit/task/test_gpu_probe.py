"""The GPUs that a task reports: drivers that are compiled here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cluster.gpu.verification import GpuView
from lab.task.node import gpu_probe
from lab.task.node.health import gpu_nodes
from tests.support import cuda
from tests.support.commands import python
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

DriverOf = Callable[[str | Box], Driver]

EIGHT = [gpu.uuid for gpu in load("eight-h100").cards]
SLICES = [each.uuid for each in load("mig").cards[1].slices]
WHOLE = load("mig").cards[0].uuid


@pytest.fixture(scope="module")
def libcuda(driver: DriverOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    driver("bare")  # finds a compiler, or raises
    return cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def sleeper() -> Iterator[Callable[..., str]]:
    with contextlib.ExitStack() as stack:

        def start(**variables: str) -> str:
            environ = {"PATH": os.environ["PATH"], **variables}
            command = ["sh", "-c", "echo; exec sleep 600"]
            process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            process.stdout.readline()  # by now its variables are its own
            return str(process.pid)

        yield start


def output(*arguments: str, **variables: str) -> GpuView:
    call = ("-P", "-m", "lab.task.node.gpu_probe", *arguments)
    done = python(*call, env={**os.environ, **variables}, check=True)
    (line,) = done.stdout.splitlines()
    return GpuView.from_json(line)


def test_device_nodes(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia", "null", "nvidia1x"):
        (tmp_path / name).touch()
    assert [path.name for path in gpu_nodes(tmp_path)] == ["nvidia10", "nvidia2"]


IN_CONTAINER = """
import json, sys
from pathlib import Path
from lab.task.node.gpu_probe import probe
print(json.dumps(probe(None, proc=Path(sys.argv[1]))))
"""


@pytest.mark.parametrize(("own", "seen"), [("A=b=c", EIGHT), ("CUDA_VISIBLE_DEVICES=-1", [])])
def test_a_container_reports_what_it_has_and_what_its_first_process_may_use(
    own: str, seen: list[str], driver: DriverOf, tmp_path: Path
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "environ").write_text(f"C=d\0{own}\0")
    variables = {**os.environ, **driver("eight-h100").environment}
    done = python("-c", IN_CONTAINER, str(tmp_path), env=variables, check=True)
    assert GpuView.from_json(done.stdout) == GpuView(given=tuple(EIGHT), seen=tuple(seen))


def test_a_container_without_variables_or_without_the_library_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = gpu_probe.probe(None, proc=tmp_path)["why"]
    assert why.endswith("environ: No such file or directory")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_probe.probe(None, proc=tmp_path) == {"why": "nvidia-ml-py is not installed"}


@pytest.mark.parametrize(
    ("host", "pins", "seen"),
    [
        ("eight-h100", None, EIGHT),
        ("eight-h100", f"{EIGHT[3]}, {EIGHT[0]}", [EIGHT[3], EIGHT[0]]),
        ("eight-h100", f"{EIGHT[1]},GPU-unknown,{EIGHT[0]}", EIGHT[1:2]),
        ("eight-h100", "2", EIGHT[2:3]),
        ("eight-h100", EIGHT[2][:12], EIGHT[2:3]),
        ("eight-h100", "GPU-", []),
        ("eight-h100", "-1", []),
        ("eight-h100", "", []),
        ("mig", None, [WHOLE, *SLICES]),
        ("mig", SLICES[1], SLICES[1:2]),
        ("mig", "1", []),
    ],
)
def test_nvml_shows_what_the_process_may_use(
    driver: DriverOf,
    sleeper: Callable[..., str],
    host: str,
    pins: str | None,
    seen: list[str],
) -> None:
    """The variables of the task's agent count, not those of the calling process."""
    pid = sleeper(**({} if pins is None else {"CUDA_VISIBLE_DEVICES": pins}))
    have = driver(host)
    found = output("--pid", pid, CUDA_VISIBLE_DEVICES=EIGHT[5], **have.environment)
    assert found == GpuView(seen=tuple(seen))
    # In each case, the library is closed again.
    assert have.log.read_text().splitlines()[-1] == "shutdown"


@pytest.mark.parametrize("quoted", ["802 (CUDA_ERROR_SYSTEM_NOT_READY)", "999 (unknown)"])
def test_a_cuda_that_cannot_start_is_quoted(
    driver: DriverOf, libcuda: Path, sleeper: Callable[..., str], quoted: str
) -> None:
    variables = dict(driver("eight-h100").environment)
    variables["LD_LIBRARY_PATH"] = f"{libcuda}:{variables['LD_LIBRARY_PATH']}"
    variables["FAKE_CUDA_INIT"] = quoted[:3]
    found = output("--pid", sleeper(CUDA_VISIBLE_DEVICES="0"), **variables)
    assert found == GpuView(seen=(EIGHT[0],), cuda=f"error {quoted}")
    # A task without GPUs needs no CUDA.
    assert output("--pid", sleeper(CUDA_VISIBLE_DEVICES="-1"), **variables) == GpuView(seen=())
    del variables["FAKE_CUDA_INIT"]
    variables["CUDA_VISIBLE_DEVICES"] = "-1"  # of the caller
    assert output("--pid", sleeper(CUDA_VISIBLE_DEVICES="0"), **variables).cuda == ""


def test_a_cuda_that_is_no_library_is_quoted_and_a_missing_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "kept")  # the probe sets it
    library = tmp_path / "libcuda.so.1"
    monkeypatch.setattr(gpu_probe, "_LIBCUDA", str(library))
    assert gpu_probe.cuda_fault(None) == ""
    library.write_text("no library")
    assert "libcuda.so.1" in gpu_probe.cuda_fault("0")


@pytest.mark.parametrize(
    ("function", "error", "view"),
    [
        (
            "nvmlDeviceGetHandleByIndex_v2", "GPU_IS_LOST",
            GpuView(seen=(), nvml="error 15 (GPU is lost)"),
        ),
        ("nvmlInitWithFlags", "UNKNOWN", GpuView(nvml="error 999 (Unknown Error)")),
        ("nvmlInitWithFlags", "LIBRARY_NOT_FOUND", GpuView(driver=False)),
    ],
)  # fmt: skip
def test_an_nvml_that_fails_is_quoted(
    driver: DriverOf, sleeper: Callable[..., str], function: str, error: str, view: GpuView
) -> None:
    broken = driver("eight-h100").box.model_copy(update={"fails": {function: error}})
    assert output("--pid", sleeper(), **driver(broken).environment) == view


def test_a_hanging_driver_is_abandoned(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(600)\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = python("-m", "lab.task.node.gpu_probe", "--within", "1", env=env)
    assert (done.returncode, done.stdout) == (-14, "")
