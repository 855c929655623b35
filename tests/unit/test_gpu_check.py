"""Plans compared with the GPUs that tasks see."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.gpu.evidence import GpuView
from lab.gpu.verification import GpuCheck, GpuStatus, check_gpus
from tests.support.gpu_views import A, B, C, bare, inside, local, on_a_box

M, N = (f"MIG-0000000{letter}-1111-2222-3333-444444444444" for letter in "de")
MINORS = {A: 4, "0": 4, B: 5, "1": 5, C: 6, "2": 6, M: 7, N: 7}
UUIDS = {"0": A, "1": B, "2": C}
VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}
REFUSED = "Operation not permitted"
NARROW = {"NVIDIA_VISIBLE_DEVICES": f"{A},{B}", "CUDA_VISIBLE_DEVICES": A}


def failing(code: str) -> dict[str, str]:
    """The reason why CUDA is unknown, where its driver exists and cannot start."""
    return {"cuda": f"cuInit: error {code} (x)"}


def judged(planned: tuple[str, ...], sight: GpuView, *, nodes_known: bool = True) -> GpuCheck:
    return check_gpus(planned, sight, MINORS if nodes_known else {}, UUIDS)


# That sources which agree prove it, and that one that disagrees suffices, is tested below, for any
# GPUs. These are the exceptions: CDI, images with a variable of their own, indices, slices.
PROVED = [
    ("an image that says `all`", (A,), on_a_box(A, nodes=(4,), environment=ALL)),
    ("by CDI, which says void", (A,), on_a_box(A, nodes=(4,), environment=VOID)),
    ("in another order", (A, B), on_a_box(B, A, nodes=(5, 4))),
    ("by index", ("1",), inside("1", nodes={5: ""}, nvml=(B,))),
    ("a slice, by NVML", (M,), inside(M, nodes={7: ""}, nvml=(M,))),
    ("a slice, by CUDA", (M,), inside(M, nodes={7: ""}, cuda=bare(M), tensorflow=1)),
    ("a ps with a driver", (), inside(nvml=(), cuda=(), tensorflow=0)),
    ("locally, by CUDA", (B, A), local(B, A, cuda=bare(B, A))),
    ("a local ps, by CUDA", (), local(cuda=())),
    ("a ps, whatever NVML says", (), inside(reasons={"nvml": "Unknown Error"})),
]
DECLARED = [
    ("void by CDI, and as many, by index", ("9",), on_a_box("9", nodes=(0,), environment=VOID)),
    ("void by CDI, and a slice's node", (M,), inside(M, nodes={7: ""}, environment=VOID)),
    ("no driver inside", (A, B), inside(A, B)),
    ("only the environment", (A,), local(A)),
    ("nodes of unknown cards", ("9",), inside("9", nodes={0: ""})),
    ("a slice with an old CUDA", (M,), inside(M, nodes={7: ""}, cuda=(A,))),
    ("a local ps and a CUDA that fails", (), local(reasons={"cuda": "cuInit: error 802"})),
    ("a local process and NVML's error", (A,), local(A, reasons={"nvml": "Unknown Error"})),
    ("TensorFlow alone", (A,), inside(A, tensorflow=1)),
]


@pytest.mark.parametrize(
    ("status", "planned", "sight"),
    [
        pytest.param(status, *each[1:], id=each[0])
        for status, rows in ((GpuStatus.PROVED, PROVED), (GpuStatus.DECLARED, DECLARED))
        for each in rows
    ],
)
def test_as_planned(status: GpuStatus, planned: tuple[str, ...], sight: GpuView) -> None:
    known = bool(sight.nodes) or status is GpuStatus.PROVED
    found = judged(planned, sight, nodes_known=known)
    assert (found.status, found.seen, found.fix) == (status, planned, ""), found.what
    assert found.sources


MISMATCH = [
    ("the engine gave all", (A,), inside(A, engine=("all",)), "all (engine)"),
    ("a ps has no environment", (), inside(environment={}), "all (environment)"),
    ("void, and nobody sees it", (A,), inside(A, environment=VOID), "none (environment)"),
    ("all, and only CUDA", (A,), inside(A, cuda=bare(A), environment=ALL), "all (environment)"),
    ("narrowed", (A, B), on_a_box(A, B, nodes=(4, 5), environment=NARROW), f"{A} (environment)"),
    ("more by NVML", (A,), on_a_box(A, nodes=(4,), nvml=(A, B)), f"{A}, {B} (NVML)"),
    ("no node", (A,), inside(A), "none (device nodes)"),
    ("no node, so CUDA fails", (A,), inside(A, reasons=failing("999")), "none (device nodes)"),
    ("a lost one", (B,), inside(B, nodes={4: REFUSED, 5: ""}), f"{A}, {B} (device nodes)"),
    ("a node more", (A,), inside(A, nodes={4: "", 9: ""}), f"{A}, /dev/nvidia9 (device nodes)"),
    ("two cards for one unknown", ("9",), inside("9", nvml=(A, B)), f"{A}, {B} (NVML)"),
    ("another slice, by CUDA", (M,), inside(M, nodes={7: ""}, cuda=bare(N)), f"{N[4:]} (CUDA)"),
    ("TensorFlow on a ps", (), inside(tensorflow=1), "GPU:0 (TensorFlow)"),
    ("locally, nothing narrows it", (A,), local(A, environment={}), "all (environment)"),
    ("locally, CUDA shows none", (A,), local(A, cuda=()), "none (CUDA)"),
]


@pytest.mark.parametrize(
    ("planned", "sight", "words"), [pytest.param(*each[1:], id=each[0]) for each in MISMATCH]
)
def test_mismatch(planned: tuple[str, ...], sight: GpuView, words: str) -> None:
    nodes_known = bool(sight.nodes) or words.endswith("(device nodes)")
    found = judged(planned, sight, nodes_known=nodes_known)
    assert "\n" not in found.what
    shown = ", ".join(planned) or "none"
    expected = (GpuStatus.MISMATCH, f"planned {shown}, sees {words}")
    assert (found.status, found.what) == expected
    assert found.fix


@pytest.mark.parametrize(
    ("sight", "fix"),
    [
        (on_a_box(A, nodes=(4,), tensorflow=0), "lab build"),
        (local(A, cuda=bare(A), tensorflow=0), "pip install 'tensorflow[and-cuda]==2.21.*'"),
    ],
)
def test_mismatched_libraries_have_a_hint(sight: GpuView, fix: str) -> None:
    assert fix in judged((A,), sight).fix


def node(fault: str, **changes: Any) -> GpuView:
    return inside(A, nodes={4: fault}, **changes)


@pytest.mark.parametrize(
    ("sight", "words", "fix"),
    [
        (node(REFUSED, cuda=()), f"/dev/nvidia4 cannot be opened ({REFUSED})", "daemon-reload"),
        (node("Permission denied"), "cannot be opened (Permission denied)", "DeviceFileMode"),
        # Where the cgroup refuses, CUDA fails, too: its hint would not help.
        (node(REFUSED, reasons=failing("999")), "/dev/nvidia4 cannot be opened", "daemon-reload"),
        (node("", reasons={"nvml": "Unknown Error"}), "NVML reports: Unknown", "docker restart"),
        (node("", reasons={"nvml": "GPU is lost"}), "NVML reports: GPU is lost", "grep Xid"),
        # By CDI, with the variable void: the lost GPU had been given.
        (
            inside(A, nodes=None, environment=VOID, reasons={"nvml": "Unknown Error"}),
            "NVML reports: Unknown Error",
            "docker restart",
        ),
        (local(A, reasons=failing("802")), "CUDA reports: cuInit: error 802", "fabricmanager"),
        (local(A, reasons=failing("803")), "CUDA reports: cuInit: error 803", "reboot"),
        (local(A, reasons=failing("999")), "CUDA reports: cuInit: error 999", "modprobe -u -c=0"),
        (local(A, reasons=failing("34")), "CUDA reports: cuInit: error 34", "lab doctor"),
    ],
)
def test_lost(sight: GpuView, words: str, fix: str) -> None:
    found = judged((A,), sight)
    assert (found.status, found.status.good) == (GpuStatus.LOST, False)
    assert found.what.startswith(f"planned {A}, but cannot use it: ")
    assert words in found.what
    assert fix in found.fix


def test_unknown_and_declared_have_reasons() -> None:
    found = judged((A,), GpuView.unknown("exited (1)"))
    assert (found.status, found.seen, found.status.good) == (GpuStatus.UNKNOWN, None, True)
    assert "environment: exited (1)" in found.what
    found = judged((A,), inside(A), nodes_known=False)
    assert found.what == (
        f"planned {A}, declared the same (environment, engine); CUDA: no libcuda.so.1,"
        " NVML: no libnvidia-ml.so.1, device nodes: no device nodes, as on this host"
    )


def test_output_of_a_task_is_parsed() -> None:
    fields: dict[str, Any] = {
        **{"environment": {"CUDA_VISIBLE_DEVICES": "-1"}, "nodes": {"4": "", "5": REFUSED}},
        **{"nvml": [A], "cuda": [], "tensorflow": 0, "reasons": {"x": "y"}},
    }
    parsed = (fields["environment"], {4: "", 5: REFUSED}, (A,), (), 0, {"x": "y"})
    # A task does not say by itself that it is isolated.
    assert GpuView.from_json(json.dumps({**fields, "isolated": True})) == GpuView(*parsed)
    assert GpuView.from_json("{}") == GpuView()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", '{"environment": []}', '{"environment": {"A": 1}}'),
        *('{"nodes": {"x": ""}}', '{"nodes": {"1": null}}', '{"nodes": [1]}', '{"cuda": [1]}'),
        *('{"nvml": "GPU-a"}', '{"tensorflow": true}', '{"tensorflow": "1"}', '{"reasons": [1]}'),
    ],
)
def test_odd_output_fails(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        GpuView.from_json(text)


# ---- Any output

SOURCES = ("environment", "nodes", "nvml", "cuda", "tensorflow", "engine")


def agreeing(planned: tuple[str, ...], data: st.DataObject) -> GpuView:
    """The view of a task with its GPUs: each source is right, or has no answer."""
    uuids = tuple(UUIDS.get(each, each) for each in planned)
    right = on_a_box(*planned, nodes=(), nvml=uuids, cuda=bare(*uuids), tensorflow=len(planned))
    right = replace(right, nodes={MINORS[each]: "" for each in planned})
    silent = {name: None for name in SOURCES if data.draw(st.booleans(), label=f"{name} is silent")}
    return replace(right, **silent)


@given(
    st.lists(
        st.sampled_from([A, B, C, "1"]), max_size=3, unique_by=lambda each: UUIDS.get(each, each)
    ).map(tuple),
    st.data(),
)
def test_a_task_with_its_gpus_is_never_refused(
    planned: tuple[str, ...], data: st.DataObject
) -> None:
    found = check_gpus(planned, agreeing(planned, data), MINORS, UUIDS)
    assert found.status.good, found.what
    strong = {"CUDA", "NVML", "device nodes"} & set(found.sources)
    assert (found.status is GpuStatus.PROVED) == bool(strong)


@given(st.lists(st.sampled_from([A, B, C]), max_size=2, unique=True).map(tuple), st.data())
def test_a_single_source_that_disagrees_is_enough(
    planned: tuple[str, ...], data: st.DataObject
) -> None:
    """Remove a GPU from one source, or add one: never proved, never declared."""
    sight = agreeing(planned, data)
    gpus = st.lists(st.sampled_from([A, B, C]), max_size=3, unique=True)
    other = tuple(data.draw(gpus.filter(lambda ids: set(ids) != set(planned)), label="instead"))
    liar = data.draw(st.sampled_from(SOURCES))
    told = {"NVIDIA_VISIBLE_DEVICES": ",".join(other) or "-1"}
    lies: dict[str, Any] = {
        "environment": told if other else {**told, "CUDA_VISIBLE_DEVICES": "-1"},
        "engine": other,
        "nodes": {MINORS[each]: "" for each in other},
        "nvml": other,
        "cuda": bare(*other),
        "tensorflow": len(other) if len(other) != len(planned) else len(planned) + 1,
    }
    found = check_gpus(planned, replace(sight, **{liar: lies[liar]}), MINORS, UUIDS)
    shown = {"CUDA", "NVML", "device nodes"} & set(found.sources)
    if liar == "environment" and not other and shown:
        return  # CDI reports this; it counts only where the driver itself shows the GPUs
    assert found.status is GpuStatus.MISMATCH, found.what
