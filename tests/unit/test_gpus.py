"""The variables and modes that limit the GPUs, and what a plan says about it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lab.config import parse_cluster
from lab.errors import InputError
from lab.gpu import inventory as inventories
from lab.gpu import take_inventory
from tests.support.nvml.asking import ONE_GPU, Question, ask, calls
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

Have = Callable[[str | Box], Driver]
CLUSTER = parse_cluster(ONE_GPU.encode(), "cluster.yaml")
NO_GPUS = ONE_GPU.replace("gpus: 1", "")
EIGHT = [gpu.uuid for gpu in load("eight-h100").cards]
SLICES = [each.uuid for each in load("mig").cards[1].slices]
CUT = load("mig").cards[1].uuid
FIRST, THIRD = EIGHT[0], EIGHT[2]

Answers = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def answer(driver: Have) -> Answers:
    """Asks a host; each answer is kept."""
    known: dict[str, dict[str, Any]] = {}

    def get(host: str, mode: str = "", config: str = ONE_GPU, **variables: str) -> dict[str, Any]:
        question = Question(variables, mode, config)
        key = f"{host} {question}"
        if key not in known:
            (known[key],) = ask(driver(host), question)
        return known[key]

    return get


# ---- LAB_GPUS


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


@pytest.mark.parametrize(("value", "seen"), [("1", SLICES), (CUT, SLICES), (SLICES[2], SLICES[2:])])
def test_a_variable_may_name_a_gpu_by_its_slices(
    value: str, seen: list[str], answer: Answers
) -> None:
    assert [gpu["device_id"] for gpu in answer("mig", LAB_GPUS=value)["gpus"]] == seen


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("0,,1", "item 2 is empty"),
        ("0, ", "item 2 is empty"),
        ("-1", "-1 is no index"),
        ("all", "all is no index"),
        ("\x1b[1m", r"\x1b[1m is no index"),
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


# ---- CUDA_VISIBLE_DEVICES


@pytest.mark.parametrize(
    ("value", "notice"),
    [
        ("1,2", "CUDA_VISIBLE_DEVICES=1,2 does not limit lab; set LAB_GPUS=1"),
        ("0, 0,-1,1", "CUDA_VISIBLE_DEVICES=0, 0,-1,1 does not limit lab; set LAB_GPUS=0,0"),
        ("", "an empty CUDA_VISIBLE_DEVICES does not hide GPUs from lab; set an empty LAB_GPUS=,"),
        ("MIG-", "does not hide GPUs"),  # the beginning of several
        ("\x1b,0", r"CUDA_VISIBLE_DEVICES=\x1b,0 does not hide GPUs"),
        ("0,1", ""),
        (",".join([*SLICES, "0"]), ""),
    ],
)
def test_cudas_variable_is_reported_where_it_would_hide_a_gpu(
    value: str, notice: str, answer: Answers
) -> None:
    found = answer("mig", CUDA_VISIBLE_DEVICES=value)
    assert len(found["gpus"]) == 4
    _, *notices = found["notices"]  # the first is of a GPU without slices
    assert [notice in each for each in notices] == ([True] if notice else [])


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


# ---- Plans


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
    host: str, lab_gpus: str | None, gpus: str, error: str, answer: Answers
) -> None:
    variables = {} if lab_gpus is None else {"LAB_GPUS": lab_gpus}
    config = ONE_GPU.replace("gpus: 1", f"gpus: {gpus}")
    found = answer(host, "uuid", config, **variables)
    assert re.search(error, found.get("error", "")), found


@pytest.mark.parametrize(
    ("mode", "error"), [("auto", None), ("uuid", "no NVIDIA driver answers .*; .*--gpus none")]
)
def test_without_a_driver(mode: str, error: str | None, answer: Answers) -> None:
    """`auto` uses CPUs with a notice."""
    found = answer("not-loaded", mode)
    if error is None:
        assert (found["mode"], found["pinned"]) == ("none", [[]])
        assert found["notices"][0].endswith(": CPUs only")
    else:
        assert re.search(error, found["error"])
        assert found["exit_code"] == 1
    assert [each["condition"] for each in found["faults"]] == ["no driver"]


def test_a_hanging_driver_is_a_separate_error(driver: Have) -> None:
    host = driver("hanging")
    questions = (Question({}, "uuid"), Question(), Question({}, "auto"))
    pinned, read, auto = ask(host, *questions, timeout_s=0.05)
    late = "the NVIDIA driver does not answer within 0 s"
    for found in (pinned, read):  # a driver is there, so it is not passed over
        assert found["error"].startswith(f"{late}; check `dmesg | grep -i nvrm`, then reboot")
        assert found["faults"] == auto["faults"]
    assert (auto["mode"], auto["notices"]) == ("none", [f"{late}: CPUs only"])
    assert calls(host)["hang"] == 3


def test_the_cpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {9, 3, 4}, raising=False)
    inventory = take_inventory("none", CLUSTER)
    assert (inventory.cpus, inventory.cpu_ids) == (3, (3, 4, 9))
    monkeypatch.delattr("os.sched_getaffinity")
    inventory = take_inventory("none", CLUSTER)
    assert (inventory.cpus, inventory.cpu_ids) == (os.cpu_count(), ())


def test_no_needless_driver_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    for mode in ("none", "index"):
        assert take_inventory(mode, CLUSTER).mode == mode
    without = parse_cluster(NO_GPUS.encode(), "cluster.yaml")
    assert take_inventory("auto", without) == take_inventory("none", without)
    with pytest.raises(InputError, match="uuids"):
        take_inventory("uuids", CLUSTER)
