"""Which run a word names, where an engine and a home hold runs of several projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError, LabError
from lab.run.discovery import find
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.states import State
from tests.unit.fakes import PLAN, FakeEnvironment


@pytest.fixture
def home(tmp_path: Path) -> Path:
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
    """Somebody else's, whose volume one may not read."""

    def runs(self) -> list[Request]:
        raise LabError("exec is refused")


def at_home(
    home: Path,
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
    RunDir(home / run_id).create(info)


def test_last_is_of_this_directorys_project(tmp_path: Path, home: Path) -> None:
    mine = an_environment(tmp_path, "mnist", a=1.0, b=2.0)
    among = [Refusing(tmp_path, project="book"), mine]
    found = find("last", home, among, "mnist")
    assert (found.run.run_id, found.environment) == ("b", mine)
    with pytest.raises(
        InputError, match=r"no run in .*/runs or an environment 'other' has started; start"
    ):
        find("last", home, among, "other")


def test_last_without_a_description_needs_to_be_clear(tmp_path: Path, home: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", a=1.0)
    book = an_environment(tmp_path, "book", b=2.0)
    assert find("last", home, [mnist], None).environment is mnist
    with pytest.raises(InputError, match=r"environments are up \(book, mnist\); name the run"):
        find("last", home, [mnist, book], None)


def test_a_run_that_is_named_may_be_anyones(tmp_path: Path, home: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", one=1.0)
    book = an_environment(tmp_path, "book", two=2.0)
    for word in ("two", "t"):
        found = find(word, home, [mnist, book], "mnist")
        assert (found.run.run_id, found.environment) == ("two", book)
        assert found.request is not None


def test_the_last_one_began_last_wherever_it_lies(tmp_path: Path, home: Path) -> None:
    mnist = an_environment(tmp_path, "mnist", old=1.0, new=9.0)
    at_home(home, "old", 1.0, "mnist")
    at_home(home, "between", 5.0, "mnist")
    assert find("last", home, [mnist], "mnist").run.run_id == "new"
    at_home(home, "newest", 10.0, "mnist")
    found = find("last", home, [mnist], "mnist")
    assert (found.run.run_id, found.environment) == ("newest", None)
    at_home(home, "refused", 11.0, "mnist", started=False)
    assert find("last", home, [mnist], "mnist").run.run_id == "newest"
    assert find("last~1", home, [mnist], "mnist").run.run_id == "new"
    assert find("refused", home, [mnist], "mnist").run.run_id == "refused"


def test_a_run_begun_from_here_is_found_under_another_description(
    tmp_path: Path, home: Path
) -> None:
    mnist = an_environment(tmp_path, "mnist", a=1.0)
    book = an_environment(tmp_path, "book", b=2.0, theirs=3.0)
    at_home(home, "b", 2.0, "book", "clusters/book.yaml")
    at_home(home, "theirs", 3.0, "book")  # brought home, and begun by somebody else
    found = find("last", home, [mnist, book], "mnist")
    assert (found.run.run_id, found.environment) == ("b", book)
    refusing = Refusing(tmp_path, project="other")
    assert find("b", home, [refusing, mnist, book], "mnist").environment is book
