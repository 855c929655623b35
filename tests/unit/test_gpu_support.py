"""Which GPU works with which TensorFlow: the data of the wheels, and the judgement."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lab.gpu import Gpu, Inventory
from lab.gpu.support import (
    DRIVERS,
    Build,
    GpuSupport,
    Support,
    build_of,
    builds,
    by_gpus,
    driver_for,
    indices,
    judge,
)
from lab.tf_versions import IMAGES
from tests.engine import ROOT

NEW = "580.95.05"
CURRENT, TF1 = builds()["2.21"], builds()["2.15"]


def status(capability: str, build: Build, driver: str = NEW, cuda: str = "13.0") -> Support:
    return judge(capability, driver, cuda, build).status


def test_the_data_has_each_version_of_tensorflow() -> None:
    assert set(builds()) == set(IMAGES)
    for name, build in builds().items():
        assert build.tensorflow.startswith(name)
        assert {each.name for each in build.libraries} == {"cuDNN", "cuBLAS", "NCCL"}
    assert (CURRENT.cuda, CURRENT.cudnn) == ("12.5.1", "9")
    assert CURRENT.kernels.machine_code == ("6.0", "7.0", "8.0", "8.9", "9.0")
    # `get_build_info` of 2.21 has only PTX for 9.0; that is true of the generated kernels.
    assert "9.0" not in CURRENT.generated_kernels.machine_code
    assert CURRENT.generated_kernels.ptx == ("9.0",)


@pytest.mark.parametrize(
    ("capability", "current", "tf1"),
    [
        ("3.7", Support.TOO_OLD, Support.TOO_OLD),
        ("5.2", Support.TOO_OLD, Support.WORKS),
        ("6.0", Support.NO_CUDNN, Support.WORKS),
        ("6.1", Support.NO_CUDNN, Support.WORKS),
        ("7.0", Support.NO_CUDNN, Support.WORKS),
        ("7.5", Support.WORKS, Support.WORKS),
        ("8.0", Support.WORKS, Support.WORKS),
        ("8.6", Support.WORKS, Support.WORKS),
        ("8.9", Support.WORKS, Support.WORKS),
        ("9.0", Support.WORKS, Support.COMPILES),
        ("10.0", Support.COMPILES, Support.COMPILES),
        ("10.3", Support.COMPILES, Support.COMPILES),
        ("12.0", Support.COMPILES, Support.COMPILES),
    ],
)
def test_the_judgement_follows_the_code(capability: str, current: Support, tf1: Support) -> None:
    assert (status(capability, CURRENT), status(capability, TF1)) == (current, tf1)


def test_machine_code_needs_the_driver_of_the_major_version() -> None:
    assert status("8.0", CURRENT, "525.60.13", "12.0") is Support.WORKS
    found = judge("8.0", "520.61.05", "11.8", CURRENT)
    assert found == GpuSupport(
        Support.OLD_DRIVER,
        "TensorFlow 2.21 needs a driver for CUDA 12.0, not driver 520.61.05",
        "update the driver to 525.60.13 or later, or use `--gpus none`",
    )


def test_ptx_needs_a_driver_that_knows_its_version() -> None:
    assert status("9.0", CURRENT, "555.42.02", "12.5") is Support.WORKS
    found = judge("9.0", "550.54.15", "12.4", CURRENT)
    assert found.status is Support.OLD_DRIVER
    assert "needs a driver for CUDA 12.5 on such a new GPU" in found.reason
    assert "555.42.02 or later" in found.fix
    # The kernels of 2.15 have PTX 8.1.
    assert status("9.0", TF1, "525.60.13", "12.0") is Support.OLD_DRIVER
    assert status("9.0", TF1, "530.30.02", "12.1") is Support.COMPILES


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("525.60.13", Support.WORKS),
        ("525.60.9", Support.OLD_DRIVER),  # compared as numbers
        ("525.100", Support.WORKS),
        ("1000.1", Support.WORKS),
        ("580.95.05-open", Support.WORKS),
        ("410.48", Support.OLD_DRIVER),
        ("", Support.UNKNOWN),
        ("none", Support.UNKNOWN),
    ],
)
def test_the_driver_counts_if_its_cuda_version_is_unknown(driver: str, expected: Support) -> None:
    assert status("8.0", CURRENT, driver, "") is expected


def test_an_unknown_capability_is_unknown_unless_the_driver_is_too_old() -> None:
    found = judge("", NEW, "13.0", CURRENT)
    assert (found.status, found.reason) == (
        Support.UNKNOWN,
        "the GPU's compute capability is unknown",
    )
    assert judge("", "410.48", "10.0", CURRENT).status is Support.OLD_DRIVER
    # Another driver does not help a GPU that is too old.
    assert judge("3.7", "410.48", "10.0", CURRENT).status is Support.TOO_OLD


def test_a_gpu_that_is_too_old_gets_another_tensorflow_if_that_helps() -> None:
    found = judge("5.2", NEW, "13.0", CURRENT)
    assert found.reason == "TensorFlow 2.21 needs compute capability 6.0 or later"
    assert "LAB_TENSORFLOW='tensorflow[and-cuda]==2.15.1'" in found.fix
    assert judge("3.7", NEW, "13.0", CURRENT).fix == "use `--gpus none`"
    assert judge("3.7", NEW, "13.0", TF1).fix == "use `--gpus none`"


def test_the_weakest_library_counts() -> None:
    nccl = next(each for each in CURRENT.libraries if each.name == "NCCL")
    newer = replace(CURRENT, libraries=(replace(nccl, least="7.5"),))
    found = judge("7.0", NEW, "13.0", newer)
    assert found.status is Support.TOO_OLD
    assert found.reason.startswith("NCCL 2.32.3 needs compute capability 7.5")
    assert "convolutions" in judge("7.0", NEW, "13.0", CURRENT).reason


def test_the_build_follows_the_variables_that_name_another_one() -> None:
    assert build_of("2.21", {}) is CURRENT
    assert build_of("2.15", {"LAB_TENSORFLOW": "tensorflow==1.0"}) is TF1
    assert build_of("2.21", {"LAB_TENSORFLOW": "tensorflow[and-cuda]==2.15.1"}) is TF1
    assert build_of("2.21", {"LAB_TENSORFLOW": "tensorflow[and-cuda]==2.19.*"}) is None
    assert build_of("2.21", {"LAB_IMAGE": "mine"}) is None
    assert build_of("2.15", {"LAB_HERITAGE_IMAGE": "mine"}) is None


def test_equal_gpus_and_slices_are_judged_together() -> None:
    gpus = (
        Gpu(0, "GPU-0", compute_capability="6.0"),
        Gpu(1, "MIG-1", compute_capability="8.0"),
        Gpu(1, "MIG-2", compute_capability="8.0"),
        Gpu(2, "GPU-2", compute_capability="6.0"),
    )
    host = Inventory("uuid", gpus, 8, 1, driver=NEW, cuda="13.0")
    found = by_gpus(gpus, host, CURRENT)
    assert {each.status: names for each, names in found.items()} == {
        Support.NO_CUDNN: "GPU 0, 2",
        Support.WORKS: "GPU 1",
    }
    assert [each.status for each in by_gpus(gpus, host, None)] == [Support.UNKNOWN]


def test_the_documents_have_the_judgements() -> None:
    text = (ROOT / "docs" / "gpus.md").read_text("utf-8")
    section = text.partition("\n## Which GPUs work\n")[2].partition("\n## ")[0]
    tables = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    gpus = [row for row in tables if len(row) == 4 and row[0] != "GPUs"]
    assert len(gpus) == 11
    for _, capability, current, tf1 in gpus:
        assert (current, tf1) == (status(capability, CURRENT), status(capability, TF1)), capability
    facts = {row[0]: row[1:] for row in tables}
    for column, build in enumerate((CURRENT, TF1)):

        def fact(name: str, column: int = column) -> str:
            return facts[name][column]

        assert fact("wheel") == build.tensorflow
        assert fact("built with") == f"CUDA {build.cuda}, cuDNN {build.cudnn}"
        assert fact("least driver") == driver_for("12.0")
        assert fact("machine code") == ", ".join(build.generated_kernels.machine_code)
        more = set(build.kernels.machine_code) - set(build.generated_kernels.machine_code)
        assert fact("machine code of the large kernels only") == ", ".join(more)
        kernels, generated = build.kernels, build.generated_kernels
        assert fact("PTX") == ", ".join(generated.ptx) == ", ".join(kernels.ptx)
        assert (
            fact("PTX versions") == f"{kernels.ptx_version}; small kernels {generated.ptx_version}"
        )
        for each in build.libraries:
            assert fact(each.name) == f"{each.version}: {each.least} or later"


def test_the_data_was_read_from_the_locked_versions() -> None:
    """If a lock has changed, run `tools/wheel_support.py`."""
    for name, build in builds().items():
        lock = ROOT / "requirements" / f"{IMAGES[name].requirements(gpus=True)}.txt"
        locked = dict(re.findall(r"^([\w-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE))
        assert locked["tensorflow"] == build.tensorflow
        for each in build.libraries:
            assert locked[f"nvidia-{each.name.lower()}-cu12"] == each.version


def test_indices() -> None:
    assert indices(Gpu(each, "") for each in range(8)) == "0 to 7"
    assert indices(Gpu(each, "") for each in (0, 2, 4)) == "0, 2, 4"
    assert indices(Gpu(each, "") for each in (1, 0, 1)) == "0, 1"


@pytest.mark.parametrize(
    ("ptx", "cuda", "driver"),
    [
        ("8.5", "12.5", "555.42.02"),
        ("8.6", "12.7", "570.26"),
        ("8.7", "12.8", "570.26"),
        ("8.8", "12.9", "575.51.03"),
        ("9.0", "13.0", ""),
        ("9.9", "13.9", ""),
    ],
)
def test_each_ptx_version_has_a_judgement(ptx: str, cuda: str, driver: str) -> None:
    build = replace(CURRENT, kernels=replace(CURRENT.kernels, ptx_version=ptx))
    old = judge("12.0", "", "12.4", build)
    assert old.status is Support.OLD_DRIVER
    assert f"a driver for CUDA {cuda} on such a new GPU" in old.reason
    assert f"update the driver to {driver or f'one for CUDA {cuda}'} or later, or" in old.fix
    assert judge("12.0", "", cuda, build).status is Support.COMPILES
    # Without the CUDA version of the driver, its own version decides, if it is known.
    assert driver_for(cuda) == driver
    expected = Support.COMPILES if driver else Support.UNKNOWN
    assert judge("12.0", driver or NEW, "", build).status is expected


def test_a_build_for_a_new_cuda_has_a_judgement() -> None:
    build = replace(CURRENT, cuda="14.2")
    assert judge("8.0", NEW, "13.0", build).reason == (
        "TensorFlow 2.21 needs a driver for CUDA 14.0, not driver 580.95.05"
    )
    assert judge("8.0", NEW, "14.2", build).status is Support.WORKS


def test_the_drivers_are_in_order() -> None:
    versions = [tuple(map(int, each.split("."))) for each in DRIVERS.values()]
    assert versions == sorted(versions)
