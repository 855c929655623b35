"""Packages that a run brings along for the user's own program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.programs.own import read_program
from lab.programs.packages import TaskPython, folder_of, has_module, install, lock_packages
from lab.protocol.volume import RunSpec
from lab.runner.own_experiment import check_place
from tests.support.cli import refusal
from tests.support.programs import prepared
from tests.support.wheels import wheel

VERSION = "3.11"
TASKS = TaskPython(VERSION, {"numpy": "2.4.6", "torch": "2.13.0+cpu"})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All packages that pip finds, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def names(lock: tuple[str, ...]) -> list[str]:
    return [line.partition(" ")[0] for line in lock]


def test_what_the_tasks_have_is_left_out_and_keeps_its_version(index: Path) -> None:
    wheel(index, "draws", "1.0", needs="numpy>=2")
    wheel(index, "trains", "1.0", needs="torch==2.13.0")
    wheel(index, "needs_old", "1.0", needs="numpy<2")
    wheel(index, "numpy", "1.26")
    wheel(index, "numpy", "2.5")
    assert names(lock_packages(["draws", "trains"], TASKS)) == ["draws==1.0", "trains==1.0"]
    with pytest.raises(InputError, match=r"Cannot install needs-old.*conflicting dependencies"):
        lock_packages(["needs_old"], TASKS)


def test_packages_are_resolved_once(index: Path) -> None:
    wheel(index, "above", "1.0", "import below\n", needs="below==2.*")
    wheel(index, "below", "2.1", "TEXT = 'below'\n")
    lock = lock_packages(["above"], TASKS)
    assert names(lock) == ["above==1.0", "below==2.1"]
    assert all(" --hash=sha256:" in line for line in lock)
    folder = install(lock, VERSION)
    assert folder == folder_of(lock)
    assert [has_module(folder, name) for name in ("above", "below", "other")] == [True, True, False]
    program = "import above; print(above.below.TEXT)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "below\n"
    for file in index.iterdir():
        file.unlink()
    assert lock_packages(["above"], TASKS) == lock
    assert install(lock, VERSION) == folder


def test_a_package_that_has_changed_is_refused(index: Path) -> None:
    wheel(index, "changes", "1.0", "VALUE = 1\n")
    lock = lock_packages(["changes"], TASKS)
    wheel(index, "changes", "1.0", "VALUE = 2\n")
    with pytest.raises(InputError, match=r"THESE PACKAGES DO NOT MATCH THE HASHES"):
        install(lock, VERSION)
    assert not folder_of(lock).exists()


def test_a_package_without_a_wheel_is_refused(index: Path) -> None:
    (index / "sources-1.0.tar.gz").write_bytes(b"")
    with pytest.raises(InputError) as refused:
        lock_packages(["sources"], TASKS)
    assert str(refused.value) == (
        "resolving sources: Could not find a version that satisfies the requirement sources (from"
        " versions: none); check the names; the first run with a package needs the package index"
    )


@pytest.mark.usefixtures("host")
def test_a_missing_module_comes_with_its_package(index: Path) -> None:
    wheel(index, "evening", "1.5")
    source = "import evening\n"
    with pytest.raises(
        InputError, match=r"own.py imports evening, which .* does not have; add --with"
    ):
        prepared(source)
    run, _ = prepared(source, spec=RunSpec("own.py", packages=("evening",)))
    assert names(run.spec.packages) == ["evening==1.5"]
    run, _ = prepared(source, jobs="worker: {on: [tf1]}}\npackages: [evening]\nlinks: {")
    assert names(run.spec.packages) == ["evening==1.5"]
    with pytest.raises(InputError, match="a seat has no package index, so it cannot add evening"):
        check_place(read_program("own.py"), run.plan, "class", Path.cwd(), ["evening"])


@pytest.mark.usefixtures("host")
def test_a_seat_of_a_class_needs_no_lock_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = prepared("import numpy\n")
    monkeypatch.setattr("lab.runner.own_experiment.SHIPPED", Path("missing"))
    assert check_place(read_program("own.py"), run.plan, "class", Path.cwd(), []) == ()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run own.py --with ./evening", "--with: './evening' is not a package, such as boto3"),
        ("run own.py --with 'a @ https://b'", "--with: 'a @ https://b' is not a package, such as"),
        ("run async --with evening", "--with: async is an experiment; leave out --with"),
    ],
)
def test_what_is_no_package_is_refused(project: Path, line: str, error: str) -> None:
    (project / "own.py").write_text("")
    assert error in refusal(project, line)
