"""The real nvidia-ml-py with the fake library: every host, every condition, each close."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pynvml
import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.errors import InputError
from lab.cluster.config import parse_cluster
from lab.cluster.gpu import inventory as inventories
from lab.cluster.gpu import take_inventory
from lab.cluster.gpu.nvml import fault_of
from tests.support.agents import PATIENCE_S
from tests.support.engine import ROOT
from tests.support.nvml.asking import ONE_GPU, Question, ask, calls
from tests.support.nvml.box import BOXES, MIB, Box, Card, Slice, cpu_ids, load
from tests.support.nvml.library import Driver

Have = Callable[[str | Box], Driver]


def conditions(seen: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fault["where"], fault["status"]) for fault in seen["faults"]]


def unknown(gpu: dict[str, Any]) -> dict[str, str]:
    return dict(gpu["unknown"])


def lacking(seen: dict[str, Any]) -> list[str]:
    """What lab says about what it cannot read: an error, notices, faults and unknown fields."""
    lines = [f"exit code {seen['exit_code']}: {seen['error']}"] if "error" in seen else []
    lines += seen.get("notices", [])
    lines += [" ".join(fault.values()) for fault in seen["faults"]]
    for gpu in seen.get("gpus", []):
        for why, several in itertools.groupby(gpu["unknown"], key=itemgetter(1)):
            lines.append(f"GPU {gpu['index']}, {why}: {', '.join(field for field, _ in several)}")
    return lines


def readable(box: Box) -> Iterator[tuple[int, Card, Card | Slice]]:
    """The devices that this user can use, each with its GPU: a GPU, or the slices of one."""
    for index, card in enumerate(box.cards):
        for part in card.slices if card.mig else (card,):
            fails = {**card.fails, **part.fails}.items()
            if not any("Handle" in name or error == "GPU_IS_LOST" for name, error in fails):
                yield index, card, part


def size(mib: int | None) -> int | None:
    return mib and mib * MIB


def fields_of(card: Card, part: Card | Slice) -> dict[str, Any]:
    """What the driver tells of a device; None: nothing."""
    percent = part.utilisation_percent if isinstance(part, Card) else None
    return {
        "memory_bytes": size(part.memory_mib),
        "memory_free_bytes": size(part.memory_mib and part.memory_mib - part.used_mib),
        "minor": card.minor,
        "utilisation": percent and percent / 100,
        "numa_node": card.numa,
        "cpus": card.cpus and list(cpu_ids(card.cpus)),
        "compute_capability": card.capability,
    }


def pairs_of(box: Box) -> Iterator[list[Any]]:
    """The connection of each two whole GPUs."""
    whole = [(index, card) for index, card, part in readable(box) if part is card]
    for (first, one), (second, other) in itertools.combinations(whole, 2):
        switched = all("switch" in each.links for each in (one, other))
        near = "NODE" if one.numa == other.numa else "SYS"
        path = "" if box.paths is None else box.paths.get(f"{first}-{second}", near)
        nvlink = box.p2p and (second in one.links or switched)
        yield [first, second, nvlink, path]


HOSTS = sorted(file.stem for file in BOXES.glob("*.json") if not load(file.stem).hangs)


@pytest.mark.parametrize("name", HOSTS)
def test_the_inventory_of_a_host(name: str, driver: Have, snapshot: SnapshotAssertion) -> None:
    """What the driver tells, field by field; unknown fields have a reason, and faults a hint."""
    host, box = driver(name), load(name)
    before = calls(host)
    (found,) = ask(host, Question())
    assert lacking(found) == snapshot
    opens = "nvmlInitWithFlags" not in {*box.fails, *box.missing}
    devices = list(readable(box)) if opens else []
    # A driver is opened once for the inventory of the host, and once for the samples.
    times = opens + bool(devices)
    assert calls(host) - before == Counter(init=times, shutdown=times)
    if "error" in found:
        return
    cuda = f"{box.cuda // 1000}.{box.cuda % 1000 // 10}"
    has_cuda = opens and "nvmlSystemGetCudaDriverVersion_v2" not in {*box.fails, *box.missing}
    assert (found["mode"], found["driver"], found["cuda"]) == (
        "uuid" if devices else "none", box.driver if opens else "", cuda if has_cuda else "",
    )  # fmt: skip
    samples = []
    for gpu, (index, card, part) in zip(found["gpus"], devices, strict=True):
        is_slice = isinstance(part, Slice)
        ids = (index, part.uuid, card.uuid if is_slice else "")
        assert (gpu["index"], gpu["device_id"], gpu["slice_of"]) == ids
        assert gpu["name"] == part.name
        values, lacks = fields_of(card, part), unknown(gpu).keys()
        assert {name for name, value in values.items() if value is None} <= lacks
        assert not any(gpu.get(name) for name in lacks)
        known = values.keys() - lacks
        assert {name: gpu[name] for name in known} == {name: values[name] for name in known}
        running = {each.pid: each for each in part.processes}  # drawing ones may be listed twice
        computing = {each.pid for each in part.processes if not each.graphics}
        assert "processes" in lacks or [list(each.values()) for each in gpu["processes"]] == [
            [pid, each.name or "", size(each.memory_mib), pid in computing]
            for pid, each in sorted(running.items())
        ]
        if part.memory_mib is not None:
            has_power = not is_slice and "nvmlDeviceGetPowerUsage" not in card.fails
            power = card.power_mw and card.power_mw / 1000 if has_power else None
            samples.append([part.uuid, gpu["utilisation"], size(part.used_mib), power])
    assert [list(each.values()) for each in found["samples"]] == samples
    assert [list(each.values()) for each in found["pairs"]] == (
        list(pairs_of(box)) if opens else []
    )


def test_one_slice_is_chosen_of_those_that_can_be_seen(driver: Have) -> None:
    # A container was given one slice of those that it sees; a count of GPUs takes it.
    (placed,) = ask(driver("mig-no-permission"), Question({}, "uuid", ONE_GPU))
    assert placed["pinned"] == [[load("mig-no-permission").cards[0].slices[1].uuid]]


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


def test_a_library_that_cannot_be_loaded_is_no_driver(driver: Have, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    (found,) = ask(driver("busy"), Question(), LD_LIBRARY_PATH=str(tmp_path))
    assert conditions(found) == [("driver", "no driver")]
    assert "Shared Library Not Found" in found["faults"][0]["what"]


def test_a_driver_that_hangs_does_not_keep_ctrl_c_from_ending_the_command(driver: Have) -> None:
    host = driver("hanging")
    before = calls(host)["hang"]
    looking = subprocess.Popen(
        [sys.executable, "-c", "from lab.cluster.gpu import read_host; read_host()"],
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


def test_every_error_has_a_hint() -> None:
    for code in range(1, 30):
        fault = fault_of(pynvml.NVMLError(code), "GPU 3")
        assert fault.where == "GPU 3"
        assert fault.fix
        assert not fault.what.endswith(".")


CLUSTER = parse_cluster(ONE_GPU.encode(), "cluster.yaml")
NO_GPUS = ONE_GPU.replace("gpus: 1", "")
EIGHT = [gpu.uuid for gpu in load("eight-h100").cards]
SLICES = [each.uuid for each in load("mig").cards[1].slices]
CUT = load("mig").cards[1].uuid
FIRST, THIRD = EIGHT[0], EIGHT[2]


def test_a_variable_limits_the_gpus(driver: Have) -> None:
    limits = {
        THIRD[:12]: [THIRD],
        f"{THIRD},{FIRST}": [FIRST, THIRD],
        f" {THIRD} , {FIRST}\n": [FIRST, THIRD],
        f"{THIRD} {FIRST}": [FIRST, THIRD],
        "2,\t0,2": [FIRST, THIRD],
        "GPU-0": [],  # not unique
        "GPU-9": [],
        "": [],
        " ": [],
    }
    asked = [Question({"LAB_GPUS": value}) for value in limits]
    found = dict(zip(limits, ask(driver("eight-h100"), *asked, Question()), strict=False))
    seen = {value: [gpu["device_id"] for gpu in each["gpus"]] for value, each in found.items()}
    assert seen == limits
    assert {value: each["mode"] for value, each in found.items()} == {
        value: "uuid" if gpus else "none" for value, gpus in limits.items()
    }
    ends = [(pair["first"], pair["second"]) for pair in found["2,\t0,2"]["pairs"]]
    assert ends == [(0, 2)]
    assert found["GPU-9"]["notices"] == ["LAB_GPUS: this host has no GPU GPU-9"]
    assert found["GPU-9"]["left_out"] == ["LAB_GPUS allows 0 of 8 GPUs"]


def test_a_variable_may_name_a_gpu_by_its_slices(driver: Have) -> None:
    named = {"1": SLICES, CUT: SLICES, SLICES[2]: SLICES[2:]}
    found = ask(driver("mig"), *(Question({"LAB_GPUS": value}) for value in named))
    assert [[gpu["device_id"] for gpu in each["gpus"]] for each in found] == [*named.values()]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("0,,1", "'' is not a GPU's index"),
        ("0, ", "'' is not a GPU's index"),
        ("-1", "'-1' is not a GPU's index"),
        ("all", "'all' is not a GPU's index"),
        ("\x1b[1m", r"'\x1b[1m' is not a GPU's index"),
    ],
)
def test_a_wrong_variable_is_an_error_that_names_the_item(
    value: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_GPUS", value)
    for inventory in (inventories.read_host, lambda: take_inventory("auto", CLUSTER)):
        with pytest.raises(InputError) as caught:
            inventory()
        shown = value.replace("\x1b", "\\x1b")
        assert caught.value.what.startswith(f"LAB_GPUS={shown}: {what}")
        assert caught.value.exit_code == 2
    assert take_inventory("none", CLUSTER).gpus == ()  # the variable is not needed


def test_cudas_variable_is_reported_where_it_would_hide_a_gpu(driver: Have) -> None:
    notices = {
        "1,2": "CUDA_VISIBLE_DEVICES=1,2 does not limit lab; set LAB_GPUS, or use `--gpus none`",
        "0, 0": "CUDA_VISIBLE_DEVICES=0, 0 does not limit lab; set LAB_GPUS",
        "": "CUDA_VISIBLE_DEVICES= does not limit lab; set LAB_GPUS, or use `--gpus none`",
        "MIG-": "does not limit lab",  # the beginning of several
        "\x1b,0": r"CUDA_VISIBLE_DEVICES=\x1b,0 does not limit lab",
        "0,1": "",
        ",".join([*SLICES, "0"]): "",
    }
    asked = ask(driver("mig"), *(Question({"CUDA_VISIBLE_DEVICES": value}) for value in notices))
    for found, notice in zip(asked, notices.values(), strict=True):
        assert len(found["gpus"]) == 4
        _, *told = found["notices"]  # the first is of a GPU without slices
        assert [notice in each for each in told] == ([True] if notice else [])


def test_cudas_variable_matters_only_where_gpus_are_pinned(driver: Have) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "1"}
    auto, none, by_index, without, limited, no_gpu = ask(
        driver("eight-h100"),
        Question(hidden, "auto"),
        Question(hidden, "none"),
        Question(hidden, "index"),
        Question(hidden, "uuid", NO_GPUS),
        Question({**hidden, "LAB_GPUS": "0"}, "auto"),
        Question({"LAB_GPUS": ""}, "auto"),
    )
    assert (no_gpu["mode"], no_gpu["pinned"]) == ("none", [[]])
    assert no_gpu["notices"] == ["this host has no usable GPU: CPUs only"]
    assert len(auto["notices"]) == 1
    assert [each["notices"] for each in (none, by_index, without, limited)] == [[]] * 4
    assert limited["pinned"] == [[FIRST]]


@pytest.mark.parametrize(
    ("host", "lab_gpus", "gpus", "error"),
    [
        ("mig", "2", "1", "this host has 0 GPUs; GPU 2 is in MIG mode without slices"),
        ("mig", None, "[2]", "needs 3 GPUs, .* GPU 2 is in MIG mode without slices"),
        ("lost", None, "[1]", r"no GPU 1 .* GPU 1 does not answer \(GPU is lost\)"),
        ("eight-h100", "0 2", "[1]", f"it has {FIRST}, {THIRD}; LAB_GPUS allows 2 of 8 GPUs"),
    ],
)
def test_an_error_says_why_a_gpu_is_left_out(
    host: str, lab_gpus: str | None, gpus: str, error: str, driver: Have
) -> None:
    variables = {} if lab_gpus is None else {"LAB_GPUS": lab_gpus}
    config = ONE_GPU.replace("gpus: 1", f"gpus: {gpus}")
    (found,) = ask(driver(host), Question(variables, "uuid", config))
    assert re.search(error, found.get("error", "")), found


def test_without_a_driver(driver: Have) -> None:
    """`auto` uses CPUs with a notice."""
    auto, pinned = ask(driver("not-loaded"), Question({}, "auto"), Question({}, "uuid"))
    assert (auto["mode"], auto["pinned"]) == ("none", [[]])
    assert auto["notices"][0].endswith(": CPUs only")
    assert re.search("no NVIDIA driver answers .*; .*--gpus none", pinned["error"])
    assert pinned["exit_code"] == 1
    for found in (auto, pinned):
        assert [each["status"] for each in found["faults"]] == ["no driver"]


def test_a_hanging_driver_is_a_separate_error(driver: Have) -> None:
    host = driver("hanging")
    before = calls(host)["hang"]
    questions = (Question({}, "uuid"), Question(), Question({}, "auto"))
    pinned, read, auto = ask(host, *questions, timeout_s=0.05)
    late = "the NVIDIA driver does not answer within 0 s"
    for found in (pinned, read):  # a driver is there, so it is not passed over
        assert found["error"].startswith(f"{late}; check `dmesg | grep -i nvrm`, then reboot")
        assert found["faults"] == auto["faults"]
    assert (auto["mode"], auto["notices"]) == ("none", [f"{late}: CPUs only"])
    assert calls(host)["hang"] == before + 3


def test_the_cpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {9, 3, 4})
    inventory = take_inventory("none", CLUSTER)
    assert (inventory.cpus, inventory.cpu_ids) == (3, (3, 4, 9))


def test_no_needless_driver_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    for mode in ("none", "index"):
        assert take_inventory(mode, CLUSTER).mode == mode
    without = parse_cluster(NO_GPUS.encode(), "cluster.yaml")
    assert take_inventory("auto", without) == take_inventory("none", without)
    with pytest.raises(InputError, match="uuids"):
        take_inventory("uuids", CLUSTER)
