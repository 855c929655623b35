"""A worker that starts later begins at its step, with the parameters of that step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.agents import processes_with
from tests.support.cluster import ROOT, cluster
from tests.support.commands import lab

pytestmark = pytest.mark.tensorflow

# The first worker makes an epoch and then waits for the other one: no task trains at the step at
# which that joins, so that its numbers are known exactly, however busy the machine is.
EPOCH = 110
FLAGS = ("--epochs=1", "--batch_size=500", "--record_every=1")


def test_a_worker_joins_at_its_step_and_not_with_old_parameters(tmp_path: Path) -> None:
    """It gets its start signal before any task trains, so it must wait for the step itself."""
    arguments = {index: tmp_path / f"begin-{index}" for index in range(2)}
    arguments[1].write_text(str(EPOCH))
    with cluster("mnist_async.py", tmp_path, *FLAGS, workers=2) as made:
        made.start("ps", 0)
        for index, word in arguments.items():
            made.environment = {"LAB_START": str(word)}
            made.start("worker", index)
        made.wait_ready()
        arguments[0].touch()
        made.succeed()
        first, late = (task.kind("step", "epoch") for task in made.worker_tasks)
        outcome = made.outcome()
    assert [record["global_step"] for record in first] == list(range(1, EPOCH + 1))
    assert [record["global_step"] for record in late] == list(range(EPOCH + 1, 2 * EPOCH + 1))
    assert {record["staleness"] for record in (*first, *late)} == {0}
    assert outcome["global_step"] == outcome["probe"] == 2 * EPOCH


STALE = 2
AS_OLD = f"""

class _Old(tf.Session):
    steps = 0

    def run(self, fetches, feed_dict=None, **options):
        if isinstance(fetches, list) and len(fetches) == 4:  # a step of the training
            feed_dict = {{**feed_dict, fetches[1]: _Old.steps - {STALE}}}
            _Old.steps += 1
        return super().run(fetches, feed_dict, **options)


tf.Session = _Old
"""


def test_a_step_that_read_as_old_parameters_is_recorded_as_that_stale(tmp_path: Path) -> None:
    """A single worker is never stale: the step at its read is replaced by an older one."""
    scripts = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", scripts)
    with (scripts / "placement.py").open("a") as file:
        file.write(AS_OLD)
    flags = ("--global_steps=5", "--record_every=1")
    with cluster(str(scripts / "mnist_async.py"), tmp_path, *flags) as made:
        made.start_all()
        made.succeed()
        records = made.chief.kind("step", "epoch")
    assert [record["global_step"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["staleness"] for record in records] == [STALE] * 5


def test_a_schedule_reaches_the_program(tmp_path: Path) -> None:
    """From `--start` through the agent to the step that the program waits for."""
    steps = 1100  # two epochs: longer than one worker's start after the other's
    for name in ("scripts", "clusters"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "data").mkdir()
    where = ("--cluster", "clusters/laptop.yaml", "--backend", "local", "--gpus", "none")
    flags = ("--epochs", "2", "--steps_per_call", "1", "--record_every", "1", "--json")
    when = f"worker-1: after {steps} steps"
    out, _ = lab(tmp_path, "run", "async-fast", *where, *flags, "--start", when)
    summary = json.loads(out.splitlines()[-1])
    assert (summary["global_step"], summary["updates_conserved"]) == (2 * steps, True)
    (run_dir,) = (tmp_path / "runs").iterdir()
    lines = (run_dir / "tasks/worker-1.jsonl").read_text().splitlines()
    made = [record for line in lines if "local_step" in (record := json.loads(line))]
    assert {record["global_step"] - record["local_step"] for record in made} == {steps}
    assert processes_with(str(tmp_path)) == []
