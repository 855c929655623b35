"""`make test-gpu` with fakes of the drivers: every step of it that needs no GPU.

TensorFlow trains on CPUs here. So the check of its traces must fail, and the other checks pass.
NVML's process lists are made of the real processes of the tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lab.gpu import Gpu, Inventory, Process
from tests.gpu import evidence, steps, trainings
from tests.gpu.host import Host
from tests.gpu.steps import STEPS
from tests.gpu.trainings import FAILED, PASSED, Training
from tests.support import cuda
from tests.support.commands import ROOT, call
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

DriverOf = Callable[[str | Box], Driver]

QUERY = "--query-gpu=index,uuid,name,memory.total,pci.bus_id,driver_version,compute_cap"
FEW = 400  # global steps; a program waits until its trace is complete


@pytest.fixture
def gpus(driver: DriverOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    """The drivers of a host with two busy H100, for the commands that a test starts."""
    whole = load("eight-h100")
    busy = {"utilisation_percent": 60, "used_mib": 20_000}
    cards = tuple(card.model_copy(update=busy) for card in whole.cards[:2])
    host = driver(whole.model_copy(update={"cards": cards}))
    library = cuda.build(tmp_path / "cuda")
    variables = cuda.variables(library, [card.uuid for card in cards])
    paths = f"{library}:{host.environment['LD_LIBRARY_PATH']}"
    for name, value in {**host.environment, **variables, "LD_LIBRARY_PATH": paths}.items():
        monkeypatch.setenv(name, value)
    return host.box


def task_of(process: psutil.Process) -> str:
    """The task of a program: its process name if it was forked, else a variable of it."""
    try:
        if "mnist_async.py" in " ".join(process.cmdline()):
            return process.environ().get("LAB_TASK", "")
        return process.name()
    except psutil.Error:
        return ""


def a_host(tmp_path: Path, box: Box, held: dict[str, int]) -> Host:
    """The host, whose NVML lists the processes of these tasks on the GPUs with these numbers."""

    def read() -> Inventory:
        running = [(each.pid, task_of(each)) for each in psutil.process_iter()]
        found = tuple(
            Gpu(
                index,
                card.uuid,
                card.name,
                (card.memory_mib or 0) * 2**20,
                processes=tuple(
                    Process(pid, task, 2**30) for pid, task in running if held.get(task) == index
                ),
            )
            for index, card in enumerate(box.cards)
        )
        return Inventory("uuid", found, None, None, driver=box.driver)

    folder = tmp_path / "project"
    folder.mkdir()
    return Host(read(), folder, read=read)


@pytest.mark.tensorflow
def test_a_training_by_processes(gpus: Box, tmp_path: Path) -> None:
    host = a_host(tmp_path, gpus, {"worker-0": 0, "worker-1": 0, "worker-2": 1})
    training = Training("async", FEW, trainings.book(), share=0.2)
    rows = trainings.check(host, training, trainings.train(host, training, "local"))
    found = {row.check: (row.result, row.detail) for row in rows}
    first, second = (evidence.short(gpu) for gpu in host.gpus)
    assert found.pop("the training succeeds")[0] == PASSED
    assert found == {
        "kernels in TensorFlow's traces": (
            FAILED,
            "; ".join(f"worker-{n} ran no kernel on its GPU 0 ({first})" for n in range(3)),
        ),
        # worker-2 is on the other GPU here.
        "processes in NVML's lists": (
            FAILED,
            f"NVML never listed worker-2 on its {first}; "
            f"NVML listed worker-2 on {second}, which is not its own",
        ),
        "telemetry": (PASSED, "busy up to 60%"),
        "memory within the share": (PASSED, "1.0 GiB at most, share 0.2"),
    }


def test_the_inventory_is_compared_with_nvidia_smi(
    gpus: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"{index}, {card.uuid}, {card.name}, {card.memory_mib}, {card.bus}, {gpus.driver}, "
        f"{card.capability}"
        for index, card in enumerate(gpus.cards)
    ]
    smi = tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    # pynvml loads a library once in a process, so another process looks.
    code = (
        "from pathlib import Path\n"
        "from tests.gpu.host import look\n"
        "from tests.gpu.steps import STEPS\n"
        "host = look(Path.cwd())\n"
        "print([row.result for step in STEPS[:3] for row in step.execute(host)])"
    )

    def printed(second: str) -> str:
        smi.write_text(f"#!/bin/sh\ncase $1 in {QUERY}) echo '{lines[0]}\n{second}';; esac\n")
        smi.chmod(0o755)
        return call(tmp_path, sys.executable, "-c", code).strip()

    assert printed(lines[1]) == "['passed', 'passed', 'passed']"
    assert printed(lines[1].replace("H100", "A100")) == "['failed', 'passed', 'passed']"


def test_the_stages_are_not_run_without_a_gpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "tests/gpu"]
    command += ["-p", "no:cacheprovider", "--evidence", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{len(STEPS)} skipped" in done.stdout
    for title in steps.STAGES.values():
        assert f"{title}: not run: no GPU here: " in done.stdout
    assert list(tmp_path.iterdir()) == []
