"""Options of `lab run` for start, resume and end; runs that resume from checkpoints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.config import load_cluster
from lab.errors import ConfigError, LabError
from lab.report.repro_command import command
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec, TaskProgram, TaskStatus, Volume
from lab.task.protocol.checkpoints import next_step
from lab.task.protocol.files import write_atomically
from lab.task.protocol.policy import OnFailure
from lab.task.protocol.states import State
from tests.support.fakes import CLUSTER, FakeBackend, FakeEnvironment, end, train
from tests.support.specs import update

RUN = ["run", "async", "--gpus", "none"]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    """A project, and its environment, which is up."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    for name in ("mnist_async.py", "mnist_sync.py"):
        (tmp_path / "scripts" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    made = FakeEnvironment(tmp_path / "volume")
    made.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    backend = FakeBackend("local", made)
    monkeypatch.setattr("lab.service.run.backends", lambda: [backend])
    yield made
    for thread in made.threads:
        thread.join(30)


def asked(environment: FakeEnvironment) -> Request:
    return environment.runs()[-1]


def only_run() -> RunDir:
    return RunDir(max(Path("runs").iterdir(), key=lambda path: path.stat().st_mtime_ns))


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (["--epochs", "2", "--start", "worker-1: after 1,101 steps"], "1,100"),
        (["--global_steps", "500", "--start", "worker-1: after 501 steps"], "500"),
        (["--epochs", "2", "--start", "worker-0: 1s; worker-1: after 1,101 steps"], "1,100"),
        (["--epochs", "1", "--batch_size", "1000", "--start", "worker-1: after 56 steps"], "55"),
    ],
)
def test_an_unreachable_step_is_refused(
    environment: FakeEnvironment,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    made: str,
) -> None:
    assert main([*RUN, *arguments]) == 2
    output = capsys.readouterr().err
    assert f"the others make only {made} steps, not " in output
    assert "; give a smaller step, or train longer" in output
    assert not environment.runs()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "2", "--start", "worker-1: after 1,100 steps"],
        ["--global_steps", "500", "--start", "worker-1: after 500 steps"],
        ["--epochs", "1", "--start", "worker-1: 2000s"],
    ],
)
def test_the_last_step_is_accepted(environment: FakeEnvironment, arguments: list[str]) -> None:
    environment.tasks_do = train
    assert main([*RUN, *arguments]) == 0
    assert asked(environment).spec.start


def test_the_request_has_the_flags(environment: FakeEnvironment) -> None:
    arguments = ["--on-failure", "restart:2", "--start", "worker-1: after 500 steps"]
    assert (
        main([*RUN, *arguments, "--ready-within", "90s", "--stall", "1m", "--max-time", "10m"]) == 0
    )
    request = asked(environment)
    assert (request.spec.on_failure, request.spec.restarts) == (OnFailure.RESTART, 2)
    assert request.spec.start == {"worker-1": "after 500 steps"}
    assert (request.spec.ready_s, request.spec.stall_s, request.spec.gang) == (90.0, 60.0, False)
    assert request.spec.max_time_s == 600
    info = only_run().read()
    assert (info.spec.on_failure, info.spec.start) == (OnFailure.RESTART, request.spec.start)


