"""The command line: what it refuses before anything runs, its help, and its exit codes."""

from __future__ import annotations

import errno
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.console import show
from lab.base.errors import InputError
from lab.base.log import shown_by
from lab.base.options import (
    Argument,
    Arguments,
    Flag,
    Parameter,
    ProgramArguments,
    Switch,
    parameters,
)
from lab.base.shipped import install_command
from lab.cli import exit_code_of, main
from lab.cli.registry import COMMANDS, EVERYDAY, GROUPS
from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs import python_name
from tests.support.agents import PATIENCE_S
from tests.support.cli import (
    CLUSTER,
    ROOT,
    contents,
    environ,
    flags_in,
    lab,
    make_run,
    on_a_terminal,
    refusal,
    refused,
)
from tests.support.shown import examples, wrong_commands

RUN = "20260101-0000-async-aaaa"


def module_of(name: str) -> ModuleType:
    return import_module(f"lab.verbs.{python_name(name)}")


@pytest.fixture
def stocked(project: Path) -> Path:
    """A project with a run, a program of the user's, and a link that leads to itself."""
    make_run(project, RUN)
    (project / "own.py").write_text("raise SystemExit('it ran')\n")
    (project / "loop").symlink_to("loop")
    return project


REFUSED = [
    # Commands.
    "rum", "--wrong", "__class__",
    # A misspelt flag is found before the command runs.
    "run async --epoch 5", "run async --learning-rat=1", "run async --bakend local",
    "run async -epochs 1", "run async --kep", "render --chek", "down -z", "validate --help=x",
    "show last --run-dir x", "init --forse", "completion bash --json", "runs --verbose",
    # An unexpected argument fills no parameter, and is no member of a result.
    "run async sync", "run async rest", "ps mnist jason", "validate cluster.yaml x",
    "runs show last", "runs __class__", "show last - upper", "init stray",
    # Flags want values, once; a switch does not take the next argument.
    "run async --epochs", "run async --epochs --share", "run async --epochs=1 --epochs 2",
    "runs --json false", "init --force false", "run async --json --json", "run async --no-share=1",
    "ps --json=maybe", "runs --json=false --no-json", "render --output=", "render --no-output",
    "up --backend docker", "up --gpus all", "logs --tail -5", "logs --tail 1e3",
    "render -o gpus-by=count", "init --gpus 0", "init --gpus all",
    # What a command needs.
    "run", "shell", "sweep async", "down mnist --all", "render --check --output -",
    # A program's flags are checked for the program that is meant.
    "run async --epochs two", "run async --epochs 0", "run async --learning_rate=-1",
    "run async --model cnn", "run async --log_device_placement=maybe",
    "run async --replicas_to_aggregate=2", "run mine/my.py --epochs=3",
    "run asink", "run nothing --epochs 1", "experiments asink", "run ~nobody-here/x.py",
    # Arguments after `--` are a program's.
    "ps -- --epochs 1", "render -- --trace", "runs -- --interactive", "show last -- --help",
    # Options of other programs.
    "run async --listing", "run own.py --listing=mended",
    "run async --framework tensorflow-2.15", "run own.py --framework tensorflow-1.4",
    # Files.
    "validate cluster", "render scripts", "validate a.yaml --cluster b.yaml",
    "validate cluster.yaml --cluster loop", "up --cluster none.yaml",
    "run async --data-dir nowhere", "run async --data_dir loop", "run async --data_dir ~nobody/x",
    "init --output scripts", "init --output nowhere/c.yaml", "init", "run hello --data_dir scripts",
    # The values, runs and files that single commands need.
    "sweep async --over nonsense", "sweep async --over batchsize=1", "sweep async --over seed=1,2",
    "sweep async --over batch_size=1,1", "sweep async --over learning_rate=1,1.0",
    "sweep async --over model=cnn", "sweep async --over workers=0",
    "sweep async --over '\x1b[31m=1'", "sweep async --over batch_size=1,2 --batch_size 5",
    "sweep async --over batch_size=1,2 --repeats 0",
    "sweep async --over batch_size=1,2 --csv nowhere/made.csv", "simulate ring", "simulate ddp",
    "simulate async --workers 513", "simulate multiworker --ps 1", "simulate async --workers 7",
    "simulate async --workers 2 --ps 64",
    "compare last",
    "compare last last", "compare last nothing", "reproduce book",
    "reproduce book-async --repeats 0", "reproduce book-async --runs ,",
    "reproduce book-async --runs nothing", "reproduce book-async --runs last --quick",
    "reproduce book-async --runs last --repeats 3", "reproduce book-async --runs last --seed 0",
    "report zzz",
    "report last --output none/report.html", "report last --output .",
    "report last --output own.py", "report last --verdicts none.json",
    # Without an environment.
    "shell worker-0", "ps none", "logs", "down", "down x", "cancel none", "attach none",
    "show last --runs-dir 1.10", "show last --runs_dir=1e3", "runs --runs-dir own.py",
]  # fmt: skip


