"""Options of `lab run` for start, resume and end; runs that resume from checkpoints."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path

import pytest

from lab.base.errors import ConfigError
from lab.cli import main
from lab.cluster.config import load_cluster
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.continuation import next_step
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command
from tests.support.cli import Cli, Host
from tests.support.fakes import CLUSTER, FakeEnvironment, end, train
from tests.support.specs import update

RUN = ["run", "async", "--gpus", "none"]


@pytest.fixture(autouse=True)
def environment(host: Host) -> FakeEnvironment:
    (host.folder / "scripts/mnist_sync.py").write_text("")
    Path("cluster.yaml").write_text(CLUSTER)
    host.environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    return host.environment


def asked(environment: FakeEnvironment) -> Request:
    return environment.runs()[-1]


def only_run() -> RunDir:
    return RunDir(max(Path("runs").iterdir(), key=lambda path: path.stat().st_mtime_ns))


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (["--epochs", "2", "--start", "worker-1: after 1,101 steps"], "1,100"),
        (["--global_steps", "500", "--start", "worker-1: after 501 steps"], "500"),
        (["--epochs", "2", "--start", "worker-1: after 1,100 steps"], ""),
    ],
)
def test_an_unreachable_step_is_refused_and_the_last_one_accepted(
    environment: FakeEnvironment,
    cli: Cli,
    arguments: list[str],
    made: str,
) -> None:
    output = cli(*RUN, *arguments, code=2 if made else 0).err
    if made:
        assert f"the others make only {made} steps, not " in output
        assert "; use a smaller step, or train longer" in output
        assert not environment.runs()
        assert not Path("runs").exists()
    else:
        assert asked(environment).spec.start


def test_the_request_has_the_flags(environment: FakeEnvironment, cli: Cli) -> None:
    arguments = ["--on-failure", "restart:2", "--start", "worker-1: after 500 steps"]
    times = ["--stall", "1m", "--max-time", "10m"]
    cli(*RUN, *arguments, *times)
    expected = {
        "on_failure": OnFailure.RESTART,
        "restarts": 2,
        "start": {"worker-1": "after 500 steps"},
        "ready_s": 120.0,
        "stall_s": 60.0,
        "gang": False,
        "max_time_s": 600,
    }
    for spec in (asked(environment).spec, only_run().read().spec):
        assert {name: getattr(spec, name) for name in expected} == expected


def test_a_python_2_listing_is_converted_and_sent_with_its_data(
    environment: FakeEnvironment, cli: Cli
) -> None:
    Path("old").mkdir()
    Path("old/a.py").write_text("print open('in.csv').read()\n")
    Path("old/in.csv").write_text("1,2")
    Path("old/given.csv").write_text("3")
    assert (
        "a.py: converted from Python 2\n"
        in cli("run", "--listing", "old/a.py", "--gpus", "none", "--", "--f=given.csv").err
    )
    run, volume = only_run(), environment.volume
    there = volume.run(run.run_id)
    assert (there / "program/a.py").read_text() == "print(open('in.csv').read())\n"
    assert (there / "files/in.csv").read_text() == "1,2"
    assert (run.files / "given.csv").read_text() == "3"
    # Its old summary stays in the run store; a task does not need it.
    assert (run.original / "a.py").read_text() == "print open('in.csv').read()\n"
    assert not (there / "original").exists()


def test_only_a_service_may_have_no_program(environment: FakeEnvironment, cli: Cli) -> None:
    Path("a.py").write_text("p.add_argument('--task_index')")
    cli("run", "worker-0=a.py,worker-1=a.py", "--gpus", "none")
    request = asked(environment)
    assert request.spec.program_of("ps-0") is None
    assert request.spec.program_of("worker-1") == "a.py"
    again = RunInfo.of_request(request, backend="local", project="two")
    assert only_run().read().spec.programs == again.spec.programs == request.spec.programs
    assert "run worker-0=a.py,worker-1=a.py " in command(again)
    assert (
        "error: worker-1 has no program; add worker-1=FILE.py\n"
        in cli("run", "worker-0=a.py", "--gpus", "none", code=2).err
    )


def policy(environment: FakeEnvironment) -> tuple[OnFailure, int]:
    return asked(environment).spec.on_failure, asked(environment).spec.restarts


def test_an_experiment_may_set_the_failure_policy(environment: FakeEnvironment, cli: Cli) -> None:
    cli("run", "sync", "--gpus", "none")
    assert policy(environment) == (OnFailure.FAIL, 0)
    assert (asked(environment).spec.gang, asked(environment).spec.ready_s) == (True, 300.0)
    Path("cluster.yaml").write_text(CLUSTER.replace("jobs: {", "jobs: {chief: {on: [tf1]}, "))
    Path("scripts/coordinator.py").write_text("")
    environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    arguments = ["run", "coordinator", "--gpus", "none"]
    assert main(arguments) == 1  # no step is counted here
    assert policy(environment) == (OnFailure.RESTART, 3)
    cli(*arguments, "--on-failure", "fail", code=1)
    assert policy(environment)[0] is OnFailure.FAIL


def test_the_flag_overrides_the_config(environment: FakeEnvironment, cli: Cli) -> None:
    start = "start: {worker-1: 10s, worker-0: 3s}\n"
    Path("cluster.yaml").write_text(CLUSTER + start)
    # A schedule is a run's: the environment stays the same one.
    cli(*RUN, "--start", "worker-1: 20s")
    assert asked(environment).spec.start == {"worker-1": "20s", "worker-0": "3s"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("async --on-failure never", "fail, restart, restart:N (N from 1 to 999), or continue"),
        ("async --start worker-1", "TASK: MOMENT; …, such as worker-1: 10s"),
        ("async --resume last", "no run in runs"),
        ("sync --start 'worker-1: after 9 steps'", "cannot make a step without worker-1"),
        ("sync --on-failure continue", "experiment 'sync' needs all of its workers; use --on-fail"),
    ],
)
def test_invalid_options_are_refused_before_start(arguments: str, message: str, cli: Cli) -> None:
    assert message in cli("run", "--gpus", "none", *shlex.split(arguments), code=2).err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("start: {worker-9: 3s}", "start.worker-9: there is no task worker-9; did you mean"),
        ("start: {worker-1: 10}", "start.worker-1: must be a moment such as 10s, or: after 500 s"),
        ("start: {Worker: 3s}", "start.Worker: must be a task's name, such as worker-1"),
        ("start: [worker-1]", "start: must be a mapping"),
        ("faults: [boom worker-1]", "faults[0]: must be a fault such as kill worker-1 after 500 "),
        ("faults: [kill ps-0, kill worker-9]", "faults[1]: no task or node 'worker-9'; did you"),
        ("faults: kill worker-1", "faults: must be a list"),
    ],
)
def test_a_configs_schedule_and_faults_are_checked(line: str, message: str) -> None:
    Path("cluster.yaml").write_text(f"{CLUSTER}{line}\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_cluster(Path("cluster.yaml"))


def test_faults_of_config_and_flag_are_requested(environment: FakeEnvironment, cli: Cli) -> None:
    Path("cluster.yaml").write_text(CLUSTER + "faults: [cut:2s worker-1 after 5s]\n")
    cli(*RUN, "--fault", "kill worker-1 after 9 steps")
    assert asked(environment).spec.faults == ("cut:2s tf3 after 5s", "kill worker-1 after 9 steps")
    assert (
        "fault 'cut:2s tf3 after 5s' needs an attached client" in cli(*RUN, "--detach", code=2).err
    )


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


def test_it_resumes_from_the_checkpoints_to_the_same_end(
    environment: FakeEnvironment, cli: Cli
) -> None:
    old = failed_run(environment, "--epochs", "4", "--batch_size", "50", "--seed", "7")
    cli(*RUN, "--resume", "last")
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


@pytest.mark.parametrize(
    ("experiment", "first", "more", "last"),
    [
        ("async", ["--global_steps", "900"], ["--record_every=5"], ["--record_every=5"]),
        ("async-mlp", ["--global_steps", "900"], [], []),  # its defaults do not override
        ("async", [], ["--", "--batch_size", "abc"], ["--batch_size", "abc"]),  # passed on
    ],
)
def test_a_global_end_stays_and_flags_win(
    environment: FakeEnvironment,
    experiment: str,
    first: list[str],
    more: list[str],
    last: list[str],
    cli: Cli,
) -> None:
    failed_run(environment, *first, name=experiment)
    cli("run", experiment, "--gpus", "none", "--resume", "last", *more)
    arguments = list(asked(environment).spec.args)
    ends = [each for each in arguments if "global_steps" in each]
    assert ends[-1:] == ["--global_steps=900"] * bool(first)
    assert arguments[len(arguments) - len(last) :] == last


def test_later_epochs_count_for_the_first_runs_workers(
    environment: FakeEnvironment, cli: Cli
) -> None:
    failed_run(environment, "--epochs", "4")
    first = failed_run(environment, "--resume", "last")
    update(first, cluster={"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1", "tf2:2"]})
    cli(*RUN, "--resume", first.run_id, "--epochs", "5")
    # 5 epochs of 550 batches of two workers; the end of the first resumption no longer counts.
    ends = [word for word in asked(environment).spec.args if word.startswith("--global_steps")]
    assert ends == ["--global_steps=5500"]
    cli(*RUN, "--resume", first.run_id)
    assert "--global_steps=4400" in asked(environment).spec.args


def test_it_uses_only_the_runs_checkpoints(environment: FakeEnvironment, cli: Cli) -> None:
    failed_run(environment)
    assert (
        "--resume uses the checkpoints of run"
        in cli(*RUN, "--resume", "last", "--checkpoint_dir", "/x", code=2).err
    )


def test_sync_ends_at_its_planned_step(environment: FakeEnvironment, cli: Cli) -> None:
    failed_run(environment, "--epochs", "4", name="sync")
    cli("run", "sync", "--gpus", "none", "--resume", "last")
    assert "--epochs=4" in asked(environment).spec.args
    assert "global_steps" not in str(asked(environment).spec.args)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("another experiment", "run {} is a run of 'async', not of 'sync'"),
        ("own program", "run {} trained your own program: it cannot be resumed"),
        ("own data", "was trained on your own data, /data; pass the same data"),
        ("partial", "is failed and not fully collected; not collected: `lab attach {}"),
        (
            "training",
            "is training and not fully collected; no client follows it: `lab attach {}",
        ),
        ("followed", "is training and not fully collected; end it with `lab cancel"),
        ("no checkpoint", "left no checkpoint in"),
    ],
)
def test_resume_of_wrong_runs_is_refused(
    environment: FakeEnvironment, cli: Cli, case: str, message: str
) -> None:
    run = failed_run(environment)
    if case == "own program":
        update(run, own=True)
    if case == "own data":
        update(run, data_dir="/data")
    if case in {"partial", "training", "followed"}:
        update(run, state=State.TRAINING, collected=False)
    if case in {"training", "followed"}:
        status = TaskStatus("worker-0", State.TRAINING)
        write_atomically(environment.volume.status(run.run_id, "worker-0"), status.to_json())
    if case == "no checkpoint":
        (run.checkpoints / "model-200.index").unlink()
    name = "sync" if case == "another experiment" else "async"
    with run.locked() if case == "followed" else contextlib.nullcontext():
        assert (
            message.format(run.run_id)
            in cli("run", name, "--gpus", "none", "--resume", run.run_id, code=2).err
        )


@pytest.mark.parametrize(
    ("spec", "step", "resumes"),
    [
        (RunSpec("async"), 40, True),
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
