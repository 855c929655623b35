"""A job that Slurm puts back into the queue, and the run that continues with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.backends.slurm.environment import StateDir
from lab.base.errors import LabError
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume, control
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import read_status, write_status
from tests.support.slurm_site import RUNS, WAITS, Site, both_start, make_site, nothing


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site(tmp_path, monkeypatch)


STOPPED = TaskStatus("worker-0", State.CANCELLED, cause=Cause.INTERRUPTED)
LOST = TaskStatus("worker-0", State.LOST, cause=Cause.NODE_LOST)


def an_ended_run(status: TaskStatus, policy: OnFailure = OnFailure.FAIL) -> Volume:
    """A run on the volume, with the worker's status; the parameter server was stopped."""
    volume = Volume(StateDir.of("x").runs)
    spec = RunSpec("async", on_failure=policy, restarts=2 * (policy is OnFailure.RESTART))
    control.submit(volume, Request("r-1", spec, {"ps": ["a:1"], "worker": ["b:1"]}, 1.0))
    for each in (TaskStatus("ps-0", State.CANCELLED, cause=Cause.INTERRUPTED), status):
        write_status(volume.status("r-1", each.task), each)
    return volume


def continues() -> None:
    """The batch step submits the next run, and the agents start."""
    cluster = {"ps": ["c:1"], "worker": ["d:1"]}
    control.submit(Volume(StateDir.of("x").runs), Request("r-2", RunSpec("async"), cluster))
    both_start()


def test_a_job_that_slurm_puts_back_continues_its_run(site: Site, notices: list[str]) -> None:
    environment = site.up()
    volume = an_ended_run(STOPPED)
    site.set("queue", "7|PENDING|None\n8|COMPLETING|None\n")
    notices.clear()
    shutil.rmtree(volume.agents)
    site.pauses += [site.queue(WAITS), site.queue(RUNS), continues]
    request = environment.continuation("r-1")
    assert request.run_id == "r-2"
    assert notices == [
        "Slurm has put job 7 back into the queue; run r-1 continues with it",
        "job 7 is waiting in the queue: Resources",
        "job 7 is starting its tasks",
        "slurm: all tasks of job 7 are running",
    ]
    assert site.pauses == []
    assert environment.continuation("r-1") == request  # for another client


@pytest.mark.parametrize("requeued", ["", "requeue 7\n"], ids=["Slurm notices it", "it does not"])
def test_a_run_with_a_lost_agent_continues_by_its_policy(
    site: Site, requeued: str, notices: list[str]
) -> None:
    environment = site.up()
    an_ended_run(LOST, OnFailure.RESTART)
    site.set("waits", WAITS)

    def start() -> None:
        site.set("queue", RUNS)
        continues()

    # After ten minutes without a word of Slurm's, the backend itself puts the job back.
    site.pauses += [nothing] * 41 if requeued else [site.queue(WAITS)]
    site.pauses.append(start)
    notices.clear()
    request = environment.continuation("r-1")
    assert request.run_id == "r-2"
    assert notices[0] == "job 7 runs; waiting until Slurm notices the failed node"
    assert site.read("requeued") == requeued


@pytest.mark.parametrize(
    ("status", "then"),
    [(LOST, RUNS), (LOST, WAITS), (STOPPED, ""), (STOPPED, RUNS)],
    ids=["policy fail", "policy fail in the queue", "scancel", "an agent was stopped"],
)
def test_other_runs_end(site: Site, status: TaskStatus, then: str, notices: list[str]) -> None:
    environment = site.up()
    an_ended_run(status)
    site.set("queue", then)
    notices.clear()
    assert (environment.continuation("r-1"), notices) == (None, [])
    assert site.read("requeued") == ""


def test_a_job_that_is_cancelled_in_the_queue_ends_the_wait(site: Site, notices: list[str]) -> None:
    environment = site.up()
    an_ended_run(STOPPED)
    site.set("queue", WAITS)
    site.pauses.append(site.queue(""))
    assert environment.continuation("r-1") is None
    assert notices[-1].startswith("the job of 'x' has ended: no output; all nodes must see ")


@pytest.mark.parametrize(
    ("then", "reason"),
    [("", "Slurm ended the job"), (WAITS, "Slurm put the job back into the queue")],
)
def test_tasks_without_an_end_are_lost_with_their_job(site: Site, then: str, reason: str) -> None:
    environment = site.up()
    volume = an_ended_run(TaskStatus("worker-0", State.TRAINING))
    site.set("queue", then)
    environment.job(fresh=True)
    with pytest.raises(LabError, match="has stopped: its job is not running"):
        list(environment.stream("r-1", {}, follow=True))
    status = read_status(volume.status("r-1", "worker-0"), "worker-0")
    assert (status.state, status.reason) == (State.LOST, reason)
    assert read_status(volume.status("r-1", "ps-0"), "ps-0").state is State.CANCELLED
