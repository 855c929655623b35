"""The inventory, with a library that answers as the driver does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from lab.cluster import parse_cluster
from lab.errors import InputError
from lab.gpus import NvmlError, take_inventory

ONE_GPU = b"version: 1\nname: m\nnodes: {a: {gpus: 1}}\njobs: {worker: {on: [a]}}\n"
CLUSTER = parse_cluster(ONE_GPU, "cluster.yaml")
NO_GPUS = parse_cluster(ONE_GPU.replace(b"gpus: 1", b""), "cluster.yaml")


class FakeNvml:
    """As many cards as there are entries; an entry is a card's list of slices, or an error."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        """Any failure."""

    NVMLError_NotSupported = type("NotSupported", (NVMLError,), {})
    NVMLError_FunctionNotFound = type("FunctionNotFound", (NVMLError,), {})
    NVMLError_NotFound = type("NotFound", (NVMLError,), {})

    def __init__(self, *cards: list[int] | Exception | None) -> None:
        self.cards = cards
        self.calls: list[str] = []

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls.append("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if isinstance(self.cards[index], Exception):
            raise self.cards[index]
        return f"GPU-{index}"

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "Card"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1000)

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802
        slices = self.cards[int(handle[4:])]
        if slices is None:
            raise self.NVMLError_NotSupported
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, position: int) -> str:  # noqa: N802
        if position not in self.cards[int(handle[4:])]:
            raise self.NVMLError_NotFound
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
        raise nvml.NVMLError("Driver Not Loaded")

    nvml.nvmlInit = refuse  # type: ignore[method-assign]
    return nvml


def test_cards_are_listed_with_their_uuids(install: Install) -> None:
    nvml = install(FakeNvml(None, None))
    inventory = take_inventory("auto", CLUSTER)
    assert inventory.mode == "uuid"
    assert [(gpu.index, gpu.device_id) for gpu in inventory.gpus] == [(0, "GPU-0"), (1, "GPU-1")]
    assert inventory.gpus[0].memory_bytes == 1000
    assert inventory.cpus is not None
    assert nvml.calls == ["init", "shutdown"]


def test_a_card_that_is_cut_counts_as_its_slices_only(install: Install) -> None:
    install(FakeNvml(None, [0, 3], []))
    inventory = take_inventory("uuid", CLUSTER)
    assert [gpu.device_id for gpu in inventory.gpus] == ["GPU-0", "MIG-0", "MIG-3"]
    assert [gpu.is_slice for gpu in inventory.gpus] == [False, True, True]


def test_a_card_that_is_lost_is_named_and_left_out(install: Install) -> None:
    nvml = install(FakeNvml(FakeNvml.NVMLError("GPU is lost"), None))
    inventory = take_inventory("auto", CLUSTER)
    assert [gpu.device_id for gpu in inventory.gpus] == ["GPU-1"]
    assert inventory.notices == ("GPU 0 does not answer (GPU is lost) and is left out",)
    assert nvml.calls == ["init", "shutdown"]


def test_without_a_driver_auto_takes_cpus_and_says_so(install: Install) -> None:
    install(silent())
    inventory = take_inventory("auto", CLUSTER)
    assert (inventory.mode, inventory.gpus) == ("none", ())
    assert inventory.notices == ("no NVIDIA driver answers (Driver Not Loaded): CPUs only",)


def test_without_a_driver_uuid_is_an_error_with_the_ways_out(install: Install) -> None:
    install(silent())
    with pytest.raises(NvmlError) as caught:
        take_inventory("uuid", CLUSTER)
    assert caught.value.exit_code == 1
    assert "--gpus none" in caught.value.mend


def test_a_driver_that_fails_later_is_an_error_and_is_shut_down(install: Install) -> None:
    nvml = install(FakeNvml())

    def fail() -> int:
        raise nvml.NVMLError("Unknown Error")

    nvml.nvmlDeviceGetCount = fail
    with pytest.raises(NvmlError, match="failed"):
        take_inventory("uuid", CLUSTER)
    assert nvml.calls == ["init", "shutdown"]


def test_a_box_without_cards_takes_cpus(install: Install) -> None:
    install(FakeNvml())
    inventory = take_inventory("auto", CLUSTER)
    assert inventory.mode == "none"
    assert "no usable GPU" in inventory.notices[0]


@pytest.mark.parametrize("mode", ["none", "index"])
def test_the_driver_is_not_asked_in_vain(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    assert take_inventory(mode, CLUSTER).mode == mode
    assert take_inventory("auto", NO_GPUS) == take_inventory("none", NO_GPUS)


def test_another_mode_is_refused() -> None:
    with pytest.raises(InputError, match="uuids"):
        take_inventory("uuids", CLUSTER)
