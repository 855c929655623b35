"""The run that an argument names, where an engine and a run store have several projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError, LabError
from lab.run.discovery import find
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.states import State
from tests.support.fakes import PLAN, FakeEnvironment


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def an_environment(root: Path, project: str, **begun: float) -> FakeEnvironment:
    """One with ended runs: their ids, and when they were handed in."""
    made = FakeEnvironment(root / project, project=project)
    made.root.mkdir()
    for run_id, unix in begun.items():
        cluster = PLAN.cluster_spec()
        made.submit(
            Request(run_id, RunSpec("async", "mnist_async.py"), cluster, submitted_unix=unix)
        )
        made.threads.pop().join()
    return made


class Refusing(FakeEnvironment):
    """Another user's environment, whose volume is not readable."""

    def runs(self) -> list[Request]:
        raise LabError("exec is refused")


def at_home(
    store: Path,
    run_id: str,
    unix: float,
    project: str,
    cluster_file: str = "",
    *,
    started: bool = True,
) -> None:
    info = RunInfo(
        run_id,
        RunSpec("async"),
        state=State.SUCCEEDED,
        project=project,
        cluster_file=cluster_file,
        started_unix=unix,
        submitted_unix=unix if started else None,
    )
    RunDir(store / run_id).create(info)


def test_last_is_of_this_directorys_project(tmp_path: Path, store: Path) -> None:
    mine = an_environment(tmp_path, "mnist", a=1.0, b=2.0)
    among = [Refusing(tmp_path, project="book"), mine]
    found = find("last", store, among, "mnist")
    assert (found.run.run_id, found.environment) == ("b", mine)
    with pytest.raises(
        InputError, match=r"no run in .*/runs or an environment 'other' has started; start"
    ):
        find("last", store, among, "other")


def test_last_without_a_config_must_be_unambiguous(tmp_path: Path, store: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", a=1.0)
    book = an_environment(tmp_path, "book", b=2.0)
    assert find("last", store, [mnist], None).environment is mnist
    with pytest.raises(InputError, match=r"environments are up \(book, mnist\); name the run"):
        find("last", store, [mnist, book], None)


def test_a_named_run_may_be_of_any_project(tmp_path: Path, store: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", one=1.0)
    book = an_environment(tmp_path, "book", two=2.0)
    for word in ("two", "t"):
        found = find(word, store, [mnist, book], "mnist")
        assert (found.run.run_id, found.environment) == ("two", book)
        assert found.request is not None


def test_the_last_run_began_last_in_any_store(tmp_path: Path, store: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", old=1.0, new=9.0)
    at_home(store, "old", 1.0, "mnist")
    at_home(store, "between", 5.0, "mnist")
    assert find("last", store, [mnist], "mnist").run.run_id == "new"
    at_home(store, "newest", 10.0, "mnist")
    found = find("last", store, [mnist], "mnist")
    assert (found.run.run_id, found.environment) == ("newest", None)
    at_home(store, "refused", 11.0, "mnist", started=False)
    assert find("last", store, [mnist], "mnist").run.run_id == "newest"
    assert find("last~1", store, [mnist], "mnist").run.run_id == "new"
    assert find("refused", store, [mnist], "mnist").run.run_id == "refused"


def test_a_run_of_this_directory_is_found_with_another_config(tmp_path: Path, store: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", a=1.0)
    book = an_environment(tmp_path, "book", b=2.0, theirs=3.0)
    at_home(store, "b", 2.0, "book", "clusters/book.yaml")
    at_home(store, "theirs", 3.0, "book")  # collected, and started by another user
    found = find("last", store, [mnist, book], "mnist")
    assert (found.run.run_id, found.environment) == ("b", book)
    refusing = Refusing(tmp_path, project="other")
    assert find("b", store, [refusing, mnist, book], "mnist").environment is book
