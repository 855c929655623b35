"""Plans compared with the GPUs that tasks see."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.gpu.verification import NOTHING, GpuCheck, GpuStatus, GpuView, check_gpus
from lab.task.probes.gpu_probe import NO_LIBCUDA, NOT_ASKED, SHOWS_WHOLE_HOST

A, B, C = (f"GPU-0000000{letter}-1111-2222-3333-444444444444" for letter in "abc")
M, N = (f"MIG-0000000{letter}-1111-2222-3333-444444444444" for letter in "de")
MINORS = {A: 4, "0": 4, B: 5, "1": 5, C: 6, "2": 6, M: 7, N: 7}
UUIDS = {"0": A, "1": B, "2": C}

SILENT = {"nvml": "no libnvidia-ml.so.1", "cuda": NO_LIBCUDA, "tensorflow": NOT_ASKED}


def bare(*uuids: str) -> tuple[str, ...]:
    return tuple(each[4:] for each in uuids)


def inside(*pins: str, **changes: Any) -> GpuView:
    """A container to which the engine gave these GPUs, without a driver in it."""
    told = {"NVIDIA_VISIBLE_DEVICES": ",".join(pins)}
    none = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}
    sight = GpuView(told if pins else none, {}, reasons=SILENT, isolated=True, engine=pins)
    return replace(sight, **changes)


def local(*pins: str, **changes: Any) -> GpuView:
    """An agent as a process of the host, without a driver."""
    told = {"CUDA_VISIBLE_DEVICES": ",".join(pins) or "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    sight = GpuView(told, reasons={**SILENT, "nodes": SHOWS_WHOLE_HOST, "nvml": SHOWS_WHOLE_HOST})
    return replace(sight, **changes)


def failing(code: str) -> dict[str, str]:
    """The reason why CUDA is unknown, where its driver exists and cannot start."""
    return {"cuda": f"cuInit: error {code} (x)"}


def on_a_box(*pins: str, nodes: tuple[int, ...], **changes: Any) -> GpuView:
    """The same as `inside`, with the driver's nodes and libraries."""
    shown = {"nodes": dict.fromkeys(nodes, ""), "nvml": pins, "cuda": bare(*pins)}
    return replace(inside(*pins), **{**shown, **changes})


VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}

PROVED = [
    ("an image that says `all`", (A,), on_a_box(A, nodes=(4,), environment=ALL)),
    ("everybody agrees", (A, B), on_a_box(A, B, nodes=(4, 5))),
    ("in another order", (A, B), on_a_box(B, A, nodes=(5, 4))),
    ("by the nodes alone", (A,), inside(A, nodes={4: ""})),
    ("by NVML alone", (A,), inside(A, nodes=None, nvml=(A,))),
    ("by CUDA alone", (A,), inside(A, nodes=None, cuda=bare(A))),
    ("with TensorFlow", (A, B), on_a_box(A, B, nodes=(4, 5), tensorflow=2)),
    ("by index", ("1",), inside("1", nodes={5: ""}, nvml=(B,))),
    (
        "by CDI, which says void",
        (A,),
        on_a_box(A, nodes=(4,), environment={"NVIDIA_VISIBLE_DEVICES": "void"}),
    ),
    ("a slice, by NVML", (M,), inside(M, nodes={7: ""}, nvml=(M,))),
    ("a slice, by CUDA", (M,), inside(M, nodes={7: ""}, cuda=bare(M), tensorflow=1)),
    (
        "slices, of which CUDA shows one",
        (M, N),
        inside(M, N, nodes={7: ""}, nvml=(N, M), cuda=bare(N), tensorflow=1),
    ),
    ("a ps in a container", (), inside()),
    ("a ps with a driver", (), inside(nvml=(), cuda=(), tensorflow=0)),
    ("locally, by CUDA", (B, A), local(B, A, cuda=bare(B, A))),
    ("locally, by an old CUDA", (B,), local(B, cuda=(B,))),
    ("locally, by index", ("2",), local("2", cuda=bare(C))),
    ("a local ps, by CUDA", (), local(cuda=())),
    ("a local ps without any driver", (), local()),
]