def test_a_refused_command_changes_nothing(stocked: Path, snapshot: SnapshotAssertion) -> None:
    assert {line: refusal(stocked, line) for line in REFUSED} == snapshot


def test_every_command_checks_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """One mistake with a parameter of each kind that it has, so that none bypasses the parser."""
    for name in COMMANDS:
        known = parameters(module_of(name).command)
        faults = [(["--zzz=1"], f"no option '--zzz' for `lab {name}`")]
        for each in {type(each.kind): each for each in known}.values():
            match each.kind:
                case Flag():
                    faults.append(([f"--{each.flag}"], "needs a value; write --"))
                case Switch():
                    both = [f"--{each.flag}=false", f"--no-{each.flag}"]
                    faults.append((both, "is given twice"))
        if any(each.required for each in known):
            faults.append(([], f"`lab {name}` needs "))
        if not any(isinstance(each.kind, Arguments) for each in known):
            faults.append((["x"] * (len(known) + 1), f"unexpected argument 'x' for `lab {name}`"))
        for words, fault in faults:
            assert main([name, *words]) == 2, (name, words)
            shown = capsys.readouterr()
            assert shown.out == ""
            (line,) = shown.err.splitlines()
            assert fault in line, (name, words)


def test_no_flag_takes_an_empty_value() -> None:
    for name in COMMANDS:
        for each in parameters(module_of(name).command):
            if each.is_flag:
                with pytest.raises(InputError, match=f"^--{each.flag}: '' is not "):
                    each.read([""])


@pytest.mark.parametrize("text", ["1.10", "1e3", "None", "[1]", "{a: 1}", "True", "a=b", "1_0"])
def test_a_text_stays_unchanged(project: Path, text: str) -> None:
    for words in ([f"--output={text}"], ["--output", f"x{text}"]):
        assert lab(project, "render", "--gpus", "none", *words).returncode == 0
    assert (project / text).is_file()
    assert (project / f"x{text}").is_file()


def test_switches(stocked: Path) -> None:
    plain, (row,) = lab(stocked, "runs").stdout, json.loads(lab(stocked, "runs", "--json").stdout)
    assert row["run_id"] == RUN
    for yes in ("--json=true", "--json=TRUE"):
        assert json.loads(lab(stocked, "runs", yes).stdout) == [row]
    for no in ("--json=false", "--json=False", "--json=0", "--json=no", "--no-json"):
        assert lab(stocked, "runs", no).stdout == plain
    assert "already exists" in refused(lab(stocked, "init", "--gpus", "none", "--force=false"))


def test_a_command_prints_only_its_result(stocked: Path) -> None:
    """Fire would print a command's result, even `None`."""
    for line in ("runs", "show last", "experiments", "ps", "validate"):
        done = lab(stocked, *line.split())
        assert done.returncode == 0
        assert "None" not in done.stdout + done.stderr
    assert json.loads(lab(stocked, "validate", "--schema").stdout)["type"] == "object"
    version = lab(stocked, "--version").stdout
    assert re.fullmatch(rf"lab \d+\.\d+\.\d+, from the clone {ROOT}\n", version)


def test_the_overviews_list_the_commands(project: Path) -> None:
    """Without arguments the everyday ones, and with --help each of them once."""
    shown = re.findall(r"^  (\w+) ", lab(project).stdout, re.MULTILINE)
    assert shown == list(GROUPS[EVERYDAY])
    assert len(shown) == 6
    rows = dict(re.findall(r"^  ([a-z]+) +(.+)$", lab(project, "--help").stdout, re.MULTILINE))
    assert rows == dict(COMMANDS)
    assert next(iter(rows)) == shown[0]


