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
from syrupy.assertion import SnapshotAssertion

from lab.gpu import Condition
from lab.gpu.nvml import condition_of, fault_of
from lab.gpu.topology import numa_node
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


def told(seen: dict[str, Any]) -> dict[str, Any]:
    """What differs between the hosts, without what this host is; a line for each thing."""
    if "error" in seen:
        return seen
    of_a_gpu = ("name", "memory_bytes", "memory_free_bytes", "utilisation", "numa_node", "minor")
    of_a_gpu += ("compute_capability", "slice_of", "unknown")
    pairs = [f"{p['first']}-{p['second']} {p['nvlinks']} {p['path']}" for p in seen["pairs"]]
    return {
        **{name: seen[name] for name in ("mode", "driver", "cuda", "notices")},
        "faults": [" ".join(fault.values()) for fault in seen["faults"]],
        "gpus": [
            f"{gpu['index']} {gpu['device_id']} {[gpu[name] for name in of_a_gpu]}"
            for gpu in seen["gpus"]
        ],
        "processes": [
            f"{gpu['index']} {list(process.values())}"
            for gpu in seen["gpus"]
            for process in gpu["processes"]
        ],
        "samples": [str(list(each.values())) for each in seen["samples"]],
        "pairs": ", ".join(pairs),
    }


HOSTS = sorted(file.stem for file in BOXES.glob("*.json") if not load(file.stem).hangs)


@pytest.mark.parametrize("name", HOSTS)
def test_the_inventory_of_a_host(name: str, seen: See, snapshot: SnapshotAssertion) -> None:
    """What the driver tells, field by field; unknown fields have a reason, and faults a hint."""
    found = seen(name)
    assert told(found) == snapshot
    if "error" not in found:
        assert [gpu["index"] for gpu in found["gpus"]] == sorted(g["index"] for g in found["gpus"])
        assert {each["device_id"] for each in found["samples"]} <= {
            gpu["device_id"] for gpu in found["gpus"]
        }


def test_the_cpus_are_those_that_the_driver_tells(seen: See) -> None:
    found = seen("eight-h100")
    cards = load("eight-h100").cards
    assert [gpu["cpus"] for gpu in found["gpus"]] == [list(cpu_ids(x.cpus or "")) for x in cards]
    # Once for the inventory of the host, and once for the samples.
    assert found["calls"] == {"init": 2, "shutdown": 2}


def test_one_slice_is_chosen_of_those_that_can_be_seen(driver: Have) -> None:
    # A container was given one slice of those that it sees; a count of GPUs takes it.
    (placed,) = ask(driver("mig-no-permission"), Question({}, "uuid", ONE_GPU))
    assert placed["pinned"] == [[load("mig-no-permission").cards[0].slices[1].uuid]]


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


@pytest.mark.parametrize("name", ["mismatch", "closed", "not-loaded", "ancient-driver"])
def test_a_driver_that_cannot_be_opened_is_not_closed(name: str, seen: See, driver: Have) -> None:
    assert (seen(name)["mode"], seen(name)["gpus"]) == ("none", [])
    assert calls(driver(name)) == {}


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
        ("LibRmVersionMismatch", Condition.MISMATCH),
        ("NoPermission", Condition.NO_PERMISSION),
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
