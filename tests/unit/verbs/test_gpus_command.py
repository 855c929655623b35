"""`lab gpus`: the GPUs, their holders, and the view of each task."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends.environment import Environment
from lab.base.errors import LabError
from lab.cluster.gpu import Condition, Fault, Gpu, Inventory, Pair, Process
from lab.verbs import gpus as gpus_command
from tests.support.cli import replace_backends
from tests.support.fakes import PLAN, FakeEnvironment
from tests.support.gpu_views import inside

GIB = 2**30
UUID = "GPU-aaaaaaaa-1"
USED = Gpu(
    0,
    UUID,
    "Card\x1b[31m",
    80 * GIB,
    memory_free_bytes=60 * GIB,
    utilisation=0.87,
    processes=tuple(Process(pid, "python", GIB) for pid in range(11, 17)),
    compute_capability="6.0",
)
CARDS = (
    USED,
    Gpu(1, "GPU-bbbbbbbb-1", unknown=(("numa_node", Condition.NOT_SUPPORTED),)),
    Gpu(2, "GPU-cccccccc-1", compute_capability="6.1"),
    Gpu(3, "GPU-dddddddd-1", compute_capability="9.0"),
    Gpu(4, "GPU-eeeeeeee-1", compute_capability="5.2"),
)
BOX = Inventory(
    "uuid",
    CARDS,
    cpus=8,
    memory_bytes=GIB,
    pairs=(Pair(0, 1, nvlink=True, path="NODE"),),
    driver="580.95.05",
    cuda="13.0",
    faults=(Fault(Condition.GPU_LOST, "GPU is lost", "see `nvidia-smi`", "GPU 9"),),
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[Environment]:
    up: list[Environment] = []
    monkeypatch.setattr(gpus_command, "read_host", lambda: BOX)
    replace_backends(monkeypatch)
    monkeypatch.setattr(gpus_command, "list_running", lambda known: up)
    return up


@pytest.fixture
def environment(tmp_path: Path, host: list[Environment]) -> FakeEnvironment:
    pins = {"worker-0": (UUID,), "worker-1": ("1",)}
    tasks = tuple(replace(task, gpus=pins.get(task.name, ())) for task in PLAN.tasks)
    made = FakeEnvironment(tmp_path, plan=replace(PLAN, tasks=tasks))
    made.sights = {"ps-0": inside(), "worker-0": inside(UUID), "worker-1": inside(UUID)}
    host.append(made)
    return made


@pytest.mark.usefixtures("environment")
def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    gpus_command.command()
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "5 GPUs, driver 580.95.05, CUDA up to 13.0" in out
    row = next(line for line in out.splitlines() if "GPU-aaaaaaaa" in line)
    for part in (r"Card\x1b[31m", "20.0of80.0", "87%", "mnist/worker-0"):
        assert part in row.replace(" ", ""), part
    used = "python (pid 11), python (pid 12), python (pid 13), python (pid 14), python (pid 15)"
    assert f"GPU 0 is used by {used} and 1 more" in out
    assert re.search(r"^ *0 +NVLink", out, re.MULTILINE)
    assert "GPU 9: GPU lost (GPU is lost); see `nvidia-smi`" in out
    # What each task sees.
    assert f"mnist/worker-1: mismatch (planned 1, sees {UUID}); " in out
    assert "proved to see no GPU: mnist/ps-0" in out
    assert "GPU 4: too old (TensorFlow 2.21 needs compute capability 6.0 or later); set LAB_" in out
    assert "GPU 3: " not in out


@pytest.mark.usefixtures("environment")
def test_the_output_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    gpus_command.command(json=True)
    found = json.loads(capsys.readouterr().out)
    gpus = found["gpus"]
    assert [gpu["tasks"] for gpu in gpus] == [["mnist/worker-0"], ["mnist/worker-1"], [], [], []]
    assert gpus[1]["unknown"] == {"numa_node": "not supported by this GPU"}
    assert found["faults"][0]["status"] == "GPU lost"
    tasks = {
        each["where"]: (each["status"], each["planned"], each["seen"]) for each in found["tasks"]
    }
    assert tasks["worker-0"] == ("proved", [UUID], [UUID])
    assert tasks["worker-1"] == ("mismatch", ["1"], [UUID])


@pytest.mark.usefixtures("host")
def test_a_missing_driver_is_no_failure_and_a_broken_one_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(condition: Condition) -> None:
        fault = Fault(condition, "NVML's words", "reboot", "driver")
        bare = Inventory("none", (), 4, GIB, ("no NVIDIA driver answers",), faults=(fault,))
        monkeypatch.setattr(gpus_command, "read_host", lambda: bare)

    without(Condition.NO_DRIVER)
    gpus_command.command()
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "no GPUs"
    assert "driver: no driver (NVML's words); reboot" in out
    without(Condition.MISMATCH)
    with pytest.raises(LabError, match="driver and library do not match; reboot") as raised:
        gpus_command.command(json=True)
    assert raised.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["faults"][0]["where"] == "driver"
