"""Groups of long tests: what each depends on, and when a landing leaves one out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.groups import __main__ as command
from tests.groups.group import FIXTURES, GROUPS, Group, group_of_file, owned
from tests.groups.imports import ROOT
from tests.groups.inputs import Project
from tests.groups.records import FILE, Outcome, Record, read_outcomes, read_records, write_records
from tools import quick

NAMES = list(GROUPS)
LANDING = {name for name, group in GROUPS.items() if not group.nightly}
WITH_IMAGES = {"cdi", "class", "heritage", "torch", "jax", "kubernetes", "room"}


@pytest.fixture(scope="module")
def project() -> Project:
    return Project.read(ROOT)


@pytest.fixture(scope="module")
def inputs(project: Project) -> dict[str, set[str]]:
    return project.inputs


# ---- Inputs


RIGHT: Mapping[str, set[str]] = {
    "Dockerfile.class": {"class"},
    "Dockerfile.gpu": WITH_IMAGES,
    "docs/tutorials/lessons/hello.md": {"browser", "experiments"},
    "lab/teach/classroom/backend.py": {"class"},
    "lab/backends/compose/render.py": {"cdi"},
    "lab/backends/kubernetes/api.py": {"kubernetes"},
    "lab/backends/network_faults.py": {"faults"},
    "lab/backends/scheduled.py": {"kubernetes", "slurm"},
    "lab/backends/slurm/queue.py": {"slurm"},
    "lab/teach/board/board.js": {"browser"},
    "lab/teach/classroom/queue/service.py": {"class"},
    "lab/teach/classroom/templates/admin.html": {"class"},
    "lab/protocol/frameworks/jax.py": {"jax"},
    "lab/cluster/placement/place.py": set(),
    "lab/runner/collect.py": set(),
    "lab/task/agent/slurm.py": {"slurm"},
    "lab/task/tf1/slim.py": {"heritage"},
    "requirements/dev.txt": {*NAMES},
    "requirements/horovod.txt": {"heritage"},
    "requirements/image-jax-cpu.txt": {"jax"},
    "scripts/ddp.py": {"torch"},
    "scripts/estimator.py": {"heritage"},
    "scripts/horovod_ring.py": {"heritage"},
    "scripts/jax_model.py": {"jax"},
    "scripts/mnist_async.py": set(),
    "scripts/towers.py": {"experiments"},
    "tests/conftest.py": {*NAMES},
    "tests/e2e/test_class_queue.py": {"class"},
    "tests/e2e/test_daily_use.py": {"kubernetes", "slurm"},
    "tests/support/slurm_site.py": set(),
    "tools/offline.py": {"room"},
}


@pytest.mark.parametrize("path", RIGHT)
def test_a_file_is_an_input_of_the_right_groups(inputs: dict[str, set[str]], path: str) -> None:
    assert {name for name, paths in inputs.items() if path in paths} == RIGHT[path]


def test_a_changed_file_changes_the_digests_of_its_groups_and_of_no_other(
    project: Project, inputs: dict[str, set[str]]
) -> None:
    before = {name: project.digest(group, project.contents) for name, group in GROUPS.items()}
    for path in sorted(set().union(*inputs.values())):
        contents = {**project.contents, path: "changed"}
        changed = {name for name in NAMES if project.digest(GROUPS[name], contents) != before[name]}
        assert changed == {name for name in NAMES if path in inputs[name]}, path


def test_each_file_is_tested_by_every_landing_or_by_a_group(
    project: Project, inputs: dict[str, set[str]]
) -> None:
    units = {path for path in project.graph if path.startswith(("tests/unit/", "tests/hostile/"))}
    assert project.unreached(units) == set()
    grouped = set().union(*inputs.values())
    files = [path for path in project.files if path.startswith(("Dockerfile", "requirements/"))]
    # No test installs the packages for GPUs, or the smaller sets of the Makefile.
    only_landing = {"host", "tensorflow", "notebooks", "compose5", "image-cuda", "uv"}
    assert {Path(path).stem for path in files if path not in grouped} <= only_landing


def test_a_module_that_nothing_tests_is_noticed(project: Project) -> None:
    sources = {**project.sources, "lab/lonely.py": project.sources["lab/base/text.py"]}
    lonely = Project(project.root, project.files | {"lab/lonely.py"}, sources)
    assert lonely.unreached([]) >= {"lab/lonely.py"}


def test_each_test_of_a_group_is_in_its_files(project: Project) -> None:
    for path, source in project.sources.items():
        if not re.match("tests/(e2e|kubernetes|room)/test_", path):
            continue
        text = (ROOT / path).read_text("utf-8")
        marked = set(re.findall(r"pytest\.mark\.(\w+)", text)) & GROUPS.keys()
        needed = {name for fixture, name in FIXTURES.items() if f"{fixture}:" in text}
        for name in marked | needed | ({group_of_file(path)} - {""}):
            assert owned(path, GROUPS[name].tests + GROUPS[name].shares), (path, name)
        assert source.texts


def test_ci_runs_all_tests_of_a_landing_and_all_groups() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (names,) = re.findall(r"^GROUPS := \$\(addprefix test-,(.*)\)$", makefile, re.MULTILINE)
    assert names.split() == sorted(GROUPS)
    called = re.findall(r"^make (.*)$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    assert called == ["lint", "test", "test-landing", "test-groups"]
    chosen = re.findall(r"-m pytest (tests/\S.*?) (?:--|\$)", makefile)
    for part in ("tests/unit tests/hostile", "tests/e2e -m short"):
        assert part in chosen
    assert 'tests/e2e -m "landing and not short"' in chosen


def test_quick_finds_a_unit_test_of_every_module(project: Project) -> None:
    for path in project.graph:
        if path.startswith("lab/"):
            assert quick.nearest([path], project), path
    assert quick.concerned(["lab/backends/slurm/queue.py", "lab/base/text.py"], project) == [
        "slurm"
    ]


# ---- Records


JUNIT = """\
<testsuites><testsuite>
<testcase name="a" time="90"><properties>
<property name="group" value="torch"/><property name="trainings" value="2"/>
</properties></testcase>
<testcase name="b" time="30"><properties><property name="group" value="torch"/></properties>{}
</testcase>
<testcase name="c" time="1"/>
</testsuite></testsuites>
"""


@pytest.mark.parametrize(
    ("fault", "complete"), [("", True), ("<failure/>", False), ("<skipped/>", False)]
)
def test_a_group_has_passed_when_each_of_its_tests_ran_and_passed(
    tmp_path: Path, fault: str, complete: bool
) -> None:
    (tmp_path / "j.xml").write_text(JUNIT.format(fault))
    outcomes = read_outcomes(tmp_path / "j.xml")
    assert outcomes["torch"] == Outcome(2, 2, 120.0, 1 + complete)
    assert outcomes["torch"].complete == complete
    assert not Outcome().complete


RECORD = Record("0f", "2026-11-28", 2.0, 2, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"jax": {}}',
        '{"jax": 3}',
        '{"jax": {"inputs": 3, "date": "", "minutes": 1.0, "tests": 1, "trainings": 1}}',
    ],
)
def test_what_is_no_record_means_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "tests").mkdir()
    write_records(tmp_path, {"jax": RECORD})
    assert read_records(tmp_path) == {"jax": RECORD}
    (tmp_path / FILE).write_text(text)
    assert read_records(tmp_path) == {}


class Calls:
    """`python -m tests.groups` with digests, an outcome and a state of the tree that are given."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.ran: list[str] = []
        self.outcome = Outcome(2, 2, 120.0, 2)
        self.code = 0
        self.changed = ""
        patch.setattr(command, "ROOT", root)
        patch.setattr(command, "current_digests", lambda: dict.fromkeys(GROUPS, "0f"))
        patch.setattr(command, "_pytest", self._pytest)
        patch.setattr(command, "_uncommitted", lambda: self.changed)
        patch.setattr(command, "_prepare", lambda _: None)
        patch.delenv("PYTEST_ADDOPTS", raising=False)

    def _pytest(self, batch: list[Group], arguments: list[str]) -> tuple[int, dict[str, Outcome]]:
        self.ran += [group.name for group in batch]
        return self.code, {group.name: self.outcome for group in batch}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    (tmp_path / "tests").mkdir()
    return Calls(tmp_path, monkeypatch)