def test_a_python_2_listing_is_converted_and_sent_with_its_data(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old").mkdir()
    Path("old/a.py").write_text("print open('in.csv').read()\n")
    Path("old/in.csv").write_text("1,2")
    Path("old/given.csv").write_text("3")
    assert main(["run", "--listing", "old/a.py", "--gpus", "none", "--", "--f=given.csv"]) == 0
    assert "a.py: converted from Python 2: print 1\n" in capsys.readouterr().err
    run, volume = only_run(), environment.volume
    there = volume.run(run.run_id)
    assert (there / "program/a.py").read_text() == "print(open('in.csv').read())\n"
    assert (there / "files/in.csv").read_text() == "1,2"
    assert (run.files / "given.csv").read_text() == "3"
    # Its old summary stays in the run store; a task does not need it.
    assert (run.original / "a.py").read_text() == "print open('in.csv').read()\n"
    assert not (there / "original").exists()


def test_only_a_service_may_have_no_program(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("p.add_argument('--task_index')")
    assert main(["run", "worker-0=a.py,worker-1=a.py", "--gpus", "none"]) == 0
    assert (
        asked(environment).spec.program_of("ps-0"),
        asked(environment).spec.program_of("worker-1"),
    ) == (
        None,
        TaskProgram("a.py", ("--task_index={index}",)),
    )
    assert only_run().read().spec.programs == asked(environment).spec.programs
    again = RunInfo.of_request(asked(environment), backend="local", project="two")
    assert again.spec.programs == asked(environment).spec.programs
    assert main(["run", "worker-0=a.py", "--gpus", "none"]) == 2
    assert "error: worker-1 has no program; add worker-1=FILE.py\n" in capsys.readouterr().err


def test_the_user_says_what_flags_mean(
    environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("p.add_argument('--kind')\np.add_argument('--number')")
    own = ["run", "./a.py", "--gpus", "none"]
    assert main(own) == 0
    assert asked(environment).spec.cluster_args == ()
    notice = "warning: a.py declares flags, but none that lab knows for its job or index (--kind, -"
    assert notice in capsys.readouterr().err
    assert any(notice in line for line in only_run().read().notices)
    assert main([*own, "--map", "kind=job_name", "--map", "number=task_index"]) == 0
    assert asked(environment).spec.cluster_args == ("--kind={job}", "--number={index}")
    assert command(only_run().read()).endswith(" --map kind=job_name,number=task_index")
    assert main([*own, "--", "--kind={job}", "--number={index}"]) == 0
    assert "a.py declares" not in capsys.readouterr().err
    spec = asked(environment).spec
    assert (spec.cluster_args, spec.args) == ((), ("--kind={job}", "--number={index}"))


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["./a.py", "--map", "kind=jobname"], "--map kind=jobname: no meaning 'jobname'; did you"),
        (["./a.py", "--map", "kind"], "--map: 'kind' is not FLAG=MEANING"),
        (
            ["./a.py", "--", "{chief_hosts}"],
            "{chief_hosts}: the config has no job 'chief'; use {ps",
        ),
        (["async", "--map", "kind=job_name"], "--map: async is an experiment; leave out --map"),
    ],
)
def test_a_meaning_that_lab_does_not_know_is_refused(
    argv: list[str], error: str, environment: FakeEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.py").write_text("")
    assert main(["run", "--gpus", "none", *argv]) == 2
    assert f"error: {error}" in capsys.readouterr().err
    assert environment.runs() == []


def test_by_default_a_failure_ends_the_run(environment: FakeEnvironment) -> None:
    assert main(["run", "sync", "--gpus", "none"]) == 0
    request = asked(environment)
    assert (request.spec.on_failure, request.spec.restarts, request.spec.gang) == (
        OnFailure.FAIL,
        0,
        True,
    )
    assert request.spec.ready_s == 120.0


def test_an_experiment_may_set_the_failure_policy(environment: FakeEnvironment) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("jobs: {", "jobs: {chief: {on: [tf1]}, "))
    Path("scripts/coordinator.py").write_text("")
    environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    arguments = ["run", "coordinator", "--gpus", "none"]
    assert main(arguments) == 1  # no step is counted here
    assert (asked(environment).spec.on_failure, asked(environment).spec.restarts) == (
        OnFailure.RESTART,
        3,
    )
    assert main([*arguments, "--on-failure", "fail"]) == 1
    assert asked(environment).spec.on_failure is OnFailure.FAIL


def test_the_flag_overrides_the_config(environment: FakeEnvironment) -> None:
    start = "start: {worker-1: 10s, worker-0: 3s}\n"
    Path("cluster.yaml").write_text(CLUSTER + start)
    # A schedule is a run's: the environment stays the same one.
    assert main([*RUN, "--start", "worker-1: 20s"]) == 0
    assert asked(environment).spec.start == {"worker-1": "20s", "worker-0": "3s"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on-failure", "never"], "fail, restart, restart:N (N from 1 to 999), or continue"),
        (["--start", "worker-7: 3s"], "no task 'worker-7'; did you mean 'worker-"),
        (
            ["--start", "ps-0: after 5 steps"],
            "the others make no step without ps-0; give it a time",
        ),
        (["--start", "worker-1: soon"], "'soon' is not a start time"),
        (["--start", "worker-1"], "TASK: MOMENT; …, such as worker-1: 10s"),
        (["--resume", "last"], "no run in runs"),
    ],
)
def test_invalid_options_are_refused_before_start(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, *arguments]) == 2
    assert message in capfd.readouterr().err
    assert not Path("runs").exists()


