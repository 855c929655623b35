"""The GPUs that a task reports: files, and drivers that are compiled here."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.gpu.verification import GpuView
from lab.task.probes import gpu_probe
from lab.task.probes.health import gpu_nodes
from tests import cuda
from tests.agents import PATIENCE_S
from tests.nvml import Box, Driver

DriverOf = Callable[[str | Box], Driver]

A, B, C = (f"GPU-0000000{index}-1111-2222-3333-444444444444" for index in range(3))
SLICE = "MIG-00000000-1111-2222-3333-444444444444"


def bare(uuid: str) -> str:
    return uuid[4:]


@pytest.fixture(scope="module")
def libcuda(driver: DriverOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    driver("bare")  # finds a compiler, or raises
    return cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def old_libcuda(libcuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda.build(tmp_path_factory.mktemp("old"), old=True)


@pytest.fixture
def sleeper() -> Iterator[Callable[..., int]]:
    """Starts a process with these variables; its id."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**variables: str) -> int:
        environ = {"PATH": os.environ["PATH"], **variables}
        process = subprocess.Popen(
            ["sh", "-c", "echo; exec sleep 600"], env=environ, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # by now its variables are its own
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def output(*arguments: str, **variables: str) -> dict[str, Any]:
    """The output of the module in a separate process."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab.task.probes.gpu_probe", *arguments],
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


def test_device_nodes_are_those_of_gpus(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia", "null", "nvidia1x"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    assert list(gpu_nodes(tmp_path)) == [2, 10]


def test_whether_a_node_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidia3").symlink_to("nowhere")
    with contextlib.ExitStack() as opened:
        found = gpu_probe.device_nodes(tmp_path, opened)
        assert found == {"0": "", "3": "No such file or directory"}
        with pytest.raises(gpu_probe.Unavailable, match="No such file"):
            gpu_probe.device_nodes(tmp_path / "nowhere", opened)


def test_gpus_stay_active_until_all_are_queried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in gpu_probe.VARIABLES:
        monkeypatch.setenv(name, "kept")
    gpu = tmp_path / "nvidia4"
    gpu.touch()
    awake: list[bool] = []

    def asked() -> None:
        awake.append(is_open(gpu))

    for name in ("nvml", "cuda", "tensorflow"):
        monkeypatch.setattr(gpu_probe, name, asked)
    gpu_probe.probe(None, with_tensorflow=True, proc=tmp_path, devices=tmp_path)
    assert awake == [True, True, True]
    assert not is_open(gpu)


def is_open(path: Path) -> bool:
    """Whether this process holds it open."""
    return any(each.exists() and each.samefile(path) for each in Path("/proc/self/fd").iterdir())


def test_the_variables_of_a_process(tmp_path: Path) -> None:
    text = "PATH=/bin\0NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b\0A=b=c\0CUDA_VISIBLE_DEVICES=\0"
    (tmp_path / "environ").write_text(text)
    assert gpu_probe.environment(tmp_path) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with pytest.raises(gpu_probe.Unavailable, match="environ: No such file"):
        gpu_probe.environment(tmp_path / "nowhere")


def test_a_containers_own_nodes_count_and_a_processs_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in gpu_probe.VARIABLES:
        monkeypatch.setenv(name, "kept")  # and put back at the end
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia4").touch()
    for pid in ("1", "77"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "environ").write_text(f"CUDA_VISIBLE_DEVICES={pid}\0")
    places = {"proc": tmp_path, "devices": tmp_path / "dev"}
    inside = gpu_probe.probe(None, with_tensorflow=False, **places)
    assert inside["environment"] == {"CUDA_VISIBLE_DEVICES": "1"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "NVIDIA_VISIBLE_DEVICES" not in os.environ
    assert inside["nodes"] == {"4": ""}
    outside = gpu_probe.probe(77, with_tensorflow=False, **places)
    assert outside["environment"] == {"CUDA_VISIBLE_DEVICES": "77"}
    assert outside["nodes"] is outside["nvml"] is outside["tensorflow"] is None
    assert outside["reasons"]["nodes"] == outside["reasons"]["nvml"] == gpu_probe.SHOWS_WHOLE_HOST
    assert outside["reasons"]["tensorflow"] == gpu_probe.NOT_ASKED


@pytest.mark.parametrize(
    ("pins", "seen"),
    [
        (None, [A, B, C]),
        (f"{C},{A}", [C, A]),
        (f"{B},GPU-unknown,{A}", [B]),
        ("2", [C]),
        ("-1", []),
        ("", []),
    ],
)
def test_cuda_shows_what_the_process_may_use(
    libcuda: Path, sleeper: Callable[..., int], pins: str | None, seen: list[str]
) -> None:
    """The agent's variables count, not those of the calling process."""
    pid = sleeper(**({} if pins is None else {"CUDA_VISIBLE_DEVICES": pins}))
    other = {"CUDA_VISIBLE_DEVICES": B, **cuda.variables(libcuda, [A, B, C])}
    assert output("--pid", str(pid), **other)["cuda"] == [bare(each) for each in seen]


def test_an_older_cuda_lists_gpus_and_no_slices(
    old_libcuda: Path, libcuda: Path, sleeper: Callable[..., int]
) -> None:
    pid = str(sleeper())
    assert output("--pid", pid, **cuda.variables(libcuda, [SLICE]))["cuda"] == [bare(SLICE)]
    assert output("--pid", pid, **cuda.variables(old_libcuda, [A]))["cuda"] == [A]


def test_a_cuda_that_fails_is_quoted(
    libcuda: Path, sleeper: Callable[..., int], tmp_path: Path
) -> None:
    pid = str(sleeper())
    for code, arguments in (("802", "CUDA_ERROR_SYSTEM_NOT_READY"), ("999", "unknown")):
        found = output("--pid", pid, **cuda.variables(libcuda, [A]), FAKE_CUDA_INIT=code)
        assert found["cuda"] is None
        assert found["reasons"]["cuda"] == f"cuInit: error {code} ({arguments})"
        # The host finds the code there, and the hint by it.
        quoted = gpu_probe.CUDA_CODE.search(found["reasons"]["cuda"])
        assert quoted is not None
        assert quoted[1] == code
    (tmp_path / "libcuda.so.1").write_text("no library")
    found = output("--pid", pid, LD_LIBRARY_PATH=str(tmp_path))
    assert "libcuda.so.1" in found["reasons"]["cuda"]
    assert found["reasons"]["cuda"] != gpu_probe.NO_LIBCUDA


def test_without_a_driver_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also on a host with a GPU: these are no libraries' names.
    monkeypatch.setattr(gpu_probe, "_LIBCUDA", "libcuda-of-no-box.so.1")
    with pytest.raises(gpu_probe.Unavailable) as caught:
        gpu_probe.cuda()
    assert str(caught.value) == gpu_probe.NO_LIBCUDA


def test_nvml_shows_gpus_and_slices(driver: DriverOf) -> None:
    whole = driver("eight-h100")
    assert output(**whole.environment)["nvml"] == [gpu.uuid for gpu in whole.box.cards]
    cut = driver("mig")
    first, second, _ = cut.box.cards
    expected = [first.uuid, *(each.uuid for each in second.slices)]
    found = output(**cut.environment)["nvml"]
    assert found == expected
    assert second.uuid not in found
    # In each case, the library is closed again.
    assert cut.log.read_text().splitlines()[-1] == "shutdown"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nvmlDeviceGetHandleByIndex_v2": "GPU_IS_LOST"}, "GPU is lost"),
        ({"nvmlDeviceGetHandleByIndex_v2": "UNKNOWN"}, "Unknown Error"),
        ({"nvmlDeviceGetUUID": "NO_PERMISSION"}, "Insufficient Permissions"),
        ({"nvmlInitWithFlags": "UNKNOWN"}, "Unknown Error"),
        ({"nvmlInitWithFlags": "DRIVER_NOT_LOADED"}, "Driver Not Loaded"),
    ],
)
def test_an_nvml_that_fails_is_quoted(
    driver: DriverOf, changes: dict[str, str], reason: str
) -> None:
    host = driver("eight-h100").box
    gpu = host.cards[0].model_copy(update={"fails": changes})
    if "nvmlInitWithFlags" in changes:
        broken = host.model_copy(update={"fails": changes})
    else:
        broken = host.model_copy(update={"cards": (gpu, *host.cards[1:])})
    found = output(**driver(broken).environment)
    assert (found["nvml"], found["reasons"]["nvml"]) == (None, reason)