def rows(table: str) -> list[list[str]]:
    return [re.split(" {3,}", line.strip(), maxsplit=1) for line in table.splitlines()]


def in_usage(each: Parameter) -> str:
    """A positional parameter in the usage line, with brackets around what may be left out."""
    if not isinstance(each.kind, Arguments):
        return each.usage if each.required else f"[{each.usage}]"
    return f"{each.usage} " * each.required + f"[{each.usage} …]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_a_page(name: str) -> None:
    """In a line with its command, or in the table of options that several commands have."""
    rooms = ("start", "tutorials", "how-to", "reference", "explanation")
    pages = [
        ROOT / "README.md",
        *(page for room in rooms for page in (ROOT / "docs" / room).rglob("*.md")),
    ]
    text = "\n".join(page.read_text() for page in pages)
    several = text.partition("## Options of several commands\n")[2].partition("\n## ")[0]
    lines = "\n".join([several, *re.findall(rf"lab {name}\b.*", text)])
    on_pages = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", lines))
    for option in parameters(module_of(name).command):
        if option.is_flag:
            forms = {f"--{option.flag.replace('_', '-')}", getattr(option.kind, "short", "")}
            assert forms & on_pages, f"show `lab {name} {max(forms, key=len)}` on a page"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> tuple[str, str]:
        assert main([name, "--help"]) == 0
        text, _, its_examples = capsys.readouterr().out.partition("\nexamples:\n")
        return text, its_examples

    text, its_examples = shown()
    known = parameters(module_of(name).command)
    flags = [each for each in known if each.is_flag]
    positional = [each for each in known if isinstance(each.kind, Argument | Arguments)]
    programs = [each.kind for each in known if isinstance(each.kind, ProgramArguments)]
    title, usage, *rest = text.rstrip().split("\n\n")
    assert title == f"lab {name}: {COMMANDS[name]}"
    words = [*map(in_usage, positional), *(each.usage for each in flags if each.required)]
    words += ["[FLAGS]"] * bool(flags) + ["[-- ARGUMENTS FOR THE PROGRAM]"] * len(programs)
    assert usage == " ".join(["usage: lab", name, *words])
    if positional:
        assert rows(rest.pop(0)) == [[each.usage, each.help] for each in positional]
    if flags:
        heading, _, table = rest.pop(0).partition("\n")
        assert heading == "flags:"
        for each, (form, description) in zip(flags, rows(table), strict=True):
            assert_describes(form, description, each)
    notes = inspect.cleandoc(module_of(name).__doc__ or "").partition("\n\n")[2]
    notes = "\n".join(each.help for each in programs if not each.verbatim) + "\n" + notes
    assert " ".join(rest).split() == notes.partition("Examples:\n")[0].split()
    lines = re.findall(r"^  # .+\n  (lab .+)$", its_examples, re.MULTILINE)
    assert lines == examples(name)
    assert len(lines) >= 2
    assert name in {line.split()[1] for line in lines}
    faults = wrong_commands("\n".join(f"`{line.partition(' >')[0]}`" for line in lines))
    assert [each for each in faults if not each.endswith("no experiment mine.py")] == []
    # On a terminal, it wraps at words.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    narrow, last = shown()
    assert max(map(len, narrow.splitlines())) <= 80
    lines = f"{narrow}\nexamples:\n{last}".splitlines()
    assert name != "run" or len(lines) <= 50  # a screen
    assert narrow.split() == text.split()


