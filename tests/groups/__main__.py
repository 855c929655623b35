"""Run groups of long tests, and record the inputs with which they passed.

    python -m tests.groups [GROUP ...] [-- ARGUMENTS OF PYTEST]

Without a group it runs those whose inputs have not passed yet; `all` runs every group, and `list`
only names those to run. `table` writes the table in CONTRIBUTING.md. A group is recorded in
`tests/passed.json` when all its tests ran and passed, on a tree without uncommitted changes,
without arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from tests.groups import table
from tests.groups.group import GROUPS, Group
from tests.groups.imports import ROOT
from tests.groups.inputs import Project
from tests.groups.records import FILE, Outcome, Record, read_outcomes, read_records, write_records

JUNIT: Final = ROOT / "build/junit"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 if all groups passed, 2 for a wrong call, else 1."""
    names = list(arguments)
    pytest: list[str] = []
    if "--" in names:
        split = names.index("--")
        names, pytest = names[:split], names[split + 1 :]
    if names == ["table"]:
        return _write_table()
    if names == ["all"]:
        names = list(GROUPS)
    unknown = [name for name in names if name not in GROUPS and names != ["list"]]
    if unknown:
        print(f"error: no group {unknown[0]!r}; groups: {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    digests = current_digests()
    if names == ["list"]:
        list(to_run(digests))
        return 0
    groups = [GROUPS[name] for name in names] or list(to_run(digests))
    return _run(groups, digests, pytest)


def _write_table() -> int:
    try:
        table.write(ROOT)
    except FileNotFoundError as error:
        print(f"error: no {error.filename}; run .ci/run, which writes it", file=sys.stderr)
        return 1
    return 0


def current_digests() -> dict[str, str]:
    project = Project.read(ROOT)
    return {name: project.digest(group, project.contents) for name, group in GROUPS.items()}


def to_run(digests: Mapping[str, str]) -> Iterator[Group]:
    """The groups whose inputs have not passed; prints a line for every group."""
    records = read_records(ROOT)
    for name, group in GROUPS.items():
        record = records.get(name)
        if record is not None and record.inputs == digests[name]:
            print(f"{name}: passed with these inputs on {record.date}, {record.minutes:.0f} min")
        elif group.nightly:
            print(f"{name}: left to the nightly workflow; `make test-{name}` runs it")
        else:
            print(f"{name}: to run: {'its inputs changed' if record else 'not recorded'}")
            yield group


def _run(groups: Sequence[Group], digests: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run groups, those that can share an engine in one process; return 0 if all passed."""
    _prepare(groups)
    together = [group for group in groups if not group.alone]
    batches = [together] if together else []
    batches += [[group] for group in groups if group.alone]
    codes = []
    for batch in batches:
        before = _uncommitted()
        code, outcomes = _pytest(batch, arguments)
        codes.append(code)
        reason = ""
        if arguments or os.environ.get("PYTEST_ADDOPTS"):
            reason = "pytest had further arguments"
        elif code > 1 or (code and len(batch) == 1):  # 1: a test failed, maybe of another group
            reason = f"the tests ended with exit code {code}"
        elif before or _uncommitted():
            reason = "there are uncommitted changes"
        elif current_digests() != digests:
            reason = "inputs changed meanwhile"
        for group in batch:
            outcome = outcomes.get(group.name, Outcome())
            _conclude(group, outcome, digests[group.name], reason)
    return int(any(codes))


def _prepare(groups: Sequence[Group]) -> None:
    """Make the environments that the tests need.

    Raises:
        subprocess.CalledProcessError: `make` failed; it has said why.
    """
    if targets := sorted({target for group in groups for target in group.targets}):
        subprocess.run(["make", "--jobs=2", "--output-sync", *targets], cwd=ROOT, check=True)


def _conclude(group: Group, outcome: Outcome, digest: str, reason: str) -> None:
    """Record a group if it has passed and no reason is against it, and print a line."""
    if not reason and not outcome.complete:
        reason = "not all of its tests passed"
    if not reason:
        today = datetime.now(UTC).date().isoformat()
        minutes = round(outcome.seconds / 60, 1)
        record = Record(digest, today, minutes, outcome.tests, outcome.trainings)
        write_records(ROOT, {**read_records(ROOT), group.name: record})
    told = f"not recorded: {reason}" if reason else f"recorded in {FILE}"
    print(f"{group.name}: {outcome.passed} of {outcome.tests} tests passed; {told}")


def _uncommitted() -> str:
    status = ["git", "status", "--porcelain", "--", ".", f":!{FILE}"]
    return subprocess.run(status, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _pytest(batch: Sequence[Group], arguments: Sequence[str]) -> tuple[int, Mapping[str, Outcome]]:
    names = [group.name for group in batch]
    junit = JUNIT / f"{'-'.join(names)}.xml"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", *batch[0].command, "-m", " or ".join(names)]
    command += ["--durations=50", f"--junitxml={junit}", *arguments]
    variables = {"LAB_TEST_ENGINE": "1"} if any(group.engine for group in batch) else {}
    for group in batch:
        variables |= group.variables
    code = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode
    return code, read_outcomes(junit) if junit.exists() else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
