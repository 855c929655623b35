"""`make test-gpu` without a GPU: its evaluation, by inputs that are made, not recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.config import load_cluster
from lab.experiments.registry import EXPERIMENTS
from lab.gpu import Gpu, Inventory
from lab.placement.place import place
from tests.gpu import evidence, page, steps, trainings
from tests.gpu.evidence import GpuProcess, Kernels, Task, TaskProcess
from tests.gpu.host import Host, identify
from tests.gpu.steps import STEPS
from tests.gpu.trainings import FAILED, NOT_RUN, PASSED, Finished, Row, Training

ROOT = Path(__file__).parents[2]
G0, G1, G2 = "GPU-0", "GPU-1", "GPU-2"
HERE, THERE = "pid:[1]", "pid:[2]"
SOME = Kernels(10, 0, 0.1)
NCCL = Kernels(10, 4, 0.1)


# ---- Evidence


def made_trace(planes: Mapping[str, Mapping[str, Sequence[str]]]) -> bytes:
    """A trace in the profiler's format: plane → line → names of its events, 2 µs each."""
    space = evidence._xplane().XSpace()
    for plane_name, lines in planes.items():
        plane = space.planes.add(name=plane_name)
        for line_name, events in lines.items():
            line = plane.lines.add(name=line_name)
            for name in events:
                number = len(plane.event_metadata) + 1
                plane.event_metadata[number].name = name
                line.events.add(metadata_id=number, duration_ps=2_000_000)
    data: bytes = space.SerializeToString()
    return data


def test_kernels_are_counted_on_each_gpu() -> None:
    all_reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    trace = made_trace(
        {
            "/host:CPU": {"tf_Compute/1": ["MatMul:MatMul"]},
            "/device:GPU:0": {
                "Stream #13(Compute)": ["sm90_xmma_gemm_f32f32", all_reduce],
                "Stream #14(MemcpyH2D)": ["MemcpyH2D", "Memset"],
                "TensorFlow Ops": ["MatMul"],
            },
            "/device:GPU:1": {"Stream #13(MemcpyD2H)": ["MemcpyD2H"]},
        }
    )
    assert evidence.kernels(trace) == {0: Kernels(2, 1, pytest.approx(4e-6))}
    with pytest.raises(ValueError, match="not a trace"):
        evidence.kernels(b"\xff\xff\xff")


def entry(gpu: str, pid: int, namespace: str = HERE, gib: float | None = 1) -> GpuProcess:
    return GpuProcess(gpu, pid, namespace, None if gib is None else int(gib * 2**30))


def worker(number: int, *gpus: str, **shown: Any) -> Task:
    return Task(f"worker-{number}", gpus, shown.pop("kernels", {}), **shown)


GOOD_NCCL = [worker(n, gpu, kernels={0: NCCL}, nccl={n: 2}) for n, gpu in enumerate((G0, G1))]
MEMORY = {G0: 80 * 2**30}
HELD = [worker(0, G0, listed=[entry(G0, 7, gib=17.5), entry(G0, 7, gib=None)])]
BOTH_HELD = [entry(G0, 7), entry(G1, 7)]
ASTRAY = [entry(G0, 7), entry(G2, 7)]
ON_BOTH = worker(0, G0, G1, kernels={0: SOME, 1: SOME})


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (evidence.trace_faults([Task("ps-0", (), {}), ON_BOTH]), []),
        (evidence.trace_faults([Task("ps-0", (), {0: SOME})]), ["ps-0 ran kernels on GPU 0"]),
        (evidence.trace_faults([worker(0, G0, G1, kernels={0: SOME})]), ["on its GPU 1 (GPU-1)"]),
        (evidence.trace_faults([worker(1, G2, kernels=None)]), ["worker-1 has no trace"]),
        (evidence.process_faults([worker(0, G0, G1, listed=BOTH_HELD), Task("ps-0", (), {})]), []),
        (
            evidence.process_faults([Task("ps-0", (), {}, [entry(G0, 6)])]),
            ["NVML listed ps-0 on GPU-0, which is not its own"],
        ),
        (
            evidence.process_faults([worker(0, G0, G1, listed=ASTRAY)]),
            ["NVML never listed worker-0 on its GPU-1", "worker-0 on GPU-2, which is not"],
        ),
        (evidence.nccl_faults(GOOD_NCCL, 2), []),
        (
            evidence.nccl_faults([GOOD_NCCL[0], worker(1, G1, kernels={0: SOME}, nccl={1: 1})], 2),
            ["NCCL's log names 1 of 2 ranks", "worker-1 ran no kernel of NCCL"],
        ),
        (evidence.share_faults(HELD, 0.2, MEMORY), []),
        (evidence.share_faults(HELD, 0.15, MEMORY), ["17.5 GiB of GPU-0, more than 14.0 GiB"]),
    ],
)
def test_why_the_evidence_does_not_suffice(found: Iterable[str], faults: list[str]) -> None:
    shown = list(found)
    assert [words in line for words, line in zip(faults, shown, strict=True)] == [True] * len(
        faults
    )


