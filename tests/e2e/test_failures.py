"""Programs that are killed in mid-training, restarted and resumed; with TensorFlow."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.task.sdk import recorder
from tests.support.agents import processes_with, wait_for
from tests.support.commands import ROOT, start

PATIENCE_S = 240

pytestmark = pytest.mark.tensorflow


def config(workers: int) -> str:
    return f"""\
version: 1
name: e2e-failures
nodes: {{tf1: {{}}, tf2: {{}}}}
jobs: {{ps: {{on: [tf1]}}, worker: {{on: [{", ".join(["tf2"] * workers)}]}}}}
port: 24222
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cluster.yaml").write_text(config(2))
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    yield tmp_path
    assert processes_with(str(tmp_path)) == []


def training(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return start(project, "run", *arguments, "--backend", "local", "--json")


def end_of(run: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = run.communicate(timeout=PATIENCE_S)
    assert out, err
    return run.returncode, json.loads(out.splitlines()[-1]), err


def newest(project: Path) -> Path:
    return max((project / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def records(project: Path, task: str) -> list[dict[str, Any]]:
    path = newest(project) / "tasks" / f"{task}.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.is_file() else ""
    return [json.loads(line) for line in whole.splitlines()]


def wait_for_step(project: Path, task: str, step: int) -> None:
    def there() -> bool:
        if not (project / "runs").is_dir():
            return False
        return any((each.get("global_step") or 0) >= step for each in records(project, task))

    wait_for(there, f"global step {step} of {task}", PATIENCE_S)


def kill_program(project: Path, task: str) -> None:
    """SIGKILL to a task's program: a forked one has the task's name as its process name."""
    (pid,) = [
        pid
        for pid in processes_with(f"LAB_STATE={project / 'state'}\0")
        if Path(f"/proc/{pid}/comm").read_text() == f"{task}\n"
    ]
    os.kill(pid, signal.SIGKILL)


def test_async_resumes_from_its_checkpoint_after_a_killed_ps(project: Path) -> None:
    arguments = ("--record_every", "20", "--checkpoint_every", "1", "--on-failure", "restart")
    run = training(project, "async", "--global_steps", "2500", *arguments)
    wait_for_step(project, "worker-0", 1000)
    wait_for((newest(project) / "run.json").exists, "run.json")
    kill_program(project, "ps-0")
    code, summary, err = end_of(run)
    assert (code, summary["state"], summary["reason"]) == (0, "succeeded", ""), err
    assert summary["global_step"] == 2500
    assert summary["records_lost"] == 0
    assert [task["attempts"] for task in summary["tasks"]] == [2, 2, 2]
    resumed = [each for each in records(project, "worker-0") if "resumes from" in str(each)]
    assert len(resumed) == 1
    highest = max(
        each["global_step"]
        for task in ("worker-0", "worker-1")
        for each in records(project, task)
        if each["attempt"] == 0 and each.get("global_step")
    )
    # Every 20th local step of each of two workers is a record: the newest checkpoint may be
    # that much ahead of them.
    assert 0 < resumed[0]["global_step"] < highest + 2 * 20
    assert summary["steps_redone"] == max(0, highest - resumed[0]["global_step"])
    # No worker was ended between its number and its update in the last attempt.
    assert (summary["updates_conserved"], summary["updates_lost"]) == (True, 0)


def test_a_killed_worker_of_a_synchronous_training_starts_again_with_all(project: Path) -> None:
    # After the first record none is due by number; by time, each is. No checkpoint, either.
    (project / "scripts").unlink()
    shutil.copytree(ROOT / "scripts", project / "scripts")
    assert recorder.RECORD_WITHIN_S > 0
    with (project / "scripts/placement.py").open("a") as first:
        first.write("\nfrom lab.task.sdk import recorder\nrecorder.RECORD_WITHIN_S = 0.0\n")
    arguments = ("--record_every", "100000", "--on-failure", "restart:1")
    run = training(project, "sync", "--global_steps", "500", *arguments)
    wait_for_step(project, "worker-1", 50)
    (first, *_) = [each for each in records(project, "worker-1") if each.get("local_step", 0) > 1]
    assert first["kind"] == "step"
    kill_program(project, "worker-1")
    code, summary, err = end_of(run)
    assert (code, summary["state"]) == (0, "succeeded"), err
    assert (summary["global_step"], summary["updates_conserved"]) == (500, True)
    assert any(each.get("message") == "starts again" for each in records(project, "worker-0"))
    assert summary["steps_redone"] >= first["global_step"]
    assert [task["attempts"] for task in summary["tasks"]] == [2, 2, 2]


def test_async_continues_without_a_worker(project: Path) -> None:
    arguments = ("--record_every", "20", "--on-failure", "continue")
    run = training(project, "async", "--global_steps", "1500", *arguments)
    wait_for_step(project, "worker-1", 300)
    kill_program(project, "worker-1")
    code, summary, err = end_of(run)
    assert (code, summary["state"], summary["degraded"]) == (0, "succeeded", True), err
    assert summary["global_step"] == 1500
    assert [task["state"] for task in summary["tasks"]] == ["succeeded", "succeeded", "failed"]
    assert summary["updates_lost"] in {0, 1}
    assert "without" in err


def test_an_interrupted_run_resumes_with_another_worker(project: Path) -> None:
    run = training(project, "async", "--epochs", "2", "--record_every", "20")
    wait_for_step(project, "worker-0", 400)
    old = newest(project)
    reached = max(each.get("global_step", 0) for each in records(project, "worker-0"))
    run.send_signal(signal.SIGINT)
    code, summary, _ = end_of(run)
    assert (code, summary["state"]) == (130, "cancelled")
    steps = {int(path.stem.partition("-")[2]) for path in old.glob("checkpoints/*.index")}
    # The chief saves after the signal; the training goes on meanwhile.
    assert reached <= max(steps)
    assert summary["global_step"] < 2200
    # The newest one is torn: the one before it is taken.
    (torn,) = old.glob(f"checkpoints/model-{max(steps)}.data-*")
    earlier = max(steps) - 100
    for path in old.glob(f"checkpoints/model-{max(steps)}.*"):
        path.with_name(path.name.replace(str(max(steps)), str(earlier))).write_bytes(
            path.read_bytes()
        )
    torn.write_bytes(torn.read_bytes()[:1000])
    (project / "cluster.yaml").write_text(config(3))
    code, summary, err = end_of(training(project, "async", "--resume", old.name))
    assert (code, summary["state"], summary["resumed_from"]) == (0, "succeeded", old.name), err
    # Three workers make the steps that two would make in two epochs.
    assert summary["global_step"] == 2 * 2 * 550
    assert summary["updates_conserved"] is True
    told = records(project, "worker-0")
    assert any(f"model-{max(steps)} is damaged: it is skipped" in str(each) for each in told)
    (resumed,) = [each["global_step"] for each in told if "resumes from" in str(each)]
    # Other workers make updates while the chief saves; its name is the step at which that began.
    assert resumed >= max(steps)
    made = sum(task["local_step"] or 0 for task in summary["tasks"])
    assert made == 2200 - resumed
