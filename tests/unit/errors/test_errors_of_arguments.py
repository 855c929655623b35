"""Error messages of commands for invalid arguments, called in this process."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from lab.cli import errors, main
from lab.errors import LabError
from lab.run.store import RunDir, safe_run_id
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.states import State
from tests.support.cli import CLUSTER
from tests.support.fakes import FakeBackend, FakeEnvironment, train


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    (tmp_path / "volume").mkdir()
    return FakeEnvironment(tmp_path / "volume")


@pytest.fixture(autouse=True)
def backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: FakeEnvironment
) -> FakeBackend:
    """A project's directory without an environment."""
    made = FakeBackend("local")
    for name in ("environments", "run"):
        monkeypatch.setattr(f"lab.service.{name}.backends", lambda: [made])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "own.py").write_text("")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/mnist_async.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return made


def output(capsys: pytest.CaptureFixture[str], line: str, code: int = 2) -> str:
    """The last line on stderr of a command that was refused."""
    capsys.readouterr()
    assert main(line.split()) == code
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rum", "no command 'rum'; did you mean "),
        ("--wrong", "no option '--wrong'"),
        ("run", "`lab run` needs EXPERIMENT"),
        ("run async sync", "unexpected argument 'sync' for `lab run`"),
        ("runs --json true", "give the value of a switch after an equals sign"),
        ("run async --epochs", "--epochs needs a value; write --epochs=VALUE"),
        ("run async --epochs 0", "--epochs: '0' is not a whole number from 1"),
        ("run async --json=perhaps", "--json: 'perhaps' is not true or false"),
        ("run async --epochs 1 --epochs 2", "--epochs is given twice; give it once"),
        ("run async --json --json", "--json is given twice; give it once"),
        ("run async --no-keep=1", "--no-keep takes no value"),
        ("run async --epoch 2", "no option '--epoch' for `lab run`; did you mean"),
        ("run nothing --epochs 1", "no experiment 'nothing'"),
        ("run async --listing", "--listing: async is an experiment, not a printed program; give"),
        ("run async --faithful", "--faithful is only for printed programs; add --listing, or"),
        ("run own.py --mend", "--mend is only for printed programs; add --listing, or leave out"),
        (
            "run async --tensorflow 2.15",
            "experiment 'async' needs TensorFlow 2.21; leave out --tensorflow",
        ),
        ("run own.py --tensorflow 1.4", "--tensorflow: '1.4' is not 2.21 or 2.15"),
        (
            "run mine.py --epochs 1",
            "--epochs is no option of `lab run`; put the flags of mine.py after `--`",
        ),
        ("run async --replicas_to_aggregate 1", "'async' has no flag --replicas_to_aggregate"),
        ("ls -- --epochs 1", "`lab ls` starts no program"),
        ("down mnist --all", "both --all and 'mnist' are given; give one of them"),
        ("experiments asink", "no experiment 'asink'; did you mean 'async'? "),
        ("render --check --output -", "--check needs a file"),
        (
            "validate a.yaml --cluster b.yaml",
            "two configs are given: a.yaml and --cluster b.yaml; leave out one of them",
        ),
        ("init --output scripts", "--output: scripts is a directory"),
        ("init --output nowhere/c.yaml", "--output: there is no directory nowhere"),
        ("init", "cluster.yaml already exists; replace it with --force"),
        ("init --force --name A", "'A' is not a name"),
        ("init --force --gpus none --nodes 9 --workers 2", "9 nodes are more than the tasks"),
        ("init --force --gpus 1 --workers 3 --nodes 3", "3 workers share 1 GPU, but 3 nodes"),
        ("init --force --gpus 1 --workers 200 --nodes 1", "200 workers are too many to share"),
        ("predict last own.png --count 3", "select images of the test set; leave them out with a"),
        ("up --cluster none.yaml", "there is no file none.yaml"),
        ("run async --data-dir nowhere", "--data_dir: nowhere is not a directory"),
        ("shell worker-0", "no environment is up; boot one with `lab up`"),
    ],
)
def test_invalid_arguments(capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    assert message in output(capsys, line)


def test_stale_and_missing_files(capsys: pytest.CaptureFixture[str]) -> None:
    render = "render --gpus none --output there.yml"
    assert output(capsys, f"{render} --check", 1).startswith(
        "error: there.yml is missing; write it"
    )
    assert main(render.split()) == 0
    Path("there.yml").write_text("# gone\n")
    assert output(capsys, f"{render} --check", 1).startswith(
        "error: there.yml is out of date; write it"
    )


def test_no_config_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "no cluster.yaml in " in output(capsys, "run async")


def test_missing_tasks(
    capsys: pytest.CaptureFixture[str], backend: FakeBackend, environment: FakeEnvironment
) -> None:
    backend.environment = environment
    for line in ("shell worker-7", "logs --task worker-7"):
        assert output(capsys, line).startswith(
            "error: environment 'mnist' has no task 'worker-7'; use one of ps-0, worker-0"
        )


def test_no_terminal_to_ask(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeBackend,
    environment: FakeEnvironment,
) -> None:
    backend.environment = environment
    monkeypatch.setattr("sys.stdin", Path(os.devnull).open())  # noqa: SIM115
    assert "cannot ask: remove mnist (local)?" in output(capsys, "down --all")
    master, terminal = os.openpty()
    os.write(master, b"n\n")
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert (
            output(capsys, "down --all")
            == "error: no environment was removed; answer y, or add --yes"
        )
    os.close(master)
    assert not environment.is_down


# ---- Runs


@pytest.fixture
def submitted(environment: FakeEnvironment, backend: FakeBackend) -> Request:
    """An uncollected run on the volume, which does nothing."""
    backend.environment = environment
    cluster = {"ps": ["tf1:2222"], "worker": ["tf2:2222"]}
    request = Request("20260101-0000-async-aaaa", RunSpec("async", "mnist_async.py"), cluster)
    environment.tasks_do = lambda volume, request: None
    environment.submit(request)
    for thread in environment.threads:
        thread.join()
    return request


def test_a_run_that_has_ended(
    capsys: pytest.CaptureFixture[str], environment: FakeEnvironment, submitted: Request
) -> None:
    train(environment.volume, submitted)
    assert "has already ended; see its result with `lab show" in output(capsys, "cancel")


def test_a_collected_run(
    capsys: pytest.CaptureFixture[str],
    backend: FakeBackend,
    environment: FakeEnvironment,
    submitted: Request,
) -> None:
    train(environment.volume, submitted)
    assert main(["collect"]) == 0
    backend.environment = None
    assert "is on no run volume: nothing can be collected" in output(capsys, "collect last")


def test_a_run_without_its_environment(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: FakeEnvironment,
    submitted: Request,
) -> None:
    monkeypatch.setattr(FakeEnvironment, "tasks", lambda self: [])
    assert main(["collect"]) == 0
    info = RunDir(Path("runs") / submitted.run_id).read()
    assert (info.state, info.reason) == (State.LOST, "its environment no longer runs")


def test_a_detached_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    environment: FakeEnvironment,
    submitted: Request,
) -> None:
    def ship(self: FakeEnvironment, *args: object, **kwargs: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)  # as after Ctrl-C
        yield None

    monkeypatch.setattr(FakeEnvironment, "stream", ship)
    text = output(capsys, "attach", 130)
    assert text.startswith(
        f"error: detached from run {submitted.run_id}, which continues; `lab attach"
    )


