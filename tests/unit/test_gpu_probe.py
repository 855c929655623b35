"""The GPUs that a task reports: files, and drivers that are compiled here."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.gpu.evidence import GpuView
from lab.gpu_answers import NO_LIBCUDA, NOT_ASKED, SHOWS_WHOLE_HOST, VARIABLES
from lab.task.node import gpu_probe
from lab.task.node.health import gpu_nodes
from tests.support import cuda
from tests.support.agents import PATIENCE_S
from tests.support.nvml.box import Box
from tests.support.nvml.library import Driver

DriverOf = Callable[[str | Box], Driver]

A, B, C = (f"GPU-0000000{index}-1111-2222-3333-444444444444" for index in range(3))
SLICE = "MIG-00000000-1111-2222-3333-444444444444"


@pytest.fixture(scope="module")
def libcuda(driver: DriverOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    driver("bare")  # finds a compiler, or raises
    return cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe sets its own variables; they are put back at the end."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "kept")


@pytest.fixture
def sleeper() -> Iterator[Callable[..., str]]:
    """Starts a process with these variables; its id."""
    with contextlib.ExitStack() as stack:

        def start(**variables: str) -> str:
            environ = {"PATH": os.environ["PATH"], **variables}
            command = ["sh", "-c", "echo; exec sleep 600"]
            process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()  # by now its variables are its own
            return str(process.pid)

        yield start


def output(*arguments: str, **variables: str) -> dict[str, Any]:
    """The output of the module in a separate process."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab.task.node.gpu_probe", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    # The host reads the whole report of a task.
    assert GpuView.from_json(line).reasons == found["reasons"]
    return found


def is_open(path: Path) -> bool:
    """Whether this process holds it open."""
    return any(each.exists() and each.samefile(path) for each in Path("/proc/self/fd").iterdir())