def assert_describes(form: str, description: str, flag: Parameter) -> None:
    """Assert that a row of the help is that of a flag: its form, its text and its default."""
    forms = [flag.short] * bool(flag.short) + [f"--{flag.flag.replace('_', '-')}"]
    own = getattr(flag.kind, "shows", "")
    shows = f" {own}" if isinstance(flag.kind, Flag) else own
    assert form == ", ".join(forms) + shows
    # One line, like a title: no sentence.
    assert re.fullmatch(r"(?![A-Z][a-z]).+[^.]", flag.help)
    if flag.required or flag.is_switch or flag.default in (None, "", ()):
        assert description == flag.help
    else:
        found = re.fullmatch(re.escape(flag.help) + r" \(default: (.+)\)", description)
        assert found
        assert flag.default in (found[1], flag.read([found[1]]))


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_the_help_of_an_experiment_has_only_its_own_flags(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", experiment.name, "--help"]) == 0
    title, usage, jobs, flags, its_example, _ = capsys.readouterr().out.split("\n\n")
    assert title == f"lab run {experiment.name}: {experiment.summary}"
    assert usage == f"usage: lab run {experiment.name} [FLAGS]"
    assert jobs == f"It needs a cluster with the jobs {', '.join(experiment.jobs)}."
    heading, _, table = flags.partition("\n")
    assert heading in {f"flags of {experiment.name}:", f"{experiment.name} has no flags."}
    assert rows(table) == [
        [f"--{flag}" if each.is_switch else f"--{flag} VALUE", each.help]
        for flag, each in experiment.flags.items()
    ]
    (example,) = re.findall(rf"^example:\n  (lab run {experiment.name}\b.*)$", its_example)
    assert wrong_commands(f"`{example}`") == []


def test_the_help_of_every_run_points_to_the_experiments(project: Path) -> None:
    general = lab(project, "run", "--help").stdout
    for words in (["run", "nothing-known"], ["run", "--backend", "local"]):
        assert lab(project, *words, "--help").stdout == general
    shown = lab(project, "sweep", "async", "--help").stdout
    assert "flags of async:" in shown
    assert {"--ps_strategy", "--over"} <= flags_in(shown).keys()


@pytest.mark.parametrize("words", [["--help"], ["runs", "-h"], ["help", "runs"], ["experiments"]])
def test_no_pager_on_a_terminal(project: Path, words: list[str]) -> None:
    code, shown = on_a_terminal(project, words)
    assert code == 0
    assert "runs" in shown or "async" in shown
    assert "\x1b[?" not in shown


# These commands need TensorFlow, an environment or an engine, or go on until Ctrl-C; that their
# examples work is shown in tests/e2e. Every other command's examples are run here, so that none can
# rot.
NEEDS_MORE = {"run", "sweep", "reproduce", "attach", "cancel", "fault"} | {
    "up", "down", "ps", "logs", "shell", "build", "doctor", "class",
    "check", "restore",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEEDS_MORE))
def test_examples_work(tmp_path: Path, name: str) -> None:
    """Each example in a fresh copy of the project; a shell would write the output to a file."""
    for part in ("cluster.yaml", "clusters", "lab/cluster/config/cluster.schema.json"):
        source, target = ROOT / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    (tmp_path / "scripts").mkdir()
    if name == "init":
        (tmp_path / "cluster.yaml").unlink()
    make_run(tmp_path, RUN)
    if name == "compare":
        make_run(tmp_path, "20260102-0000-async-bbbb")
    if name == "import":
        lab(tmp_path, "export", "20260101")
        shutil.rmtree(tmp_path / "runs")
    for line in examples(name):
        words = shlex.split(line.partition(" > ")[0])
        done = lab(tmp_path, *words[1:], HOME=str(tmp_path))
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout or done.stderr, line


def test_invalid_config(project: Path) -> None:
    (project / "cluster.yaml").write_text(CLUSTER.replace("nodes:", "node:"))
    before = contents(project)
    done = lab(project, "validate")
    assert (done.returncode, done.stdout) == (2, "")
    assert all(line.startswith("cluster.yaml:") for line in done.stderr.splitlines())
    shown = json.loads(lab(project, "validate", "--json").stdout)
    assert shown == {**shown, "valid": False, "problems": done.stderr.splitlines()}
    run = lab(project, "run", "async", "--backend", "local")
    assert (run.returncode, run.stderr) == (2, done.stderr)
    assert contents(project) == before


def test_a_config_is_named_with_the_flag_or_without(project: Path) -> None:
    (project / "other.yaml").write_text(CLUSTER.replace("mnist", "other"))
    same = [["other.yaml"], ["--cluster", "other.yaml"], ["other.yaml", "--cluster=./other.yaml"]]
    for words in same:
        assert "other, 2 nodes, 2 tasks" in lab(project, "validate", *words).stderr
    rendered = {lab(project, "render", *words, "--output", "-").stdout for words in same}
    assert ["\nname: other\n" in text for text in rendered] == [True]