def test_processes_belong_to_tasks_by_their_namespace() -> None:
    known = [("ps-0", 7, HERE), ("worker-0", 7, THERE), ("worker-1", 8, THERE)]
    listed = [
        entry(G0, 7, THERE),
        entry(G1, 8, ""),  # only one task has this id
        entry(G1, 7, ""),  # two tasks have it
        entry(G2, 9, THERE),  # another program
    ]
    found = evidence.by_task(listed, [TaskProcess(*each) for each in known])
    assert found == {"ps-0": [], "worker-0": [listed[0]], "worker-1": [listed[1]]}


def test_a_process_has_its_id_of_its_own_namespace(tmp_path: Path) -> None:
    folder = tmp_path / "4711"
    (folder / "ns").mkdir(parents=True)
    (folder / "status").write_text("Name:\tworker-0\nNSpid:\t4711\t93\t12\nThreads:\t3\n")
    (folder / "ns/pid").symlink_to(THERE)
    assert identify(4711, tmp_path) == (12, THERE)
    own = (os.getpid(), str(Path("/proc/self/ns/pid").readlink()))
    assert identify(os.getpid()) == own


# ---- A run's checks


def finished(folder: Path, *, kernel: str = "gemm", gpu: str = G0) -> Finished:
    """A run of a ps and a worker with one GPU, as `lab run` collects it."""
    for pid, task in enumerate(("ps-0", "worker-0"), start=5):
        own = folder / "trace" / task
        own.mkdir(parents=True)
        (own / "process.json").write_text(json.dumps({"pid": pid, "namespace": HERE}))
        names = [kernel] if task == "worker-0" else []
        lines = {"Stream #1(Compute)": names}
        (own / "task.xplane.pb").write_bytes(made_trace({"/device:GPU:0": lines}))
    line = {"time_unix": 1.0, "task": "worker-0", "gpu": G0, "utilisation": 0.5}
    (folder / "gpu.jsonl").write_text(json.dumps(line) + "\n")
    blank = {"gpu_utilisation": None}
    tasks = [{"task": "ps-0", "gpus": [], **blank}, {"task": "worker-0", "gpus": [G0], **blank}]
    (folder / "run.json").write_text('{"versions": {"tensorflow": "2.21.0"}}')
    summary = {"steps_per_s": 812.3, "global_step": 900, "tasks": tasks}
    return Finished(folder, summary, [entry(gpu, 6, gib=17)])


def host(tmp_path: Path, **reasons: str) -> Host:
    gpus = tuple(Gpu(n, gpu, "H100", 80 * 2**30) for n, gpu in enumerate((G0, G1)))
    inventory = Inventory("uuid", gpus, None, None, driver="580.1", cuda="13.0")
    return Host(inventory, tmp_path, **reasons)


def checked(run: Finished, **training: Any) -> dict[str, tuple[str, str]]:
    rows = trainings.check(host(run.path.parent), Training("async", 900, "", **training), run)
    return {row.check: (row.result, row.detail) for row in rows}


def test_a_good_run_passes_every_check(tmp_path: Path) -> None:
    assert checked(finished(tmp_path / "run"), share=0.2) == {
        "the training succeeds": (PASSED, "812 global steps/s, tensorflow 2.21.0"),
        "kernels in TensorFlow's traces": (PASSED, "1 kernels in 2 tasks"),
        "processes in NVML's lists": (PASSED, "1 tasks, the ps on none"),
        "telemetry": (PASSED, "busy up to 50%"),
        "memory within the share": (PASSED, "17.0 GiB at most, share 0.2"),
    }


