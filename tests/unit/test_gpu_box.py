"""`make test-gpu` without a GPU: its evaluation, by inputs that are made, not recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.config import load_cluster
from lab.gpu import Gpu, Inventory, Process
from lab.placement.place import place
from lab.task.protocol.experiments import EXPERIMENTS
from tests.gpu import evidence, gpu_trace, page, steps, trainings
from tests.gpu.evidence import GpuProcess, Kernels, Task, TaskProcess
from tests.gpu.host import Host, ProcessWatch, identify
from tests.gpu.steps import CONTAINERS, PROCESSES, STEPS, Shown
from tests.gpu.trainings import FAILED, NOT_RUN, PASSED, Finished, Row, RunFailed, Training

ROOT = Path(__file__).parents[2]
G0, G1, G2 = "GPU-0", "GPU-1", "GPU-2"
HERE, THERE = "pid:[1]", "pid:[2]"
SOME = Kernels(10, 0, 0.1)
NCCL = Kernels(10, 4, 0.1)


# ---- Traces


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


def test_a_damaged_trace_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a trace"):
        evidence.kernels(b"\xff\xff\xff")


def test_every_gpu_of_a_task_must_run_kernels() -> None:
    tasks = [
        Task("ps-0", (), {}),
        Task("worker-0", (G0, G1), {0: SOME, 1: SOME}),
        Task("worker-1", (G2,), {0: SOME}),
    ]
    assert list(evidence.trace_faults(tasks)) == []
    bad = [
        Task("ps-0", (), {0: SOME}),
        Task("worker-0", (G0, G1), {0: SOME}),
        Task("worker-1", (G2,), None),
    ]
    assert list(evidence.trace_faults(bad)) == [
        "ps-0 ran kernels on GPU 0, and has 0 GPUs",
        "worker-0 ran no kernel on its GPU 1 (GPU-1)",
        "worker-1 has no trace",
    ]


def test_the_profilers_errors_are_the_reason() -> None:
    space = evidence._xplane().XSpace(errors=["CUPTI is missing"], warnings=["dropped"])
    trace = space.SerializeToString()
    task = Task("worker-0", (G0,), {}, (), {}, evidence.complaints(trace))
    (fault,) = evidence.trace_faults([task])
    assert fault.endswith("(GPU-0); the profiler says: CUPTI is missing dropped")


# ---- NVML's process lists


def entry(gpu: str, pid: int, namespace: str = HERE, gib: float | None = 1) -> GpuProcess:
    return GpuProcess(gpu, pid, namespace, None if gib is None else int(gib * 2**30))


def test_processes_belong_to_tasks_by_their_namespace() -> None:
    processes = [
        TaskProcess("ps-0", 7, HERE),
        TaskProcess("worker-0", 7, THERE),
        TaskProcess("worker-1", 8, THERE),
    ]
    listed = [
        entry(G0, 7, THERE),
        entry(G1, 8, ""),  # only one task has this id
        entry(G1, 7, ""),  # two tasks have it
        entry(G2, 9, THERE),  # another program
    ]
    found = evidence.by_task(listed, processes)
    assert found == {"ps-0": [], "worker-0": [listed[0]], "worker-1": [listed[1]]}


def test_a_task_must_be_on_its_own_gpus_only() -> None:
    good = [
        Task("ps-0", (), {}),
        Task("worker-0", (G0, G1), {}, [entry(G0, 7), entry(G1, 7)]),
    ]
    assert list(evidence.process_faults(good)) == []
    bad = [
        Task("ps-0", (), {}, [entry(G0, 6)]),
        Task("worker-0", (G0, G1), {}, [entry(G0, 7), entry(G2, 7)]),
    ]
    assert list(evidence.process_faults(bad)) == [
        "NVML listed ps-0 on GPU-0, which is not its own",
        "NVML never listed worker-0 on its GPU-1",
        "NVML listed worker-0 on GPU-2, which is not its own",
    ]


def test_a_process_has_its_id_of_its_own_namespace(tmp_path: Path) -> None:
    folder = tmp_path / "4711"
    (folder / "ns").mkdir(parents=True)
    (folder / "status").write_text("Name:\tworker-0\nNSpid:\t4711\t93\t12\nThreads:\t3\n")
    (folder / "ns/pid").symlink_to(THERE)
    assert identify(4711, tmp_path) == (12, THERE)
    own = (os.getpid(), str(Path("/proc/self/ns/pid").readlink()))
    assert identify(os.getpid()) == own


def test_the_watch_keeps_the_highest_memory_and_skips_the_dead() -> None:
    rounds = iter([(3, None), (5, 4), (None, 2)])

    def read() -> Inventory:
        memory = next(rounds)
        mine = [Process(os.getpid(), "python", each) for each in memory[:1]]
        gone = Process(2**22 + 1, "gone", 1)  # above Linux's highest process id
        return Inventory("uuid", (Gpu(0, G0, processes=(*mine, gone)),), None, None)

    watch = ProcessWatch(read)
    for _ in range(3):
        watch.look()
    ((gpu, pid, memory),) = ((each.gpu, each.pid, each.memory_bytes) for each in watch.listed)
    assert (gpu, pid, memory) == (G0, os.getpid(), 5)


# ---- NCCL, and shares of the memory

LINE = "tf1:31:52 [0] NCCL INFO ncclCommInitRank comm 0x7f rank {} nranks {} cudaDev 0 nvmlDev 3"
LINE += " busId 1b000 commId 0x91 - Init COMPLETE"


def test_lines_of_nccl_name_the_ranks() -> None:
    log = f"NCCL INFO Bootstrap\n{LINE.format(0, 2)}\nnoise\n{LINE.format(1, 2)}\n"
    started = LINE.replace("COMPLETE", "START").format(0, 2)
    assert evidence.nccl_ranks(log) == {0: 2, 1: 2}
    assert evidence.nccl_ranks(started) == {}


def test_nccl_must_connect_all_replicas_and_run_its_kernels() -> None:
    ranks = {0: 2}, {1: 2}
    good = [Task(f"worker-{n}", (gpu,), {0: NCCL}, (), ranks[n]) for n, gpu in enumerate((G0, G1))]
    assert list(evidence.nccl_faults(good, 2)) == []
    bad = [good[0], Task("worker-1", (G1,), {0: SOME}, (), {1: 1})]
    assert list(evidence.nccl_faults(bad, 2)) == [
        "NCCL's log names 1 of 2 ranks",
        "worker-1 ran no kernel of NCCL",
    ]


def test_a_process_must_keep_its_share() -> None:
    memory = {G0: 80 * 2**30}
    tasks = [Task("worker-0", (G0,), {}, [entry(G0, 7, gib=17.5), entry(G0, 7, gib=None)])]
    assert list(evidence.share_faults(tasks, 0.2, memory)) == []
    (fault,) = evidence.share_faults(tasks, 0.15, memory)
    assert fault == "worker-0 used 17.5 GiB of GPU-0, more than 14.0 GiB"


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
    summary = {"steps_per_s": 812.3, "global_step": 900, "tasks": tasks}
    return Finished(folder, summary, [entry(gpu, 6, gib=17)])


def host(tmp_path: Path, **reasons: str) -> Host:
    gpus = tuple(Gpu(n, gpu, "H100", 80 * 2**30) for n, gpu in enumerate((G0, G1)))
    inventory = Inventory("uuid", gpus, None, None, driver="580.1", cuda="13.0")
    return Host(inventory, tmp_path, **reasons)


def test_a_good_run_passes_every_check(tmp_path: Path) -> None:
    training = Training("async", 900, "", share=0.2)
    rows = trainings.check(host(tmp_path), training, finished(tmp_path / "run"), "async")
    assert [(row.check, row.result, row.detail) for row in rows] == [
        ("the training succeeds", PASSED, "812 global steps/s"),
        ("kernels in TensorFlow's traces", PASSED, "1 kernels in 2 tasks"),
        ("processes in NVML's lists", PASSED, "1 tasks, the ps on none"),
        ("telemetry", PASSED, "busy up to 50%"),
        ("memory within the share", PASSED, "17.0 GiB at most, share 0.2"),
    ]


def test_a_bad_run_fails_with_its_reasons(tmp_path: Path) -> None:
    training = Training("async", 900, "", replicas=2)
    run = finished(tmp_path / "run", kernel="MemcpyH2D", gpu=G1)
    (run.path / "gpu.jsonl").unlink()
    rows = trainings.check(host(tmp_path), training, run, "async")
    assert {row.check: (row.result, row.detail) for row in rows[1:]} == {
        "kernels in TensorFlow's traces": (
            FAILED,
            "worker-0 ran no kernel on its GPU 0 (GPU-0)",
        ),
        "processes in NVML's lists": (
            FAILED,
            "NVML never listed worker-0 on its GPU-0; "
            "NVML listed worker-0 on GPU-1, which is not its own",
        ),
        "telemetry": (FAILED, "gpu.jsonl never shows GPU-0 busy"),
        "NCCL between all replicas": (
            FAILED,
            "NCCL's log names 0 of 2 ranks; worker-0 ran no kernel of NCCL",
        ),
    }


@pytest.mark.parametrize(("hidden", "result"), [(True, NOT_RUN), (False, FAILED)])
def test_a_driver_that_lists_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool, result: str
) -> None:
    monkeypatch.setattr(trainings, "hides_processes", lambda: hidden)
    run = finished(tmp_path / "run")
    silent = Finished(run.path, run.summary, [])
    rows = trainings.check(host(tmp_path), Training("async", 9, "", share=0.2), silent, "async")
    results = {row.check: row.result for row in rows}
    assert results["processes in NVML's lists"] == result
    assert results["memory within the share"] == NOT_RUN


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
    assert by_name["async, in containers"].execute(single).rows == [
        Row("async, in containers", "", NOT_RUN, reason)
    ]


def test_a_failed_command_is_a_failed_row(tmp_path: Path) -> None:
    def fail(host: Host, name: str) -> Shown:
        raise RunFailed("error: out of memory")

    step = steps.Step("async", PROCESSES, fail)
    rows = step.execute(host(tmp_path)).rows
    assert rows == [Row("async", "", FAILED, "error: out of memory")]


def test_the_steps_cover_both_stages() -> None:
    names = [(step.stage, step.name) for step in STEPS]
    assert len(set(names)) == len(names)
    for experiment in ("async", "sync", "towers", "mirrored", "multiworker"):
        assert (PROCESSES, f"{experiment}, by processes") in names
        assert (CONTAINERS, f"{experiment}, in containers") in names


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_the_configs_use_the_gpus(tmp_path: Path, gpus: int) -> None:
    found = tuple(Gpu(n, f"GPU-{n}") for n in range(gpus))
    inventory = Inventory("uuid", found, 16, 64 * 2**30)
    layouts = [steps.shared("async"), steps.alone("towers")]
    layouts += [steps.one_worker(name, gpus) for name in ("towers", "mirrored")]
    names = ("async", "sync", "multiworker")
    layouts += [steps.several_workers(name, gpus) for name in names]
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


def test_numbers_in_the_encoding_of_protocol_buffers() -> None:
    assert [gpu_trace._varint(number) for number in (0, 127, 128, 2000)] == [
        b"\0",
        b"\x7f",
        b"\x80\x01",
        b"\xd0\x0f",
    ]


# ---- The page


def shown(tmp_path: Path, step_name: str) -> dict[steps.Step, Shown]:
    (step,) = (step for step in STEPS if step.name == step_name)
    run = finished(tmp_path / "run")
    rows = [Row(step.name, "kernels", PASSED, "7"), Row(step.name, "NVML", FAILED, "a | b\n<c>")]
    return {step: Shown(rows, run.summary, trainings.samples(run.path), "tensorflow 2.21.0")}


def test_the_page_says_what_was_run(tmp_path: Path) -> None:
    stages = page.record(shown(tmp_path, "async, by processes"), host(tmp_path).inventory, {})
    assert list(stages) == ["1"]
    text = page.page(stages)
    assert "| GPUs | 2 of H100, 81,920 MiB |" in text
    assert "| driver | 580.1 |" in text
    assert "| TensorFlow | tensorflow 2.21.0 |" in text
    assert "| async, by processes | kernels | passed | 7 |" in text
    assert "| async, by processes | NVML | failed | a \\| b &lt;c\\> |" in text
    assert "| async, by processes | 1 | 900 | 812 | unknown |" in text
    assert "(gpu-box-1.svg)" in text
    assert text.count(page.NOT_YET) == 1
    page.write(tmp_path, stages)
    assert page.read(tmp_path) == stages
    assert (tmp_path / "gpu-box-1.svg").read_bytes().startswith(b"<?xml")


def test_a_stage_that_did_not_run_keeps_its_rows(tmp_path: Path) -> None:
    first = page.record(shown(tmp_path, "async, by processes"), host(tmp_path).inventory, {})
    nothing = {step: Shown([Row(step.name, "", NOT_RUN, "no GPU here")]) for step in STEPS}
    assert page.record(nothing, host(tmp_path).inventory, first) == first
    assert page.record(nothing, host(tmp_path).inventory, {}) == {}


def test_earlier_steps_of_the_same_host_stay(tmp_path: Path) -> None:
    here = host(tmp_path).inventory
    names = ("sync, by processes", "async, by processes")
    first = page.record(shown(tmp_path / "1", names[0]), here, {})
    both = page.record(shown(tmp_path / "2", names[1]), here, first)
    assert list(both["1"]["steps"]) == [names[1], names[0]]
    other = Inventory("uuid", here.gpus[:1], None, None, driver="580.1")
    assert list(page.record(shown(tmp_path / "3", names[1]), other, first)["1"]["steps"]) == [
        names[1]
    ]


def test_the_page_in_the_documents_follows_from_its_file() -> None:
    folder = ROOT / "docs/evidence"
    stages: dict[str, Any] = page.read(folder)
    assert (folder / "gpu-box.md").read_text() == page.page(stages)
    for stage, own in stages.items():
        assert own["facts"]["GPUs"]
        assert not page.samples_of(own) or (folder / page.picture_name(int(stage))).exists()
