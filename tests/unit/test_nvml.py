"""The real nvidia-ml-py with the fake library: every host, every condition, and each close."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from lab.gpu import Condition
from lab.gpu.nvml import condition_of, fault_of
from lab.gpu.topology import bits_set, numa_node
from lab.units import MIB
from tests.agents import PATIENCE_S
from tests.engine import ROOT
from tests.nvml import BOXES, Box, Driver, load
from tests.nvml.box import cpu_ids

Have = Callable[[str | Box], Driver]

SEE = """
import dataclasses, json
from lab.gpu import NvmlError, read_host
from lab.gpu.sampler import Sampler
try:
    inventory = read_host()
    ids = [gpu.device_id for gpu in inventory.gpus] + ["GPU-of-no-box"]
    seen = dataclasses.asdict(inventory) | {"samples": []}
    if inventory.gpus:
        with Sampler(ids) as sampler:
            seen["samples"] = [dataclasses.asdict(each) for each in sampler.sample()]
except NvmlError as error:
    seen = {"error": str(error), "faults": [dataclasses.asdict(error.fault)]}
print(json.dumps(seen))
"""


def run(driver: Driver, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A process that finds the host by its driver."""
    environment = {**os.environ, **driver.environment, "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def seen(driver: Have) -> Callable[[str], dict[str, Any]]:
    """Lab's inventory of a host; each is read once."""
    known: dict[str, dict[str, Any]] = {}

    def see(name: str) -> dict[str, Any]:
        if name not in known:
            host = driver(name)
            before = calls(host)
            known[name] = json.loads(run(host, "-c", SEE).stdout)
            made = calls(host) - before
            assert made["init"] == made["shutdown"]
            known[name]["calls"] = made
        return known[name]

    return see


See = Callable[[str], dict[str, Any]]


def calls(driver: Driver) -> Counter[str]:
    return Counter(driver.log.read_text().split() if driver.log.exists() else ())


def conditions(seen: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fault["where"], fault["condition"]) for fault in seen["faults"]]


def unknown(gpu: dict[str, Any]) -> dict[str, str]:
    return dict(gpu["unknown"])


# ---- Hosts


def test_eight_gpus_are_read_correctly(seen: See) -> None:
    found, host = seen("eight-h100"), load("eight-h100")
    assert (found["mode"], found["driver"], found["cuda"]) == ("uuid", "580.95.05", "13.0")
    assert (found["faults"], found["notices"]) == ([], [])
    for index, (gpu, told) in enumerate(zip(found["gpus"], host.cards, strict=True)):
        assert told.memory_mib is not None
        assert gpu == {
            "index": index,
            "device_id": told.uuid,
            "name": "NVIDIA H100 NVL",
            "memory_bytes": told.memory_mib * MIB,
            "slice_of": "",
            "pci_bus_id": told.bus,
            "minor": index,
            "memory_free_bytes": (told.memory_mib - told.used_mib) * MIB,
            "utilisation": 0.0,
            "numa_node": index // 4,
            "cpus": list(cpu_ids(told.cpus or "")),
            "processes": [],
            "compute_capability": "9.0",
            "unknown": [],
        }
    assert len(found["pairs"]) == 28
    for pair in found["pairs"]:
        neighbours = pair["first"] ^ 1 == pair["second"]
        assert pair["nvlinks"] == (12 if neighbours else 0)
        assert pair["p2p"] is True
    paths = {(pair["first"], pair["second"]): pair["path"] for pair in found["pairs"]}
    assert [paths[0, 1], paths[2, 3], paths[4, 5]] == ["PIX", "PXB", "PHB"]
    assert [paths[0, 3], paths[4, 7], paths[3, 4]] == ["NODE", "NODE", "SYS"]
    assert found["samples"][7] == {
        "device_id": host.cards[7].uuid,
        "utilisation": 0.0,
        "memory_used_bytes": 4 * MIB,
        "power_w": 68.0,
    }
    assert len(found["samples"]) == 8
    # Once for the inventory of the host, and once for the samples.
    assert found["calls"] == {"init": 2, "shutdown": 2}


