"""The real nvidia-ml-py with the fake library: every host, every condition, and each close."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from lab.gpu import Condition
from lab.gpu.nvml import condition_of, fault_of
from lab.gpu.topology import bits_set, numa_node
from lab.units import MIB
from tests.support.agents import PATIENCE_S
from tests.support.engine import ROOT
from tests.support.nvml.asking import ONE_GPU, Question, ask, calls, run
from tests.support.nvml.box import BOXES, Box, cpu_ids, load
from tests.support.nvml.library import Driver

Have = Callable[[str | Box], Driver]
See = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def seen(driver: Have) -> See:
    """Lab's inventory of a host; each is read once."""
    known: dict[str, dict[str, Any]] = {}

    def see(name: str) -> dict[str, Any]:
        if name not in known:
            host = driver(name)
            before = calls(host)
            (known[name],) = ask(host, Question())
            made = calls(host) - before
            assert made["init"] == made["shutdown"]
            known[name]["calls"] = made
        return known[name]

    return see


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
    pairs = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    assert len(pairs) == 28
    assert all(pair["p2p"] for pair in pairs.values())
    links = {ends: pair["nvlinks"] for ends, pair in pairs.items() if pair["nvlinks"]}
    assert links == dict.fromkeys([(0, 1), (2, 3), (4, 5), (6, 7)], 12)
    some = [(0, 1), (2, 3), (4, 5), (0, 3), (4, 7), (3, 4)]
    assert [pairs[ends]["path"] for ends in some] == ["PIX", "PXB", "PHB", "NODE", "NODE", "SYS"]
    assert found["samples"][7] == {
        "device_id": host.cards[7].uuid,
        "utilisation": 0.0,
        "memory_used_bytes": 4 * MIB,
        "power_w": 68.0,
    }
    assert len(found["samples"]) == 8
    # Once for the inventory of the host, and once for the samples.
    assert found["calls"] == {"init": 2, "shutdown": 2}