def test_a_run_that_is_interrupted_while_it_boots(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(self: FakeBackend, *args: object, **kwargs: object) -> None:
        signal.raise_signal(signal.SIGINT)  # as after Ctrl-C

    monkeypatch.setattr(FakeBackend, "up", up)
    assert output(capsys, "run async --gpus none", 130) == "error: interrupted"
    assert list(Path("runs").iterdir()) == []
    assert "no run in runs has started" in output(capsys, "show last")


def test_a_run_that_is_interrupted_while_it_trains(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeBackend,
    environment: FakeEnvironment,
) -> None:
    interrupts = iter([KeyboardInterrupt])

    def ship(self: FakeEnvironment, *args: object, **kwargs: object) -> object:
        for interrupt in interrupts:
            raise interrupt
        yield None

    monkeypatch.setattr(FakeEnvironment, "stream", ship)
    monkeypatch.setattr(FakeBackend, "up", lambda *_args, **_kwargs: environment)
    text = output(capsys, "run async --gpus none", 130)
    (run,) = Path("runs").iterdir()
    assert (
        text
        == f"error: run {run.name} was interrupted; show its results with `lab show {run.name}`"
    )
    assert RunDir(run).read().state is State.CANCELLED


def test_unexpected_error(capsys: pytest.CaptureFixture[str]) -> None:
    def raises(error: BaseException) -> str:
        def action() -> None:
            raise error

        code = errors.exit_code_of(action, debug=False)
        assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
        return capsys.readouterr().err

    assert raises(KeyboardInterrupt()) == "error: interrupted\n"
    assert "the disk is full; free some space" in raises(OSError(errno.ENOSPC, "full"))
    missing = OSError(errno.EACCES, "Permission denied", "runs/x")
    assert raises(missing).startswith("error: runs/x: permission denied; check the path")
    assert "internal: ZeroDivisionError: by 0; run it again" in raises(ZeroDivisionError("by 0"))


def test_a_run_without_run_json(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"run.json is missing; collect the run"):
        RunDir(tmp_path).read()
    with pytest.raises(LabError, match=r"not a run id: '../up'; remove that request"):
        safe_run_id("../up")
