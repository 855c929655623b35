"""The inventory, with a library that answers as the driver does."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lab.config import parse_cluster
from lab.errors import InputError, LabError
from lab.gpu import Condition, Gpu, NoDriverError, NvmlError, read_host, take_inventory
from lab.gpu import inventory as inventories
from lab.gpu.nvml import session
from lab.gpu.sampler import Sample, Sampler
from lab.gpu.visible import select
from lab.placement.place import place

ONE_GPU = b"version: 1\nname: m\nnodes: {a: {gpus: 1}}\njobs: {worker: {on: [a]}}\n"
CLUSTER = parse_cluster(ONE_GPU, "cluster.yaml")
NO_GPUS = parse_cluster(ONE_GPU.replace(b"gpus: 1", b""), "cluster.yaml")


NOT_SUPPORTED, NOT_FOUND, NOT_LOADED, NO_LIBRARY, LOST, MISMATCH = 3, 6, 9, 12, 15, 18


class FakeNvml:
    """As many GPUs as entries; an entry is a GPU's list of slices, or an error."""

    class NVMLError(Exception):
        """Any failure; with the code of `nvmlReturn_t`."""

        def __init__(self, words: str = "Unknown Error", value: int = 999) -> None:
            super().__init__(words)
            self.value = value

    def __init__(self, *gpus: list[int] | Exception | None) -> None:
        self.cards = gpus
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """All other functions of the driver: not known, or they fail as requested."""

        def refuse(*_: object) -> None:
            raise self.fails.get(name, self.NVMLError("Not Supported", NOT_SUPPORTED))

        return refuse

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls.append("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        card = self.cards[index]
        if isinstance(card, Exception):
            raise card
        return f"GPU-{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in {f"GPU-{index}" for index in range(len(self.cards))}:
            raise self.NVMLError("Not Found", NOT_FOUND)
        return uuid

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "Card"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1000, free=600, used=400)

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802
        slices = self.cards[int(handle[4:])]
        if slices is None:
            raise self.NVMLError("Not Supported", NOT_SUPPORTED)
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, position: int) -> str:  # noqa: N802
        slices = self.cards[int(handle[4:])]
        if not isinstance(slices, list) or position not in slices:
            raise self.NVMLError("Not Found", NOT_FOUND)
        return f"MIG-{position}"


Install = Callable[[FakeNvml], FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(nvml: FakeNvml) -> FakeNvml:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return nvml

    return put


def silent() -> FakeNvml:
    nvml = FakeNvml()

    def refuse() -> None:
        raise nvml.NVMLError("Driver Not Loaded", NOT_LOADED)

    nvml.nvmlInit = refuse  # type: ignore[method-assign]
    return nvml


def test_gpus_are_listed_with_their_uuids(install: Install) -> None:
    nvml = install(FakeNvml(None, None))
    inventory = take_inventory("auto", CLUSTER)
    assert inventory.mode == "uuid"
    assert [(gpu.index, gpu.device_id) for gpu in inventory.gpus] == [(0, "GPU-0"), (1, "GPU-1")]
    assert inventory.gpus[0].memory_bytes == 1000
    assert inventory.cpus is not None
    assert nvml.calls == ["init", "shutdown"]


def test_a_mig_gpu_counts_as_its_slices_only(install: Install) -> None:
    install(FakeNvml(None, [0, 3], []))
    inventory = take_inventory("uuid", CLUSTER)
    assert [gpu.device_id for gpu in inventory.gpus] == ["GPU-0", "MIG-0", "MIG-3"]
    assert [gpu.is_slice for gpu in inventory.gpus] == [False, True, True]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("GPU-1", ["GPU-1"]),
        ("GPU-2,GPU-0", ["GPU-0", "GPU-2"]),
        ("GPU-2, GPU-0", ["GPU-0", "GPU-2"]),
        (" GPU-2 ,GPU-0\n", ["GPU-0", "GPU-2"]),
        ("GPU-2 GPU-0", ["GPU-0", "GPU-2"]),
        ("2,\t0,2", ["GPU-0", "GPU-2"]),
        ("GPU-9", []),
        ("", []),
        (" ", []),
        (None, ["GPU-0", "GPU-1", "GPU-2"]),
    ],
)
def test_a_variable_limits_the_gpus(
    visible: str | None, found: list[str], install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(None, None, None))
    monkeypatch.delenv("LAB_GPUS", raising=False)
    if visible is not None:
        monkeypatch.setenv("LAB_GPUS", visible)
    inventory = read_host()
    assert [gpu.device_id for gpu in inventory.gpus] == found
    indices = {gpu.index for gpu in inventory.gpus}
    assert {index for pair in inventory.pairs for index in (pair.first, pair.second)} <= indices
    assert inventory.mode == ("uuid" if found else "none")


