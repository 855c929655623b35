"""Lessons from outside: `lessons/*.yaml` of a project or a package, and the example course."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import pytest

from lab.base.plugins import plugins
from lab.base.shipped import files_of
from lab.cluster.experiments import experiment_named
from lab.protocol.experiments.experiment import with_defaults
from lab.protocol.volume import RunSpec
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.teach.classroom.gradebook import gradebook
from lab.teach.lessons.check import Evidence, MeasuredRun
from lab.teach.lessons.lesson import load_lesson, load_lessons
from lab.verbs import restore
from tests.support.cli import CLUSTER, Cli, refused
from tests.support.cli import lab as called
from tests.support.commands import ROOT
from tests.support.fakes import raising
from tests.support.packages import Install
from tests.support.recorded import make
from tests.support.shown import assert_shows, fenced
from tests.support.specs import update

EXAMPLE = ROOT / "docs/how-to/course"
PAGE = "docs/how-to/course.md"
LESSON = (EXAMPLE / "lessons/points.yaml").read_text()
EXPERIMENT = re.split(r"\n(?=  \S)", (EXAMPLE / "experiments.yaml").read_text())[1]
KINDS = ("experiment", "lesson")
CODE = "minutes: 10\nstages:\n  - {name: code, text: Write, code: pints}"
COURSE_FILES = [name for name, _ in files_of(("experiments.yaml", "course", "lessons"), EXAMPLE)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the example course, without its assignments."""
    root = tmp_path / "project"
    write_points(root)
    (root / "lessons").mkdir()
    (root / "lessons/points.yaml").write_text(LESSON)
    (root / "scripts").mkdir()
    (root / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(root)
    return root


def write_points(folder: Path) -> None:
    """Write the experiment of the example into a project or a package."""
    (folder / "course").mkdir(parents=True)
    shutil.copyfile(EXAMPLE / "course/points.py", folder / "course/points.py")
    (folder / "experiments.yaml").write_text(f"version: 1\nexperiments:\n{EXPERIMENT}\n")


def package(install: Install, name: str, lesson: str, text: str = LESSON) -> Path:
    """A package with the experiment of the example, and a lesson."""
    points = {"experiments": f"{name} = {name}", "lessons": f"{name} = {name}"}
    folder = install(name, points, {f"{name}/lessons/{lesson}.yaml": text})
    write_points(folder)
    return folder


def test_the_lessons_of_lab_come_first_then_the_projects_then_those_of_packages(
    install: Install, project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("alpha", {"lessons": "z = alpha"}, {"alpha/lessons/zeta.yaml": LESSON})
    install("beta", {"lessons": "b = beta"}, {"beta/lessons/beta.yaml": LESSON})
    *own, points, zeta, beta = (each.origin for each in load_lessons().values())
    assert (len(own), {*own}) == (len([*(ROOT / "lab/teach/lessons").glob("*.yaml")]), {""})
    assert (points, zeta, beta) == ("lessons/", "alpha 1.2", "beta 1.2")
    listed = " ".join(cli("check").out.split())
    assert "points Random points 10 0 of 2 from lessons/ zeta Random" in listed
    assert "from beta 1.2" in cli("check", "beta").out
    monkeypatch.setenv("LAB_PLUGINS", "none")
    plugins.cache_clear()
    assert list(load_lessons())[-2:] == ["towers", "points"]
    assert "no lesson 'zeta'; see `lab check`" in cli("check", "zeta", code=2).err
    assert "no lesson 'pointz'; did you mean 'points'?" in cli("check", "pointz", code=2).err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minutes: 10", "minutes: ten", ":2:1: minutes: expected `int`, got `str`"),
        ("minutes:", "minuts:", ":2:1: minuts: object contains unknown field `minuts`"),
        (
            "is: 100\n",
            "is: 100\n        was: 1\n",
            ":14:9: stages[0].holds[1].was: object",
        ),
        ("title: Random points\n", "", ":1:1: object missing required field `title`"),
        ("name: few", "name: A few", ":4:5: stages[0].name: expected `str` matching regex"),
        ("run: points}", "run: pints}", ":7:17: stages[0].runs.run: there is no experiment pints;"),
        ("minutes: 10\nstages:", CODE, ":4:37: stages[0].code: there is no experiment pints;"),
        (
            "    runs: {run: points}\n",
            "",
            ":4:5: stages[0]: a stage has `runs` and a `command`, or",
        ),
        ("    command:", "    code: points\n    command:", ":4:5: stages[0]: a stage has `runs`"),
        ("{run: points}", "{}", ":7:5: stages[0].runs: expected `object` of length >= 1"),
        (
            "{run: points}",
            "{one: points}",
            ":4:5: stages[0]: the stage has no run 'run'; it ",
        ),
        ("measure: state", "measure: stat", ": there is no measure 'stat'; did you mean 'state'?"),
        (
            "- measure: state\n        is",
            "- is",
            ": there is no measure ''; name a ",
        ),
        (", take: sum}", "}", ": present belongs to a task: add `task`, or `job` and `take`"),
        ("take: sum}", "take: all}", ":18:49: stages[0].questions[0].answer.take: "),
        (
            "is: succeeded",
            "matches: (",
            ":9:9: stages[0].holds[0]: `matches` is not a regular expr",
        ),
        ("command: lab run", "command: rm", ":6:5: stages[0].command: expected `str` matching"),
        ("--points 100\n", "'--points\n", ":4:5: stages[0]: no closing quotation"),
        ("name: many", "name: few", ":24:11: stages[1].name: there is another stage few"),
        ("name: error", "name: workers", "there is another question workers"),
        ("minutes: 10", "minutes: &ten 10", ":2:10: an anchor, &ten; write out its value"),
        ("minutes: 10", "minutes: [", "not YAML"),
        (LESSON, "", ":1:1: the file is empty"),
        (LESSON, "title: x\nminutes: 1\nstages: []", ":3:1: stages: expected `array` of length >="),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(
    project: Path, old: str, new: str, message: str
) -> None:
    path = project / "lessons/points.yaml"
    assert old in LESSON
    path.write_text(LESSON.replace(old, new, 1))
    for words in (("check",), ("check", "points"), ("restore", "points", "few")):
        done = called(project, *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"{path}:")
        assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("async", "lab already has a lesson async; rename the file"),
        ("My lesson", "not a valid lesson name; name it like three-workers.yaml"),
        ("\x1b[31m", "not a valid lesson name"),
    ],
)
def test_a_name_that_no_lesson_may_have(project: Path, name: str, message: str) -> None:
    (project / f"lessons/{name}.yaml").write_text(LESSON)
    for words in (("check",), ("check", name), ("check", "points")):
        assert message in refused(called(project, *words))