def test_a_group_that_passed_is_recorded_and_left_out_from_then_on(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["jax"]) == 0
    assert read_records(calls.root)["jax"].inputs == "0f"
    calls.ran.clear()
    assert command.main([]) == 0
    assert set(calls.ran) == LANDING - {"jax"}
    assert re.search(
        r"^jax: passed with these inputs on [\d-]{10}, 2 min$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    calls.ran.clear()
    assert command.main([]) == 0
    assert calls.ran == []
    assert command.main(["all"]) == 0
    assert calls.ran == [
        *(n for n in NAMES if not GROUPS[n].alone),
        *(n for n in NAMES if GROUPS[n].alone),
    ]


def test_other_inputs_than_the_recorded_ones_run(calls: Calls) -> None:
    write_records(calls.root, dict.fromkeys(GROUPS, RECORD) | {"torch": Record("1", "", 1.0, 1, 1)})
    assert command.main([]) == 0
    assert calls.ran == ["torch"]


@pytest.mark.parametrize(
    "fault", ["failed", "interrupted", "wrapper", "skipped", "arguments", "addopts", "uncommitted"]
)
def test_an_incomplete_run_is_not_recorded(
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    arguments = ["jax"]
    match fault:
        case "failed":
            calls.code, calls.outcome = 1, Outcome(2, 2, 120.0, 1)
        case "interrupted":
            calls.code = 2
        case "wrapper":  # it ended pytest early, which then reported the tests so far
            calls.code = 1
        case "skipped":
            calls.outcome = Outcome(2, 2, 120.0, 1)
        case "arguments":
            arguments += ["--", "-k", "ddp"]
        case "addopts":
            monkeypatch.setenv("PYTEST_ADDOPTS", "-k ddp")
        case "uncommitted":
            calls.changed = " M lab/base/text.py\n"
    assert command.main(arguments) == (fault in {"failed", "interrupted", "wrapper"})
    assert read_records(calls.root) == {}
    assert "not recorded" in capsys.readouterr().out


def test_a_group_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["jaks"]) == 2
    assert "no group 'jaks'; groups: class, " in capsys.readouterr().err


def test_the_shipped_records_can_be_read() -> None:
    found = json.loads((ROOT / FILE).read_text("utf-8"))
    assert read_records(ROOT).keys() == found.keys() <= GROUPS.keys()