def test_an_experiment_without_a_valid_program_starts_nothing(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    path = project / "scripts/mnist_async.py"
    programs = {
        "syntax error": b"x = 1\nif x\n    pass\n",
        "binary": b"\x00\xff\x1b]0;owned\x07",
        "missing": None,
    }
    shown = {}
    for name, program in programs.items():
        path.unlink() if program is None else path.write_bytes(program)
        shown[name] = refusal(project, "run async --backend local --gpus none")
    assert shown == snapshot


def test_a_config_with_other_jobs_is_refused_with_one_that_fits(
    project: Path,
    snapshot: SnapshotAssertion,
) -> None:
    lines = []
    (project / "clusters").mkdir()
    (project / "clusters/broken.yaml").write_text("{")
    for jobs in ("chief: {on: [tf1]}", "ps: {on: [tf1]}, chief: {on: [tf1]}"):
        (project / "cluster.yaml").write_text(CLUSTER.replace("ps: {on: [tf1]}", jobs))
        lines.append(refusal(project, "run async --gpus none"))
    (project / "clusters/fits.yaml").write_text(CLUSTER)
    lines.append(refusal(project, "run async --gpus none"))
    # The best one for an experiment is named, not the first.
    for name in ("one-host", "workers"):
        shutil.copy(ROOT / f"clusters/{name}.yaml", project / "clusters")
    lines.append(refusal(project, "run multiworker --gpus none"))
    (project / "cluster.yaml").unlink()
    lines.append(refusal(project, "render"))
    assert lines == snapshot


def test_listing_nothing(project: Path) -> None:
    for command in ("ps", "runs"):
        assert json.loads(lab(project, command, "--json").stdout) == []
        assert lab(project, command).returncode == 0
    assert lab(project, "down", "--all").returncode == 0


def test_render_check(project: Path) -> None:
    missing = refusal(project, "render --check --gpus none", 1)
    assert missing == "error: compose.yaml is missing; write it with `lab render`"
    assert lab(project, "render", "--gpus", "none").returncode == 0
    fresh = lab(project, "render", "--check")
    assert (fresh.returncode, fresh.stdout) == (0, "")
    printed = lab(project, "render", "--gpus", "none", "--output", "-")
    assert printed.stdout == (project / "compose.yaml").read_text()
    (project / "cluster.yaml").write_text(CLUSTER.replace("tf2", "tf9"))
    stale = lab(project, "render", "--check")
    assert (stale.returncode, "\n+" in stale.stdout) == (1, True)
    assert "error: compose.yaml is out of date" in stale.stderr
    assert "tf9" not in (project / "compose.yaml").read_text()


def test_broken_pipe(project: Path) -> None:
    for number in range(300):
        make_run(project, f"20260101-0000-async-{number:04}")
    with subprocess.Popen(
        [sys.executable, "-m", "lab", "runs", "--json"],
        cwd=project,
        env=environ(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(PATIENCE_S)


def test_unexpected_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    def fail(error: BaseException) -> None:
        raise error

    shown = []
    for error, code in (
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "full"), 1),
        (OSError(errno.EACCES, "Permission denied", "runs/x"), 1),
        (ZeroDivisionError("by 0"), 1),
        (ModuleNotFoundError("No module named 'fire'", name="fire.core"), 1),
        (ModuleNotFoundError("No module named 'lab.x'", name="lab.x"), 1),
    ):
        with shown_by(show):
            assert exit_code_of(partial(fail, error), debug=False) == code
        (line,) = capsys.readouterr().err.splitlines()
        shown.append(line.replace(install_command(), "COMMAND"))
        assert exit_code_of(partial(fail, error), debug=True) == code
        assert "Traceback" in capsys.readouterr().err
    assert shown == snapshot


def test_debug_shows_the_traceback_of_a_defect(
    stocked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.verbs.runs.infos", lambda _: 1 / 0)
    for words in (["--debug", "runs"], ["runs", "--debug"], ["runs"]):
        assert ("Traceback" in lab(stocked, *words).stderr) is ("--debug" in words)