def test_the_compute_capability_of_a_slice_is_that_of_its_gpu(seen: See) -> None:
    assert {gpu["compute_capability"] for gpu in seen("mig")["gpus"]} == {"8.0"}
    generations = [gpu["compute_capability"] for gpu in seen("generations")["gpus"]]
    assert generations == ["6.0", "6.1", "8.0", "8.9", "9.0", "10.0", "12.0"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"missing": ("nvmlDeviceGetCudaComputeCapability",)}, "not known to this driver"),
        ({"fails": {"nvmlDeviceGetCudaComputeCapability": "UNKNOWN"}}, "other"),
    ],
)
def test_a_compute_capability_that_is_not_reported(
    change: dict[str, Any], why: str, driver: Have
) -> None:
    box = load("switch").model_copy(update=change)
    found = json.loads(run(driver(box), "-c", SEE).stdout)
    assert [gpu["compute_capability"] for gpu in found["gpus"]] == ["", ""]
    assert {unknown(gpu)["compute_capability"] for gpu in found["gpus"]} == {why}
    shown = run(driver(box), "-m", "lab", "gpus").stdout
    assert "the GPU's compute capability is unknown" in shown


def test_links_through_a_switch_count_as_far_as_both_have_them(seen: See) -> None:
    (pair,) = seen("switch")["pairs"]
    assert pair["nvlinks"] == 16
    assert not any("nvlinks" in unknown(gpu) for gpu in seen("switch")["gpus"])