@pytest.mark.parametrize(
    ("visible", "what"),
    [
        ("0,,1", "LAB_GPUS=0,,1: item 2 is empty"),
        ("0, ", "LAB_GPUS=0, : item 2 is empty"),
        (",", "LAB_GPUS=,: item 1 is empty"),
        ("-1", "LAB_GPUS=-1: -1 is no index and no UUID of a GPU"),
        ("0;1", "LAB_GPUS=0;1: 0;1 is no index and no UUID of a GPU"),
        ("GPU-", "LAB_GPUS=GPU-: GPU- is no index and no UUID of a GPU"),
        ("all", "LAB_GPUS=all: all is no index and no UUID of a GPU"),
        ("\x1b[1m", r"LAB_GPUS=\x1b[1m: \x1b[1m is no index and no UUID of a GPU"),
    ],
)
def test_a_wrong_variable_is_an_error_that_names_the_item(
    visible: str, what: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(None, None))
    monkeypatch.setenv("LAB_GPUS", visible)
    for inventory in (read_host, lambda: take_inventory("auto", CLUSTER)):
        with pytest.raises(InputError) as caught:
            inventory()
        assert caught.value.what == what
        assert caught.value.exit_code == 2
    assert take_inventory("none", CLUSTER).gpus == ()  # the variable is not needed


def test_a_variable_with_an_unknown_gpu_is_a_notice(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(None, None))
    monkeypatch.setenv("LAB_GPUS", "1,GPU-9")
    inventory = take_inventory("auto", CLUSTER)
    assert inventory.notices == ("LAB_GPUS: this host has no GPU GPU-9",)
    assert inventory.left_out == ("LAB_GPUS allows 1 of 2 GPUs",)


def test_a_variable_may_name_a_gpu_by_its_slices(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(None, [0, 3]))
    for visible, found in {
        "1": ["MIG-0", "MIG-3"],
        "GPU-1": ["MIG-0", "MIG-3"],
        "MIG-3": ["MIG-3"],
    }.items():
        monkeypatch.setenv("LAB_GPUS", visible)
        assert [gpu.device_id for gpu in read_host().gpus] == found


HIDES = "does not hide GPUs from lab; set an empty LAB_GPUS=, or use `--gpus none`"


