"""`lab gpus`: the GPUs, their holders, and the view of each task."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.backends import Environment
from lab.cli.commands import gpus as gpus_command
from lab.errors import InputError, LabError
from lab.gpu import Condition, Fault, Gpu, Inventory, Pair, Process
from lab.gpu.verification import GpuView
from tests.unit.fakes import PLAN, FakeEnvironment

GIB = 2**30
FAULT = Fault(Condition.GPU_LOST, "GPU 2", "GPU is lost", "see `nvidia-smi`")
BOX = Inventory(
    "uuid",
    (
        Gpu(
            0,
            "GPU-aaaaaaaa-1",
            "Card\x1b[31m",
            80 * GIB,
            minor=0,
            memory_free_bytes=60 * GIB,
            utilisation=0.87,
            numa_node=1,
            processes=tuple(Process(pid, "python", GIB) for pid in range(11, 17)),
        ),
        Gpu(1, "GPU-bbbbbbbb-1", "Card", unknown=(("numa_node", Condition.NOT_SUPPORTED),)),
    ),
    cpus=8,
    memory_bytes=GIB,
    pairs=(Pair(0, 1, nvlinks=18, path="NODE", p2p=True),),
    driver="550.1",
    cuda="12.4",
    faults=(FAULT,),
)


def told(visible: str) -> GpuView:
    """The report of a container when only variables can be read."""
    variables = {"NVIDIA_VISIBLE_DEVICES": visible or "void", "CUDA_VISIBLE_DEVICES": visible}
    if not visible:
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return GpuView(environment=variables, isolated=True, engine=tuple(filter(None, [visible])))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    pins = {"worker-0": ("GPU-aaaaaaaa-1",), "worker-1": ("1",)}
    tasks = tuple(replace(task, gpus=pins.get(task.name, ())) for task in PLAN.tasks)
    made = FakeEnvironment(tmp_path, plan=replace(PLAN, tasks=tasks))
    made.sights = {
        "ps-0": told(""),
        "worker-0": told("GPU-aaaaaaaa-1"),
        "worker-1": told("GPU-aaaaaaaa-1"),
    }
    up: list[Environment] = [made]
    monkeypatch.setattr(gpus_command, "read_host", lambda: BOX)
    monkeypatch.setattr(gpus_command, "backends", list)
    monkeypatch.setattr(gpus_command, "list_running", lambda known: up)
    return made


def test_the_table_shows_gpus_holders_and_faults(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus_command.command()
    out = capsys.readouterr().out
    assert "2 GPUs, driver 550.1, CUDA up to 12.4" in out
    row = next(line for line in out.splitlines() if "GPU-aaaaaaaa" in line)
    for part in (r"Card\x1b[31m", "20.0 of 80.0", "87%", "mnist/worker-0"):
        assert part.replace(" ", "") in row.replace(" ", ""), part
    used = "python (pid 11), python (pid 12), python (pid 13), python (pid 14), python (pid 15)"
    assert f"GPU 0 is used by {used} and 1 more" in out
    assert re.search(r"^ *0 +NV18", out, re.MULTILINE)
    assert "GPU 2: GPU lost (GPU is lost); see `nvidia-smi`" in out
    assert "\x1b" not in out


def test_visible_gpus_are_shown_beside_the_plan(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus_command.command(json=True)
    found = json.loads(capsys.readouterr().out)
    assert [gpu["tasks"] for gpu in found["gpus"]] == [["mnist/worker-0"], ["mnist/worker-1"]]
    assert found["gpus"][1]["unknown"] == {"numa_node": "not supported by this GPU"}
    assert found["faults"][0]["condition"] == "GPU lost"
    tasks = {each["task"]: each for each in found["tasks"]}
    assert tasks["worker-0"]["verdict"] == "declared"
    assert tasks["worker-0"]["planned"] == tasks["worker-0"]["seen"] == ["GPU-aaaaaaaa-1"]
    assert tasks["worker-1"]["verdict"] == "mismatch"
    assert (tasks["worker-1"]["planned"], tasks["worker-1"]["seen"]) == (["1"], ["GPU-aaaaaaaa-1"])
    gpus_command.command()
    out = capsys.readouterr().out
    assert "worker-1: planned 1, sees GPU-aaaaaaaa-1" in out
    assert "declared to see no GPU: mnist/ps-0" in out


def test_the_table_shows_which_tensorflow_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capabilities = ("6.0", "6.1", "9.0", "5.2", "")
    gpus = tuple(
        Gpu(index, f"GPU-{index}", compute_capability=each)
        for index, each in enumerate(capabilities)
    )
    host = Inventory("uuid", gpus, 8, GIB, driver="580.95.05", cuda="13.0")
    monkeypatch.setattr(gpus_command, "read_host", lambda: host)
    monkeypatch.setattr(gpus_command, "backends", list)
    gpus_command.command()
    out = capsys.readouterr().out
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert ["0", "6.0", "works without cuDNN", "works"] in rows
    assert ["2", "9.0", "works", "works after compiling"] in rows
    assert ["3", "5.2", "too old", "works"] in rows
    assert ["4", "unknown", "unknown", "unknown"] in rows
    assert out.count("GPU 0, 1: cuDNN ") == 1
    assert "GPU 3: TensorFlow 2.21 needs compute capability 6.0 or later; set LAB_TENSORFLOW" in out
    assert "GPU 2: " not in out
    gpus_command.command(json=True)
    shown = json.loads(capsys.readouterr().out)["gpus"]
    assert [each["compute_capability"] for each in shown] == list(capabilities)
    assert shown[2]["tensorflow"]["2.21"] == {"verdict": "works", "explanation": "", "mend": ""}
    assert shown[3]["tensorflow"]["2.21"]["verdict"] == "too old"
    assert shown[3]["tensorflow"]["2.21"]["mend"].endswith("or use `--gpus none`")


def box_without(condition: Condition) -> Inventory:
    fault = Fault(condition, "driver", "NVML's words", "reboot")
    return Inventory("none", (), 4, GIB, ("no NVIDIA driver answers",), faults=(fault,))


def test_a_host_without_a_driver_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpus_command, "read_host", lambda: box_without(Condition.NO_DRIVER))
    monkeypatch.setattr(gpus_command, "backends", list)
    gpus_command.command()
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "no GPUs"
    assert "driver: no driver (NVML's words); reboot" in out


def test_a_driver_that_is_broken_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpus_command, "read_host", lambda: box_without(Condition.MISMATCH))
    monkeypatch.setattr(gpus_command, "backends", list)
    with pytest.raises(LabError) as raised:
        gpus_command.command(json=True)
    assert raised.value.exit_code == 1
    assert str(raised.value).endswith("driver and library do not match; reboot")
    assert json.loads(capsys.readouterr().out)["faults"][0]["where"] == "driver"


def test_watching_needs_a_terminal(environment: FakeEnvironment) -> None:
    with pytest.raises(InputError, match="--watch needs a terminal"):
        gpus_command.command(watch=True)


def test_watching_as_json_is_a_line_each_second_until_ctrl_c(
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("lab.cli.commands.gpus.time.sleep", sleep)
    gpus_command.command(json=True, watch=True)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["driver"] for line in lines] == ["550.1", "550.1"]
    assert slept == [1.0, 1.0]


def test_watching_queries_tasks_rarely_and_survives_a_silent_engine(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [0.0], [0]

    def look(*, tensorflow: bool) -> dict[str, GpuView]:
        asked[0] += 1
        if asked[0] > 1:
            raise LabError("the Docker engine does not answer")
        return dict(environment.sights)

    monkeypatch.setattr(environment, "probe_gpus", look)
    monkeypatch.setattr("lab.cli.commands.gpus.time.monotonic", lambda: now[0])
    watcher = gpus_command._Watcher()
    first = watcher.snapshot()
    now[0] = 29.0
    assert watcher.snapshot() == first
    assert asked == [1]
    now[0] = 31.0
    assert watcher.snapshot() == first
    assert asked == [2]
    assert [each.task for each in first.pinned] == ["ps-0", "worker-0", "worker-1"]
