"""Programs of PyTorch and JAX of one's own, unchanged, through `lab run`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.protocol.runtimes import RUNTIMES
from tests.support.agents import processes_with
from tests.support.cluster import free_ports
from tests.support.commands import ROOT, lab
from tests.support.conditions import needs_namespaces
from tests.support.experiments import Project, make_project
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver
from tests.support.rank_programs import add_program, needs
from tests.support.shown import assert_shows

WORKERS = ("worker-0", "worker-1")
MEETS = """import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
"""


@pytest.fixture(params=["local"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    yield make_project(tmp_path, request.param)
    assert processes_with(str(tmp_path)) == []


def test_a_script_for_torchrun_runs_unchanged(project: Project) -> None:
    ran = project.run(add_program(project.path, "torch"), "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"rank {rank} of 2: same weights: True, 0" in ran.log(task)
        steps = [each["global_step"] for each in ran.records(task, "step")]
        assert steps == list(range(1, 21))
    assert ran.losses("worker-0") != ran.losses("worker-1")


def test_the_first_program_trains_equal_copies_on_different_batches(project: Project) -> None:
    needs("torch")
    ran = project.run("scripts/first_ddp.py", "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    lines = [ran.log(task)[-1].removeprefix(f"rank {rank}: ") for rank, task in enumerate(WORKERS)]
    assert lines[0].startswith("y = 3.0")
    assert lines[0] == lines[1]
    for task in WORKERS:
        steps = [each["global_step"] for each in ran.records(task, "step")]
        assert steps == list(range(50, 401, 50))
    assert ran.losses("worker-0") != ran.losses("worker-1")
    printed, _ = lab(project.path, "logs", "last")
    assert_shows("docs/tutorials/lessons/first.md", "worker-1", printed, figures=False)


def test_the_first_program_starts_without_lab(tmp_path: Path) -> None:
    needs("torch")
    (port,) = free_ports(1)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    variables = {**os.environ, **place, "PYTHONPATH": "", "GLOO_SOCKET_IFNAME": "lo"}
    command = [str(RUNTIMES["torch"].python(ROOT)), str(ROOT / "scripts/first_ddp.py")]
    ranks = [
        subprocess.Popen(
            command, env={**variables, "RANK": str(rank)}, cwd=tmp_path, stdout=subprocess.PIPE
        )
        for rank in range(2)
    ]
    lines = [rank.communicate()[0].decode().splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert lines[0][-1].startswith("rank 0: y = 3.0")
    assert lines[1][-1] == lines[0][-1].replace("rank 0", "rank 1")


@pytest.mark.jax
def test_a_script_for_jax_runs_unchanged(project: Project) -> None:
    ran = project.run(add_program(project.path, "jax"), "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"process {rank} of 2: total 3.0" in ran.log(task)
        assert ran.losses(task) == [3.0, 1.5, 1.0]


ALONE = {
    "torch": """
import torch, torch.distributed as dist
weight = torch.zeros(1, requires_grad=True)
dist.init_process_group("gloo", "tcp://localhost:0", rank=0, world_size=1)
for step in range(1, 4):
    loss = (weight - 1).pow(2).sum()
    loss.backward()
    dist.all_reduce(weight.grad)
    print(f"step {step} loss {loss.item():.3f}")
""",
    "jax": """
import jax
for step in range(1, 4):
    print(f"process 0 of {jax.process_count()}: step {step} loss {float(jax.numpy.ones(1)[0]):.3f}")
