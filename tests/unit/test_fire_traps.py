"""Fire's default behaviour, command by command: none of it happens here.

`run`, `render`, `init` and `runs` represent commands that write, cost time, or print; where a
terminal changes what Fire does, there is one.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.cli import main
from lab.cli.arguments import (
    Argument,
    Arguments,
    Flag,
    ParameterKind,
    ProgramArguments,
    Switch,
    check,
    parameters,
)
from lab.cli.registry import COMMANDS
from tests.support.cli import CLUSTER, environ, lab, make_run, on_a_terminal, refused

FUNCTIONS = {name: importlib.import_module(f"lab.cli.commands.{name}").command for name in COMMANDS}


Said = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a config, programs, and one run."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    for name in ("mnist_async.py", "mnist_sync.py"):
        (tmp_path / "scripts" / name).write_text("raise SystemExit('it ran')\n")
    make_run(tmp_path, "20260101-0000-async-aaaa")
    return tmp_path


def contents(project: Path) -> dict[str, str]:
    """Every file, with its content."""
    return {
        str(path.relative_to(project)): path.read_text()
        for path in project.rglob("*")
        if path.is_file()
    }


def refused_without_a_trace(project: Path, *arguments: str) -> str:
    """The error of a command that wrote nothing, booted nothing and printed no result."""
    before = contents(project)
    line = refused(lab(project, *arguments))
    assert contents(project) == before
    return line


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command in this process, where Fire must not be reached; gives its error."""

    def never(*_: object, **__: object) -> None:
        pytest.fail("the command was called")

    monkeypatch.setattr("fire.Fire", never)

    def run(*arguments: str) -> str:
        assert main(arguments) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        (line,) = shown.err.splitlines()
        return line

    return run


def needed(name: str, flag: str = "") -> list[str]:
    """The required parts of a command: positional arguments, and flags other than this one."""
    known = [each for each in parameters(FUNCTIONS[name]) if each.required]
    arguments = [
        next(iter(getattr(getattr(each.kind, "parse", None), "choices", ("x",))))
        for each in known
        if isinstance(each.kind, Argument | Arguments)
    ]
    flags = [each.flag for each in known if isinstance(each.kind, Flag) and each.flag != flag]
    return [*arguments, *(f"--{each}=workers=1,2" for each in flags)]


# ---- A misspelt flag is reported before anything runs


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["render", "--gpus", "none", "--ouput", "x.yml"], "--output"),
        (["init", "--gpus", "none", "--force", "--worker", "3"], "--workers"),
        (["init", "--forse"], "--force"),
        (["run", "async", "--backend", "local", "--epoch", "1"], "--epochs"),
        (["run", "async", "--backend", "local", "--kep"], "--keep"),
        (["run", "async", "-epochs", "1"], "--epochs"),
        (["runs", "--jsn"], "--json"),
        (["down", "--yess"], "--yes"),
        (["show", "last", "--run-dir", "x"], "--runs-dir"),
    ],
)
def test_a_misspelt_flag_is_refused_with_a_suggestion(
    project: Path, arguments: list[str], meant: str
) -> None:
    line = refused_without_a_trace(project, *arguments)
    assert "no option" in line
    assert f"did you mean '{meant}'?" in line.replace("_", "-")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_a_flag_that_it_does_not_have(output: Said, name: str) -> None:
    arguments = needed(name)
    line = output(name, *arguments, "--zzz=1")
    assert line.startswith(f"error: no option '--zzz' for `lab {name}`; see `lab {name} --help`")


def takes_any_number(name: str) -> bool:
    return any(isinstance(each.kind, Arguments) for each in parameters(FUNCTIONS[name]))


@pytest.mark.parametrize("name", [name for name in COMMANDS if not takes_any_number(name)])
def test_every_command_refuses_an_unexpected_argument(output: Said, name: str) -> None:
    places = [each for each in parameters(FUNCTIONS[name]) if isinstance(each.kind, Argument)]
    line = output(name, *(["x"] * len(places)), "stray")
    assert f"unexpected argument 'stray' for `lab {name}`" in line