def test_a_bad_run_fails_with_its_reasons(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", kernel="MemcpyH2D", gpu=G1)
    (run.path / "gpu.jsonl").unlink()
    found = checked(run, replicas=2)
    assert found.pop("the training succeeds")[0] == PASSED
    assert {result for result, _ in found.values()} == {FAILED}
    assert found["telemetry"][1] == "gpu.jsonl never shows GPU-0 busy"
    assert set(found) >= {"NCCL between all replicas", "processes in NVML's lists"}


@pytest.mark.parametrize(("hidden", "result"), [(True, NOT_RUN), (False, FAILED)])
def test_a_driver_that_lists_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool, result: str
) -> None:
    monkeypatch.setattr(trainings, "hides_processes", lambda: hidden)
    run = finished(tmp_path / "run")
    found = checked(Finished(run.path, run.summary, []), share=0.2)
    assert found["processes in NVML's lists"][0] == result
    assert found["memory within the share"][0] == NOT_RUN


# ---- The steps


def test_a_step_that_cannot_run_has_its_reason(tmp_path: Path) -> None:
    by_name = {step.name: step for step in STEPS}
    no_gpu = host(tmp_path, no_driver="no GPU here: x")
    assert {step.lacks(no_gpu) for step in STEPS} == {"no GPU here: x"}
    bare = host(tmp_path, no_engine="no engine here: y", no_cuda="for CPUs")
    runs = {step.name for step in STEPS if not step.lacks(bare)}
    assert runs == {"inventory", "unknown fields", "samples"}
    assert by_name["async, by processes"].lacks(bare) == "for CPUs"
    assert by_name["image"].lacks(bare) == "no engine here: y"
    single = Host(Inventory("uuid", bare.inventory.gpus[:1], None, None), tmp_path)
    reason = "it needs 2 GPUs, and this host has 1"
    assert by_name["async, in containers"].lacks(single) == reason
    assert by_name["the book's layout, in containers"].lacks(single) == ""
    assert by_name["async, in containers"].execute(single) == [Row("", NOT_RUN, reason)]


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_the_configs_use_the_gpus(tmp_path: Path, gpus: int) -> None:
    found = tuple(Gpu(n, f"GPU-{n}") for n in range(gpus))
    inventory = Inventory("uuid", found, 16, 64 * 2**30)
    names = ("async", "sync", "towers", "mirrored", "multiworker")
    layouts = [steps.on_one_gpu(name) for name in names]
    layouts += [steps.on_all_gpus(name, gpus) for name in names]
    for training in layouts:
        path = tmp_path / "cluster.yaml"
        path.write_text(training.config)
        plan = place(load_cluster(path), inventory)
        jobs = {task.job for task in plan.tasks}
        assert jobs == set(EXPERIMENTS[training.experiment].jobs)
        assert all(bool(task.gpus) == (task.job == "worker") for task in plan.tasks)
        if training.replicas:
            assert training.replicas == sum(len(task.gpus) for task in plan.tasks)
    held = [task.gpus for task in place(load_cluster(path), inventory).tasks]
    assert sum(map(len, held)) == gpus


def test_only_a_copy_of_the_programs_traces_itself(tmp_path: Path) -> None:
    trainings.make_project(tmp_path)
    trainings.make_project(tmp_path)
    assert "gpu_trace" in (tmp_path / "scripts/mnist_model.py").read_text()
    assert (tmp_path / "scripts/gpu_trace.py").exists()
    assert "gpu_trace" not in (ROOT / "scripts/mnist_model.py").read_text()
    for name in ("async", "sync", "towers", "mirrored", "multiworker"):
        program = (ROOT / "scripts" / EXPERIMENTS[name].program).read_text()
        assert "from mnist_model import" in program


# ---- The page


def test_the_page_says_what_was_run(tmp_path: Path) -> None:
    here, (first, *others) = host(tmp_path).inventory, STEPS
    nothing = dict.fromkeys(others, (Row("", NOT_RUN, "no GPU here"),))
    assert page.record(nothing, here, page.read(tmp_path)) == {}
    rows = [Row("kernels", PASSED, "7"), Row("NVML", FAILED, "a | b\n<c>")]
    stages = page.record({first: rows}, here, {})
    assert list(stages) == ["1"]
    assert page.record(nothing, here, stages) == stages  # a stage in which nothing ran stays
    text = page.page(stages)
    wanted = [
        "| GPUs | 2 of H100, 81,920 MiB |",
        "| driver | 580.1 |",
        "| inventory | kernels | passed | 7 |",
        "| inventory | NVML | failed | a \\| b &lt;c\\> |",
    ]
    assert [row for row in wanted if row not in text] == []
    assert text.count(page.NOT_YET) == 1
    page.write(tmp_path, stages)
    assert page.read(tmp_path) == stages
    # The page in the documents is of its file.
    folder = ROOT / "docs/evidence"
    assert (folder / "gpu-box.md").read_text() == page.page(page.read(folder))
