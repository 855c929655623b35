"""The run that `docker compose up` starts: read from variables, submitted once, resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.task.agent.appender import digest_of
from lab.task.agent.autorun import (
    Autorun,
    exit_code,
    main,
    next_commands,
    report,
    train,
)
from lab.task.agent.oneshot import OneshotError
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume
from lab.task.protocol.control import cancel, requests, submit
from lab.task.protocol.states import Cause, State
from lab.task.protocol.statuses import write_status

CLUSTER = {"ps": ["a:2222"], "worker": ["a:2223", "b:2222"]}
VARIABLES = {
    "LAB_CLUSTER": json.dumps(CLUSTER),
    "LAB_TENSORFLOW_VERSION": "2.21",
    "LAB_RUN": "async --epochs=5 --seed=7",
    "LAB_RUN_TERMS": '{"start": {"worker-1": "10s"}, "faults": ["pause:5s random after 9 steps"]}',
}


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


def read(**changes: str) -> Autorun:
    found = Autorun.from_environ({**VARIABLES, **changes})
    assert found is not None
    return found


def end_all(
    volume: Volume, request: Request, state: State, cause: Cause | None = None, reason: str = ""
) -> None:
    for task in request.tasks():
        status = TaskStatus(task, state, cause=cause, reason=reason, ended_unix=1.0)
        write_status(volume.status(request.run_id, task), status)


def ending(volume: Volume, state: State, cause: Cause | None = None) -> Callable[[float], None]:
    """A wait in which the newest request ends."""
    return lambda _seconds: end_all(volume, requests(volume)[-1], state, cause)


def trained(
    volume: Volume, state: State, cause: Cause | None = None, **changes: str
) -> tuple[Request, list[str]]:
    output: list[str] = []
    return train(read(**changes), volume, output.append, ending(volume, state, cause)), output


def checkpoint(volume: Volume, request: Request) -> None:
    folder = volume.run(request.run_id) / "checkpoints"
    folder.mkdir(exist_ok=True)
    for name in ("checkpoint", "model-12.index", "model-12.data-00000-of-00001", "stranger"):
        (folder / name).write_text(name)


def test_the_variables_become_a_request() -> None:
    request = read().request
    assert (request.spec.experiment, request.spec.program) == ("async", "mnist_async.py")
    assert request.spec.args == ("--epochs=5", "--seed=7")
    assert request.spec.start == {"worker-1": "10s"}
    (fault,) = request.spec.faults
    assert fault.startswith("pause:5s ")
    assert "random" not in fault  # agents accept no random target
    drawn = read(LAB_RUN="async").request.spec.args
    assert [each.partition("=")[0] for each in drawn] == ["--seed"]
    found = read(
        LAB_RUN_TERMS='{"faults": ["cut:5s worker-1 after 9 steps", "kill ps-0 after 5s"]}'
    )
    assert found.skipped == ("cut:5s b after 9 steps",)  # it needs a client
    assert found.request.spec.faults == ("kill ps-0 after 5s",)


@pytest.mark.parametrize("changes", [{"LAB_RUN": " "}, {"LAB_EXPERIMENT": "sync"}])
def test_nothing_is_trained_without_a_request(changes: dict[str, str]) -> None:
    assert Autorun.from_environ({**VARIABLES, **changes}) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAB_RUN", "asink", "LAB_RUN: no experiment 'asink'; did you mean 'async'?"),
        ("LAB_RUN", "hello", "LAB_RUN: hello needs the job 'local'"),
        (
            "LAB_CLUSTER",
            '{"ps": ["a:1", "b:1"], "worker": ["c:1"]}',
            "needs 1 of the job 'ps', not",
        ),
        ("LAB_RUN_TERMS", "[", "LAB_RUN_TERMS is not a JSON object; render the config again"),
        ("LAB_RUN_TERMS", '{"faults": ["kill worker-9"]}', "LAB_RUN_TERMS: no task or node 'worke"),
    ],
)
def test_variables_that_mean_nothing(name: str, value: str, message: str) -> None:
    with pytest.raises(OneshotError, match=message):
        read(**{"LAB_RUN": "async-fast", "LAB_RUN_TERMS": "{}", name: value})


def test_a_run_is_trained_once(volume: Volume) -> None:
    first, output = trained(volume, State.SUCCEEDED)
    assert output == [f"run {first.run_id}: async --epochs=5 --seed=7"]
    second, output = trained(volume, State.SUCCEEDED)
    assert second.run_id == first.run_id
    assert output == [f"run {first.run_id} has ended already; it is not trained again"]
    assert len(requests(volume)) == 1


@pytest.mark.parametrize(
    "changes", [{"LAB_RUN": "async --epochs=6"}, {"LAB_RUN_TERMS": '{"start": {}, "faults": []}'}]
)
def test_a_changed_run_is_another_one(volume: Volume, changes: dict[str, str]) -> None:
    first, _ = trained(volume, State.SUCCEEDED)
    second, _ = trained(volume, State.SUCCEEDED, **changes)
    assert second.run_id != first.run_id


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
    volume: Volume,
) -> None:
    first, _ = trained(volume, State.LOST)
    checkpoint(volume, first)
    submit(volume, OTHER)
    waiting: list[Path] = []

    def stopped(_seconds: float) -> None:
        waiting.extend((volume.root / "incoming").iterdir())
        raise SystemExit

    with pytest.raises(SystemExit):
        train(read(), volume, print, stopped)
    assert len(waiting) == 1
    assert not list((volume.root / "incoming").iterdir())
    second, output = trained(volume, State.SUCCEEDED)
    assert output[1] == f"run {OTHER.run_id} is under way; async starts after it"
    assert second.spec.resumed_from == first.run_id
    assert (volume.run(second.run_id) / "checkpoints" / "model-12.index").is_file()
    assert [each.run_id for each in requests(volume)][1:] == [OTHER.run_id, second.run_id]


def test_an_interrupted_run_without_a_checkpoint_starts_anew(volume: Volume) -> None:
    first, _ = trained(volume, State.LOST)
    second, output = trained(volume, State.SUCCEEDED)
    assert output[0] == f"run {first.run_id} was interrupted and left no checkpoint: it starts over"
    assert (second.spec.args, second.spec.resumed_from) == (first.spec.args, "")


def test_a_run_that_failed_or_that_the_user_cancelled_stays_ended(volume: Volume) -> None:
    first, _ = trained(volume, State.FAILED, Cause.EXIT_CODE)
    assert trained(volume, State.SUCCEEDED)[0].run_id == first.run_id
    end_all(volume, first, State.CANCELLED, Cause.INTERRUPTED)
    cancel(volume, first.run_id, "the user cancelled it")
    checkpoint(volume, first)
    assert trained(volume, State.SUCCEEDED)[0].run_id == first.run_id


def test_a_run_under_way_is_followed_after_a_restart_of_this_service(volume: Volume) -> None:
    request = read().request
    submit(volume, request)
    again, output = trained(volume, State.SUCCEEDED)
    assert again.run_id == request.run_id
    assert output == [f"run {request.run_id} is under way"]


def test_the_report_is_a_table_the_end_and_the_next_command(volume: Volume) -> None:
    request, _ = trained(volume, State.SUCCEEDED)
    volume.records(request.run_id, "worker-0").write_text(
        '{"kind": "step", "local_step": 1200, "global_step": 2400, "loss": 0.25}\n'
        "no record\n"
        '{"kind": "final", "accuracy": 0.875}\n'
    )
    assert exit_code(volume, request) == 0
    assert [*report(volume, request), *next_commands(request)] == [
        "                     local  global",
        "task      state      steps    step    loss  accuracy",
        "--------  ---------  -----  ------  ------  --------",
        "ps-0      succeeded",
        "worker-0  succeeded  1,200   2,400  0.2500    0.8750",
        "worker-1  succeeded",
        f"run {request.run_id}: succeeded",
        f"collect it:   python -m lab collect {request.run_id}",
        "train again:  python -m lab run async",
    ]


@pytest.mark.parametrize("line", ['{"loss": 1' + 400 * "0" + "}", 100_000 * "["])
def test_the_report_skips_numbers_and_lines_that_are_too_long(volume: Volume, line: str) -> None:
    request, _ = trained(volume, State.SUCCEEDED)
    volume.records(request.run_id, "worker-0").write_text(f'{line}\n{{"accuracy": 0.875}}\n')
    assert exit_code(volume, request) == 0
    rows = [row.split() for row in report(volume, request)]
    assert ["worker-0", "succeeded", "0.8750"] in rows


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
    lines = list(report(volume, request))
    assert line in lines
    assert lines[-1] == f"run {request.run_id}: failed"
    assert exit_code(volume, request) == 1


def test_a_run_with_removed_records_has_failed(volume: Volume) -> None:
    request, _ = trained(volume, State.SUCCEEDED)
    path = volume.records(request.run_id, "worker-1")
    path.write_text('{"accuracy": 0.5}\n')
    status = TaskStatus("worker-1", State.SUCCEEDED, records_sha256=digest_of(path).hexdigest())
    write_status(volume.status(request.run_id, "worker-1"), status)
    assert exit_code(volume, request) == 0
    path.unlink()
    assert exit_code(volume, request) == 1
    reason = "another process changed or removed the records of worker-1"
    assert [*report(volume, request)][-2:] == [reason, f"run {request.run_id}: failed"]


def test_a_batch_job_ends_with_its_run(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**VARIABLES, "LAB_RUNS": str(volume.root)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LAB_EXPERIMENT", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for state, code in ((State.FAILED, 1), (State.SUCCEEDED, 0)):
        monkeypatch.setenv("LAB_RUN", f"async --epochs={code + 1}")
        monkeypatch.setattr("time.sleep", ending(volume, state))
        assert main(["--once"]) == code
        run_id = requests(volume)[-1].run_id
        last = capsys.readouterr().out.splitlines()[-2:]
        assert last == [
            f"lab: run {run_id}: {state}",
            f"lab: its files are in {volume.run(run_id)}",
        ]