""",
}
"""Programs whose tasks train alone; the first one talks to itself."""


@pytest.mark.parametrize("isolation", ["", "fork"])
@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.jax)])
def test_ranks_that_train_alone_have_failed(
    project: Project, framework: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_LOCAL", isolation)
    program = project.path / f"{framework}_alone.py"
    program.write_text(ALONE[framework])
    ran = project.run(str(program), "workers", code=1)
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    assert ran.summary["reason"] == "the tasks never exchanged data: each trained alone"


TORCH_FLAGS = """\
import argparse
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--world-size", type=int, default=-1)
parser.add_argument("--rank", type=int, default=-1)
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--dist-url", default="tcp://10.0.0.1:23456")
flags = parser.parse_args()
dist.init_process_group("gloo", flags.dist_url, rank=flags.rank, world_size=flags.world_size)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, here {flags.local_rank}", flush=True)
dist.barrier()
"""
JAX_FLAGS = """\
import argparse
import jax
parser = argparse.ArgumentParser()
parser.add_argument("--coordinator")
parser.add_argument("--num-processes", type=int, default=1)
parser.add_argument("--process-id", type=int, default=0)
flags = parser.parse_args()
jax.distributed.initialize(flags.coordinator, flags.num_processes, flags.process_id)
print(f"rank {jax.process_index()} of {jax.process_count()}, here 0", flush=True)
"""


@pytest.mark.parametrize("source", [TORCH_FLAGS, pytest.param(JAX_FLAGS, marks=pytest.mark.jax)])
def test_the_flags_of_a_rank_are_filled_in(project: Project, source: str) -> None:
    program = project.path / "flags.py"
    program.write_text(source, "utf-8")
    ran = project.run(program, "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"rank {rank} of 2, here 0" in ran.log(task)


@pytest.mark.engine
@pytest.mark.parametrize("project", ["compose"], indirect=True)
@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("torch", "rank {} of 2: same weights: True, 0"),
        pytest.param("jax", "process {} of 2: total 3.0", marks=pytest.mark.jax),
    ],
)
def test_ranks_in_containers(
    project: Project, framework: str, line: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{framework}_image")
    ran = project.run(add_program(project.path, framework), "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert line.format(rank) in ran.log(task)


def test_a_killed_rank_is_named_and_the_gang_restarts(project: Project) -> None:
    program = add_program(project.path, "torch")
    fault = ("--fault", "kill worker-1 after 10 steps")
    ran = project.run(program, "workers", *fault, "--on-failure", "fail", "--", "100", code=1)
    assert ran.summary["reason"] == (
        "worker-1 failed: killed by SIGKILL (the injected fault `kill worker-1 after 10 steps`)"
    )
    ran = project.run(program, "workers", *fault, "--", "40")  # by default the gang restarts
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"rank {rank} of 2: same weights: True, 1" in ran.log(task)


@pytest.mark.parametrize(
    ("line", "attempts", "reason"),
    [
        ("__import__('nothing')", 1, "fails.py:5: ModuleNotFoundError: No module named 'nothing'"),
        # The other rank loses this one, and that is not the reason.
        ("dist.get_rank() and {}['rate']", 2, "worker-1 failed: fails.py:5: KeyError: 'rate'"),
    ],
)
def test_an_error_before_the_first_step_is_not_tried_again_and_again(
    project: Project, line: str, attempts: int, reason: str
) -> None:
    (project.path / "fails.py").write_text(f"{MEETS}{line}\ndist.all_reduce(torch.ones(1))\n")
    ran = project.run("fails.py", "workers", code=1)
    assert reason in ran.summary["reason"]
    # The run may end before the other rank starts again.
    assert max(task["attempts"] for task in ran.summary["tasks"]) == attempts


@pytest.mark.parametrize("fault", ["pause:60s worker-1 after 10 steps", "cut:60s tf2 after 5s"])
def test_a_rank_under_a_fault_is_named_within_the_time_limit(project: Project, fault: str) -> None:
    if fault.startswith("cut"):
        needs_namespaces()
    program = add_program(project.path, "torch")
    flags = ("--fault", fault, "--stall", "5s")
    ran = project.run(program, "workers", *flags, "--", "10000", code=1)
    assert f"(worker-1 is under the fault {fault}, worker-0 " in ran.summary["reason"]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (
            "        time.sleep(0.02)",
            "no new global step for 5 s, the last one was 10 (worker-1 is stopped (SIGSTOP),"
            " worker-0 made its last step at 10)",
        ),
        (
            "    torch.manual_seed",
            "no sign of life for 5 s (worker-1 is stopped (SIGSTOP), worker-0",
        ),
    ],
)
def test_a_rank_that_something_else_stops_is_named(project: Project, at: str, reason: str) -> None:
    program = project.path / add_program(project.path, "torch")
    stop = (
        "os.environ['RANK'] == '1' and locals().get('step', 10) == 10 and os.kill(os.getpid(), 19)"
    )
    indent = at[: len(at) - len(at.lstrip())]
    program.write_text(program.read_text().replace(at, f"{indent}{stop}\n{at}", 1))
    ran = project.run(program.name, "workers", "--stall", "5s", code=1)
    assert reason in ran.summary["reason"]


def test_a_task_with_several_gpus_starts_a_rank_for_each(
    project: Project, driver: Callable[[Box], Driver]
) -> None:
    config = project.path / "clusters/workers.yaml"
    config.write_text(config.read_text().replace("gpus: 1", "gpus: 2"))
    box = dict(driver(load("eight-h100")).environment)
    on_gpus = replace(project, gpus="uuid", variables=box)
    program = add_program(project.path, "torch")
    ran = on_gpus.run(program, "workers")
    for first_rank, task in zip((0, 2), WORKERS, strict=True):
        ends = [line for line in ran.log(task) if "same weights" in line]
        assert ends == [f"rank {first_rank} of 4: same weights: True, 0"]
        steps = [each["global_step"] for each in ran.records(task, "step")]
        assert steps == list(range(1, 21))
    kill = ("--fault", "kill worker-1 after 10 steps", "--on-failure", "fail")
    ran = on_gpus.run(program, "workers", *kill, "--", "500", code=1)
    assert ran.states == {"worker-0": "cancelled", "worker-1": "failed"}
    exits = project.path / "exits.py"
    exits.write_text("import os, sys, torch\nsys.exit(3 * (os.environ['RANK'] == '3'))\n")
    ran = on_gpus.run(exits.name, "workers", "--on-failure", "fail", code=1)
    reason = "worker-1 failed: the process of local rank 1 ended with exit code 3"
    assert ran.summary["reason"] == reason