@pytest.mark.parametrize(
    ("cuda", "notices"),
    [
        ("1,2", ("CUDA_VISIBLE_DEVICES=1,2 does not limit lab; set LAB_GPUS=1,2",)),
        ("GPU-1", ("CUDA_VISIBLE_DEVICES=GPU-1 does not limit lab; set LAB_GPUS=GPU-1",)),
        ("MIG-3", ("CUDA_VISIBLE_DEVICES=MIG-3 does not limit lab; set LAB_GPUS=MIG-3",)),
        ("0, 1,-1,2", ("CUDA_VISIBLE_DEVICES=0, 1,-1,2 does not limit lab; set LAB_GPUS=0,1",)),
        ("", (f"an empty CUDA_VISIBLE_DEVICES {HIDES}",)),
        ("-1", (f"CUDA_VISIBLE_DEVICES=-1 {HIDES}",)),
        ("NoDevFiles", (f"CUDA_VISIBLE_DEVICES=NoDevFiles {HIDES}",)),
        ("9", (f"CUDA_VISIBLE_DEVICES=9 {HIDES}",)),
        # "GPU-" alone is the beginning of several.
        ("GPU-", (f"CUDA_VISIBLE_DEVICES=GPU- {HIDES}",)),
        ("\x1b,0", (rf"CUDA_VISIBLE_DEVICES=\x1b,0 {HIDES}",)),
        ("0,1,2,3", ()),
        ("3,MIG-3,MIG-1,GPU-1,0", ()),
        (None, ()),
    ],
)
def test_cudas_variable_is_reported_where_it_would_hide_a_gpu(
    cuda: str | None,
    notices: tuple[str, ...],
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(FakeNvml(None, None, [1, 3], None))
    monkeypatch.delenv("LAB_GPUS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if cuda is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cuda)
    for inventory in (read_host(), take_inventory("auto", CLUSTER)):
        assert inventory.notices == notices
        assert len(inventory.gpus) == 5
    plan = place(CLUSTER, inventory)
    assert plan.notices == notices
    # Where no GPU is pinned, it does not matter.
    assert take_inventory("uuid", NO_GPUS).notices == ()
    assert take_inventory("none", CLUSTER).notices == ()
    assert take_inventory("index", CLUSTER).notices == ()
    monkeypatch.setenv("LAB_GPUS", "0")
    assert read_host().notices == ()


def test_cudas_variable_may_begin_a_uuid() -> None:
    gpus = [Gpu(0, "GPU-5f2a-1"), Gpu(1, "GPU-5f2a-2"), Gpu(2, "GPU-77")]
    assert [gpu.index for gpu in select(gpus, "GPU-7")] == [2]
    assert select(gpus, "GPU-5f2a") == []  # not unique
    assert [gpu.index for gpu in select(gpus, "GPU-5f2a-2")] == [1]


@pytest.mark.parametrize(
    ("gpus", "config", "error"),
    [
        (
            (None, []),
            ONE_GPU.replace(b"gpus: 1", b"gpus: 2").replace(b"[a]", b"[a, a]"),
            "'m' needs 2 GPUs, but this host has 1 GPU; GPU 1 is in MIG mode without slices",
        ),
        (
            ([],),
            ONE_GPU,
            "'m' needs 1 GPU, but this host has 0 GPUs; GPU 0 is in MIG mode without slices",
        ),
        (
            (None, [], None),
            ONE_GPU.replace(b"gpus: 1", b"gpus: [1]"),
            "this host has no GPU 1 (it has GPU-0, GPU-2; GPU 1 is in MIG mode without slices",
        ),
        (
            (None, FakeNvml.NVMLError("GPU is lost", LOST), None),
            ONE_GPU.replace(b"gpus: 1", b"gpus: [1]"),
            "this host has no GPU 1 (it has GPU-0, GPU-2; GPU 1 does not answer (GPU is lost)",
        ),
    ],
)
def test_an_error_says_why_a_gpu_is_left_out(
    gpus: tuple[list[int] | Exception | None, ...], config: bytes, error: str, install: Install
) -> None:
    install(FakeNvml(*gpus))
    cluster = parse_cluster(config, "cluster.yaml")
    with pytest.raises(LabError, match=re.escape(error)):
        place(cluster, take_inventory("uuid", cluster))


def test_an_error_says_that_the_variable_limits_the_gpus(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(None, None, None))
    monkeypatch.setenv("LAB_GPUS", "0 2")
    pins = parse_cluster(ONE_GPU.replace(b"gpus: 1", b"gpus: [1]"), "cluster.yaml")
    with pytest.raises(LabError, match="it has GPU-0, GPU-2; LAB_GPUS allows 2 of 3 GPUs"):
        place(pins, take_inventory("uuid", pins))


def test_a_lost_gpu_is_named_and_left_out(install: Install) -> None:
    nvml = install(FakeNvml(FakeNvml.NVMLError("GPU is lost", LOST), None))
    inventory = take_inventory("auto", CLUSTER)
    assert [gpu.device_id for gpu in inventory.gpus] == ["GPU-1"]
    assert inventory.notices == ("GPU 0 does not answer (GPU is lost) and is left out",)
    assert nvml.calls == ["init", "shutdown"]


def test_without_a_driver_auto_uses_cpus_with_a_notice(install: Install) -> None:
    install(silent())
    inventory = take_inventory("auto", CLUSTER)
    assert (inventory.mode, inventory.gpus) == ("none", ())
    assert inventory.notices == ("no NVIDIA driver answers (Driver Not Loaded): CPUs only",)


def test_without_a_driver_uuid_is_an_error_with_hints(install: Install) -> None:
    install(silent())
    with pytest.raises(NvmlError) as caught:
        take_inventory("uuid", CLUSTER)
    assert caught.value.exit_code == 1
    assert "--gpus none" in caught.value.fix
    assert caught.value.fault.condition is Condition.NO_DRIVER


def test_a_driver_that_cannot_be_opened_has_a_condition(install: Install) -> None:
    nvml = install(silent())

    def refuse() -> None:
        raise nvml.NVMLError("RM has detected an NVML/RM version mismatch.", MISMATCH)

    nvml.nvmlInit = refuse  # type: ignore[method-assign]
    with pytest.raises(NoDriverError, match=r"mismatch\); reboot, or reload the driver") as caught:
        take_inventory("uuid", CLUSTER)
    assert caught.value.fault.condition is Condition.MISMATCH
    for inventory in (read_host(), take_inventory("auto", CLUSTER)):
        assert (inventory.mode, inventory.faults) == ("none", (caught.value.fault,))
        assert len(inventory.notices) == 1


def test_a_driver_that_fails_later_is_an_error_and_is_shut_down(install: Install) -> None:
    nvml = install(FakeNvml())

    def fail() -> int:
        raise nvml.NVMLError("Unknown Error")

    nvml.nvmlDeviceGetCount = fail  # type: ignore[method-assign]
    with pytest.raises(NvmlError, match="failed"):
        take_inventory("uuid", CLUSTER)
    assert nvml.calls == ["init", "shutdown"]


def test_a_hanging_driver_is_a_separate_error(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = install(FakeNvml(None))
    answers, masks = threading.Event(), []

    def hang() -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        answers.wait(20)

    nvml.nvmlInit = hang  # type: ignore[method-assign]
    monkeypatch.setattr(inventories, "TIMEOUT_S", 0.05)
    try:
        with pytest.raises(NvmlError) as caught:
            take_inventory("uuid", CLUSTER)
        with pytest.raises(NvmlError):  # a driver is there, so it is not passed over
            read_host()
        inventory = take_inventory("auto", CLUSTER)
    finally:
        answers.set()
    assert caught.value.what == "the NVIDIA driver does not answer within 0 s"
    assert caught.value.fix.startswith("check `dmesg | grep -i nvrm`, then reboot, or use")
    fault = caught.value.fault
    assert (fault.condition, fault.where) == (Condition.OTHER, "driver")
    assert (inventory.mode, inventory.faults) == ("none", (fault,))
    assert inventory.notices == ("the NVIDIA driver does not answer within 0 s: CPUs only",)
    # Ctrl-C is delivered to the main thread, which alone can handle it.
    assert signal.SIGINT in masks[0]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_missing_version_is_no_driver_fault(install: Install) -> None:
    nvml = install(FakeNvml(None))
    nvml.fails["nvmlSystemGetDriverVersion"] = nvml.NVMLError("Unknown Error")
    nvml.fails["nvmlSystemGetCudaDriverVersion_v2"] = nvml.NVMLError(
        "NVML Shared Library Not Found", NO_LIBRARY
    )
    driver, cuda = read_host().faults
    assert str(driver) == ("driver version: other (Unknown Error); check `nvidia-smi` and `dmesg`")
    assert str(cuda) == ("CUDA version: other (libcuda.so.1 is not installed); install `libcuda1`")


def test_the_driver_is_closed_also_when_its_user_fails(install: Install) -> None:
    nvml = install(FakeNvml(None))
    with pytest.raises(ZeroDivisionError), session():
        raise ZeroDivisionError
    assert nvml.calls == ["init", "shutdown"]


def test_a_missing_gpu_field_is_named_and_affects_no_other(install: Install) -> None:
    nvml = install(FakeNvml(None))
    nvml.fails["nvmlDeviceGetMinorNumber"] = nvml.NVMLError("Insufficient Permissions", 4)
    (card,) = take_inventory("uuid", CLUSTER).gpus
    assert (card.name, card.memory_free_bytes, card.minor) == ("Card", 600, None)
    unknown = dict(card.unknown)
    assert unknown["minor"] is Condition.NO_PERMISSION
    assert unknown["utilisation"] is Condition.NOT_SUPPORTED
    assert not {"name", "memory_bytes", "memory_free_bytes"} & set(unknown)


def test_a_gpu_lost_during_the_query_is_left_out(install: Install) -> None:
    nvml = install(FakeNvml(None))
    nvml.fails["nvmlDeviceGetUtilizationRates"] = nvml.NVMLError("GPU is lost", LOST)
    inventory = take_inventory("uuid", CLUSTER)
    assert inventory.gpus == ()
    *versions, fault = inventory.faults
    assert [each.condition for each in versions] == [Condition.NOT_SUPPORTED] * 2
    assert fault.condition is Condition.GPU_LOST
    assert str(fault).startswith("GPU 0: GPU lost (GPU is lost); check `nvidia-smi` and `dmesg")


def test_the_cpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {9, 3, 4}, raising=False)
    inventory = take_inventory("none", CLUSTER)
    assert (inventory.cpus, inventory.cpu_ids) == (3, (3, 4, 9))
    monkeypatch.delattr("os.sched_getaffinity")
    inventory = take_inventory("none", CLUSTER)
    assert (inventory.cpus, inventory.cpu_ids) == (os.cpu_count(), ())


def test_samples_omit_gpus_without_an_answer(install: Install) -> None:
    nvml = install(FakeNvml(None, None))
    with Sampler(["GPU-0", "GPU-of-no-box", "1"]) as sampler:
        assert sampler.sample() == [Sample("GPU-0", None, 400, None), Sample("1", None, 400, None)]
        nvml.fails["nvmlDeviceGetPowerUsage"] = nvml.NVMLError("Unknown Error")
        assert len(sampler.sample()) == 2
        nvml.fails["nvmlDeviceGetPowerUsage"] = nvml.NVMLError("GPU is lost", LOST)
        assert sampler.sample() == []
        del nvml.fails["nvmlDeviceGetPowerUsage"]
        assert len(sampler.sample()) == 2
    assert sampler.sample() == []
    assert nvml.calls == ["init", "shutdown"]


def test_a_sampler_without_a_driver_fails_on_opening(install: Install) -> None:
    install(silent())
    with pytest.raises(NoDriverError), Sampler(["GPU-0"]):
        raise AssertionError("it was opened")


def test_a_host_without_gpus_uses_cpus(install: Install) -> None:
    install(FakeNvml())
    inventory = take_inventory("auto", CLUSTER)
    assert inventory.mode == "none"
    assert "no usable GPU" in inventory.notices[0]


@pytest.mark.parametrize("mode", ["none", "index"])
def test_no_needless_driver_query(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    assert take_inventory(mode, CLUSTER).mode == mode
    assert take_inventory("auto", NO_GPUS) == take_inventory("none", NO_GPUS)


def test_another_mode_is_refused() -> None:
    with pytest.raises(InputError, match="uuids"):
        take_inventory("uuids", CLUSTER)
