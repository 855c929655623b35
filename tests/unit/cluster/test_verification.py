"""Plans compared with the GPUs that tasks see."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.cluster.gpu.verification import GpuCheck, GpuStatus, GpuView, check_gpus
from tests.support.gpu_views import NO_DRIVER, A, B, C, inside, local

M, N = (f"MIG-0000000{letter}-1111-2222-3333-444444444444" for letter in "de")
UUIDS = {"0": A, "1": B, "2": C}


def judged(planned: tuple[str, ...], view: GpuView, *, driver: bool = True) -> GpuCheck:
    return check_gpus(planned, view, UUIDS, host_has_driver=driver)


@pytest.mark.parametrize(
    ("planned", "view"),
    [
        ((A,), inside(A.upper())),
        (("1",), inside(B)),
        ((M, N), inside(M, N)),
        ((), inside()),
        ((), NO_DRIVER),
        ((), local(cuda="error 100 (CUDA_ERROR_NO_DEVICE)")),
        # NVML shows a process the whole host: a fault of another task's GPU does not matter.
        ((A,), local(A, nvml="error 15 (GPU is lost)")),
    ],
    ids=[
        *("in capitals", "by index", "slices", "a ps", "a ps without a driver"),
        *("a ps as a process", "another GPU is lost"),
    ],
)
def test_proved(planned: tuple[str, ...], view: GpuView) -> None:
    found = judged(planned, view)
    assert (found.status, found.seen, found.what, found.fix) == (GpuStatus.PROVED, planned, "", "")


@pytest.mark.parametrize(
    ("planned", "view", "seen"),
    [
        ((A,), inside(B), B),
        ((A,), inside(), "none"),
        ((A,), inside(A, B), f"{A}, {B}"),
        ((), inside(A, seen=()), A),
        ((M,), inside(A), A),
        ((M,), inside(N), N),
        ((A,), NO_DRIVER, "none: no NVIDIA driver in the task"),
        (("9",), inside(A, B), f"{A}, {B}"),
        ((A,), local(B), B),
        ((), local(A), A),
    ],
    ids=[
        *("wrong", "none", "one more", "a ps with one", "a slice's GPU", "another slice"),
        *("no driver", "two for one of another host", "wrong, locally", "a ps with one, locally"),
    ],
)
def test_mismatch(planned: tuple[str, ...], view: GpuView, seen: str) -> None:
    found = judged(planned, view)
    shown = ", ".join(planned) or "none"
    expected = (GpuStatus.MISMATCH, f"planned {shown}, sees {seen}")
    assert (found.status, found.what, found.status.good) == (*expected, False)
    assert "boot it again" in found.fix


@pytest.mark.parametrize(
    ("view", "words", "fix"),
    [
        (GpuView(nvml="error 999 (Unknown Error)"), "NVML reports: error 999", "docker restart"),
        (inside(nvml="error 15 (GPU is lost)"), "NVML reports: error 15", "grep Xid"),
        (inside(nvml="error 4 (Insufficient Permissions)"), "Permissions", "DeviceFileMode"),
        (local(nvml="error 17 (Operating System)"), "NVML reports: error 17", "DeviceFileMode"),
        (GpuView(nvml="error 18 (version mismatch)"), "version mismatch", "reboot the host"),
        (local(A, cuda="error 802 (x)"), "CUDA reports: error 802", "fabricmanager"),
        (local(A, cuda="error 803 (x)"), "CUDA reports: error 803", "reboot"),
        (local(A, cuda="error 804 (x)"), "CUDA reports: error 804", "update the NVIDIA driver"),
        (local(A, cuda="error 999 (x)"), "CUDA reports: error 999", "modprobe -u -c=0"),
        (local(A, cuda="error 34 (x)"), "CUDA reports: error 34", "lab doctor"),
        (local(A, cuda="libcuda.so.1: bad"), "CUDA reports: libcuda.so.1: bad", "lab doctor"),
    ],
)
def test_lost(view: GpuView, words: str, fix: str) -> None:
    found = judged((A,), view)
    assert (found.status, found.status.good) == (GpuStatus.LOST, False)
    assert found.what.startswith(f"planned {A}, but cannot use it: ")
    assert words in found.what
    assert fix in found.fix


@pytest.mark.parametrize(
    ("planned", "view", "what"),
    [
        ((A,), GpuView(why="exited (1)"), "exited (1)"),
        ((A,), NO_DRIVER, "no NVIDIA driver in the task"),
        ((), GpuView(nvml="error 999 (Unknown Error)"), "error 999 (Unknown Error)"),
        (
            ("9",),
            inside(A),
            "the number is as planned; the UUIDs of the host's GPUs are unknown here",
        ),
    ],
)
def test_not_proved_has_a_reason(planned: tuple[str, ...], view: GpuView, what: str) -> None:
    found = judged(planned, view, driver=False)
    assert (found.status, found.what, found.status.good) == (GpuStatus.UNKNOWN, what, True)


def test_output_of_a_task_is_parsed() -> None:
    fields = {"given": [A], "seen": [], "driver": True, "nvml": "x", "cuda": "y", "why": "z"}
    assert GpuView.from_json(json.dumps(fields)) == GpuView((A,), (), nvml="x", cuda="y", why="z")
    assert GpuView.from_json("{}") == GpuView()


@pytest.mark.parametrize(
    "text",
    [*("", "[]", "7", '{"seen": [1]}', '{"seen": "GPU-a"}', '{"driver": 1}', '{"nvml": [1]}')],
)
def test_odd_output_fails(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        GpuView.from_json(text)


some_gpus = st.lists(st.sampled_from([A, B, C]), max_size=3)


@given(planned=some_gpus.map(tuple), has=some_gpus.map(tuple), sees=some_gpus.map(tuple))
def test_only_exactly_the_planned_gpus_are_proved(
    planned: tuple[str, ...], has: tuple[str, ...], sees: tuple[str, ...]
) -> None:
    right = sorted(planned) == sorted(has) == sorted(sees)
    found = judged(planned, inside(*has, seen=sees))
    assert found.status is (GpuStatus.PROVED if right else GpuStatus.MISMATCH)
    as_process = judged(planned, replace(inside(*has, seen=sees), given=None))
    same = sorted(planned) == sorted(sees)
    assert as_process.status is (GpuStatus.PROVED if same else GpuStatus.MISMATCH)
