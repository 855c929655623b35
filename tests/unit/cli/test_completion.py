"""Shell completion by real shells: the test types text, Tab and Enter."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.backends.names import backend_names
from lab.cli.registry import COMMANDS
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs.completion import SCRIPTS
from tests.support.agents import PATIENCE_S
from tests.support.cli import ROOT, flags_in, lab
from tests.support.terminals import terminal

SHELLS = ("bash", "zsh", "fish")
UNSAFE = ("$(touch pwned)", "`touch pwned`", "a b;touch pwned", "$PATH", "~", "*", "zz'\\")
"""Names that a shell would expand. Directories of the run store have any name."""

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
    for name in ("20260101-0000-async-aaaa", "20260202-0000-sync-bbbb", *UNSAFE):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    for shell in SHELLS:
        (tmp_path / f"lab.{shell}").write_text(SCRIPTS[shell])
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


def offered(place: Path, *words: str) -> list[str]:
    done = lab(place, "__complete", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "text", ["", "- a", "{", "jobs: 3", "jobs: {ps: {on: 3}}", "\x00", "&a [*a]"]
)
def test_unreadable_config_completes_nothing(text: str, tmp_path: Path) -> None:
    for words in (("shell", ""), ("show", ""), ("down", "")):
        assert offered(tmp_path, *words) == []
    (tmp_path / "cluster.yaml").write_text(text)
    for words in (("shell", ""), ("down", "")):
        assert offered(tmp_path, *words) == []


def test_experiments_of_the_project_are_offered(place: Path) -> None:
    assert offered(place, "run", "ti") == []
    (place / "tiny.py").touch()
    (place / "experiments.yaml").write_text(
        "{version: 1, experiments: {tiny: {program: tiny.py, summary: s, jobs: [worker],"
        " framework: torch, flags: {loud: {help: h, choices: [no, yes]}}}}}"
    )
    for words in (("run", "ti"), ("experiments", "ti"), ("sweep", "ti")):
        assert offered(place, *words) == ["tiny"]
    assert offered(place, "run", "tiny", "--lo") == ["--loud"]
    assert offered(place, "run", "tiny", "--loud", "") == ["no", "yes"]
    (place / "experiments.yaml").write_text("{")
    assert offered(place, "run", "ti") == []
    assert "async" in offered(place, "run", "as")


OF_RUNS = ("report", "logs", "attach", "cancel")


def test_candidates_are_valid(place: Path) -> None:
    """Of words as bash splits them, and whole ones."""
    (place / "state/local/other").mkdir(parents=True)
    (place / "state/local/other/environment.json").write_text("{}")
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
        ("lab", "show", "--runs-dir", "=", "x", "la"): runs[:2],
        ("lab", "ps", "m"): ["mine"],
        ("lab", "run", ""): list(EXPERIMENTS),
        ("lab", "run", "async", "--back"): ["--backend"],
        ("lab", "run", "async", "--backend", ""): list(backend_names()),
        ("lab", "run", "async", "--backend", "=", "l"): ["local"],
        ("lab", "run", "async", "--backend", "="): list(backend_names()),
        ("lab", "run", "async", "--model", "m"): ["mlp"],
        ("lab", "run", "async", "--ps_strategy", ""): ["round_robin", "greedy"],
        ("lab", "run", "async", "--epochs", ""): [],
        ("lab", "run", "async", "-o", "name"): ["namespace="],
        ("lab", "run", "async", "-o", "ne"): ["network=portable", "network=isolated"],
        ("lab", "run", "async", "-o", "flavour", "=", "p"): ["plain"],
        ("lab", "run", "async", "--option", "=", "flavour", "="): ["jobset", "plain"],
        ("lab", "run", "async", "--option", "=", "flavour", "=", "plain", "--back"): ["--backend"],
        ("lab", "render", "-o", "t"): ["time="],
        ("lab", "render", "-o", "time", "=", ""): [],
        ("lab", "show", "--runs-dir", "=", "x", "=", "y", "last~"): ["last~1"],
        ("lab", "run", "async", "--", "--b"): [],
        ("lab", "shell", ""): ["ps-0", "worker-0", "worker-1"],
        ("lab", "shell", "worker"): ["worker-0", "worker-1"],
        ("lab", "logs", "--task", "ps"): ["ps-0"],
        ("lab", "down", ""): ["book", "mine", "other"],
        ("lab", "nothing", ""): [],
        ("lab", "run", "async", "--backend=lo"): ["--backend=local"],
        ("lab", "run", "async", "-o", "network=p"): ["network=portable"],
        ("lab", "show", "--json="): [],
        ("lab", "experiments", "s"): ["sync", "sync-mlp", "sync-fast", "staleness"],
        ("lab", "completion", ""): ["bash", "zsh", "fish"],
        ("lab", "help", "ini"): ["init"],
        ("lab", "$(touch pwned)"): [],
        ("lab", "show", "`touch pwned`"): [],
        ("lab", "$(touch pwned)", ""): [],
        ("lab", "*", "*"): [],
    }
    assert {words: offered(place, *words[1:]) for words in expected} == expected


def test_every_flag_of_every_command_is_offered(place: Path) -> None:
    for name in COMMANDS:
        known = set(flags_in(lab(place, name, "--help").stdout))
        if name == "run":
            known |= {f"--{flag}" for each in EXPERIMENTS.values() for flag in each.flags}
        assert known <= set(offered(place, name, "--")), name


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
    "lab compare '$(touch pwned)' last~\t\n": "compare $(touch pwned) last~1",
    "lab run ev\t--back\tloc\t\n": "run evaluator --backend local",
    "lab run async --backend=loc\t\n": "run async --backend=local",
    "lab run async --mode\tml\t\n": "run async --model mlp",
    "lab validate --cluster clusters/bo\t\n": "validate --cluster clusters/book.yaml",
    "lab render clusters/bo\t\n": "render clusters/book.yaml",
    "lab shell p\t\n": "shell ps-0",
    "lab run async -o fl\tp\t-o ti\t2h\n": "run async -o flavour=plain -o time=2h",
    "lab completion z\t--he\t\n": "completion zsh --help",
}


def test_tab_completes_and_executes_nothing(shell: str, place: Path) -> None:
    with at_a_terminal(shell, place) as enter:
        enter("lab show \t\t\t\x15lab listed\n", "listed")
        for number, keys in enumerate(TYPED):
            enter(f"{keys}lab end {number}\n", f"end {number}")
    # zsh writes `--flag=` where a value follows, and the others a blank; both mean the same.
    plain = [line.rstrip().replace("=", " ") for line in called(place)[2::2]]
    assert plain == [line.replace("=", " ") for line in TYPED.values()]
    assert not (place / "pwned").exists()
    assert not (place / "b").exists()