DECLARED = [
    ("void by CDI, and as many, by index", ("9",), on_a_box("9", nodes=(0,), environment=VOID)),
    (
        "void by CDI, and the node of a slice's card",
        (M,),
        inside(M, nodes={7: ""}, environment=VOID),
    ),
    ("no driver inside", (A, B), inside(A, B)),
    ("only the engine", (A,), inside(A, environment=None, nodes=None)),
    ("only the environment", (A,), local(A)),
    ("as many, by index", ("9",), inside("9", nvml=(A,), cuda=bare(A))),
    ("nodes of unknown cards", ("9",), inside("9", nodes={0: ""})),
    ("a slice's card by its node", (M,), inside(M, nodes={7: ""})),
    ("a slice with an old CUDA", (M,), inside(M, nodes={7: ""}, cuda=(A,))),
    ("an anchor", (), inside(nodes=None)),
    ("a local ps and a CUDA that fails", (), local(reasons={"cuda": "cuInit: error 802"})),
    ("NVML of the whole box", (A,), local(A, nvml=(A, B, C))),
    ("TensorFlow alone", (A,), inside(A, tensorflow=1)),
]

MISMATCH = [
    ("the engine gave another", (A,), inside(A, engine=(B,)), f"sees {B} (engine)"),
    ("the engine gave all", (A,), inside(A, engine=("all",)), "sees all (engine)"),
    ("the engine gave a ps one", (), inside(engine=(A,)), f"sees {A} (engine)"),
    ("the engine gave none", (A,), inside(A, engine=()), "sees none (engine)"),
    ("PID 1 was told another", (A,), replace(inside(B), engine=(A,)), f"sees {B} (environment)"),
    ("a ps was told one", (), replace(inside(A), engine=()), f"sees {A} (environment)"),
    ("a ps was told nothing", (), inside(environment={}), "sees all (environment)"),
    (
        "a ps was told half",
        (),
        inside(environment={"NVIDIA_VISIBLE_DEVICES": "void"}),
        "sees all (environment)",
    ),
    (
        "void, and nobody sees it",
        (A,),
        inside(A, environment={"NVIDIA_VISIBLE_DEVICES": "void"}),
        "sees none (environment)",
    ),
    ("all, and nobody sees it", (A,), inside(A, environment=ALL), "sees all (environment)"),
    (
        "all, and as many, by index",
        ("9",),
        on_a_box("9", nodes=(0,), environment=ALL),
        "sees all (environment)",
    ),
    (
        "all, and CUDA, which is narrowed",
        (A,),
        inside(A, cuda=bare(A), environment={**ALL, "CUDA_VISIBLE_DEVICES": A}),
        "sees all (environment)",
    ),
    (
        "an image that says another, and the driver the right one",
        (A,),
        on_a_box(A, nodes=(4,), environment={"NVIDIA_VISIBLE_DEVICES": B}),
        f"sees {B} (environment)",
    ),
    (
        "narrowed",
        (A, B),
        on_a_box(
            A,
            B,
            nodes=(4, 5),
            environment={"NVIDIA_VISIBLE_DEVICES": f"{A},{B}", "CUDA_VISIBLE_DEVICES": A},
        ),
        f"sees {A} (environment)",
    ),
    ("NVML shows another", (A,), on_a_box(A, nodes=(4,), nvml=(B,)), f"sees {B} (NVML)"),
    ("NVML shows more", (A,), on_a_box(A, nodes=(4,), nvml=(A, B)), f"sees {A}, {B} (NVML)"),
    ("CUDA shows another", (A,), on_a_box(A, nodes=(4,), cuda=bare(B)), f"sees {B[4:]} (CUDA)"),
    ("CUDA shows none", (A,), on_a_box(A, nodes=(4,), cuda=()), "sees none (CUDA)"),
    ("a ps sees one", (), inside(cuda=(A,)), f"sees {A} (CUDA)"),
    ("another node", (A,), inside(A, nodes={5: ""}), f"sees {B} (device nodes)"),
    (
        "one node too many",
        (A,),
        inside(A, nodes={4: "", 9: ""}),
        f"sees {A}, /dev/nvidia9 (device nodes)",
    ),
    ("no node", (A,), inside(A), "sees none (device nodes)"),
    (
        "no node, of which CUDA's failure is but a consequence",
        (A,),
        inside(A, reasons=failing("999")),
        "sees none (device nodes)",
    ),
    ("a node in a ps", (), inside(nodes={4: ""}), f"sees {A} (device nodes)"),
    (
        "two nodes for one unknown card",
        ("9",),
        inside("9", nodes={0: "", 1: ""}),
        "sees /dev/nvidia0, /dev/nvidia1 (device nodes)",
    ),
    ("two cards for one unknown", ("9",), inside("9", nvml=(A, B)), f"sees {A}, {B} (NVML)"),
    ("another slice", (M,), inside(M, nodes={7: ""}, nvml=(N,)), f"sees {N} (NVML)"),
    (
        "another slice, by CUDA",
        (M,),
        inside(M, nodes={7: ""}, cuda=bare(N)),
        f"sees {N[4:]} (CUDA)",
    ),
    (
        "TensorFlow lists fewer",
        (A, B),
        on_a_box(A, B, nodes=(4, 5), tensorflow=1),
        "sees GPU:0 (TensorFlow)",
    ),
    ("TensorFlow lists one on a ps", (), inside(tensorflow=1), "sees GPU:0 (TensorFlow)"),
    ("locally, nothing narrows it", (A,), local(A, environment={}), "sees all (environment)"),
    ("a local ps sees all", (), local(environment={}), "sees all (environment)"),
    ("locally, CUDA shows another", (A,), local(A, cuda=bare(B)), f"sees {B[4:]} (CUDA)"),
    ("locally, CUDA shows none", (A,), local(A, cuda=()), "sees none (CUDA)"),
    ("by index, another card", ("1",), inside("1", nodes={5: ""}, nvml=(A,)), f"sees {A} (NVML)"),
]