@pytest.mark.parametrize("name", [name for name in COMMANDS if takes_any_number(name)])
def test_a_variadic_command_gets_all_arguments(name: str) -> None:
    (several,) = (each for each in parameters(FUNCTIONS[name]) if isinstance(each.kind, Arguments))
    places = [each for each in parameters(FUNCTIONS[name]) if isinstance(each.kind, Argument)]
    texts = check(name, FUNCTIONS[name], [*["x"] * len(places), "a", "last", "b c"])
    assert json.loads(texts[several.name]) == ["a", "last", "b c"]


# ---- Values are not guessed


@pytest.mark.parametrize(
    "text", ["1.10", "1e3", "None", "[1]", "{a: 1}", "True", "0x10", "a=b", "1_0"]
)
def test_a_text_stays_unchanged(project: Path, text: str) -> None:
    assert lab(project, "render", "--gpus", "none", f"--output={text}").returncode == 0
    assert (project / text).is_file()
    assert lab(project, "render", "--gpus", "none", "--output", f"x{text}").returncode == 0
    assert (project / f"x{text}").is_file()


@pytest.mark.parametrize("name", ["1.10", "None", "True"])
def test_a_name_is_no_number(project: Path, name: str) -> None:
    line = refused_without_a_trace(project, "init", "--output", "new.yaml", f"--name={name}")
    assert f"{name!r} is not a name" in line
    done = lab(project, "init", "--gpus=none", "--output=new.yaml", "--name=1e3")
    assert done.returncode == 0
    assert 'name: "1e3"' in (project / "new.yaml").read_text()


@pytest.mark.parametrize(
    "no", ["--json=false", "--json=False", "--json=0", "--json=no", "--no-json"]
)
def test_a_switch_with_no_is_off(project: Path, no: str) -> None:
    plain = lab(project, "runs")
    output = lab(project, "runs", no)
    assert (output.returncode, output.stdout) == (0, plain.stdout)
    assert lab(project, "runs", "--json").stdout != plain.stdout


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        (name, parameter.flag)
        for name, function in FUNCTIONS.items()
        for parameter in parameters(function)
        if isinstance(parameter.kind, Switch)
    ],
)
def test_every_switch_takes_false_for_no_and_nothing_else(
    output: Said, name: str, flag: str
) -> None:
    arguments = needed(name)
    line = output(name, *arguments, f"--{flag}=perhaps")
    assert f"--{flag}: 'perhaps' is not true or false" in line
    line = output(name, *arguments, f"--{flag}=false", f"--no-{flag}")
    assert f"--{flag} is given twice" in line


def test_no_switch_takes_the_next_argument(project: Path) -> None:
    line = refused_without_a_trace(project, "runs", "--json", "false")
    assert "unexpected argument 'false'" in line
    assert "as in --json=false" in line
    line = refused_without_a_trace(project, "init", "--force", "false", "--gpus", "none")
    assert "unexpected argument 'false'" in line


def test_init_with_force_false_forces_nothing(project: Path) -> None:
    line = refused_without_a_trace(project, "init", "--gpus", "none", "--force=false")
    assert "already exists" in line


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        (name, parameter.flag)
        for name, function in FUNCTIONS.items()
        for parameter in parameters(function)
        if isinstance(parameter.kind, Flag)
    ],
)
def test_every_flag_wants_its_value(output: Said, name: str, flag: str) -> None:
    arguments = needed(name, flag)
    dashed = "--" + flag.replace("_", "-")
    needs = f"{dashed} needs a value; write {dashed}=VALUE"
    assert needs in output(name, *arguments, dashed)
    assert needs in output(name, *arguments, dashed, "--json")
    assert f"--{flag}: '' is not" in output(name, *arguments, f"{dashed}=")


# ---- Results have no members, are not printed, and Fire's own flags are refused


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "keys"],
        ["runs", "__class__"],
        ["validate", "cluster.yaml", "upper"],
        ["show", "last", "upper"],
        ["show", "last", "-", "upper"],
        ["schema", "-"],
        ["schema", "-", "keys"],
        ["runs", "-", "--json"],
        ["init", "-"],
        ["render", "cluster.yaml", "-", "--gpus", "none"],
    ],
)
def test_nothing_is_chained_into_a_result(project: Path, arguments: list[str]) -> None:
    assert "unexpected argument" in refused_without_a_trace(project, *arguments)


