"""The run that `docker compose up` starts: read from variables, submitted once, resumed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.control import cancel, requests, submit
from lab.protocol.volume.layout import STALL_S
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import write_status
from lab.task.agent import autorun
from lab.task.agent.autorun import AutorunError, report, requested, train

CLUSTER = {"ps": ["a:2222"], "worker": ["a:2223", "b:2222"]}
VARIABLES = {
    "LAB_CLUSTER": json.dumps(CLUSTER),
    "LAB_RUNTIME": "tensorflow",
    "LAB_RUN": "async --epochs=5 --seed=7",
    "LAB_RUN_TERMS": '{"start": {"worker-1": "10s"}, "faults": ["stop worker-1 after 9 steps"]}',
}


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


def read(**changes: str) -> Request:
    found = requested({**VARIABLES, **changes})
    assert found is not None
    return found


def end_all(
    volume: Volume, request: Request, state: State, cause: Cause | None = None, reason: str = ""
) -> None:
    for task in request.tasks():
        status = TaskStatus(task, state, cause=cause, reason=reason, ended_unix=1.0)
        write_status(volume.status(request.run_id, task), status)


def trained(
    volume: Volume, state: State, cause: Cause | None = None, **changes: str
) -> tuple[Request, list[str]]:
    output: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autorun, "_print", output.append)
        patch.setattr(time, "sleep", lambda _: end_all(volume, requests(volume)[-1], state, cause))
        return train(read(**changes), volume), output


def checkpoint(volume: Volume, request: Request) -> None:
    folder = volume.run(request.run_id) / "checkpoints"
    folder.mkdir(exist_ok=True)
    for name in ("checkpoint", "model-12.index", "model-12.data-00000-of-00001", "stranger"):
        (folder / name).write_text(name)


def test_the_variables_become_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    request = read()
    assert (request.spec.experiment, request.spec.program) == ("async", "mnist_async.py")
    assert request.spec.args == ("--epochs=5", "--seed=7")
    assert request.spec.start == {"worker-1": "10s"}
    assert request.spec.faults == ("stop worker-1 after 9 steps",)
    assert request.spec.ready_s == STALL_S
    longer = read(LAB_RUN="async --epochs=5 --stall=10m --seed=7")
    assert (longer.spec.args, longer.spec.ready_s) == (request.spec.args, 600)
    assert longer.autorun != request.autorun  # it is another run, which is trained
    drawn = read(LAB_RUN="async").spec.args
    assert [each.partition("=")[0] for each in drawn] == ["--seed"]
    found = read(
        LAB_RUN_TERMS='{"faults": ["cut:5s worker-1 after 9 steps", "kill ps-0 after 5s"]}'
    )
    assert "skipped cut:5s b after 9 steps: a network fault needs" in capsys.readouterr().out
    assert found.spec.faults == ("kill ps-0 after 5s",)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAB_RUN", "asink", "LAB_RUN: no experiment 'asink'; did you mean 'async'?"),
        ("LAB_RUN", "hello", "LAB_RUN: hello needs the job 'local'"),
        ("LAB_RUN", "async 'a", "LAB_RUN: No closing quotation; write it as in a shell"),
        ("LAB_RUN", "async-fast --stall=5x", "--stall=5x is not a duration such as --stall=10m"),
        ("LAB_RUN_TERMS", "[", "LAB_RUN_TERMS is not a JSON object; render the config again"),
        ("LAB_RUN_TERMS", '{"faults": ["kill worker-9"]}', "LAB_RUN_TERMS: no task or node 'worke"),
    ],
)
def test_variables_that_mean_nothing(name: str, value: str, message: str) -> None:
    with pytest.raises(AutorunError, match=message):
        read(**{"LAB_RUN": "async-fast", "LAB_RUN_TERMS": "{}", name: value})


def test_without_a_run_it_does_nothing_and_cannot_end_with_it() -> None:
    for once in ("", "0"):
        assert requested({**VARIABLES, "LAB_RUN": " ", "LAB_ONCE": once}) is None
    with pytest.raises(AutorunError, match="LAB_ONCE needs a run; name one"):
        read(LAB_RUN=" ", LAB_ONCE="1")


ANEW = "was interrupted and left no checkpoint: it starts over"
ENDED = "has ended already; it is not trained again"


@pytest.mark.parametrize(
    ("state", "cause", "changes", "first_line"),
    [
        (State.SUCCEEDED, None, {}, ENDED),
        (State.FAILED, Cause.EXIT_CODE, {}, ENDED),
        (State.LOST, None, {}, ANEW),
        (State.SUCCEEDED, None, {"LAB_RUN": "async --epochs=6 --seed=7"}, "async --epochs=6"),
        (State.SUCCEEDED, None, {"LAB_RUN_TERMS": "{}"}, "async --epochs=5 --seed=7"),
    ],
)
def test_a_run_is_trained_once_unless_it_changes_or_was_interrupted(
    volume: Volume, state: State, cause: Cause | None, changes: dict[str, str], first_line: str
) -> None:
    first, output = trained(volume, state, cause)
    assert output == [f"run {first.run_id}: async --epochs=5 --seed=7"]
    second, output = trained(volume, State.SUCCEEDED, **changes)
    assert first_line in output[0]
    assert (second.run_id == first.run_id) is (first_line is ENDED)
    assert second.spec.resumed_from == ""
    assert len(requests(volume)) == 2 - (first_line is ENDED)


@pytest.mark.parametrize("state", [State.CANCELLED, State.LOST])
def test_an_interrupted_run_resumes_from_its_checkpoint(volume: Volume, state: State) -> None:
    first, _ = trained(volume, state, Cause.INTERRUPTED)
    checkpoint(volume, first)
    second, output = trained(volume, State.SUCCEEDED)
    assert (
        output[0]
        == f"run {first.run_id} was interrupted: {second.run_id} resumes from its checkpoint"
    )
    assert second.spec.resumed_from == first.run_id
    # Five epochs of 550 steps on each of two workers.
    assert second.spec.args == ("--epochs=5", "--seed=7", "--global_steps=5500")
    kept = {path.name for path in (volume.run(second.run_id) / "checkpoints").iterdir()}
    assert kept == {"checkpoint", "model-12.index", "model-12.data-00000-of-00001"}
    third, output = trained(volume, State.SUCCEEDED)
    assert third.run_id == second.run_id
    assert "has ended already" in output[0]


OTHER = Request("20260101-0000-sync-aaaa", RunSpec("sync", "mnist_sync.py"), CLUSTER)


def test_a_resumed_run_waits_for_the_run_of_another_user_with_its_checkpoint(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = trained(volume, State.LOST)
    checkpoint(volume, first)
    submit(volume, OTHER)
    waiting: list[Path] = []

    def stopped(_seconds: float) -> None:
        waiting.extend((volume.root / "incoming").iterdir())
        raise SystemExit

    monkeypatch.setattr(time, "sleep", stopped)
    with pytest.raises(SystemExit):
        train(read(), volume)
    assert len(waiting) == 1
    assert not list((volume.root / "incoming").iterdir())
    second, output = trained(volume, State.SUCCEEDED)
    assert output[1] == f"run {OTHER.run_id} is under way; async starts after it"
    assert second.spec.resumed_from == first.run_id
    assert (volume.run(second.run_id) / "checkpoints" / "model-12.index").is_file()
    assert [each.run_id for each in requests(volume)][1:] == [OTHER.run_id, second.run_id]


def test_a_run_that_the_user_cancelled_stays_ended(volume: Volume) -> None:
    first, _ = trained(volume, State.CANCELLED, Cause.INTERRUPTED)
    cancel(volume, first.run_id, "the user cancelled it")
    checkpoint(volume, first)
    assert trained(volume, State.SUCCEEDED)[0].run_id == first.run_id


@pytest.mark.parametrize(
    ("run", "state", "line"),
    [
        ("async", State.FAILED, "ps-0: exit code 1: a\\x0ab\\x1b[31m"),
        ("placement", State.SUCCEEDED, "not as expected: where they should be"),  # it has no result
    ],
)
def test_the_report_names_what_failed(volume: Volume, run: str, state: State, line: str) -> None:
    request, _ = trained(volume, State.SUCCEEDED, LAB_RUN=run, LAB_RUN_TERMS="{}")
    end_all(volume, request, state, Cause.EXIT_CODE, "exit code 1: a\nb\x1b[31m")
    with volume.records(request.run_id, "worker-0").open("a") as file:
        file.write('{"kind": "step", "global_step": 3, "loss": 0.5, "staleness": "x"}\n')
    ended, lines = report(volume, request)
    assert f"worker-0: {state}, global step 3, loss 0.5000" in lines
    assert line in lines
    assert lines[-1] == f"run {request.run_id}: failed"
    assert ended is State.FAILED
