"""The stages of lessons: right and wrong runs and answers, their hints, and how to restore them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from lab.base.errors import InputError, LabError
from lab.base.shipped import SHIPPED
from lab.base.tables import show
from lab.cluster.project import replace_files
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.runner.store.directory import RunDir
from lab.teach.lessons.answers import (
    FILE,
    Answer,
    add_answers,
    newest,
    note_passed,
    read_answers,
    read_passed,
)
from lab.teach.lessons.check import (
    Evidence,
    MeasuredRun,
    Reply,
    StageResult,
    check_lesson,
    check_stage,
    figure_of,
    key_of,
)
from lab.teach.lessons.lesson import Lesson, Stage, load_lesson, load_lessons
from lab.verbs import restore
from lab.verbs.check import ORDER, lesson_page
from lab.verbs.restore import command, missing_stages, restore_files
from tests.support.cli import Cli
from tests.support.commands import ROOT
from tests.support.fakes import raising
from tests.support.lessons import LATE, SLOW, Runs, measured, runs_of, without
from tests.support.recorded import make
from tests.support.shown import assert_shows
from tests.support.specs import changed, update

LEAST_HINTS = 3
LESSONS = ROOT / "docs/tutorials/lessons"
SECTIONS = ["Predict", "Run", "What you should see", "What to try", "Next"]
STAGES = [
    pytest.param(name, stage, id=f"{name}-{stage.name}")
    for name in load_lessons()
    for stage in load_lesson(name).stages
]
every_stage = pytest.mark.parametrize(("name", "stage"), STAGES)


def stage_of(lesson: str, name: str) -> Stage:
    return next(each for each in load_lesson(lesson).stages if each.name == name)


def by_experiment(stage: Stage, runs: Runs) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for alias, experiment in stage.runs.items():
        found.setdefault(experiment, []).append(runs[alias])
    return found


def typed(answers: Mapping[str, str], at: float = 0.0) -> dict[str, Answer]:
    return {name: Answer(at, "", name, text) for name, text in answers.items()}


@every_stage
def test_right_runs_and_answers_pass(name: str, stage: Stage) -> None:
    runs = runs_of(name, stage)
    right = {each.name: str(figure_of(each.answer, runs)) for each in stage.questions}
    result = check_stage(stage, by_experiment(stage, runs), typed(right))
    assert (result.hint, [each.right for each in result.replies]) == ("", [True] * len(right))
    assert result.passed
    assert [each.note for each in result.replies] == [each.because for each in stage.questions]


@every_stage
def test_runs_that_lack_a_condition_get_its_hint(name: str, stage: Stage) -> None:
    runs = runs_of(name, stage)
    for condition in stage.holds:
        wrong = by_experiment(stage, without(condition, runs))
        assert check_stage(stage, wrong, {}).hint == condition.hint


UNCOUNTED = {"devices", "place"}
"""Stages that say nothing of the number of their workers."""


def misfits(stage: Stage, run: MeasuredRun) -> Iterator[MeasuredRun]:
    """Runs of the same experiment, each with one thing that the text of a stage excludes."""
    info, summary = run.info, run.summary
    given = info.spec.faults
    faults = [("pause:9s worker-9",), (*given, "pause:9s worker-0")]
    for fault in given:
        how, target, *when = fault.split()
        faults += [(), (f"cut:5s {target}",), (" ".join([how, "ps-0", *when]),)]
    for each in faults:
        yield replace(run, info=changed(info, faults=each))
    if info.spec.start:
        for start in ({}, {"ps-0": "5s"}):
            yield replace(run, info=changed(info, start=start))
    flags = info.hyperparameters
    others = {"epochs": 9} if "pass" in stage.text else {}
    others |= {"towers": 9} if "towers" in flags else {}
    others |= {"replicas_to_aggregate": 1} if info.spec.experiment == "sync" else {}
    for name, value in others.items():
        yield replace(run, info=changed(info, hyperparameters={**flags, name: value}))
    counted = {"worker", "local"} - ({"worker"} if stage.name in UNCOUNTED else set())
    counted |= {"ps"} if "server" in stage.text else set()
    for *rest, last in (
        list(each) for _, each in groupby(summary.tasks, lambda task: task.job_name)
    ):
        if last.job_name in counted:
            for count in (rest, [*rest, last, replace(last, task=f"{last.job_name}-9")]):
                kept = [each for each in summary.tasks if each.job_name != last.job_name]
                yield replace(run, read=partial(replace, summary, tasks=[*kept, *count]))


@every_stage
def test_a_run_that_does_not_fit_the_text_is_refused(name: str, stage: Stage) -> None:
    runs = runs_of(name, stage)
    for alias, run in runs.items():
        for wrong in misfits(stage, run):
            found = check_stage(stage, by_experiment(stage, {**runs, alias: wrong}), {})
            assert found.hint, (wrong.info, wrong.summary)


@every_stage
def test_each_mistake_has_its_own_hint(name: str, stage: Stage) -> None:
    runs = runs_of(name, stage)
    for question in stage.questions:
        wrong = [str(figure_of(each.answer, runs)) for each in question.mistakes] + ["no answer"]
        hints = [each.hint for each in question.mistakes] + [question.hint]
        for text, hint in zip(wrong, hints, strict=True):
            result = check_stage(stage, by_experiment(stage, runs), typed({question.name: text}))
            (reply,) = (each for each in result.replies if each.question == question.name)
            assert (reply.right, reply.note) == (False, hint)
            assert not result.passed


@every_stage
def test_a_stage_has_three_different_hints_and_a_command(name: str, stage: Stage) -> None:
    hints = [each.hint for each in stage.holds]
    for question in stage.questions:
        hints += [each.hint for each in question.mistakes] + [question.hint]
    assert len(set(hints)) >= LEAST_HINTS
    assert set(stage.runs.values()) <= set(EXPERIMENTS)
    result = check_stage(stage, {}, {})
    assert stage.command in result.hint
    assert not result.passed


@every_stage
def test_a_condition_names_a_setting_of_its_experiment(name: str, stage: Stage) -> None:
    """A setting with another name would be absent from every run."""
    for condition in stage.holds:
        flags = EXPERIMENTS[stage.runs[condition.of]].flags
        assert condition.setting in {"", *flags, "fault", "start", "on-failure"}


WITHOUT_STAGES = {"choosing", "complaints", "first", "then-and-now"}
"""Pages to read; and one whose programs are no experiments, so `lab check` leaves them out."""


def test_every_lesson_and_notebook_has_stages() -> None:
    lessons = {path.stem for path in LESSONS.glob("*.md")} - WITHOUT_STAGES
    notebooks = {path.stem[3:].replace("_", "-") for path in (ROOT / "notebooks").glob("[0-9]*.py")}
    assert lessons | notebooks <= set(load_lessons())


PAGES = [name for name in load_lessons() if (LESSONS / f"{name}.md").is_file()]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_a_lesson_has_its_sections_commands_and_questions(name: str) -> None:
    page = (LESSONS / f"{name}.md").read_text()
    assert "\n**Goal.** " in page
    assert "\n**You need** " in page
    headings = re.findall("^## (.*)", page, flags=re.MULTILINE)
    assert [each for each in headings if each in SECTIONS] == SECTIONS
    text = " ".join(page.replace("\\\n", " ").split())
    for stage in load_lesson(name).stages:
        assert stage.command in text
        for question in stage.questions:
            assert f"--answer {question.name}=…" in text
    _, _, ending = page.partition("## What to try")
    exercises, _, _ = ending.partition("## Next")
    numbered = re.findall(r"^\d+\. ", exercises, flags=re.MULTILINE)
    assert exercises.count("<summary>Answer</summary>") == len(numbered) > 0


@pytest.mark.parametrize("name", load_lessons())
def test_the_names_in_a_lesson_are_unique(name: str) -> None:
    lesson: Lesson = load_lesson(name)
    stages = [each.name for each in lesson.stages]
    questions = [question.name for each in lesson.stages for question in each.questions]
    assert len(set(stages)) == len(stages)
    assert len(set(questions)) == len(questions)


def test_numbers_are_read_as_people_write_them() -> None:
    (stage, *_) = load_lesson("async").stages
    for text, right in (("1,650", True), (" 1650 ", True), ("1651", False), ("165000%", True)):
        result = check_stage(stage, {"async": [measured()]}, typed({"updates": text}))
        assert result.replies[0].right is right, text


def test_the_page_and_the_slides_of_the_hour_have_its_commands_and_questions() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("tutorials/hour.md", "slides/hour.md")]
    joined = [" ".join(page.replace("\\\n", " ").split()) for page in pages]
    for stage in load_lesson("hour").stages:
        (question,) = stage.questions
        for page in joined:
            assert stage.command in page
            assert f"lab check hour --answer {question.name}=…" in page


def test_the_slides_are_fifteen_and_their_figures_exist() -> None:
    slides = ROOT / "docs/slides/hour.md"
    _, _, *text = slides.read_text().split("\n---\n")
    assert len(text) + 1 == 15
    figures = re.findall(r"]\((.*?)\)", slides.read_text())
    assert len(figures) >= 5
    assert all((slides.parent / each).is_file() for each in figures)


def test_the_key_has_the_right_answers_with_their_tolerance() -> None:
    stage = stage_of("hour", "slow")
    runs = runs_of("hour", stage)
    (reply,) = check_stage(stage, by_experiment(stage, runs), None).replies
    assert (reply.given, reply.right, reply.note) == (
        "0.45 ± 0.045",
        True,
        stage.questions[0].because,
    )


def test_the_page_of_the_key_shows_a_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    lesson, stages = load_lesson("stragglers"), []
    for stage in lesson.stages:
        runs = {
            name: replace(run, info=replace(run.info, run_id=f"20261127-1857-sync-00{at:02}"))
            for at, (name, run) in enumerate(runs_of("stragglers", stage).items())
        }
        stages.append(check_stage(stage, by_experiment(stage, runs), None))
    questions = [question.name for stage in lesson.stages for question in stage.questions]
    show(lesson_page("stragglers", lesson, stages, questions))
    printed = capsys.readouterr().out
    assert_shows("docs/tutorials/exercises/key.md", "Stragglers", printed, figures=False)


def test_a_large_tolerance_is_written_out() -> None:
    _, question = stage_of("reproduce", "small").questions
    assert key_of(msgspec.structs.replace(question, answer=7196.0), {}).given == "7,196 ± 220"


def test_a_later_run_makes_no_right_answer_wrong() -> None:
    (stage, *_) = load_lesson("async").stages
    old, new = measured(given={"stopped_unix": 10.0}), measured(global_step=99)
    new = replace(new, info=replace(new.info, stopped_unix=30.0))
    for at, right in ((20.0, "1650"), (40.0, "99")):
        answers = typed({"updates": right}, at)
        assert check_stage(stage, {"async": [new, old]}, answers).replies[0].right, at


def test_of_runs_that_lack_the_same_the_newest_is_named() -> None:
    (stage, *_) = load_lesson("async").stages
    old, new = measured(state="failed"), measured(state="failed")
    new = replace(new, info=replace(new.info, run_id="newest"))
    assert check_stage(stage, {"async": [new, old]}, {}).runs == {"run": "newest"}


@pytest.mark.parametrize(
    ("lesson", "stage", "answer"),
    [
        ("hour", "first", 1650),
        ("hour", "sync", 550),
        ("hour", "slow", 0.45),
        ("hour", "stale", "worker-1"),
        ("hour", "killed", 660),
        ("async", "late", 1650),
        ("ddp", "slow", 0.45),
        ("ddp", "killed", 2),
        ("fsdp", "train", 795_020),
        ("fsdp", "same", 1 / 0.45),
        ("local-sgd", "train", 110),
        ("local-sgd", "rare", 0.0099),
        ("torch-async", "slow", "worker-1"),
        ("torch-async", "killed", 660),
        ("jax-dp", "train", 1100),
        ("jax-dp", "same", 1 / 0.45),
        ("three-frameworks", "mean", 110_000),
        ("three-frameworks", "each", 2),
    ],
)
def test_the_answers_of_the_runs_here(lesson: str, stage: str, answer: float | str) -> None:
    wanted = stage_of(lesson, stage)
    found = figure_of(wanted.questions[0].answer, runs_of(lesson, wanted))
    assert found == pytest.approx(answer) if isinstance(answer, float) else found == answer


def test_the_command_of_a_stage_is_shown_for_its_own_experiment_only() -> None:
    stage = stage_of("fsdp", "same")
    assert check_stage(stage, {}, {}).hint == f"no run of ddp has ended yet: `{stage.command}`"
    hint = check_stage(stage, {"ddp": [measured("ddp")]}, {}).hint
    assert hint == "no run of fsdp has ended yet: use its command in the lesson"


def test_a_failed_or_damaged_run_proves_nothing_and_hides_no_other() -> None:
    (stage, *_) = load_lesson("async").stages
    damaged = replace(measured(), read=raising(LabError("damaged")))
    for run in (measured(state="failed"), damaged):
        assert check_stage(stage, {"async": [run]}, {}).hint == stage.holds[0].hint
        assert check_stage(stage, {"async": [run, measured()]}, {}).hint == ""


def test_a_program_of_ones_own_is_no_experiment(tmp_path: Path) -> None:
    lesson = load_lesson("async")
    make(tmp_path, "r1", experiment="async")
    first = check_lesson("async", lesson, Evidence.read(tmp_path))[0]
    assert first.runs == {"run": "r1"}
    update(RunDir(tmp_path / "r1"), own=True)
    assert check_lesson("async", lesson, Evidence.read(tmp_path))[0].runs == {}


def test_answers_are_kept_safely_and_the_newest_counts(tmp_path: Path) -> None:
    add_answers(tmp_path, "hour", {"updates": "1"})
    add_answers(tmp_path, "async", {"updates": "2"})
    add_answers(tmp_path, "hour", {"updates": "3\udcff\x1b[2J"})
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'not JSON\n{"lesson": 3}\n\xff\n{"time_unix": 1.0, "les')
    add_answers(tmp_path, "hour", {"share": "0.5"})  # the line that is cut off costs only itself
    found = newest(read_answers(tmp_path / FILE), "hour")
    texts = {name: each.text for name, each in found.items()}
    assert texts == {"updates": r"3\udcff\x1b[2J", "share": "0.5"}
    with pytest.raises(InputError, match="longer than 500"):
        add_answers(tmp_path, "hour", {"share": "x" * 501})


@pytest.mark.timeout(20)
def test_a_pipe_or_a_link_instead_of_the_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    for plant in (os.mkfifo, lambda at: at.symlink_to(tmp_path / "elsewhere")):
        plant(path)
        with pytest.raises(LabError, match="not a regular file"):
            read_answers(path)
        with pytest.raises(OSError, match=r"No such device|symbolic"):
            add_answers(tmp_path, "hour", {"share": "1"})
        path.unlink()


def test_a_key_with_text_of_a_run_is_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    stage = StageResult("s", "t", {"run": "r"}, "", [Reply("q", "?", "\x1b]0;t\x07", True, "n")])
    show(lesson_page("hour", load_lesson("hour"), [stage]))
    assert "\x1b" not in capsys.readouterr().out


DONE = StageResult("done", "t", {"run": "r"}, "", [Reply("q", "?", "1", True, "n")])
OPEN, LATER = (StageResult(name, "t", {}, f"no run of {name}.") for name in ("open", "later"))
WRONG = StageResult("wrong", "t", {"run": "r"}, "", [Reply("q", "?", "2", False, "n")])


@pytest.mark.parametrize(
    ("results", "shown", "lines"),
    [
        (
            *([DONE, OPEN, LATER], []),
            ["✓ done", "· later: later", "· open", "  t", "  → no run of open."],
        ),
        ([OPEN, WRONG], [], ["· later: open", "✗ wrong  r", "  t", "  ✗ ?", "  2: n"]),
        ([DONE], [], ["✓ done", "all stages are passed"]),
        (
            *([replace(OPEN, command="lab run x")], []),
            ["· open", "  t", "  → no run of open.", "  the command of this stage: lab run x"],
        ),
        ([DONE], ["q"], ["✓ done  r", "  t", "  ✓ ?", "  1: n", "all stages are passed"]),
    ],
)
def test_a_page_ends_with_what_is_wrong_or_else_with_what_is_next(
    results: list[StageResult],
    shown: list[str],
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(lesson_page("hour", load_lesson("hour"), results, shown))
    _, *printed = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line.replace("    ", "  ") for line in printed] == lines


def test_an_answer_before_its_run_is_refused(tmp_path: Path, cli: Cli) -> None:
    line = ["check", "hour", "--answer", "updates=1650", "--runs-dir", str(tmp_path)]
    err = cli(*line, code=2).err
    assert err.startswith("error: updates cannot be answered yet; no run of async has ended yet: ")
    assert not (tmp_path / FILE).exists()


def test_a_prediction_comes_before_the_run_and_stands_beside_the_answer(
    tmp_path: Path, cli: Cli
) -> None:
    lines = "check", "async", "--runs-dir", str(tmp_path)
    assert "--predict updates=…" in cli(*lines).out
    assert "you predicted 100" in cli(*lines, "--predict", "updates=100").out
    make(tmp_path, "r1", experiment="async", hyperparameters={"epochs": 1})
    asked = check_stage(stage_of("async", "train"), {"async": [measured()]}, {})
    assert asked.replies[0].predicted is None
    answers = newest(read_answers(tmp_path / FILE), "async") | typed({"updates": "8250"}, 9e9)
    (reply, *_) = check_stage(stage_of("async", "train"), {"async": [measured()]}, answers).replies
    assert (reply.given, reply.predicted) == ("8250", "100")
    cli(*lines, "--answer", "updates=1", code=1)
    assert "updates has already been answered" in cli(*lines, "--predict", "updates=2", code=2).err


def stage_of_code(answers: Mapping[str, Answer] | None) -> StageResult:
    return check_stage(Stage(name="code", text="t", code="async"), {}, answers)


def test_a_stage_of_code_is_what_its_tests_said_last() -> None:
    said = partial(lambda text: stage_of_code(typed({"tests of code": text})))
    assert stage_of_code({}).hint == "its tests have not run yet"
    assert said("gap: gap 1").hint == "gap 1"
    failed = said("1 of 2: a: b")
    (reply,) = failed.replies
    assert (reply.given, reply.right, reply.note) == ("1 of 2 pass", False, "a: b")
    assert not failed.passed
    assert said("2 of 2").passed
    assert stage_of_code(None).passed  # the key has no answer


def test_the_lessons_are_listed_in_the_order_of_learning(cli: Cli) -> None:
    names = [line.split()[0] for line in cli("check").out.splitlines()[2:]]
    assert names[:4] == ["hour", "tour", "hello", "async"]
    assert {*names} == {*ORDER} == {*load_lessons()}


def test_the_dots_of_a_page_are_no_answer(tmp_path: Path, cli: Cli) -> None:
    line = ["check", "hour", "--answer", "updates=…", "--runs-dir", str(tmp_path)]
    assert "replace the `…` with your answer" in cli(*line, code=2).err
    assert not (tmp_path / FILE).exists()


def test_what_a_check_found_is_kept_for_the_status_of_a_class(tmp_path: Path) -> None:
    note_passed(tmp_path / "missing", "async", [True])
    assert read_passed(tmp_path / "missing") == {}
    note_passed(tmp_path, "async", [True, False])
    note_passed(tmp_path, "hour", [False])
    note_passed(tmp_path, "async", [True, True])
    assert read_passed(tmp_path) == {"async": (2, 2), "hour": (0, 1)}
    (tmp_path / "passed.json").write_text('{"async": "forged"}')
    assert read_passed(tmp_path) == {}


PROGRAM = "scripts/mnist_async.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with programs, one of them changed, and a program of the user's own."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / PROGRAM).write_text("changed")
    (tmp_path / "scripts/mine.py").write_text("mine")
    return tmp_path


def test_changed_programs_are_kept_and_written_anew(project: Path, notices: list[str]) -> None:
    kept = restore_files(project)
    assert kept.parent == project
    assert [path.relative_to(kept).as_posix() for path in kept.rglob("*.py")] == [PROGRAM]
    assert (kept / PROGRAM).read_text() == "changed"
    assert (project / PROGRAM).read_bytes() == (SHIPPED / PROGRAM).read_bytes()
    assert (project / "scripts/mine.py").read_text() == "mine"
    assert (project / "scripts/mnist_sync.py").is_file()  # it was missing
    assert not (project / "clusters").exists()  # the project had none
    assert restore_files(project) is None
    changed = f"restored scripts/; your changed files are in {kept}"
    assert notices == [changed, "restored scripts/"]


def test_what_is_behind_a_link_stays(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (project / "scripts").rename(elsewhere)
    (project / "scripts").symlink_to(elsewhere)
    kept = restore_files(project)
    assert kept is not None
    assert (kept / "scripts").is_symlink()
    assert (elsewhere / "mnist_async.py").read_text() == "changed"
    assert not (project / "scripts").is_symlink()


def test_replaced_files_come_back_if_one_cannot_be_written(tmp_path: Path) -> None:
    root, shipped = tmp_path / "project", tmp_path / "shipped"
    for path in (root / "scripts/a", shipped / "scripts/a", shipped / "clusters/b"):
        path.parent.mkdir(parents=True)
        path.write_text(str(path))
    (root / "clusters").symlink_to(tmp_path)
    before = sorted(root.rglob("*"))
    names = ("scripts/a", "clusters/b", "new/missing")
    with pytest.raises(FileNotFoundError):
        replace_files(root, {name: shipped / name for name in names})
    assert sorted(root.rglob("*")) == before
    assert (root / "clusters").is_symlink()
    assert (root / "scripts/a").read_text() == str(root / "scripts/a")


def test_a_clone_has_the_shipped_files_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr(restore, "SHIPPED", project)
    assert restore_files(project) is None
    assert (project / PROGRAM).read_text() == "changed"
    assert notices == [
        "a clone of lab is not restored; undo changes with `git restore scripts clusters`"
    ]


def test_only_missing_runs_of_earlier_stages_are_made() -> None:
    lesson = load_lesson("async")
    _, late, slow = lesson.stages

    def names(*runs: object) -> list[str]:
        evidence = Evidence({"async": runs}, [])
        return [each.name for each in missing_stages(lesson, slow, evidence)]

    assert names() == ["train", "late", "slow"]
    assert names(measured(given=LATE)) == ["train", "slow"]
    assert names(measured(given=SLOW), measured(given=LATE), measured()) == []
    evidence = Evidence({"async": [measured()]}, [])
    assert missing_stages(lesson, late, evidence) == [late]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("asinc", "late"), "no lesson 'asinc'; did you mean 'async'?"),
        (
            ("async", "lat"),
            "no stage 'lat' in async; did you mean 'late'? it has train, late, slow",
        ),
    ],
)
def test_wrong_names(arguments: tuple[str, str], message: str, cli: Cli) -> None:
    assert message in cli("restore", *arguments, code=2).err


def test_a_run_that_lacks_what_its_stage_needs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[list[str]] = []
    monkeypatch.setattr(
        "lab.verbs.restore.command_line.call",
        lambda name, _command, argv: seen.append([name, *argv]),
    )
    with pytest.raises(LabError, match="train: its run is there, but no run of async has ended"):
        command(lesson="async", stage="late")
    (again,) = seen
    assert again == [
        "run",
        "async",
        "--cluster",
        "clusters/book.yaml",
        "--epochs",
        "1",
        "--seed",
        "1",
    ]