def test_device_nodes_and_whether_they_can_be_opened(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia", "null", "nvidia1x"):
        (tmp_path / name).touch()
    assert list(gpu_nodes(tmp_path)) == [2, 10]
    (tmp_path / "nvidia3").symlink_to("nowhere")
    with contextlib.ExitStack() as opened:
        found = gpu_probe.device_nodes(tmp_path, opened)
        assert found == {"2": "", "3": "No such file or directory", "10": ""}
        with pytest.raises(gpu_probe.Unavailable, match="No such file"):
            gpu_probe.device_nodes(tmp_path / "nowhere", opened)


@pytest.mark.usefixtures("variables")
def test_a_containers_own_nodes_count_and_a_processs_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "nvidia4"
    node.touch()
    for pid, text in (("1", "A=b=c\0NVIDIA_VISIBLE_DEVICES=x,y\0"), ("77", "")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "environ").write_text(f"{text}CUDA_VISIBLE_DEVICES={pid}\0")
    awake: list[bool] = []
    for name in ("nvml", "cuda", "tensorflow"):
        monkeypatch.setattr(gpu_probe, name, lambda: awake.append(is_open(node)))
    inside = gpu_probe.probe(None, with_tensorflow=True, proc=tmp_path, devices=tmp_path)
    assert inside["environment"] == {"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "x,y"}
    assert inside["nodes"] == {"4": ""}
    # A GPU sleeps while its node is closed, and needs seconds to wake up.
    assert (awake, is_open(node)) == ([True, True, True], False)
    outside = gpu_probe.probe(77, with_tensorflow=False, proc=tmp_path, devices=tmp_path)
    assert outside["environment"] == {"CUDA_VISIBLE_DEVICES": "77"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "77"
    assert "NVIDIA_VISIBLE_DEVICES" not in os.environ
    assert outside["nodes"] is outside["nvml"] is outside["tensorflow"] is None
    assert outside["reasons"]["nodes"] == outside["reasons"]["nvml"] == SHOWS_WHOLE_HOST
    assert outside["reasons"]["tensorflow"] == NOT_ASKED
    with pytest.raises(gpu_probe.Unavailable, match="environ: No such file"):
        gpu_probe.environment(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("pins", "seen"),
    [
        (None, [A, B, C]),
        (f"{B},GPU-unknown,{A}", [B]),
        ("2", [C]),
        ("-1", []),
    ],
)
def test_cuda_shows_what_the_process_may_use(
    libcuda: Path, sleeper: Callable[..., str], pins: str | None, seen: list[str]
) -> None:
    """The agent's variables count, not those of the calling process."""
    pid = sleeper(**({} if pins is None else {"CUDA_VISIBLE_DEVICES": pins}))
    other = {"CUDA_VISIBLE_DEVICES": B, **cuda.variables(libcuda, [A, B, C])}
    assert output("--pid", pid, **other)["cuda"] == [each[4:] for each in seen]


@pytest.mark.parametrize("quoted", ["802 (CUDA_ERROR_SYSTEM_NOT_READY)", "999 (unknown)"])
def test_a_cuda_that_fails_is_quoted(
    libcuda: Path, sleeper: Callable[..., str], quoted: str
) -> None:
    variables = cuda.variables(libcuda, [A])
    found = output("--pid", sleeper(), **variables, FAKE_CUDA_INIT=quoted[:3])
    assert (found["cuda"], found["reasons"]["cuda"]) == (None, f"cuInit: error {quoted}")


def test_an_older_cuda_and_one_that_is_no_library(
    libcuda: Path,
    sleeper: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid, old = sleeper(), cuda.build(tmp_path / "old", old=True)
    assert output("--pid", pid, **cuda.variables(libcuda, [SLICE]))["cuda"] == [SLICE[4:]]
    assert output("--pid", pid, **cuda.variables(old, [A]))["cuda"] == [A]
    (tmp_path / "libcuda.so.1").write_text("no library")
    found = output("--pid", pid, LD_LIBRARY_PATH=str(tmp_path))
    assert "libcuda.so.1" in found["reasons"]["cuda"]
    assert found["reasons"]["cuda"] != NO_LIBCUDA
    # Also on a host with a GPU: this is no library's name.
    monkeypatch.setattr(gpu_probe, "_LIBCUDA", "libcuda-of-no-box.so.1")
    with pytest.raises(gpu_probe.Unavailable, match=re.escape(NO_LIBCUDA)):
        gpu_probe.cuda()


def test_nvml_shows_gpus_and_slices(driver: DriverOf) -> None:
    whole = driver("eight-h100")
    assert output(**whole.environment)["nvml"] == [gpu.uuid for gpu in whole.box.cards]
    cut = driver("mig")
    first, second, _ = cut.box.cards
    assert output(**cut.environment)["nvml"] == [first.uuid, *(each.uuid for each in second.slices)]
    # In each case, the library is closed again.
    assert cut.log.read_text().splitlines()[-1] == "shutdown"


@pytest.mark.parametrize(
    ("function", "error", "reason"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", "GPU_IS_LOST", "GPU is lost"),
        ("nvmlInitWithFlags", "UNKNOWN", "Unknown Error"),
    ],
)
def test_an_nvml_that_fails_is_quoted(
    driver: DriverOf, function: str, error: str, reason: str
) -> None:
    broken = driver("eight-h100").box.model_copy(update={"fails": {function: error}})
    found = output(**driver(broken).environment)
    assert (found["nvml"], found["reasons"]["nvml"]) == (None, reason)


def test_a_hanging_driver_is_abandoned(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(600)\n")
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.node.gpu_probe", "--within", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (-14, b"")


def fake_tensorflow(gpus: int, *, for_cuda: bool) -> SimpleNamespace:
    """The requested parts of the module."""
    listed = {"GPU": [object()] * gpus}
    return SimpleNamespace(
        test=SimpleNamespace(is_built_with_cuda=lambda: for_cuda),
        config=SimpleNamespace(list_physical_devices=listed.__getitem__),
    )


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("installed", "module", "found"),
    [
        ({"tensorflow"}, fake_tensorflow(2, for_cuda=True), 2),
        (set(), fake_tensorflow(1, for_cuda=True), 1),
        ({"tensorflow"}, fake_tensorflow(0, for_cuda=False), "no CUDA"),
        ({"tensorflow"}, None, "cannot be imported"),
        ({"tensorflow-cpu"}, fake_tensorflow(1, for_cuda=True), "no CUDA"),  # it is not imported
    ],
)
def test_tensorflow_counts_gpus_where_its_build_can(
    installed: set[str], module: object, found: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.21.0"

    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    if isinstance(found, int):
        assert gpu_probe.tensorflow() == found
    else:
        with pytest.raises(gpu_probe.Unavailable, match=found):
            gpu_probe.tensorflow()
