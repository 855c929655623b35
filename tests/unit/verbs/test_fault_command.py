"""`lab fault`: its run, its tasks, and its refusals before any effect."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.protocol.volume import RunSpec, control
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from tests.support.cli import Host
from tests.support.fakes import PLAN, end
from tests.support.specs import request

RUN = "20260101-0000-async-aaaa"


@pytest.fixture(autouse=True)
def _under_way(host: Host) -> None:
    host.environment.tasks_do = lambda _volume, _request: None
    began = time.time() - 10
    made = request(RUN, "async", PLAN.cluster_spec(), program="p.py", submitted_unix=began)
    host.environment.submit(made)


def recorded(host: Host) -> list[str]:
    paths = control.injected_faults(host.environment.volume.faults(RUN)).values()
    return [control.read_fault(path).text for path in paths]


def test_task_fault(host: Host) -> None:
    _, err = host.lab("fault kill worker-1")
    # Agents count from the run's begin: for them a fault without a time begins with the training.
    (text,) = recorded(host)
    assert err == f"run {RUN}: {text}: affects worker-1\n"
    assert 10 <= float(text.removeprefix("kill worker-1 after ").removesuffix("s")) < 20


def test_a_fault_with_a_moment(host: Host) -> None:
    host.lab("fault pause:10s worker-1 after 500 steps")
    host.lab("fault 'pause:10s worker-1 after 20,900 steps'")
    host.lab("fault stop tf2 after 5s")
    *counted, timed = recorded(host)
    pause = "pause:10s worker-1 after"
    assert counted == [f"{pause} 500 steps", f"{pause} 20,900 steps"]
    # It counts from now, and agents count from the run's begin.
    assert 15 <= float(timed.removeprefix("stop tf2 after ").removesuffix("s")) < 25


def test_a_network_fault_is_sent_to_the_agents(host: Host) -> None:
    out, _ = host.lab("fault cut:5s worker-1 --json")
    assert json.loads(out) == {"run": RUN, "fault": "cut:5s tf3", "tasks": ["worker-1"]}
    assert host.environment.disturbed == [("tf3", "cut:5s")]
    assert recorded(host) == ["cut:5s tf3"]


@pytest.mark.parametrize(
    "line",
    [
        "kil worker-1", "kill", "kill worker-9", "pause:ten ps-0", "cut:5s tf2 after 5s",
        "kill ps-0 --run x",
    ],
)  # fmt: skip
def test_refused(host: Host, line: str, snapshot: SnapshotAssertion) -> None:
    assert host.error(f"fault {line}") == snapshot
    assert (recorded(host), host.environment.disturbed) == ([], [])


def test_an_impossible_network_fault_is_not_recorded(host: Host) -> None:
    host.environment.unshakable = "this kernel has no netem"
    assert host.error("fault link:delay=5ms tf2", 1) == "node tf2: this kernel has no netem"
    assert recorded(host) == []


def test_no_fault_on_an_ended_task(host: Host) -> None:
    volume = host.environment.volume
    end(volume, RUN, "worker-1", State.SUCCEEDED)
    ended = f"worker-1 has ended in run {RUN}; see it with `lab ps mnist`"
    assert host.error("fault kill worker-1") == ended
    for task in ("ps-0", "worker-0"):
        end(volume, RUN, task, State.SUCCEEDED)
    ended = f"run {RUN} has ended; see it with `lab show {RUN}`"
    assert host.error("fault kill ps-0") == ended
    # Nor on a run of which only the results are left.
    host.backend.environment = None
    info = RunInfo(f"{RUN}b", RunSpec("async"), state=State.FAILED, project="mnist")
    RunDir(Path("runs", info.run_id)).create(replace(info, submitted_unix=1.0))
    ended = f"run {RUN}b is not under way; see it with `lab show {RUN}b`"
    assert host.error("fault kill worker-1") == ended
    assert recorded(host) == []


def test_a_pause_as_long_as_a_stall_is_warned_of(host: Host) -> None:
    _, err = host.lab("fault pause:6m worker-1")
    assert err.startswith("warning: fault pause:360s worker-1 lasts at least as long as --stall 30")
