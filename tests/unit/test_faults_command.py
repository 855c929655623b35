"""`lab fault`: its run, its tasks, and its refusals before any effect."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.cli.commands import fault
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec, control
from lab.task.protocol.faults import parse
from lab.task.protocol.states import State
from tests.support.cli import CLUSTER
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, end
from tests.support.specs import request


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    """One with a run that is under way, submitted ten seconds ago."""
    (tmp_path / "volume").mkdir()
    made = FakeEnvironment(tmp_path / "volume", lambda _volume, _request: None)
    monkeypatch.setattr(fault, "backends", lambda: [FakeBackend("local", made)])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    submit(made, "20260101-0000-async-aaaa")
    yield made
    for thread in made.threads:
        thread.join()


def submit(environment: FakeEnvironment, run_id: str, **more: float) -> None:
    spec = PLAN.cluster_spec()
    began = time.time() - 10
    environment.submit(request(run_id, "async", spec, program="p.py", submitted_unix=began, **more))


def told(environment: FakeEnvironment) -> list[str]:
    folder = environment.volume.faults("20260101-0000-async-aaaa")
    return [control.read_fault(path).text for path in control.injected_faults(folder).values()]


def test_task_fault(environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fault", "kill", "worker-1"]) == 0
    assert told(environment) == ["kill worker-1"]
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "run 20260101-0000-async-aaaa: kill worker-1: affects worker-1\n"


def test_a_fault_with_a_moment(environment: FakeEnvironment) -> None:
    assert main(["fault", "pause:10s", "worker-1", "after", "500", "steps"]) == 0
    assert main(["fault", "pause:10s worker-1 after 20,900 steps"]) == 0
    assert main(["fault", "stop", "tf2", "after", "5s"]) == 0
    *counted, timed = told(environment)
    assert counted == [
        "pause:10s worker-1 after 500 steps",
        "pause:10s worker-1 after 20,900 steps",
    ]
    # It counts from now, and agents count from the run's begin.
    seconds = float(timed.removeprefix("stop tf2 after ").removesuffix("s"))
    assert 15 <= seconds < 25


def test_a_network_fault_is_sent_to_the_agents(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fault", "cut:5s", "worker-1", "--json"]) == 0
    assert environment.disturbed == [("tf3", "cut:5s")]
    assert told(environment) == ["cut:5s tf3"]
    assert json.loads(capsys.readouterr().out) == {
        "run": "20260101-0000-async-aaaa",
        "fault": "cut:5s tf3",
        "tasks": ["worker-1"],
    }


def test_a_random_target_is_drawn_and_its_seed_printed(environment: FakeEnvironment) -> None:
    assert main(["fault", "kill", "random"]) == 0
    (text,) = told(environment)
    drawn = parse(text)
    assert drawn.target in {"ps-0", "worker-0", "worker-1"}
    assert drawn.seed is not None


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["fault", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err.removeprefix("error: ").rstrip()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["kil", "worker-1"], "no such fault: no fault 'kil'; did you mean 'kill'? there are"),
        (["kill"], "no such fault: 'kill' has no target; add a task, a node or random"),
        (["kill", "worker-9"], "no such fault: no task or node 'worker-9'; did you mean"),
        (
            ["pause:ten", "ps-0"],
            "no such fault: 'ten' is not a duration, such as 10s or 1m30s; see `lab",
        ),
        (
            ["cut:5s", "tf2", "after", "5s"],
            "`lab fault` injects cut at once, but 'cut:5s tf2 after 5s' has a time; leave",
        ),
        (["kill", "ps-0", "--run", "x"], "no run 'x'"),
    ],
)
def test_refused(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: str,
) -> None:
    assert refused(capsys, *arguments).startswith(line)
    assert (told(environment), environment.disturbed) == ([], [])


def test_an_impossible_network_fault_is_not_reported(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.unshakable = "this kernel has no netem"
    assert main(["fault", "link:delay=5ms", "tf2"]) == 1
    assert capsys.readouterr().err == "error: node tf2: this kernel has no netem\n"
    assert told(environment) == []


def test_no_fault_on_an_ended_task(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = "20260101-0000-async-aaaa"
    end(environment.volume, run_id, "worker-1", State.SUCCEEDED)
    assert refused(capsys, "kill", "worker-1") == (
        f"worker-1 has ended in run {run_id}; see it with `lab ps mnist`"
    )
    for task in ("ps-0", "worker-0"):
        end(environment.volume, run_id, task, State.SUCCEEDED)
    assert refused(capsys, "kill", "ps-0") == (
        f"run {run_id} has ended; see it with `lab show {run_id}`"
    )
    assert told(environment) == []


def test_a_run_that_does_not_run(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fault, "backends", list)
    info = RunInfo(
        "20260102-0000-async-bbbb",
        RunSpec("async"),
        state=State.FAILED,
        project="mnist",
        submitted_unix=1.0,
    )
    RunDir(Path("runs", info.run_id)).create(info)
    assert refused(capsys, "kill", "worker-1") == (
        "run 20260102-0000-async-bbbb is not under way;"
        " see it with `lab show 20260102-0000-async-bbbb`"
    )


def test_a_pause_as_long_as_a_stall_is_warned_of(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fault", "pause:6m", "worker-1"]) == 0
    assert capsys.readouterr().err.startswith(
        "warning: fault pause:360s worker-1 lasts at least as long as --stall 300s"
    )
