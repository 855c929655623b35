"""A host with real GPUs, compared with `nvidia-smi`: `make test-gpu`."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from lab.gpu import Inventory, read_host
from lab.gpu.sampler import Sampler
from lab.units import MIB

FIELDS = ("index", "uuid", "name", "memory.total", "pci.bus_id", "driver_version")


def rows(*fields: str) -> list[dict[str, str]]:
    """The output of nvidia-smi for each GPU."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"NO GPU WAS TESTED: nvidia-smi says {done.stdout.strip()!r}")
    lines = done.stdout.strip().splitlines()
    return [
        dict(zip(fields, (cell.strip() for cell in line.split(",")), strict=True)) for line in lines
    ]


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("NO GPU WAS TESTED: there is no nvidia-smi, hence no NVIDIA driver here")
    return read_host()


def test_every_gpu_matches_nvidia_smi(inventory: Inventory) -> None:
    known = {row["uuid"]: row for row in rows(*FIELDS)}
    seen = {gpu.slice_of or gpu.device_id for gpu in inventory.gpus}
    left_out = {fault.where for fault in inventory.faults}
    missing = {f"GPU {row['index']}" for uuid, row in known.items() if uuid not in seen}
    assert seen <= set(known)
    assert missing <= left_out
    for gpu in inventory.gpus:
        row = known[gpu.slice_of or gpu.device_id]
        assert gpu.index == int(row["index"])
        assert gpu.pci_bus_id.upper() == row["pci.bus_id"].upper()
        assert inventory.driver == row["driver_version"]
        if gpu.is_slice:
            assert gpu.name.startswith(row["name"])
        else:
            assert gpu.name == row["name"]
            assert gpu.memory_bytes // MIB == int(row["memory.total"])


def test_the_compute_capability_matches_nvidia_smi(inventory: Inventory) -> None:
    known = {row["uuid"]: row["compute_cap"] for row in rows("uuid", "compute_cap")}
    for gpu in inventory.gpus:
        assert gpu.compute_capability == known[gpu.slice_of or gpu.device_id]


def test_unknown_gpu_fields_have_a_reason(inventory: Inventory) -> None:
    for gpu in inventory.gpus:
        unknown = dict(gpu.unknown)
        assert gpu.memory_free_bytes is not None or "memory_free_bytes" in unknown
        assert gpu.utilisation is not None or "utilisation" in unknown
        assert gpu.minor is not None or "minor" in unknown
        assert gpu.cpus or "cpus" in unknown
    whole = [gpu.index for gpu in inventory.gpus if not gpu.is_slice]
    assert len(inventory.pairs) == len(whole) * (len(whole) - 1) // 2


def test_every_gpu_can_be_sampled(inventory: Inventory) -> None:
    with Sampler([gpu.device_id for gpu in inventory.gpus]) as sampler:
        samples = sampler.sample()
    assert [sample.device_id for sample in samples] == [gpu.device_id for gpu in inventory.gpus]
    for sample in samples:
        assert sample.memory_used_bytes is not None
        assert sample.utilisation is None or 0 <= sample.utilisation <= 1
