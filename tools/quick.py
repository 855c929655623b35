"""Check a branch in at most a minute: `make quick`.

Ruff comes first. Then mypy and the unit tests nearest to the change run side by side until the time
is up. A test is near if it has a changed file's name, imports the file, or imports what imports it.
At the end, `make quick` says what it left out, and which groups of long tests the change concerns.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final
from xml.etree import ElementTree

from tests.groups.inputs import Project

ROOT: Final = Path(__file__).resolve().parents[1]
UNIT: Final = "tests/unit/"
PAGES: Final = "tests/unit/docs/test_documents.py"
JUNIT: Final = ROOT / "build/junit/quick.xml"
FILES: Final = 8
LIMIT_S: Final = 50.0
"""The time for all of it; what still runs then is stopped, which takes seconds."""


def main() -> int:
    """Run the checks; return 1 if one failed."""
    until = time.monotonic() + LIMIT_S
    project = Project.read(ROOT)
    changed = changes()
    tests = nearest(changed, project)
    print(f"quick: {len(changed)} changed files, reached by {len(tests)} files of unit tests")
    tool = Path(sys.executable).parent
    failed = [
        subprocess.run([tool / "ruff", *arguments], cwd=ROOT, check=False).returncode != 0
        for arguments in (["format", "--check", "--quiet"], ["check", "--quiet"])
    ]
    mypy = subprocess.Popen([tool / "mypy"], cwd=ROOT)
    if tests:
        failed.append(_pytest(tests, until))
    try:
        failed.append(mypy.wait(max(1.0, until - time.monotonic())) != 0)
    except subprocess.TimeoutExpired:
        mypy.kill()
        mypy.wait()
        print("quick: skipped mypy, which did not finish; `make lint` runs it")
    print("quick: skipped layers, dependencies and the documents' site; `make check` runs them")
    for name in concerned(changed, project):
        print(f"quick: inputs of a group changed; run `make test-{name}`")
    return int(any(failed))


def changes() -> set[str]:
    """Return the paths that differ from the main branch, with those that are not committed."""
    names = _git("branch", "--all", "--format=%(refname:short)").split()
    main_branch = next((name for name in ("origin/main", "main") if name in names), "HEAD")
    base = _git("merge-base", "HEAD", main_branch).strip()
    known = _git("diff", "--name-only", "-z", base)
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return {name for name in (known + new).split("\0") if name}


def nearest(changed: Iterable[str], project: Project) -> list[str]:
    """Return the files of unit tests that reach changed files, the nearest ones first."""
    graph = project.graph
    importers: dict[str, set[str]] = {}
    for path, edges in graph.items():
        for edge in edges:
            importers.setdefault(edge, set()).add(path)
    near = set().union(*(_names(path, project) for path in changed))
    stems = {PurePosixPath(path).stem for path in near}
    steps: dict[str, int] = {}
    distance = 0
    while near:
        steps |= dict.fromkeys(near, distance)
        near = set().union(*(importers.get(path, ()) for path in near)) - steps.keys()
        distance += 1

    def order(test: str) -> tuple[int, bool, int, str]:
        named = any(stem in test for stem in stems)
        return steps[test], not named, len(graph[test]), test

    return sorted((path for path in steps if _is_unit_test(path)), key=order)


def _is_unit_test(path: str) -> bool:
    return path.startswith(UNIT) and PurePosixPath(path).name.startswith("test_")


def concerned(changed: Iterable[str], project: Project) -> list[str]:
    """Return the groups of which a changed file is an input."""
    paths = set(changed)
    return [name for name, inputs in project.inputs.items() if inputs & paths]


def _names(changed: str, project: Project) -> set[str]:
    """The Python files that a changed file is, or that name it."""
    if changed in project.graph:
        return {changed}
    if changed.endswith(".md"):
        return {PAGES}
    name = PurePosixPath(changed).name
    return {
        path
        for path, source in project.sources.items()
        if any(changed in text or text == name for text in source.texts)
    }


def _pytest(tests: list[str], until: float) -> bool:
    """Run tests until a time; return whether one failed, and say how many did not run."""
    failed = False
    left = list(tests)
    while left and time.monotonic() < until:
        # A few files at a time: pytest imports all of them before it runs the first test.
        ran, fault = _some(left[:FILES], until)
        failed |= fault
        left = [test for test in left if test not in ran]
        if not ran:
            break
    if left:
        print(f"quick: skipped the {len(left)} farthest of {len(tests)} files of unit tests")
    return failed


def _some(tests: list[str], until: float) -> tuple[set[str], bool]:
    """Run a few files until a time: those of which tests ran, and whether one failed."""
    JUNIT.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--quiet", f"--junitxml={JUNIT}"]
    command += ["--numprocesses=2", "--dist=load", "--maxschedchunk=1"]
    process = subprocess.Popen([*command, *tests], cwd=ROOT)
    try:
        code = process.wait(max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return _ran()
    return set(tests), code != 0


def _ran() -> tuple[set[str], bool]:
    """The files of which tests ran, and whether one failed."""
    ran: set[str] = set()
    failed = False
    for case in ElementTree.parse(JUNIT).iter("testcase"):  # noqa: S314  (pytest wrote it)
        parts = str(case.get("classname")).split(".")  # the last one may be a class of tests
        ran.add("/".join(parts[:4]) + ".py")
        failed |= case.find("failure") is not None or case.find("error") is not None
    return ran, failed


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