def judged(planned: tuple[str, ...], sight: GpuView, *, nodes_known: bool = True) -> GpuCheck:
    return check_gpus(planned, sight, MINORS if nodes_known else {}, UUIDS)


@pytest.mark.parametrize(
    ("planned", "sight"), [pytest.param(*each[1:], id=each[0]) for each in PROVED]
)
def test_proved(planned: tuple[str, ...], sight: GpuView) -> None:
    found = judged(planned, sight)
    assert (found.status, found.fix) == (GpuStatus.PROVED, ""), found.explanation
    assert found.seen == planned
    assert found.sources


@pytest.mark.parametrize(
    ("planned", "sight"), [pytest.param(*each[1:], id=each[0]) for each in DECLARED]
)
def test_declared(planned: tuple[str, ...], sight: GpuView) -> None:
    found = judged(planned, sight, nodes_known=bool(sight.nodes))
    assert (found.status, found.fix) == (GpuStatus.DECLARED, ""), found.explanation
    assert found.seen == planned


@pytest.mark.parametrize(
    ("planned", "sight", "words"), [pytest.param(*each[1:], id=each[0]) for each in MISMATCH]
)
def test_mismatch(planned: tuple[str, ...], sight: GpuView, words: str) -> None:
    nodes_known = bool(sight.nodes) or words.endswith("(device nodes)")
    found = judged(planned, sight, nodes_known=nodes_known)
    shown = ", ".join(planned) or "none"
    assert (found.status, found.explanation) == (GpuStatus.MISMATCH, f"planned {shown}, {words}")
    assert found.fix