def test_a_mig_gpu_is_listed_as_its_slices(seen: See) -> None:
    found, host = seen("mig"), load("mig")
    whole, *parts = found["gpus"]
    assert (whole["slice_of"], whole["utilisation"]) == ("", 0.37)
    assert [part["device_id"] for part in parts] == [each.uuid for each in host.cards[1].slices]
    # The fields of its GPU; no driver reports the utilization of a slice.
    names = ("slice_of", "index", "minor", "pci_bus_id", "compute_capability")
    of_gpu = (host.cards[1].uuid, 1, 1, "00000000:2A:00.0", "8.0")
    assert {tuple(part[name] for name in names) for part in parts} == {of_gpu}
    assert [unknown(part) for part in parts] == [{"utilisation": "not supported by this GPU"}] * 3
    assert [part["name"].partition(" MIG ")[2] for part in parts] == ["3g.20gb", "2g.10gb", "1g"]
    assert [part["memory_bytes"] // MIB for part in parts] == [19968, 9856, 4864]
    assert parts[0]["processes"] == [
        {"pid": 4242, "name": "/usr/bin/python3", "memory_bytes": 900 * MIB, "computes": True}
    ]
    assert conditions(found) == [("GPU 2", "MIG mode without slices")]
    assert "nvidia-smi mig -i 2 -cgi" in found["faults"][0]["mend"]
    assert found["notices"] == ["GPU 2 is in MIG mode without slices and is left out"]
    assert found["pairs"] == []
    sample = found["samples"][1]
    assert (sample["utilisation"], sample["power_w"]) == (None, None)
    assert sample["memory_used_bytes"] == 12 * MIB


def test_slices_without_permission_are_left_out(seen: See, driver: Have) -> None:
    found, (card, *_) = seen("mig-no-permission"), load("mig-no-permission").cards
    assert [gpu["device_id"] for gpu in found["gpus"]] == [card.slices[1].uuid]
    assert conditions(found) == [("GPU 1", "no permission")]
    assert found["notices"] == [
        "GPU 0: some MIG slices are left out: this user may not use them",
        "GPU 1 does not answer (Insufficient Permissions) and is left out",
    ]
    # A container was given this one; a count of GPUs takes it.
    (placed,) = ask(driver("mig-no-permission"), Question({}, "uuid", ONE_GPU))
    assert placed["pinned"] == [[card.slices[1].uuid]]


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
    samples = [(each["utilisation"], each["memory_used_bytes"]) for each in found["samples"]]
    assert samples == [(0.0, 0), (None, 0)]


def test_an_old_driver_is_queried_by_old_functions(seen: See) -> None:
    found = seen("old-driver")
    assert (found["driver"], found["cuda"], found["faults"]) == ("410.48", "10.0", [])
    assert [gpu["processes"] for gpu in found["gpus"][:2]] == [
        [{"pid": 77, "name": "train", "memory_bytes": 300 * MIB, "computes": True}],
        [],
    ]
    # The system does not know the GPU of another host, so its node stays unknown.
    for gpu in found["gpus"]:
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


def test_what_a_host_does_not_tell_is_unknown(seen: See) -> None:
    # Links through a switch count as far as both have them, wherever it is.
    (pair,) = seen("switch")["pairs"]
    assert pair["nvlinks"] == 16
    assert not any("nvlinks" in unknown(gpu) for gpu in seen("switch")["gpus"])
    found = seen("no-permission")
    assert conditions(found) == [("GPU 0", "no permission")]
    assert [unknown(gpu) for gpu in found["gpus"]] == [{"processes": "no permission"}]
    found = seen("bare")
    assert (found["faults"], found["samples"]) == ([], [])
    for gpu in found["gpus"]:
        assert (gpu["name"], gpu["memory_bytes"], gpu["cpus"]) == ("NVIDIA vGPU", 0, [])
    fields = "memory_bytes memory_free_bytes minor utilisation numa_node cpus compute_capability"
    assert unknown(found["gpus"][0]) == dict.fromkeys(
        [*fields.split(), "path", "p2p"], "not supported by this GPU"
    )
    (pair,) = found["pairs"]
    assert (pair["nvlinks"], pair["path"], pair["p2p"]) == (0, "", None)
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
    host = driver(load("switch").model_copy(update=change))
    (found,) = ask(host, Question())
    for gpu in found["gpus"]:
        assert (gpu["compute_capability"], unknown(gpu)["compute_capability"]) == ("", why)


def test_a_gpu_lost_during_the_query_is_left_out(driver: Have) -> None:
    card, other = load("switch").cards
    lost = card.model_copy(update={"fails": {"nvmlDeviceGetUtilizationRates": "GPU_IS_LOST"}})
    later = other.model_copy(update={"fails": {"nvmlDeviceGetPowerUsage": "GPU_IS_LOST"}})
    changes = {"cards": (lost, later), "fails": {"nvmlSystemGetDriverVersion": "UNKNOWN"}}
    (found,) = ask(driver(load("switch").model_copy(update=changes)), Question())
    assert [gpu["index"] for gpu in found["gpus"]] == [1]
    # A version that is not reported is no fault of the driver.
    assert conditions(found) == [("driver version", "other"), ("GPU 0", "GPU lost")]
    assert found["samples"] == []


def test_a_slice_without_a_profile_has_the_name_of_its_gpu(driver: Have) -> None:
    whole, cut, bare = load("mig").cards
    silent = {"fails": {"nvmlDeviceGetAttributes_v2": "UNKNOWN"}}
    slices = tuple(part.model_copy(update=silent) for part in cut.slices)
    cards = (whole, cut.model_copy(update={"slices": slices}), bare)
    (found,) = ask(driver(load("mig").model_copy(update={"cards": cards})), Question())
    assert found["gpus"][-1]["name"] == f"{cut.name} MIG"


@pytest.mark.parametrize(
    ("name", "where", "condition", "mend"),
    [
        ("mismatch", "driver", "driver and library do not match", "reload the driver's kernel mod"),
        ("closed", "driver", "no permission", "/dev/nvidia*"),
        ("not-loaded", "driver", "no driver", "nvidia-smi"),
        ("ancient-driver", "driver", "not known to this driver", "update the NVIDIA driver"),
        ("no-libcuda", "CUDA version", "other", "install `libcuda1`"),
    ],
)
def test_a_driver_that_cannot_be_opened_and_one_without_libcuda(
    name: str, where: str, condition: str, mend: str, seen: See, driver: Have
) -> None:
    found = seen(name)
    assert conditions(found) == [(where, condition)]
    assert mend in found["faults"][0]["mend"]
    if where == "driver":
        assert (found["mode"], found["gpus"]) == ("none", [])
        assert found["notices"] == [f"no NVIDIA driver answers ({found['faults'][0]['detail']})"]
        assert calls(driver(name)) == {}
    else:
        assert (len(found["gpus"]), found["driver"], found["cuda"]) == (1, "550.54.15", "")
        assert found["faults"][0]["detail"] == "libcuda.so.1 is not installed"


def test_a_driver_that_opens_and_fails_is_closed(seen: See, driver: Have) -> None:
    found = seen("failing")
    assert found["error"].startswith("the NVIDIA driver failed (Unknown Error); ")
    assert calls(driver("failing")) == {"init": 1, "shutdown": 1}


def test_a_library_that_cannot_be_loaded_is_no_driver(driver: Have, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    (found,) = ask(driver("busy"), Question(), LD_LIBRARY_PATH=str(tmp_path))
    assert conditions(found) == [("driver", "no driver")]
    assert "Shared Library Not Found" in found["faults"][0]["detail"]


def test_a_driver_that_hangs_does_not_keep_ctrl_c_from_ending_the_command(driver: Have) -> None:
    host = driver("hanging")
    before = calls(host)["hang"]
    looking = subprocess.Popen(
        [sys.executable, "-c", "from lab.gpu import read_host; read_host()"],
        env={**os.environ, **host.environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while calls(host)["hang"] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert calls(host)["hang"] == before + 1
        looking.send_signal(signal.SIGINT)
        assert looking.wait(PATIENCE_S) == -signal.SIGINT
    finally:
        looking.kill()
        looking.wait()


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
    # The plan has their ids; the driver shows that they are this host's.
    done = run(host, "-m", "lab", "render", "--cluster", file, "--output", "-")
    assert (made.returncode, done.returncode) == (0, 0), done.stderr
    pinned = set(re.findall(r"GPU-[0-9a-f-]{36}", done.stdout))
    assert pinned
    assert pinned <= {gpu.uuid for gpu in host.box.cards}
    shown = json.loads(run(host, "-m", "lab", "gpus", "--json").stdout)
    assert len(shown["gpus"]) == 8


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
    ],
)
def test_every_error_has_a_name_and_a_hint(error: str, condition: Condition) -> None:
    raised = getattr(pynvml, f"NVMLError_{error}")()
    assert condition_of(raised) is condition
    fault = fault_of(raised, "GPU 3")
    assert (fault.condition, fault.where) == (condition, "GPU 3")
    assert fault.mend
    assert not fault.detail.endswith(".")


def test_a_set_is_read_from_masks() -> None:
    assert list(bits_set([0b101, 0, 1 << 63])) == [0, 2, 191]


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