def test_sync_cannot_wait_for_a_step_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "sync", "--gpus", "none", "--start", "worker-1: after 9 steps"]
    assert main(arguments) == 2
    assert "makes no step without worker-1" in capfd.readouterr().err


def test_sync_needs_every_worker(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sync", "--gpus", "none", "--on-failure", "continue"]) == 2
    err = capfd.readouterr().err
    assert (
        "--on-failure continue: experiment 'sync' needs all of its workers; use --on-failure" in err
    )


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("{worker-9: 3s}", "start.worker-9: there is no task worker-9; did you mean"),
        ("{worker-0: after 9 steps}", "start.worker-0: the others make no step without worker-0"),
        ("{worker-1: 10}", "start.worker-1: must be a moment such as 10s, or: after 500 steps"),
        ("{worker-1: soon}", "start.worker-1: must be a moment"),
        ("{Worker: 3s}", "start.Worker: must be a task's name, such as worker-1"),
        ("[worker-1]", "start: must be a mapping"),
    ],
)
def test_a_configs_schedule_is_checked(start: str, message: str) -> None:
    Path("cluster.yaml").write_text(f"{CLUSTER}start: {start}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(Path("cluster.yaml"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("[boom worker-1]", "faults[0]: must be a fault such as kill worker-1 after 500 steps ("),
        ("[3]", "faults[0]: must be a fault such as kill worker-1 after 500 steps; not the"),
        ("[kill worker-1, kill worker-9]", "faults[1]: no task or node 'worker-9'; did you"),
        ("kill worker-1", "faults: must be a list"),
    ],
)
def test_a_configs_faults_are_checked(faults: str, message: str) -> None:
    Path("cluster.yaml").write_text(f"{CLUSTER}faults: {faults}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(Path("cluster.yaml"))
    assert message in str(caught.value)


def test_faults_of_config_and_flag_are_requested(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("cluster.yaml").write_text(CLUSTER + "faults: [cut:2s worker-1 after 5s]\n")
    assert main([*RUN, "--fault", "kill worker-1 after 9 steps"]) == 0
    assert asked(environment).spec.faults == ("cut:2s tf3 after 5s", "kill worker-1 after 9 steps")
    assert main([*RUN, "--detach"]) == 2
    assert "fault 'cut:2s tf3 after 5s' needs an attached client" in capfd.readouterr().err


# ---- resume


def failed_run(environment: FakeEnvironment, *arguments: str, name: str = "async") -> RunDir:
    def fail(volume: Volume, request: Request) -> None:
        checkpoints = volume.run(request.run_id) / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        for file in ("model-200.index", "model-200.data-00000-of-00001", "checkpoint", "other"):
            (checkpoints / file).write_text(file)
        for task in request.tasks():
            failed = task == "worker-1"
            end(volume, request.run_id, task, State.FAILED if failed else State.CANCELLED)

    environment.tasks_do = fail
    assert main(["run", name, "--gpus", "none", *arguments]) == 1
    environment.tasks_do = train
    return only_run()


def test_it_resumes_from_the_checkpoints_to_the_same_end(environment: FakeEnvironment) -> None:
    old = failed_run(environment, "--epochs", "4", "--batch_size", "50", "--seed", "7")
    assert main([*RUN, "--resume", "last"]) == 0
    request = asked(environment)
    arguments = ("--epochs=4", "--batch_size=50", "--seed=7")
    # Two workers, each 4 times 1,100 batches of 50.
    assert request.spec.args == (*arguments, "--global_steps=8800")
    there = environment.volume.run(request.run_id) / "checkpoints"
    assert sorted(path.name for path in there.iterdir()) == [
        "checkpoint",
        "model-200.data-00000-of-00001",
        "model-200.index",
    ]
    summary = json.loads(only_run().summary_path.read_text())
    assert summary["resumed_from"] == old.run_id


def test_a_global_end_stays_and_flags_win(environment: FakeEnvironment) -> None:
    failed_run(environment, "--global_steps", "900")
    assert main([*RUN, "--resume", "last", "--record_every", "5"]) == 0
    assert asked(environment).spec.args[-2:] == ("--global_steps=900", "--record_every=5")


def test_experiment_defaults_do_not_override_the_resumed_run(
    environment: FakeEnvironment,
) -> None:
    failed_run(environment, "--global_steps", "900", name="async-mlp")
    assert main(["run", "async-mlp", "--gpus", "none", "--resume", "last"]) == 0
    arguments = asked(environment).spec.args
    assert "--model=mlp" in arguments
    assert [word for word in arguments if "global_steps" in word][-1] == "--global_steps=900"


def test_later_epochs_count_for_the_first_runs_workers(
    environment: FakeEnvironment,
) -> None:
    failed_run(environment, "--epochs", "4")
    first = failed_run(environment, "--resume", "last")
    update(first, cluster={"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf2:2"]})
    assert main([*RUN, "--resume", first.run_id, "--epochs", "5"]) == 0
    # 5 epochs of 550 batches of two workers; the end of the first resumption no longer counts.
    ends = [word for word in asked(environment).spec.args if word.startswith("--global_steps")]
    assert ends == ["--global_steps=5500"]
    assert main([*RUN, "--resume", first.run_id]) == 0
    assert "--global_steps=4400" in asked(environment).spec.args


def test_it_uses_only_the_runs_checkpoints(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    failed_run(environment)
    assert main([*RUN, "--resume", "last", "--checkpoint_dir", "/x"]) == 2
    assert "--resume uses the checkpoints of run" in capfd.readouterr().err


def test_invalid_program_arguments_are_passed_on(environment: FakeEnvironment) -> None:
    failed_run(environment)
    assert main([*RUN, "--resume", "last", "--", "--batch_size", "abc"]) == 0
    assert asked(environment).spec.args[-2:] == ("--batch_size", "abc")


def test_sync_ends_at_its_planned_step(environment: FakeEnvironment) -> None:
    failed_run(environment, "--epochs", "4", name="sync")
    assert main(["run", "sync", "--gpus", "none", "--resume", "last"]) == 0
    assert "--epochs=4" in asked(environment).spec.args
    assert "global_steps" not in str(asked(environment).spec.args)


def test_resume_of_wrong_runs_is_refused(
    environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    run = failed_run(environment)
    for name, arguments, message in (
        ("sync", [], f"run {run.run_id} is a run of 'async', not of 'sync'"),
        ("async", ["data"], "was trained on your own data, /data; give the same data"),
        (
            "async",
            ["state"],
            f"is failed and not completely collected; not collected: `lab collect {run.run_id}",
        ),
        (
            "async",
            ["trains"],
            f"has not ended: it is training; no client follows it: `lab attach {run.run_id}",
        ),
        ("async", ["followed"], "has not ended: it is training; end it with `lab cancel"),
        ("async", ["none"], "left no checkpoint in"),
    ):
        if "data" in arguments:
            update(run, data_dir="/data")
        if "state" in arguments:
            update(run, data_dir="", state=State.TRAINING)
        if "state" in arguments:
            update(run, collected=False)
        if "trains" in arguments:
            status = TaskStatus("worker-0", State.TRAINING)
            write_atomically(environment.volume.status(run.run_id, "worker-0"), status.to_json())
        followed = run.locked() if "followed" in arguments else contextlib.nullcontext()
        if "none" in arguments:
            update(run, state=State.FAILED, collected=True)
            (run.checkpoints / "model-200.index").unlink()
        with followed:
            assert main(["run", name, "--gpus", "none", "--resume", run.run_id]) == 2
        assert message in capfd.readouterr().err


def test_resume_with_an_engine_that_does_not_answer(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = failed_run(environment)
    update(run, collected=False, project="gone")

    def deaf(*_: object) -> None:
        raise LabError("no engine answers")

    monkeypatch.setattr("lab.run.status._probe", deaf)
    assert main([*RUN, "--resume", run.run_id]) == 0


@pytest.mark.parametrize(
    ("spec", "step", "resumes"),
    [
        (RunSpec("async"), 40, True),
        (RunSpec("async"), None, False),
        (RunSpec("async", resumed_from="r0"), None, True),
        (RunSpec("async-fast"), 40, False),  # it saves no checkpoint
        (RunSpec("own.py", own=True), 40, False),
    ],
)
def test_a_resume_is_recommended_only_if_it_is_possible(
    spec: RunSpec, step: int | None, *, resumes: bool
) -> None:
    request = Request("r1", spec, {"worker": ["a:1"]})
    status = TaskStatus("worker-0", State.TRAINING, global_step=step)
    hint = "continue with --resume r1" if resumes else "start it again"
    assert next_step(request, {"worker-0": status}) == hint