def test_a_hanging_driver_is_abandoned(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("import time\ntime.sleep(600)\n")
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.probes.gpu_probe", "--within", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (-14, b"")


def test_tensorflow_is_queried_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_probe, "tensorflow", lambda: 3)
    for name in gpu_probe.VARIABLES:
        monkeypatch.setenv(name, "kept")
    assert gpu_probe.main(["--pid", str(os.getpid())]) == 0
    assert json.loads(capsys.readouterr().out)["tensorflow"] is None
    assert gpu_probe.main(["--pid", str(os.getpid()), "--tensorflow"]) == 0
    assert json.loads(capsys.readouterr().out)["tensorflow"] == 3


class FakeTensorFlow:
    """The requested parts of the module."""

    def __init__(self, built_with_cuda: bool, gpus: int) -> None:
        self.test = type("test", (), {"is_built_with_cuda": lambda: built_with_cuda})
        listed = {"GPU": [object()] * gpus}
        self.config = type("config", (), {"list_physical_devices": lambda kind: listed[kind]})


def test_tensorflow_counts_gpus_where_its_build_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.setattr(gpu_probe, "_is_for_cpus", lambda: False)
    monkeypatch.setitem(sys.modules, "tensorflow", FakeTensorFlow(True, 2))
    assert gpu_probe.tensorflow() == 2
    monkeypatch.setitem(sys.modules, "tensorflow", FakeTensorFlow(False, 0))
    with pytest.raises(gpu_probe.Unavailable, match="no CUDA"):
        gpu_probe.tensorflow()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(gpu_probe.Unavailable, match="cannot be imported"):
        gpu_probe.tensorflow()


@pytest.mark.parametrize(
    ("installed", "for_cpus"),
    [
        (set(), False),
        ({"tensorflow"}, False),
        ({"tensorflow-cpu"}, True),
        ({"tensorflow", "tensorflow-cpu"}, False),
    ],
)
def test_a_wheel_for_cpus_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], for_cpus: bool
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.21.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "tensorflow", FakeTensorFlow(True, 1))
    if for_cpus:
        with pytest.raises(gpu_probe.Unavailable, match="no CUDA"):
            gpu_probe.tensorflow()
    else:
        assert gpu_probe.tensorflow() == 1