@pytest.mark.parametrize(
    ("sight", "words", "mend"),
    [
        (
            inside(A, nodes={4: "Operation not permitted"}, cuda=()),
            "/dev/nvidia4 cannot be opened (Operation not permitted)",
            "daemon-reload",
        ),
        (
            inside(A, nodes={4: "Permission denied"}),
            "/dev/nvidia4 cannot be opened (Permission denied)",
            "NVreg_DeviceFileMode",
        ),
        (
            inside(A, nodes={4: ""}, reasons={"nvml": "Unknown Error"}),
            "NVML reports: Unknown Error",
            "docker restart",
        ),
        (
            inside(A, nodes={4: ""}, reasons={"nvml": "GPU is lost"}),
            "NVML reports: GPU is lost",
            "grep Xid",
        ),
        (
            inside(A, nodes={4: "Input/output error"}),
            "/dev/nvidia4 cannot be opened (Input/output error)",
            "grep Xid",
        ),
        (
            inside(A, nodes={4: "No such device"}),
            "/dev/nvidia4 cannot be opened (No such device)",
            "grep Xid",
        ),
        (
            # By CDI, with the variable void: the lost GPU had been given.
            inside(A, nodes=None, environment=VOID, reasons={"nvml": "Unknown Error"}),
            "NVML reports: Unknown Error",
            "docker restart",
        ),
        (
            # Where the cgroup refuses, CUDA fails, too: its hint would not help.
            inside(A, nodes={4: "Operation not permitted"}, reasons=failing("999")),
            "/dev/nvidia4 cannot be opened (Operation not permitted)",
            "daemon-reload",
        ),
        (
            on_a_box(A, nodes=(4,), cuda=None, reasons=failing("802")),
            "CUDA reports: cuInit: error 802 (x)",
            "nvidia-fabricmanager",
        ),
        (
            on_a_box(A, nodes=(4,), cuda=None, reasons=failing("803")),
            "CUDA reports: cuInit: error 803 (x)",
            "reboot",
        ),
        (
            on_a_box(A, nodes=(4,), cuda=None, reasons=failing("804")),
            "CUDA reports: cuInit: error 804 (x)",
            "update the NVIDIA driver",
        ),
        (
            local(A, reasons=failing("999")),
            "CUDA reports: cuInit: error 999 (x)",
            "nvidia-modprobe -u -c=0",
        ),
        (
            local(A, reasons=failing("34")),
            "CUDA reports: cuInit: error 34 (x)",
            "lab doctor",
        ),
        (
            local(A, reasons={"cuda": "libcuda.so.1: file too short"}),
            "CUDA reports: libcuda.so.1: file too short",
            "lab doctor",
        ),
    ],
)
def test_lost(sight: GpuView, words: str, mend: str) -> None:
    found = judged((A,), sight)
    assert found.status is GpuStatus.LOST
    assert found.explanation == f"planned {A}, but cannot use it: {words}"
    assert mend in found.fix
    assert not found.status.good


def test_a_gpu_of_another_task_is_no_loss() -> None:
    gone = {4: "Operation not permitted"}
    assert judged((B,), inside(A, nodes=gone)).status is GpuStatus.MISMATCH
    assert judged((), inside(reasons={"nvml": "Unknown Error"})).status is GpuStatus.PROVED
    assert judged((A,), local(A, reasons={"nvml": "Unknown Error"})).status is GpuStatus.DECLARED


def test_mismatched_libraries_have_a_hint() -> None:
    in_a_container = judged((A,), on_a_box(A, nodes=(4,), tensorflow=0))
    assert "lab build" in in_a_container.fix
    here = judged((A,), local(A, cuda=bare(A), tensorflow=0))
    assert here.explanation == f"planned {A}, sees none (TensorFlow)"
    assert "pip install 'tensorflow[and-cuda]==2.21.*'" in here.fix
    assert "lab build" not in here.fix


def test_a_task_without_output_is_unknown() -> None:
    found = judged((A,), GpuView.unknown("exited (1)"))
    assert (found.status, found.seen) == (GpuStatus.UNKNOWN, None)
    assert "environment: exited (1)" in found.explanation
    assert found.status.good


def test_the_reason_for_declared() -> None:
    found = judged((A,), inside(A), nodes_known=False)
    assert found.explanation == (
        f"planned {A}, declared the same (environment, engine); CUDA: no libcuda.so.1,"
        " NVML: no libnvidia-ml.so.1, device nodes: no device nodes, as on this host"
    )


def test_output_of_a_task_is_parsed() -> None:
    text = json.dumps(
        {
            "environment": {"CUDA_VISIBLE_DEVICES": "-1"},
            "nodes": {"4": "", "5": "Operation not permitted"},
            "nvml": [A],
            "cuda": [],
            "tensorflow": 0,
            "reasons": {"x": "y"},
        }
    )
    assert GpuView.from_json(text) == GpuView(
        {"CUDA_VISIBLE_DEVICES": "-1"},
        {4: "", 5: "Operation not permitted"},
        (A,),
        (),
        0,
        {"x": "y"},
    )
    assert GpuView.from_json("{}") == GpuView()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        '{"environment": []}',
        '{"environment": {"A": 1}}',
        '{"nodes": {"x": ""}}',
        '{"nodes": {"1": null}}',
        '{"nodes": [1]}',
        '{"nvml": "GPU-a"}',
        '{"cuda": [1]}',
        '{"tensorflow": true}',
        '{"tensorflow": "1"}',
        '{"reasons": [1]}',
    ],
)
def test_odd_output_fails(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        GpuView.from_json(text)


# ---- Any output

CARDS = [A, B, C, M, N, "0", "1", "9"]
some_cards = st.lists(st.sampled_from(CARDS), max_size=3, unique=True).map(tuple)
shown = st.one_of(
    st.none(), st.lists(st.sampled_from([A, B, C, M, N]), max_size=3, unique=True).map(tuple)
)
variables = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]),
        st.one_of(st.sampled_from(["void", "-1", "", "all"]), some_cards.map(",".join)),
    ),
)
sights = st.builds(
    GpuView,
    environment=variables,
    nodes=st.one_of(
        st.none(),
        st.dictionaries(
            st.integers(3, 8), st.sampled_from(["", "", "Operation not permitted"]), max_size=3
        ),
    ),
    nvml=shown,
    cuda=st.one_of(shown, shown.map(lambda ids: ids and bare(*ids))),
    tensorflow=st.one_of(st.none(), st.integers(0, 3)),
    reasons=st.dictionaries(
        st.sampled_from(["nvml", "cuda"]),
        st.sampled_from(["Unknown Error", NO_LIBCUDA, SHOWS_WHOLE_HOST]),
    ),
    isolated=st.booleans(),
    engine=st.one_of(st.none(), some_cards),
)
minors = st.sampled_from([{}, MINORS])


