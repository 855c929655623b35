"""`make test-gpu`: trainings on real GPUs; a test that this host cannot run says what is missing.

Tests `in_processes` need one GPU and the TensorFlow for CUDA in this Python. Those `in_containers`
need an engine, and most of them several GPUs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.base.units import MIB
from lab.cluster.gpu import Inventory, read_host
from lab.runner.gpu_metrics import open_gpus
from tests.gpu.host import no_cuda
from tests.gpu.trainings import (
    STEPS,
    Training,
    cluster,
    faults,
    lab,
    make_project,
    on_all_gpus,
    on_one_gpu,
)

BUILD_S = 1700.0
QUERY = "index,uuid,name,memory.total,pci.bus_id,driver_version,compute_cap"

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    found = read_host()
    if not found.gpus:
        reasons = "; ".join(str(fault) for fault in found.faults) or "the driver lists none"
        pytest.skip(f"no GPU here: {reasons}")
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    make_project(folder)
    return folder


@pytest.fixture
def cuda(inventory: Inventory) -> None:
    """The TensorFlow for CUDA in this Python."""
    if why_not := no_cuda():
        pytest.skip(why_not)


@pytest.fixture
def containers(inventory: Inventory) -> None:
    if why_not := ComposeBackend().unavailable_reason():
        pytest.skip(why_not)


def train(project: Path, training: Training, backend: str, inventory: Inventory) -> None:
    memory_bytes = {gpu.device_id: gpu.memory_bytes for gpu in inventory.gpus}
    assert [*faults(project, training, backend, memory_bytes)] == []


def test_the_inventory_is_that_of_nvidia_smi(inventory: Inventory) -> None:
    """GPUs that the inventory leaves out are in nvidia-smi's, too."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    printed = subprocess.check_output(command, text=True).splitlines()
    theirs = {tuple(cell.strip() for cell in line.split(",")) for line in printed}
    left_out = {fault.where for fault in inventory.faults}
    cut = {gpu.slice_of for gpu in inventory.gpus}
    ours = {
        (
            *(str(gpu.index), gpu.device_id, gpu.name, str(gpu.memory_bytes // MIB)),
            *(gpu.pci_bus_id.upper(), inventory.driver, gpu.compute_capability),
        )
        for gpu in inventory.gpus
        if not gpu.is_slice
    }
    assert ours == {r for r in theirs if r[1] not in cut and f"GPU {r[0]}" not in left_out}


def test_each_unknown_field_has_a_reason(inventory: Inventory) -> None:
    for gpu in inventory.gpus:
        for name in ("memory_free_bytes", "utilisation", "minor", "cpus"):
            assert getattr(gpu, name) not in {None, ()} or name in dict(gpu.unknown), gpu


def test_every_gpu_can_be_sampled(inventory: Inventory) -> None:
    gpus = [gpu.device_id for gpu in inventory.gpus]
    with open_gpus(gpus) as sample:
        used = {each.gpu: each.memory_used_bytes for each in sample()}
    assert [gpu for gpu in gpus if used.get(gpu) is None] == []


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("experiment", STEPS)
def test_training_in_processes(experiment: str, project: Path, inventory: Inventory) -> None:
    train(project, on_one_gpu(experiment), "local", inventory)


@pytest.mark.usefixtures("containers")
def test_the_image_in_containers(project: Path) -> None:
    """It is built, unless it is here."""
    lab(project, cluster(1, 1, ps=False), "build", "--gpus", "uuid", within_s=BUILD_S)


@pytest.mark.usefixtures("containers")
def test_the_books_layout_in_containers(project: Path, inventory: Inventory) -> None:
    train(project, on_one_gpu("async"), "compose", inventory)


@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize("experiment", STEPS)
def test_training_in_containers(experiment: str, project: Path, inventory: Inventory) -> None:
    if len(inventory.gpus) < 2:
        pytest.skip("it needs two GPUs")
    train(project, on_all_gpus(experiment, len(inventory.gpus)), "compose", inventory)
