"""The backend, the environment and the run that a command line means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.backends.selection import choose, resolve
from lab.base.errors import InputError, LabError
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.states import State
from lab.runner.discovery import find
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment

GPUS = replace(PLAN, tasks=(replace(PLAN.tasks[0], gpus=("0",)), *PLAN.tasks[1:]))
HERE: dict[str, Any] = {}
BUILDS = {"builds": True}
NO_ENGINE = {"fault": "no engine answers; start one"}
NO_TENSORFLOW = {"fault": "no TensorFlow; install it"}
NO_IMAGE = {"no_image": "no image"}
PROCESSES = "local: TensorFlow is installed here, and no task has a GPU"


@pytest.mark.parametrize(
    ("name", "compose", "local", "plan", "line"),
    [
        # Containers if no image must be built, or if there is no TensorFlow here.
        ("auto", HERE, HERE, PLAN, "compose: its image is built"),
        ("auto", BUILDS, HERE, PLAN, PROCESSES),
        ("auto", BUILDS, NO_TENSORFLOW, PLAN, "compose: local: no TensorFlow"),
        ("auto", NO_ENGINE, HERE, PLAN, PROCESSES),
        ("auto", NO_IMAGE, HERE, PLAN, PROCESSES),
        # Containers for GPUs.
        ("auto", BUILDS, HERE, GPUS, "compose: its tasks have GPUs"),
        ("auto", NO_ENGINE, HERE, GPUS, "local: compose: no engine answers; start one"),
        # What the user names.
        ("compose", BUILDS, HERE, PLAN, "compose: as requested"),
        ("local", NO_ENGINE, HERE, PLAN, "local: as requested"),
        ("compose", NO_ENGINE, HERE, PLAN, "error: backend compose: no engine answers; start one"),
        ("compose", NO_IMAGE, HERE, PLAN, "error: backend compose: no image"),
        (
            "auto", NO_ENGINE, NO_TENSORFLOW, PLAN,
            "error: backend compose: no engine answers; start one, backend local: no TensorFlow;"
            " install it",
        ),
    ],
)  # fmt: skip
def test_the_chosen_backend_and_why(
    name: str,
    compose: dict[str, Any],
    local: dict[str, Any],
    plan: Any,
    line: str,
    notices: list[str],
) -> None:
    known = FakeBackend("compose", **compose), FakeBackend("local", **local)
    try:
        chosen, *_ = choose(name, plan, Path(), known)
    except LabError as error:
        assert f"error: {error}" == line
        return
    assert notices == [f"backend {line}"]
    assert line.startswith(f"{chosen.name}: ")


@pytest.fixture
def mnist(tmp_path: Path) -> FakeEnvironment:
    return an_environment(tmp_path, "mnist", old=1.0, one=1.5)


def test_auto_takes_the_running_environment(mnist: FakeEnvironment, notices: list[str]) -> None:
    known: list[Any] = [FakeBackend("compose"), FakeBackend("local", mnist)]
    assert choose("auto", PLAN, Path(), known)[1] is mnist
    assert notices == ["backend local: environment 'mnist' is up"]
    assert choose("compose", PLAN, Path(), known)[1] is None


def test_the_environment_of_a_name(tmp_path: Path, mnist: FakeEnvironment) -> None:
    book = FakeEnvironment(tmp_path, project="book", backend="compose")
    both: list[Any] = [FakeBackend("local", mnist), FakeBackend("compose", book)]
    assert resolve("book", None, both, tmp_path) is book
    assert resolve(None, "mnist", both, tmp_path) is mnist
    assert resolve(None, "elsewhere", both[:1], tmp_path) is mnist
    with pytest.raises(InputError, match=r"several environments are up \(book, mnist\)"):
        resolve(None, None, both, tmp_path)
    with pytest.raises(InputError, match="no environment 'x' is up; these are up: book, mnist"):
        resolve("x", "mnist", both, tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def an_environment(root: Path, project: str, **begun: float) -> FakeEnvironment:
    made = FakeEnvironment(root / project, project=project)
    for run_id, unix in begun.items():
        spec = RunSpec("async", "mnist_async.py")
        made.submit(Request(run_id, spec, PLAN.cluster_spec(), submitted_unix=unix))
        made.threads.pop().join()
    return made


class Refusing(FakeEnvironment):
    """Another user's environment, whose volume is not readable."""

    def runs(self) -> list[Request]:
        raise LabError("exec is refused")


def collected(store: Path, run_id: str, unix: float, project: str, **facts: Any) -> None:
    times = {"started_unix": unix, "submitted_unix": unix, **facts}
    info = RunInfo(run_id, RunSpec("async"), state=State.SUCCEEDED, project=project, **times)
    RunDir(store / run_id).create(info)


def test_last_is_of_this_directorys_project(
    tmp_path: Path, store: Path, mnist: FakeEnvironment
) -> None:
    book = an_environment(tmp_path, "book", two=2.0)
    found = find("last", store, [Refusing(tmp_path, project="other"), mnist], "mnist")
    assert (found.run.run_id, found.environment) == ("one", mnist)
    error = r"no run in .*/runs or an environment 'other' has started; start"
    with pytest.raises(InputError, match=error):
        find("last", store, [mnist], "other")
    # Without a config it must be unambiguous.
    assert find("last", store, [mnist], None).environment is mnist
    with pytest.raises(InputError, match=r"environments are up \(book, mnist\); name the run"):
        find("last", store, [mnist, book], None)
    mnist.folder = "/home/ada/mnist"  # booted in another directory with this name
    with pytest.raises(InputError, match="or an environment 'mnist' has started"):
        find("last", store, [mnist], "mnist")
    # A run that is named may be of any project.
    for word in ("two", "t"):
        found = find(word, store, [mnist, book], "mnist")
        assert (found.run.run_id, found.environment) == ("two", book)
        assert found.request is not None


def test_the_last_run_began_last_in_any_store(store: Path, mnist: FakeEnvironment) -> None:
    def last(word: str = "last") -> str:
        return find(word, store, [mnist], "mnist").run.run_id

    collected(store, "old", 1.0, "mnist")
    collected(store, "between", 1.2, "mnist")
    assert last() == "one"
    collected(store, "newest", 10.0, "mnist")
    assert find("last", store, [mnist], "mnist").environment is None
    collected(store, "refused", 11.0, "mnist", submitted_unix=None)
    collected(store, "foreign", 12.0, "mnist", imported=True)
    assert [last(), last("last~1"), last("refused")] == ["newest", "one", "refused"]


def test_a_run_of_this_directory_is_found_with_another_config(
    tmp_path: Path, store: Path, mnist: FakeEnvironment
) -> None:
    book = an_environment(tmp_path, "book", b=2.0, theirs=3.0)
    collected(store, "b", 2.0, "book", cluster_file="clusters/book.yaml")
    collected(store, "theirs", 3.0, "book")  # collected, and started by another user
    found = find("last", store, [mnist, book], "mnist")
    assert (found.run.run_id, found.environment) == ("b", book)
    refusing = Refusing(tmp_path, project="other")
    assert find("b", store, [refusing, mnist, book], "mnist").environment is book