def agreeing(planned: tuple[str, ...], data: st.DataObject) -> GpuView:
    """The view of a task with its GPUs: each source is right, or has no answer."""
    uuids = tuple(UUIDS.get(each, each) for each in planned)
    right = on_a_box(*planned, nodes=(), nvml=uuids, cuda=bare(*uuids), tensorflow=len(planned))
    right = replace(right, nodes={MINORS[each]: "" for each in planned})
    silent = {
        name: None
        for name in ("environment", "nodes", "nvml", "cuda", "tensorflow", "engine")
        if data.draw(st.booleans(), label=f"{name} is silent")
    }
    return replace(right, **silent)


@given(some_cards, sights, minors)
def test_names_alone_prove_nothing(
    planned: tuple[str, ...], sight: GpuView, known: dict[str, int]
) -> None:
    mute = replace(sight, nodes=None, nvml=None, cuda=None, reasons={})
    assert check_gpus(planned, mute, known, UUIDS).status is not GpuStatus.PROVED


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
    assert found.status.good, found.explanation
    strong = {"CUDA", "NVML", "device nodes"} & set(found.sources)
    assert (found.status is GpuStatus.PROVED) == bool(strong)


@given(st.lists(st.sampled_from([A, B, C]), max_size=2, unique=True).map(tuple), st.data())
def test_a_single_source_that_disagrees_is_enough(
    planned: tuple[str, ...], data: st.DataObject
) -> None:
    """Remove a GPU from one source, or add one: never proved, never declared."""
    sight = agreeing(planned, data)
    other = data.draw(some_other(planned), label="instead")
    liar = data.draw(
        st.sampled_from(["environment", "engine", "nodes", "nvml", "cuda", "tensorflow"])
    )
    told = {
        "NVIDIA_VISIBLE_DEVICES": ",".join(other) or "-1",
        **({} if other else {"CUDA_VISIBLE_DEVICES": "-1"}),
    }
    lies: dict[str, Any] = {
        "environment": told,
        "engine": other,
        "nodes": {MINORS[each]: "" for each in other},
        "nvml": other,
        "cuda": bare(*other),
        "tensorflow": len(other) if len(other) != len(planned) else len(planned) + 1,
    }
    lying = replace(sight, **{liar: lies[liar]})
    found = check_gpus(planned, lying, MINORS, UUIDS)
    if (
        liar == "environment"
        and not other
        and {"CUDA", "NVML", "device nodes"} & set(found.sources)
    ):
        # CDI reports this; it counts only where the driver itself shows the GPUs.
        assert lying.environment is not None
    else:
        assert found.status is GpuStatus.MISMATCH, found.explanation


def some_other(planned: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    gpus = st.lists(st.sampled_from([A, B, C]), max_size=3, unique=True)
    return gpus.filter(lambda ids: set(ids) != set(planned)).map(tuple)


@given(some_cards, sights, minors)
def test_every_outcome_can_be_shown(
    planned: tuple[str, ...], sight: GpuView, known: dict[str, int]
) -> None:
    found = check_gpus(planned, sight, known, UUIDS)
    assert "\n" not in found.explanation
    assert bool(found.fix) == (not found.status.good)
    assert (found.seen == planned) == (
        found.status.good and found.status is not GpuStatus.UNKNOWN
    ) or (not found.status.good)
    assert "void" in NOTHING
