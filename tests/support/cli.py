"""The command line, called as a user does, in this process and in its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from unittest import mock

import pytest
from _pytest.capture import CaptureResult

from lab.backends.names import known
from lab.cli import main
from lab.cluster.config import load_cluster
from lab.protocol.volume import Request, RunSpec, Volume
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from tests.support.agents import PATIENCE_S
from tests.support.commands import python
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, train
from tests.support.terminals import terminal

ROOT = Path(__file__).parents[2]

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""


def environ(project: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "LAB_STATE": str(project / "state"),
        "DOCKER_HOST": f"unix://{project}/no-engine.sock",
        "DOCKER_CONFIG": str(project / "docker"),
        "COLUMNS": "80",
        **more,
    }


def lab(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command, run in this process: to start a Python for each would take minutes in all."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        Path(os.devnull).open() as nothing,
        contextlib.chdir(project),
        mock.patch.dict(os.environ, environ(project, **more), clear=True),
        mock.patch("sys.stdin", nothing),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
        output = [file.seek(0) or file.read() for file in (out, err)]
    return subprocess.CompletedProcess(words, code, *output)


class Cli:
    """Runs `lab` in this directory, checks its exit code, and returns its output."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str, code: int = 0) -> CaptureResult[str]:
        self._capture.readouterr()
        found = main(arguments)
        output = self._capture.readouterr()
        assert found == code, output.err
        return output


def lab_process(project: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "lab", *words, cwd=project, env=environ(project, **more))


def refused(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The only line on stderr of a command that did nothing."""
    assert done.returncode == code, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def contents(project: Path) -> dict[str, str]:
    files = (path for path in project.rglob("*") if path.is_file())
    return {str(path.relative_to(project)): path.read_text("utf-8", "replace") for path in files}


def refusal(project: Path, line: str, code: int = 2) -> str:
    """The error of a command line that wrote nothing, booted nothing and printed no result."""
    before = contents(project)
    error = refused(lab(project, *shlex.split(line)), code)
    assert contents(project) == before
    return error.replace(str(project), "PROJECT")


def flags_in(shown: str) -> dict[str, bool]:
    """The flags that a help lists, and whether each has a value."""
    rows = re.findall(r"^  (?:-\w, )?(--[\w-]+)( \S+)?(?:  |$)", shown, re.MULTILINE)
    return {flag: bool(value) for flag, value in rows}


def on_a_terminal(
    project: Path, words: Sequence[str], timeout_s: float = 30, **more: str
) -> tuple[int | None, str]:
    """Run a command with a terminal for all streams, and without input."""
    command, env = [sys.executable, "-m", "lab", *words], environ(project, PAGER="less", **more)
    with terminal(command, cwd=project, env=env, term=more.get("TERM", "xterm")) as typed:
        return typed.end(timeout_s), typed.said


def make_run(project: Path, run_id: str, reason: str = "") -> None:
    info = RunInfo(
        run_id,
        RunSpec("async"),
        state=State.FAILED,
        reason=reason,
        cluster=PLAN.cluster_spec(),
        submitted_unix=1.0,
        collected=True,
    )
    RunDir(project / "runs" / run_id).create(info)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a config, and programs that report that they ran."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    for name in ("mnist_async.py", "mnist_sync.py"):
        (tmp_path / "scripts" / name).write_text("raise SystemExit('it ran')\n")
    return tmp_path


def replace_backends(monkeypatch: pytest.MonkeyPatch, *made: FakeBackend) -> None:
    """Let `lab` find these backends, and no others; they place and render as the real ones do."""
    present = {each.name: each for each in made}
    for name, each in known().items():
        found = present.get(name) or FakeBackend(name, fault="it is not installed")
        real = resolve_name(each.type)({})
        for does in ("plan", "render", "render_notices", "start_hint"):
            monkeypatch.setattr(found, does, getattr(real, does))
        monkeypatch.setattr(each.type.replace(":", "."), lambda own, found=found: found)


@dataclass
class Host:
    """A project's directory on a host with one backend, whose environment is up."""

    folder: Path
    backend: FakeBackend
    environment: FakeEnvironment
    capture: pytest.CaptureFixture[str]

    def lab(self, line: str, code: int = 0) -> tuple[str, str]:
        """The output and the error output of a command that ends with this code."""
        self.capture.readouterr()
        assert main(shlex.split(line)) == code
        return self.capture.readouterr()

    def error(self, line: str, code: int = 2) -> str:
        last = self.lab(line, code)[1].splitlines()[-1]
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    def submit(
        self, tasks_do: Callable[[Volume, Request], None] = train, run_id: str = "r1"
    ) -> Request:
        """Submit a run, which another client follows, and wait until its tasks did this."""
        cluster = PLAN.cluster_spec()
        request = Request(run_id, RunSpec("async", "mnist_async.py"), cluster, submitted_unix=1.0)
        self.environment.tasks_do = tasks_do
        self.environment.submit(request)
        self.environment.threads.pop().join()
        return request


@pytest.fixture
def host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Host]:
    """A host where the environment of this directory's config is up."""
    for name in ("volume", "scripts"):
        (tmp_path / name).mkdir()
    (tmp_path / "scripts/mnist_async.py").write_text("")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    environment = FakeEnvironment(tmp_path / "volume")
    environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256
    made = Host(tmp_path, FakeBackend("local", environment), environment, capfd)
    replace_backends(monkeypatch, made.backend)
    yield made
    for thread in environment.threads:
        thread.join(PATIENCE_S)