@pytest.mark.parametrize(
    "flag", ["--trace", "--interactive", "--completion", "--verbose", "--help"]
)
@pytest.mark.parametrize("command", [["runs"], ["show", "last"], ["init"], ["render"]])
def test_fires_flags_are_refused(project: Path, command: list[str], flag: str) -> None:
    why = "need an experiment" if command == ["render"] else "starts no program"
    assert why in refused_without_a_trace(project, *command, "--", flag)
    if flag != "--help":
        assert "no option" in refused_without_a_trace(project, *command, flag)


def test_a_separator_is_an_unexpected_argument(project: Path) -> None:
    line = refused_without_a_trace(project, "runs", "X", "keys", "--", "--separator=X")
    assert "unexpected argument 'X'" in line


def test_a_command_prints_only_its_result(project: Path) -> None:
    """Fire would print a command's result, even `None`."""
    for arguments in (["runs"], ["show", "last"], ["experiments"], ["ls"], ["validate"]):
        done = lab(project, *arguments)
        assert done.returncode == 0
        assert "None" not in done.stdout + done.stderr


# ---- At a terminal


@pytest.mark.parametrize("pager", ["less", "more", "false", ""])
def test_help_is_never_paged(project: Path, pager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", pager)
    monkeypatch.setenv("MANPAGER", pager)
    for arguments in (["--help"], ["runs", "--help"], ["help", "runs"], ["runs", "-h"], []):
        code, shown = on_a_terminal(project, arguments)
        assert code == 0
        assert "runs" in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "keys"],
        ["show", "last", "-", "upper"],
        ["runs", "--", "--interactive"],
        ["runs", "--", "--trace"],
        ["runs", "--jsn"],
        ["render", "--output"],
        ["init", "stray"],
    ],
)
def test_a_terminal_changes_nothing(project: Path, arguments: list[str]) -> None:
    before = contents(project)
    code, shown = on_a_terminal(project, arguments)
    (line,) = shown.splitlines()
    assert code == 2
    assert line == refused(lab(project, *arguments))
    assert contents(project) == before


# ---- Destructive commands ask


@pytest.mark.parametrize("arguments", [["down", "--discard"], ["down", "--all"]])
def test_destruction_asks_first(project: Path, arguments: list[str]) -> None:
    """Without a terminal no answer is possible, so nothing is removed; see the fakes' tests."""
    code = (
        "import sys; from pathlib import Path;"
        "import lab.cli as cli, lab.service.environments as environments;"
        "from tests.support.fakes import FakeBackend, FakeEnvironment;"
        "Path('volume').mkdir(); made = FakeEnvironment(Path('volume'));"
        "made.down = lambda say, **_: print('removed');"
        "environments.backends = lambda: [FakeBackend('local', made)];"
        "sys.exit(cli.main(sys.argv[1:]))"
    )

    def down(*more: str) -> subprocess.CompletedProcess[str]:
        (project / "volume").rmdir() if (project / "volume").is_dir() else None
        return subprocess.run(
            [sys.executable, "-c", code, *arguments, *more],
            cwd=project,
            env=environ(project),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    asked = down()
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "cannot ask: remove mnist (local)? (stdin is not a terminal); add --yes" in asked.stderr
    assert down("--yes=false").stdout == ""
    assert "removed" in down("--yes").stdout


# ---- The shape of every command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_is_keyword_only_and_annotated(name: str) -> None:
    signature = inspect.signature(FUNCTIONS[name])
    assert signature.return_annotation in (None, "None")
    for parameter in signature.parameters.values():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    for parameter in parameters(FUNCTIONS[name]):
        assert isinstance(parameter.kind, ParameterKind)
        assert parameter.kind.help
        if isinstance(parameter.kind, Switch):
            assert parameter.default is False
        if isinstance(parameter.kind, ProgramArguments):
            assert parameter.default == ()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_annotated_to_return_none(name: str) -> None:
    """The annotation is checked by mypy; here, that the source returns no value."""
    lines = inspect.getsource(FUNCTIONS[name]).splitlines()
    returns = [line.strip() for line in lines if line.strip().startswith("return")]
    assert set(returns) <= {"return"}


def test_json_takes_true(project: Path) -> None:
    (row,) = json.loads(lab(project, "runs", "--json=TRUE").stdout)
    assert row["run_id"] == "20260101-0000-async-aaaa"