def test_a_mig_gpu_is_listed_as_its_slices(seen: See) -> None:
    found, host = seen("mig"), load("mig")
    whole, *parts = found["gpus"]
    assert (whole["slice_of"], whole["utilisation"]) == ("", 0.37)
    assert [part["device_id"] for part in parts] == [each.uuid for each in host.cards[1].slices]
    assert {part["slice_of"] for part in parts} == {host.cards[1].uuid}
    assert {(part["index"], part["minor"], part["pci_bus_id"]) for part in parts} == {
        (1, 1, "00000000:2A:00.0")
    }
    assert [part["name"].partition(" MIG ")[2] for part in parts] == ["3g.20gb", "2g.10gb", "1g"]
    assert [part["memory_bytes"] // MIB for part in parts] == [19968, 9856, 4864]
    assert parts[0]["processes"] == [
        {"pid": 4242, "name": "/usr/bin/python3", "memory_bytes": 900 * MIB, "computes": True}
    ]
    assert {tuple(unknown(part).items()) for part in parts} == {
        (("utilisation", "not supported by this GPU"),)
    }
    assert conditions(found) == [("GPU 2", "MIG mode without slices")]
    assert "nvidia-smi mig -i 2 -cgi" in found["faults"][0]["mend"]
    assert found["notices"] == ["GPU 2 is in MIG mode without slices and is left out"]
    assert found["pairs"] == []
    assert found["samples"][1] == {
        "device_id": host.cards[1].slices[0].uuid,
        "utilisation": None,
        "memory_used_bytes": 12 * MIB,
        "power_w": None,
    }


def test_slices_without_permission_are_left_out(seen: See) -> None:
    found = seen("mig-no-permission")
    assert [gpu["device_id"] for gpu in found["gpus"]] == [
        load("mig-no-permission").cards[0].slices[1].uuid
    ]
    assert conditions(found) == [("GPU 1", "no permission")]
    assert found["notices"] == [
        "GPU 0: some MIG slices are left out: this user may not use them",
        "GPU 1 does not answer (Insufficient Permissions) and is left out",
    ]


PLACE = """
import json, sys
from lab.config import parse_cluster
from lab.gpu import read_host
from lab.placement.place import place
plan = place(parse_cluster(sys.argv[1].encode(), "c"), read_host())
print(json.dumps([task.gpus for task in plan.tasks]))
"""


def test_a_count_takes_the_slices_that_a_container_was_given(driver: Have) -> None:
    config = "version: 1\nname: m\nnodes: {a: {gpus: 1}}\njobs: {worker: {on: [a]}}\n"
    for name, gpu in (("mig-no-permission", -1), ("mig", 0)):
        done = run(driver(name), "-c", PLACE, config)
        first = load(name).cards[0]
        wanted = first.slices[gpu].uuid if gpu else first.uuid
        assert json.loads(done.stdout) == [[wanted]]


def test_a_driver_without_libcuda_is_a_driver(seen: See) -> None:
    found = seen("no-libcuda")
    assert (len(found["gpus"]), found["driver"], found["cuda"]) == (1, "550.54.15", "")
    assert found["faults"] == [
        {
            "condition": "other",
            "where": "CUDA version",
            "detail": "libcuda.so.1 is not installed",
            "mend": "install `libcuda1`",
        }
    ]


def test_a_driver_that_hangs_does_not_keep_ctrl_c_from_ending_the_command(driver: Have) -> None:
    host = driver("hanging")
    looking = subprocess.Popen(
        [sys.executable, "-c", SEE],
        env={**os.environ, **host.environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not calls(host) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert calls(host) == {"hang": 1}
        looking.send_signal(signal.SIGINT)
        assert looking.wait(PATIENCE_S) == -signal.SIGINT
    finally:
        looking.kill()
        looking.wait()


def test_lost_gpus_are_named_and_the_others_are_kept(seen: See) -> None:
    found = seen("lost")
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 3]
    assert conditions(found) == [("GPU 1", "GPU lost"), ("GPU 2", "GPU lost")]
    assert found["notices"] == [
        f"GPU {index} does not answer (GPU is lost) and is left out" for index in (1, 2)
    ]
    assert [(pair["first"], pair["second"]) for pair in found["pairs"]] == [(0, 3)]
    assert unknown(found["gpus"][1]) == {"utilisation": "other"}
    # A GPU that fails at some queries is sampled by the others.
    assert [(each["utilisation"], each["memory_used_bytes"]) for each in found["samples"]] == [
        (0.0, 0),
        (None, 0),
    ]


def test_fields_without_permission(seen: See) -> None:
    found = seen("no-permission")
    assert conditions(found) == [("GPU 0", "no permission")]
    (gpu,) = found["gpus"]
    assert unknown(gpu) == {"processes": "no permission"}
    assert gpu["memory_bytes"] == 16384 * MIB


def test_an_old_driver_is_queried_by_old_functions(seen: See) -> None:
    found = seen("old-driver")
    assert (found["driver"], found["cuda"], found["faults"]) == ("410.48", "10.0", [])
    first, second, third = found["gpus"]
    assert first["processes"] == [
        {"pid": 77, "name": "train", "memory_bytes": 300 * MIB, "computes": True}
    ]
    assert second["processes"] == []
    # The system does not know the GPU of another host, so its node stays unknown.
    for gpu in (first, second, third):
        assert unknown(gpu) == {"numa_node": "not known to this driver"}
    # The driver does not report the end of a link; the bus ids do.
    assert [pair["nvlinks"] for pair in found["pairs"]] == [2, 1, 1]


def test_processes_are_listed_once(seen: See) -> None:
    first, second = seen("busy")["gpus"]
    assert first["processes"] == [
        {"pid": 4000, "name": "/usr/lib/xorg/Xorg", "memory_bytes": 64 * MIB, "computes": False},
        {"pid": 4001, "name": "/usr/bin/python3", "memory_bytes": 5120 * MIB, "computes": True},
    ]
    assert (first["utilisation"], first["memory_free_bytes"]) == (0.98, (16384 - 5200) * MIB)
    assert second["processes"] == [
        {"pid": 4002, "name": "evil\x1b[31m", "memory_bytes": MIB, "computes": True},
        {"pid": 4194305, "name": "", "memory_bytes": None, "computes": True},
    ]


def test_unsupported_gpu_fields_are_unknown(seen: See) -> None:
    found = seen("bare")
    assert found["faults"] == []
    for gpu in found["gpus"]:
        assert (gpu["name"], gpu["memory_bytes"], gpu["cpus"]) == ("NVIDIA vGPU", 0, [])
    assert unknown(found["gpus"][0]) == dict.fromkeys(
        [
            *("memory_bytes", "memory_free_bytes", "minor", "utilisation", "numa_node", "cpus"),
            *("compute_capability", "path", "p2p"),
        ],
        "not supported by this GPU",
    )
    (pair,) = found["pairs"]
    assert (pair["nvlinks"], pair["path"], pair["p2p"]) == (0, "", None)
    assert found["samples"] == []


@pytest.mark.parametrize(
    ("name", "condition", "mend"),
    [
        ("mismatch", "driver and library do not match", "reload the driver's kernel module"),
        ("closed", "no permission", "/dev/nvidia*"),
        ("not-loaded", "no driver", "nvidia-smi"),
        ("ancient-driver", "not known to this driver", "update the NVIDIA driver"),
    ],
)
def test_a_driver_that_cannot_be_opened(
    name: str, condition: str, mend: str, seen: See, driver: Have
) -> None:
    found = seen(name)
    assert conditions(found) == [("driver", condition)]
    assert mend in found["faults"][0]["mend"]
    assert (found["mode"], found["gpus"]) == ("none", [])
    assert found["notices"] == [f"no NVIDIA driver answers ({found['faults'][0]['detail']})"]
    assert calls(driver(name)) == {}


def test_a_driver_that_opens_and_fails_is_closed(seen: See, driver: Have) -> None:
    found = seen("failing")
    assert found["error"].startswith("the NVIDIA driver failed (Unknown Error); ")
    assert calls(driver("failing")) == {"init": 1, "shutdown": 1}


def test_a_library_that_cannot_be_loaded_is_no_driver(driver: Have, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    done = run(driver("busy"), "-c", SEE, LD_LIBRARY_PATH=str(tmp_path))
    found = json.loads(done.stdout)
    assert conditions(found) == [("driver", "no driver")]
    assert "Shared Library Not Found" in found["faults"][0]["detail"]


def test_every_host_is_tested(seen: See) -> None:
    for file in BOXES.glob("*.json"):
        if not load(file.stem).hangs:
            assert seen(file.stem)["faults"] is not None


def test_config_is_made_for_the_host_and_pinned(driver: Have, tmp_path: Path) -> None:
    host = driver("eight-h100")
    (tmp_path / "scripts").mkdir()
    file = str(tmp_path / "cluster.yaml")
    made = run(host, "-m", "lab", "init", "--output", file)
    assert "this host has 8 GPUs (8 x NVIDIA H100 NVL, 93.58 GiB)" in made.stderr
    assert made.returncode == 0
    # The plan has their ids; the driver shows that they are this host's.
    done = run(host, "-m", "lab", "render", "--cluster", file, "--output", "-")
    assert done.returncode == 0, done.stderr
    pinned = set(re.findall(r"GPU-[0-9a-f-]{36}", done.stdout))
    assert pinned
    assert pinned <= {gpu.uuid for gpu in host.box.cards}


# ---- Parts


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        ("DriverNotLoaded", Condition.NO_DRIVER),
        ("LibraryNotFound", Condition.NO_DRIVER),
        ("LibRmVersionMismatch", Condition.MISMATCH),
        ("NoPermission", Condition.NO_PERMISSION),
        ("OperatingSystem", Condition.NO_PERMISSION),
        ("GpuIsLost", Condition.GPU_LOST),
        ("NotSupported", Condition.NOT_SUPPORTED),
        ("FunctionNotFound", Condition.OLD_DRIVER),
        ("ResetRequired", Condition.OTHER),
        ("Unknown", Condition.OTHER),
    ],
)
def test_every_error_has_a_name_and_a_hint(error: str, condition: Condition) -> None:
    raised = getattr(pynvml, f"NVMLError_{error}")()
    assert condition_of(raised) is condition
    fault = fault_of(raised, "GPU 3")
    assert (fault.condition, fault.where) == (condition, "GPU 3")
    assert fault.mend
    assert not fault.detail.endswith(".")


def test_no_error_of_the_library_is_without_a_name() -> None:
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert len(codes) > 25
    for code in codes:
        assert str(fault_of(pynvml.NVMLError(code), "driver"))


def test_a_set_is_read_from_masks() -> None:
    assert list(bits_set([0b101, 0, 1 << 63])) == [0, 2, 191]
    assert list(bits_set([])) == []


class Silent:
    """A library that does not know a GPU's node."""

    class NVMLError(Exception):
        """Not supported."""

        value = 3

    def nvmlDeviceGetMemoryAffinity(self, *_: object) -> None:  # noqa: N802
        raise self.NVMLError


@pytest.mark.parametrize(("written", "node"), [("1", 1), ("-1", None)])
def test_the_system_knows_the_node_where_the_driver_does_not(
    written: str, node: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device in ("0000:1b:00.0", "10000:1b:00.0"):
        (tmp_path / device).mkdir()
        (tmp_path / device / "numa_node").write_text(f"{written}\n")
    monkeypatch.setattr("lab.gpu.topology.DEVICES", tmp_path)
    assert numa_node(Silent(), None, "00000000:1B:00.0") == node
    assert numa_node(Silent(), None, "00010000:1B:00.0") == node
    for bus_id in ("00000000:1C:00.0", "", "00000000:../..:00.0"):
        with pytest.raises(Silent.NVMLError):
            numa_node(Silent(), None, bus_id)
