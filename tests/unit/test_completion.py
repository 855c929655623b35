"""Shell completion by real shells: the test types text, Tab and Enter."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.backends.names import BACKENDS
from lab.cli.completion.scripts import script
from lab.cli.completion.spec import CommandSpec, Option, Value
from lab.cli.registry import COMMANDS
from lab.experiments.registry import EXPERIMENTS
from tests.support.agents import PATIENCE_S
from tests.support.cli import ROOT, flags_in, lab
from tests.support.terminals import terminal

SHELLS = ("bash", "zsh", "fish")
PROBE = "$(touch pwned)"
CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf2]}}
"""
# A fake lab that stores its arguments; the real one answers the shell's requests at Tab.
NOTING = """\
#!/bin/sh
if [ "$1" = __complete ]; then {answers}; fi
printf '%s\\n' "$*" >> {typed}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a config, runs, and the script of every shell."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/book.yaml").write_text(CLUSTER.replace("mine", "book"))
    for name in ("20260101-0000-async-aaaa", "20260202-0000-sync-bbbb", PROBE, "a b;touch pwned"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    for shell in SHELLS:
        (tmp_path / f"lab.{shell}").write_text(script(shell))
    answers = f"PYTHONPATH={ROOT} exec {sys.executable} -m lab"
    put_lab(tmp_path, f'{answers} "$@"')
    return tmp_path


def put_lab(place: Path, answers: str) -> None:
    (place / "bin").mkdir(exist_ok=True)
    file = place / "bin/lab"
    file.write_text(NOTING.format(answers=answers, typed=shlex.quote(str(place / "typed"))))
    file.chmod(0o755)


def environ(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    home = str(place / "home")
    return {
        **kept,
        "PATH": f"{place / 'bin'}:{kept['PATH']}",
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "XDG_DATA_HOME": home,
        "LAB_STATE": str(place / "state"),
        "TERM": "xterm",
        "INPUTRC": "/dev/null",
    }


# ---- Candidates of lab


def names_of(kind: str, place: Path) -> list[str]:
    done = lab(place, "__complete", kind)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_runs_tasks_and_environments_are_completed(place: Path) -> None:
    (place / "state/local/other").mkdir(parents=True)
    (place / "state/local/other/environment.json").write_text("{}")
    runs = ["last", "last~1", "20260202-0000-sync-bbbb", "20260101-0000-async-aaaa"]
    assert names_of("runs", place) == runs
    assert {"straggler", *runs} < {*names_of("recordings", place)}
    assert names_of("tasks", place) == ["ps-0", "worker-0", "worker-1"]
    assert names_of("environments", place) == ["book", "mine", "other"]
    assert names_of("secrets", place) == []


@pytest.mark.parametrize(
    "text", ["", "- a", "{", "jobs: 3", "jobs: {ps: {on: 3}}", "\x00", "&a [*a]"]
)
def test_unreadable_config_completes_nothing(text: str, tmp_path: Path) -> None:
    assert names_of("tasks", tmp_path) == names_of("runs", tmp_path) == []
    (tmp_path / "cluster.yaml").write_text(text)
    assert names_of("tasks", tmp_path) == names_of("environments", tmp_path) == []


# ---- bash, argument by argument


def bash_offers(place: Path, *lines: Sequence[str]) -> list[list[str]]:
    """The candidates of bash for the last argument of each line."""
    calls = "".join(
        f"COMP_WORDS=({shlex.join(arguments)}); COMP_CWORD={len(arguments) - 1}; _lab;"
        " printf '%s\\n' \"${COMPREPLY[@]}\" ---\n"
        for arguments in lines
    )
    # Outside of a completion there is no compopt.
    script = f"source lab.bash\ncompopt() {{ :; }}\n{calls}"
    done = subprocess.run(
        ["bash", "--norc", "-u", "-c", script],
        cwd=place,
        env=environ(place),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    blocks = done.stdout.split("---\n")[:-1]
    return [[word for word in block.splitlines() if word] for block in blocks]


OF_RUNS = ("report", "logs", "attach", "cancel", "collect")


def test_bash_offers_valid_candidates(place: Path) -> None:
    runs = ["last", "last~1", "20260202-0000-sync-bbbb", "20260101-0000-async-aaaa"]
    expected = {
        ("lab", "val"): ["validate"],
        ("lab", "show", ""): runs,
        ("lab", "show", "20260202"): runs[2:3],
        ("lab", "show", "last", ""): [],
        ("lab", "show", "--json", "2026"): runs[2:],
        ("lab", "show", "last~"): ["last~1"],
        **{("lab", name, "last~"): ["last~1"] for name in OF_RUNS},
        ("lab", "run", "async", "--resume", ""): runs,
        ("lab", "compare", "last", ""): runs,
        ("lab", "fault", "--run", "last~"): ["last~1"],
        ("lab", "runs", "--state", "da"): ["damaged"],
        ("lab", "runs", "--experiment", "async-f"): ["async-fast"],
        ("lab", "render", "--run", "async-f"): ["async-fast"],
        ("lab", "show", "--runs-dir", "x", "la"): runs[:2],
        ("lab", "show", "--runs_dir", "x", "la"): runs[:2],
        ("lab", "show", "--runs-dir", "=", "x", "la"): runs[:2],
        ("lab", "show", "--json", "="): ["true", "false"],
        ("lab", "show", "--json", "=", "f"): ["false"],
        ("lab", "run", ""): list(EXPERIMENTS),
        ("lab", "run", "async", "--back"): ["--backend"],
        ("lab", "run", "async", "--backend", ""): list(BACKENDS),
        ("lab", "run", "async", "--backend", "=", "l"): ["local"],
        ("lab", "run", "async", "--backend", "="): list(BACKENDS),
        ("lab", "run", "async", "--model", "m"): ["mlp"],
        ("lab", "run", "async", "--ps_strategy", ""): ["round_robin", "greedy"],
        ("lab", "run", "async", "--epochs", ""): [],
        ("lab", "run", "async", "-o", "name"): ["namespace="],
        ("lab", "run", "async", "-o", "ne"): ["network=portable", "network=isolated"],
        ("lab", "run", "async", "-o", "het", "=", "n"): ["no"],
        ("lab", "run", "async", "--option", "=", "het", "="): ["yes", "no"],
        ("lab", "run", "async", "--option", "=", "het", "=", "no", "--back"): ["--backend"],
        ("lab", "render", "-o", "t"): ["time="],
        ("lab", "render", "-o", "time", "=", ""): [],
        ("lab", "show", "--runs-dir", "=", "x", "=", "y", "last~"): ["last~1"],
        ("lab", "run", "async", "--", "--b"): [],
        ("lab", "shell", "worker"): ["worker-0", "worker-1"],
        ("lab", "logs", "--task", "ps"): ["ps-0"],
        ("lab", "down", ""): ["book", "mine"],
        ("lab", "init", "--name", ""): [],
        ("lab", "experiments", "s"): ["sync", "sync-mlp", "sync-fast", "staleness"],
        ("lab", "completion", ""): ["bash", "zsh", "fish"],
        ("lab", "help", "ini"): ["init"],
        ("lab", "$(touch pwned)"): [],
        ("lab", "show", "`touch pwned`"): [],
        ("lab", "$(touch pwned)", ""): [],
        ("lab", "*", "*"): [],
    }
    assert dict(zip(expected, bash_offers(place, *expected), strict=True)) == expected
    assert not (place / "pwned").exists()


def test_every_script_offers_every_flag_of_every_command(place: Path) -> None:
    lines = [("lab", name, "--") for name in COMMANDS]
    offered = dict(zip(COMMANDS, map(set, bash_offers(place, *lines)), strict=True))
    known = {name: set(flags_in(lab(place, name, "--help").stdout)) for name in COMMANDS}
    known["run"] |= {f"--{flag}" for each in EXPERIMENTS.values() for flag in each.flags}
    assert {name: flags - offered[name] for name, flags in known.items()} == {
        name: set() for name in COMMANDS
    }
    zsh, fish = ((place / f"lab.{shell}").read_text() for shell in ("zsh", "fish"))
    flags = {flag for each in offered.values() for flag in each}
    assert {flag for flag in flags if flag not in zsh or f"-l {flag[2:]}" not in fish} == set()
    assert {name for name in COMMANDS if name not in zsh or name not in fish} == set()


# ---- Every shell, at a terminal

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./lab.bash"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -d ./dump; source ./lab.zsh",
    ),
    "zsh from fpath": (
        ["zsh", "-f", "-i"],
        "mkdir -p zfunc; cp lab.zsh zfunc/_lab; fpath=(./zfunc $fpath);"
        " autoload -Uz compinit; compinit -u -d ./dump",
    ),
    "fish": (["fish", "--no-config", "-i"], "source ./lab.fish"),
}


@pytest.fixture(params=START)
def shell(request: pytest.FixtureRequest) -> str:
    """Each way to start a shell. A host has bash, but may lack the others, also under CI."""
    name: str = request.param
    program = START[name][0][0]
    if program != "bash" and shutil.which(program) is None:
        pytest.skip(f"no {program} here, so its completion is NOT tested: apt install {program}")
    return name


def called(place: Path) -> list[str]:
    """The arguments with which lab was called."""
    typed = place / "typed"
    return typed.read_text().splitlines() if typed.exists() else []


@contextmanager
def at_a_terminal(shell: str, place: Path) -> Iterator[Callable[[str, str], None]]:
    """A shell at a terminal: type keys, and wait until lab was called with these arguments."""
    argv, setup = START[shell]
    with terminal(argv, cwd=place, env=environ(place)) as opened:

        def enter(keys: str, last: str) -> None:
            opened.type(keys)
            opened.wait_for(lambda: last in called(place), f"lab {last}", PATIENCE_S)

        enter(f"{setup}\nlab ready\n", "ready")
        yield enter


TYPED = {
    "lab val\t\n": "validate",
    "lab show 20260202\t\n": "show 20260202-0000-sync-bbbb",
    "lab show last~\t\n": "show last~1",
    "lab run ev\t--back\tloc\t\n": "run evaluator --backend local",
    "lab run async --backend=loc\t\n": "run async --backend=local",
    "lab run async --mode\tml\t\n": "run async --model mlp",
    "lab validate --cluster clusters/bo\t\n": "validate --cluster clusters/book.yaml",
    "lab render clusters/bo\t\n": "render clusters/book.yaml",
    "lab shell p\t\n": "shell ps-0",
    "lab run async -o h\tn\t-o ti\t2h\n": "run async -o het=no -o time=2h",
    "lab completion z\t--he\t\n": "completion zsh --help",
}


def test_tab_completes(shell: str, place: Path) -> None:
    with at_a_terminal(shell, place) as enter:
        for number, keys in enumerate(TYPED):
            enter(f"{keys}lab end {number}\n", f"end {number}")
    # zsh writes `--flag=` where a value follows, and the others a blank; both mean the same.
    plain = [line.rstrip().replace("=", " ") for line in called(place)[1::2]]
    assert plain == [line.replace("=", " ") for line in TYPED.values()]


def assert_calls_only(shell: str, place: Path, keys: str, called_with: str) -> None:
    """Check that keys call lab so, and that nothing else is executed."""
    with at_a_terminal(shell, place) as enter:
        enter(keys, "end")
    assert called(place)[1].rstrip().replace("=", " ") == called_with
    assert not (place / "pwned").exists()
    assert not (place / "b").exists()


def test_a_candidate_is_never_executed(shell: str, place: Path) -> None:
    """A shell reads plain text from any answer of lab, and runs nothing."""
    evil = place / "evil"
    evil.write_text(f"{PROBE}\n`touch pwned`\na b;touch pwned\n-x\n$PATH\n~\n*\nzz'\\\nplain-1\n")
    put_lab(place, f"cat {shlex.quote(str(evil))}; exit")
    assert bash_offers(place, ("lab", "show", "")) == [["-x", "plain-1"]]
    keys = "lab show pl\t\nlab show \t\t\t\x15lab end\n"
    assert_calls_only(shell, place, keys, "show plain-1")


def test_any_text_can_be_a_help_text(
    shell: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script quotes texts for its shell: none is executed, none ends a specification."""
    text = f'it\'s [a:b] \\ {PROBE} `touch pwned` "c"'
    options = [
        Option("plain", text, "p"),
        Option("valued", text, value=Value(text, ("one", "two"))),
    ]
    odd = CommandSpec("odd", text, options, [Value(text, ("three",))], passes_arguments=False)
    monkeypatch.setattr("lab.cli.completion.scripts.specs", lambda: [odd])
    for each in SHELLS:
        (place / f"lab.{each}").write_text(script(each))
    keys = "lab od\t--pl\t--val\ttw\tth\t\nlab end\n"
    assert_calls_only(shell, place, keys, "odd --plain --valued two three")