def test_the_file_of_an_editor_is_no_lesson(project: Path) -> None:
    (project / "lessons/.#points.yaml").symlink_to("nowhere")
    assert list(load_lessons())[-1] == "points"


def test_a_package_has_its_lessons_and_experiments_and_a_broken_one_only_warns(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    package(install, "good", "points")
    package(install, "rival", "points")
    install("taken", {"lessons": "t = taken"}, {"taken/lessons/hour.yaml": LESSON})
    install("torn", {"lessons": "x = torn"}, {"torn/lessons/torn.yaml": "stages: 3\n"})
    install("empty", {"lessons": "e = empty"}, {})
    found = load_lessons()
    assert found["points"].origin == "good 1.2"
    assert not {"torn", "e", "t"} & found.keys()
    assert found["hour"] == load_lesson("hour")
    warned = [line.partition(" cannot be used: ") for line in caplog.messages]
    whys = {line: why for line, _, why in warned if "'rival'" not in line}
    assert whys.pop("plug-in 'e' of empty 1.2").startswith("it has none; ")
    assert "hour.yaml: lab already has a lesson hour" in whys.pop("plug-in 't' of taken 1.2")
    assert "torn.yaml:1:1: stages: expected" in whys.pop("plug-in 'x' of torn 1.2")
    assert whys == {}
    whys = [why.split(";")[0] for line, _, why in warned if line == "plug-in 'rival' of rival 1.2"]
    assert whys == [
        f"its {kind} points also belongs to good 1.2" for kind in ("experiment", "lesson")
    ]
    assert "no run of points has ended yet" in cli("check", "points").out


def test_the_right_runs_of_an_outside_experiment_pass(project: Path, cli: Cli) -> None:
    """A run by the path of a program does not count, even under the same name."""
    store = project / "runs"
    run = make(store, "r1", experiment="points", own=True, args=("--points=100",))
    assert not Evidence.read(store).runs["points"]
    recorded = with_defaults(experiment_named("points", project), ("--points=100",))
    update(run, origin="experiments.yaml", hyperparameters=recorded)
    out = cli("check", "points", "--answer", "workers=4", "--runs-dir", "runs", code=1).out
    assert "You counted the parameter server, too." in out
    out = cli("check", "points", "--answer", "workers=3", "--runs-dir", "runs").out
    assert "✓ few" in out
    assert "Each worker needs a million points." in out


def test_the_gradebook_has_outside_lessons(project: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "work.zip", "w") as archive:
        answer = '{"time_unix": 1.0, "lesson": "points", "question": "workers", "text": "3"}\n'
        archive.writestr("ada/runs/answers.jsonl", answer)
        found = gradebook(archive)
    assert [(each.seat, each.lesson, each.stage) for each in found] == [
        ("ada", "points", "few"), ("ada", "points", "many"),
    ]  # fmt: skip
    assert "lab run points --points 100" in found[0].missing


@pytest.mark.parametrize(
    ("said", "typed", "missing"),
    [
        ("2 of 2", ("tests of code",), ""),
        ("1 of 2: =cmd()", (), "no correct answer to: tests of code"),
        ("gap: =cmd()", (), "no correct answer to: tests of code"),
    ],
)
def test_the_gradebook_has_what_the_tests_of_a_program_said(
    project: Path, tmp_path: Path, said: str, typed: tuple[str, ...], missing: str
) -> None:
    lesson = LESSON.partition("stages:")[0] + "stages: [{name: code, text: Write, code: points}]"
    (project / "lessons/points.yaml").write_text(lesson)
    with zipfile.ZipFile(tmp_path / "work.zip", "w") as archive:
        answer = {"time_unix": 1.0, "lesson": "points", "question": "tests of code", "text": said}
        archive.writestr("ada/runs/answers.jsonl", json.dumps(answer))
        (found,) = gradebook(archive)
    assert (found.passed, found.typed, found.missing) == (not missing, typed, missing)
    assert found.answers == 1


def test_the_runs_of_an_outside_lesson_are_restored(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, _command: object, argv: list[str]) -> None:
        assert (name, argv) == ("run", shlex.split("points --points 100"))
        made = make(project / "runs", "r1", experiment="points", args=("--points=100",))
        update(
            RunDir(made.path), own=True, origin="experiments.yaml", hyperparameters={"points": 100}
        )

    monkeypatch.setattr("lab.verbs.restore.command_line.call", run)
    restore.command(lesson="points", stage="few")
    assert len(Evidence.read(project / "runs").runs["points"]) == 1


def test_the_example_course_is_written_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("init", "--gpus", "1")
    assert not (tmp_path / "experiments.yaml").exists()
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons/points.yaml").write_text("mine")
    (tmp_path / "course").touch()
    for name in (min(COURSE_FILES), "lessons/points.yaml"):
        err = cli("init", "--course", "--gpus", "1", code=2).err
        assert err.startswith(
            f"error: --course: {name} already exists, or cannot be created; run the"
        )
        (tmp_path / "course").unlink(missing_ok=True)
    assert [*tmp_path.rglob("points.*")] == [tmp_path / "lessons/points.yaml"]
    (tmp_path / "lessons/points.yaml").unlink()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    err = cli("init", "--course").err
    assert f"wrote {', '.join(COURSE_FILES)}, " in err
    assert "kept existing files: cluster.yaml" in err
    assert (tmp_path / "cluster.yaml").read_text() == CLUSTER
    assert_shows(PAGE, "Random points", cli("check", "points").out)
    assert "from       experiments.yaml" in cli("experiments", "points").out
    assert "lab check points" in err
    cli("init", "--course", "--force", "--gpus", "1")
    assert (tmp_path / "cluster.yaml").read_text() != CLUSTER


@pytest.mark.parametrize("line", ["--output -", f"--output {ROOT}/x.yaml", "--output /dev/stdout"])
def test_no_course_is_written_where_no_project_can_be(tmp_path: Path, line: str) -> None:
    error = refused(called(tmp_path, "init", "--course", *shlex.split(line)))
    assert "is not in one of your projects" in error
    assert list(tmp_path.iterdir()) == []


def test_the_page_shows_the_first_stage_of_the_example() -> None:
    shown = next(each.text for each in fenced(PAGE) if each.language == "yaml")
    assert LESSON.startswith(f"{shown}\n")


@pytest.mark.parametrize(
    ("recorded", "seen"), [("100", 100), (100, 100), ("0.5", 0.5), ("a=b", "a=b"), (True, True)]
)
def test_a_setting_of_a_flag_without_a_default_may_be_a_number(
    recorded: object, seen: object
) -> None:
    info = RunInfo("r1", RunSpec("points"), hyperparameters={"points": recorded})
    found = MeasuredRun(info, raising(AssertionError())).setting("points")
    assert (found, type(found)) == (seen, type(seen))
